"""The page of a pipeline: jobs in layers, with versions and what they wait for, as far as the user may read their DAGs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.hooks.registry import Registered
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.plugins.page import pipelines
from airflow_gobblin.plugins.page.lookup import opened
from airflow_gobblin.plugins.page.pipelines import JobView, _depths, has_versions, layers
from tests.plugins.conftest import Site
from tests.plugins.test_page import Browse, look, visit
from tests.stages.diamond import Diamond

AT = {"dag_id": "river.both", "ingestion": "both"}


def registered(diamond: Diamond, *names: str) -> list[Registered]:
    return [Registered(f"river.{name}", "create_work_units", name, diamond.journal, "/lake") for name in names]


@pytest.fixture
def diamond(tmp_path: Path) -> Diamond:
    found = Diamond(tmp_path)
    found.grow(6)
    found.rest()
    found.grow(4)
    return found


def by_name(found: tuple[tuple[JobView, ...], ...]) -> list[list[str]]:
    return [[job.name for job in layer] for layer in found]


@pytest.mark.parametrize("name", ["raw", "one", "both"])
def test_a_pipeline_has_its_jobs_in_layers_whichever_is_looked_at(diamond: Diamond, name: str) -> None:
    some = registered(diamond, "raw", "one", "two", "both", "late")
    found = layers(registered(diamond, name)[0], some)
    assert by_name(found) == [["raw"], ["one", "two"], ["both"]]
    ((raw,), (one, _), (both,)) = found
    assert raw.view is not None
    assert raw.view.newest is not None
    assert raw.stage is None
    assert one.stage is not None
    assert both.stage is not None
    assert (one.stage.behind, one.stage.lag, both.stage.behind) == (1, timedelta(seconds=4), 0)


def test_only_the_journals_of_a_pipeline_are_opened_however_many_ingestions_share_its_store(
    diamond: Diamond, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(where: Registered) -> Journal:
        read.append(where.ingestion)
        return opened(where)

    monkeypatch.setattr(pipelines, "opened", counted)
    (both,) = registered(diamond, "both")
    layers(both, registered(diamond, "raw", "one", "two", "both", *(f"other{number}" for number in range(100))))
    assert {*read} == {"raw", "one", "two", "both"}


def test_what_the_user_may_not_look_at_is_named_only(diamond: Diamond) -> None:
    both, one = registered(diamond, "both", "one")
    found = {job.name: job for layer in layers(both, [both, one]) for job in layer}
    assert {name: (job.where is None, job.view is None) for name, job in found.items()} == {
        "raw": (True, True),
        "one": (False, False),
        "two": (True, True),
        "both": (False, False),
    }


def test_a_journal_that_cannot_be_read_is_reported_beside_the_others(diamond: Diamond) -> None:
    journal = Journal.open(diamond.journal, "one", write=True)
    (key,) = (key for key in journal.store.list("one/") if "/o/" in key)
    journal.store.delete(key)
    journal.store.put_if_absent(key, b"{")
    some = registered(diamond, "raw", "one", "two", "both")
    found = {job.name: job for layer in layers(some[3], some) for job in layer}
    assert found["one"].error
    assert found["two"].stage is not None
    assert found["both"].stage is not None
    assert found["both"].stage.why.startswith("it can't go on")


def test_an_ingestion_without_stages_is_alone_and_one_without_seals_has_no_versions(diamond: Diamond) -> None:
    diamond.grow_late(3)
    (late,) = registered(diamond, "late")
    assert by_name(layers(late, registered(diamond, "one", "late"))) == [["late"]]
    assert has_versions(Journal.open(diamond.journal, "late"))
    assert has_versions(Journal.open(diamond.journal, "one"))
    assert not has_versions(Journal.create(f"file://{diamond.folder}/other", "late"))


def test_a_journal_that_is_gone_is_an_error(diamond: Diamond, tmp_path: Path) -> None:
    gone = Registered("river.both", "create_work_units", "both", f"file://{tmp_path}/none", "/lake")
    ((only,),) = layers(gone, [])
    assert "there is none" in only.error
    with pytest.raises(GobblinError):
        Journal.open(gone.journal, "both")


# In a browser


def test_the_page_shows_versions_and_what_they_wait_for(browse: Browse) -> None:
    page = visit(browse("ann"), "datasets", **AT)
    page.get_by_role("link", name="pipeline").click()
    expect(page.locator(".layers > li")).to_have_count(3)
    look(page, "pipeline")
    cards = {name: page.locator(".layers .card", has=page.get_by_role("link", name=name, exact=True)) for name in NAMES}
    expect(cards["raw"]).to_contain_text("1970-01-01T00:00:12+00:00")
    expect(cards["two"]).to_contain_text("The next run takes back 1 version: 1 slot of 'raw/a' was taken back")
    expect(cards["one"]).to_contain_text("It has all that its inputs have sealed")
    expect(cards["both"]).to_contain_text("It waits for 'two/two' to seal version 1970-01-01T00:00:12+00:00")
    expect(cards["both"]).to_contain_text("one/one: 1 version waits there, up to 1970-01-01T00:00:12+00:00")
    cards["both"].get_by_text("Taken back 1 time").click()
    expect(cards["both"]).to_contain_text("1 slot of 'one/one' was taken back")
    generation = page.locator("div", has=page.get_by_text("Generation", exact=True)).locator("dd")
    for name, number in {"one": "1", "two": "0", "both": "1"}.items():
        expect(cards[name].locator(generation)).to_have_text(number)
    cards["two"].get_by_role("link", name="two", exact=True).click()
    expect(page.get_by_role("heading", name="two")).to_be_visible()


NAMES = ("raw", "one", "two", "both")


def test_a_user_sees_the_jobs_of_the_dags_that_they_may_read(site: Site, browse: Browse) -> None:
    page = visit(browse("vera"), "pipeline", **AT)
    expect(page.locator(".layers .card", has_text="No DAG that you may look at has it.")).to_have_count(2)
    with site.client("vera") as vera:
        answer = vera.get("/gobblin/pipeline", params=AT | {"dag_id": "river.two", "ingestion": "two"})
    assert answer.status_code == 403
    assert "version" not in answer.text


def test_a_long_chain_has_a_layer_each_and_a_circle_ends() -> None:
    chain: dict[str, set[str]] = {f"job{n}": {f"job{n - 1}"} if n else set() for n in range(1200)}
    assert _depths(chain, chain) == {f"job{n}": n for n in range(1200)}
    circle = {"one": {"two"}, "two": {"one"}, "source": set[str]()}
    assert _depths(circle, circle)["source"] == 0
