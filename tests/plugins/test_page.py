"""The page in a real browser: what it shows of datasets in every state, and its actions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from airflow_gobblin import DeltaSink
from airflow_gobblin.journal.records import Action, NoteKind, OutcomeState
from airflow_gobblin.links import page_address
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from tests.lab import stick
from tests.plugins.conftest import EVIL, MANY, Site, made
from tests.proofs import one_in
from tests.protocol.rows import Table

Browse = Callable[..., Page]
AT = {"dag_id": "shop", "ingestion": "lab"}


def inside(page: Page, path: str, **words: Any) -> FrameLocator:
    """The page in Airflow's frame, at an address of its own."""
    page.goto(f"/plugin/gobblin/gobblin/{path}?{urlencode({**AT, **words})}")
    return page.frame_locator("iframe")


def visit(page: Page, path: str, **words: Any) -> Page:
    """Open the page by itself, at an address of its own: a browser takes ten times as long with Airflow's UI around it."""
    page.goto(f"/gobblin/{path}?{urlencode({**AT, **words} if path else {})}")
    return page


def look(page: Page, name: str) -> None:
    """Keep a picture for people, if the environment asks for it."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.wait_for_timeout(300)
        page.screenshot(path=Path(folder) / f"{name}.png")


def column(page: Page, number: int) -> list[str]:
    """A column of the only list."""
    return page.locator(f".list tbody td:nth-child({number})").all_inner_texts()


@one_in(2)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_in_airflow_s_navigation_and_looks_as_airflow_does(browse: Browse, dark: bool) -> None:
    page, theme = browse("ann", dark=dark), "dark" if dark else "light"
    page.goto("/")
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="Gobblin").click()
    frame = page.frame_locator("iframe")
    shop = frame.locator("tr", has_text="shop")
    expect(shop).to_contain_text("6")
    expect(shop).to_contain_text("1 quarantined")
    expect(shop).to_contain_text("1 pending")
    look(page, f"{theme}-ingestions")
    shop.get_by_role("link", name="lab").click()
    expect(frame.get_by_role("heading", name="lab")).to_be_visible()
    look(page, f"{theme}-datasets")
    for urn in ("orders", "stock", "prices"):
        frame.get_by_role("link", name=urn).click()
        expect(frame.get_by_role("heading", name=urn)).to_be_visible()
        look(page, f"{theme}-{urn}")
        page.go_back()
    content = page.frames[1]
    assert content.evaluate("() => document.documentElement.dataset.theme") == theme
    fonts = "() => getComputedStyle(document.body).fontFamily"
    assert content.evaluate(fonts) == page.evaluate(fonts)
    colour = "(element) => getComputedStyle(document.querySelector(element)).backgroundColor"
    assert content.evaluate(colour, "body") == page.evaluate(colour, "html")


def test_a_theme_that_is_chosen_in_airflow_counts_at_once(browse: Browse) -> None:
    page = browse("ann", dark=False)
    inside(page, "datasets").get_by_role("heading", name="lab").wait_for()
    page.get_by_role("button", name="User").click()
    page.get_by_role("menuitem", name="Appearance").hover()
    page.get_by_role("menuitemradio", name="Dark Mode").click()
    page.frames[1].wait_for_function("() => document.documentElement.dataset.theme === 'dark'")


def test_a_list_shows_each_dataset(browse: Browse) -> None:
    page = visit(browse("vera"), "datasets")
    expect(page.locator(".list tbody tr")).to_have_count(6)
    rows = {line.split("\t")[0].strip(): line for line in page.locator(".list tbody tr").all_inner_texts()}
    assert list(rows) == ["countries", "orders", "prices", "public.visits", EVIL, "stock"]
    assert "39" in rows["orders"]
    assert "pending" in rows["prices"]
    assert "slot 2, 7 steps" in rows["prices"]
    assert "quarantined" in rows["stock"]
    assert "1 failed run" in rows["stock"]
    assert "5 h " in rows["public.visits"]  # 12 minutes, and as long as it took to come here
    page.get_by_role("link", name="Unfinished").click()
    expect(page.locator(".list tbody tr")).to_have_count(2)
    assert column(page, 1) == ["prices", "stock"]


def test_what_is_held_is_listed_though_it_was_never_published(browse: Browse) -> None:
    card = visit(browse("ann"), "datasets", dag_id="vault").locator(".card")
    expect(card).to_contain_text("Held until more waits for a batch: 2 datasets")
    expect(card).to_contain_text("tin: 7 rows, about 42 B, wait until 100 rows")
    expect(card).to_contain_text(EVIL)
    expect(visit(browse("ann"), "datasets").locator(".card")).to_have_count(0)


def test_a_search_finds_any_part_of_a_urn(browse: Browse) -> None:
    page = visit(browse("vera"), "datasets")
    page.get_by_role("searchbox").fill("</SCRIPT>")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator(".list tbody tr")).to_have_count(1)
    assert column(page, 1) == [EVIL]
    page.get_by_role("searchbox").fill("nothing of the kind")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_text("No dataset has")).to_be_visible()


def test_ten_thousand_datasets_are_paged_and_searched(browse: Browse) -> None:
    page = browse("ann")
    visit(page, "datasets", dag_id="mall")
    expect(page.get_by_text(f"1 to 50 of {MANY:,}")).to_be_visible()
    first = column(page, 1)
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text(f"51 to 100 of {MANY:,}")).to_be_visible()
    assert not set(first) & set(column(page, 1))
    page.get_by_role("link", name="Before").click()
    expect(page.get_by_text(f"1 to 50 of {MANY:,}")).to_be_visible()
    assert column(page, 1) == first
    for wanted, found in (("SHOP 0000", 5), ("stall_0000", 5), ("mall.", MANY), ("shop 09999", 1)):
        page.get_by_role("searchbox").fill(wanted)
        page.get_by_role("searchbox").press("Enter")
        expect(page.get_by_text(f"of {found:,}", exact=False)).to_be_visible()
    page.get_by_role("link", name="Mall.Shop 09999").click()
    expect(page.get_by_role("heading", name="Mall.Shop 09999")).to_be_visible()
    expect(page.locator("dl")).to_contain_text("9999")


def test_a_urn_is_text_and_nothing_else(browse: Browse) -> None:
    page = browse("ann")
    visit(page, "datasets")
    page.get_by_role("link", name=EVIL).click()
    expect(page.get_by_role("heading", name=EVIL)).to_be_visible()
    assert page.title() == EVIL
    page.get_by_role("link", name="Verify").click()
    page.get_by_label("Reason").fill(EVIL)
    page.get_by_role("button", name="Verify").click()
    done = page.get_by_role("status")
    expect(done).to_contain_text("Files ok")
    expect(done).to_contain_text("26")
    assert page.title() == f"Verified {EVIL}"


def test_a_dataset_shows_its_history_and_its_coverage(browse: Browse) -> None:
    page = visit(browse("vera"), "dataset", urn="orders")
    expect(page.locator("dl")).to_contain_text("39")
    assert column(page, 1) == [str(slot) for slot in range(13, 0, -1)]
    assert page.locator(".coverage rect.covered").count() == 1
    assert page.locator(".chart").first.locator("rect").count() == 13
    assert "slot 1, done: 3 rows" in page.locator(".chart").first.locator("rect title").first.inner_html()
    pending = visit(browse("vera"), "dataset", urn="prices")
    expect(pending.get_by_role("heading", name="Slot 2 is pending")).to_be_visible()
    assert pending.locator(".coverage rect.pending").count() == 6
    assert pending.locator(".card tbody tr").count() == 7


def test_dead_letters_are_counted_beside_the_rows_of_their_slot(browse: Browse) -> None:
    page = visit(browse("ann"), "dataset", dag_id="vault", urn="coins")
    assert column(page, 8) == ["3\n3 dead letters"]


def test_a_quarantined_dataset_shows_why(browse: Browse) -> None:
    page = visit(browse("vera"), "dataset", urn="stock")
    expect(page.get_by_role("heading", name="Slot 1 is quarantined")).to_be_visible()
    expect(page.locator(".failures")).to_contain_text("neither it nor its staged file")
    expect(page.locator(".card h3")).to_contain_text("lost 2")


def test_a_dataset_that_cannot_be_read_stops_no_other(browse: Browse) -> None:
    page = browse("ann")
    visit(page, "datasets", dag_id="vault")
    expect(page.locator("tr", has_text="gold")).to_contain_text("ok")
    torn = page.locator("tr", has_text="torn")
    expect(torn).to_contain_text("unreadable")
    expect(torn).to_contain_text("can't read")
    expect(visit(page, "dataset", dag_id="vault", urn="torn").get_by_role("alert")).to_contain_text("can't read")


def test_an_ingestion_that_never_ran_is_shown_as_such(browse: Browse) -> None:
    page = visit(browse("ann"), "datasets", dag_id="garden")
    expect(page.get_by_role("alert")).to_contain_text("It is made by the first run")


def test_it_is_on_the_pages_of_a_dag(browse: Browse) -> None:
    page = browse("ann")
    page.goto("/dags/shop")
    page.get_by_role("link", name="Gobblin").click()
    frame = page.frame_locator("iframe")
    frame.get_by_role("link", name="orders").click()
    expect(frame.get_by_role("heading", name="orders")).to_be_visible()
    page.goto("/dags/bakery/plugin/gobblin_dag")
    expect(frame.get_by_text("has no ingestion")).to_be_visible()
    frame.get_by_role("link", name="bakery").click()
    page.wait_for_url("**/dags/bakery")


def test_a_link_of_a_task_leads_into_airflow_s_ui(browse: Browse) -> None:
    page = browse("ann")
    page.goto("/" + page_address("shop", "lab", EVIL))
    expect(page.frame_locator("iframe").get_by_role("heading", name=EVIL)).to_be_visible()
    page.goto("/" + page_address("shop", "lab"))
    expect(page.frame_locator("iframe").get_by_role("heading", name="lab")).to_be_visible()
    page.get_by_role("link", name="Dags").click()
    page.wait_for_url("**/dags")


def test_what_can_t_be_is_reported(browse: Browse) -> None:
    page = browse("ann")
    expect(visit(page, "dataset", urn="order").get_by_role("alert")).to_contain_text("Did you mean 'orders'")
    expect(visit(page, "dataset", dag_id="vautl").get_by_role("alert")).to_contain_text("Forbidden")
    visit(page, "dataset", urn="orders")
    page.get_by_label("Rewind to").fill("yesterday")
    page.get_by_role("button", name="Rewind").click()
    expect(page.get_by_role("alert")).to_contain_text("not a watermark of kind 'long'")


# Its actions; each on a dataset of its own


def act(frame: Page | FrameLocator, name: str, reason: str) -> None:
    """Confirm an action that is shown."""
    frame.get_by_label("Reason").fill(reason)
    frame.get_by_role("button", name=name).click()
    frame.get_by_role("status").wait_for()


def test_a_release(site: Site, browse: Browse) -> None:
    stick(made(site.folder / "forge"), Table("pens", ExtractKind.APPEND_ONLY, 4))
    page = browse("ann")
    frame = inside(page, "dataset", dag_id="forge", urn="pens")
    frame.get_by_role("link", name="Release").click()
    expect(frame.locator("dl")).to_contain_text("neither it nor its staged file")
    look(page, "release")
    act(frame, "Release", "the disk is back")
    frame.get_by_role("link", name="Back to the dataset").click()
    expect(frame.get_by_role("heading", name="Slot 1 is pending")).to_be_visible()
    expect(frame.locator(".list")).to_contain_text("released by ann the disk is back")
    note = site.journal("forge").notes("pens", 1)[-1]
    assert (note.event, note.actor, note.detail) == (NoteKind.RELEASED, "ann", "the disk is back")
    wanted = {"event": "gobblin_release", "dag_id": "forge"}
    entries = site.airflow.request("GET", "eventLogs", params=wanted)["event_logs"]
    (entry,) = (one for one in entries if json.loads(one["extra"])["urn"] == "pens")  # others were released here, too
    assert (entry["owner"], entry["dag_id"]) == ("ann", "forge")
    assert "the disk is back" in entry["extra"]


def test_an_abandon(site: Site, browse: Browse) -> None:
    lab = made(site.folder / "forge")
    lab.run(Table("ink", ExtractKind.APPEND_ONLY, 4))
    lab.admin.release_claim("ink", "it moves away")
    lab.decide(Table("ink", ExtractKind.APPEND_ONLY, 8))
    page = visit(browse("ann"), "dataset", dag_id="forge", urn="ink")
    page.get_by_role("link", name="Abandon").click()
    expect(page.locator("dl")).to_contain_text("[4, ")
    act(page, "Abandon", "wrong table")
    page.get_by_role("link", name="Back to the dataset").click()
    expect(page.locator(".list")).to_contain_text("abandoned by ann wrong table")
    expect(page.locator(".list")).to_contain_text("claim released by ann it moves away")
    outcome = site.journal("forge").history("ink").slots[-1].outcome
    assert outcome is not None
    assert (outcome.state, outcome.actor, outcome.reason) == (OutcomeState.ABANDONED, "ann", "wrong table")


def test_a_rewind(site: Site, browse: Browse) -> None:
    lab = made(site.folder / "forge", Table("paper", ExtractKind.APPEND_ONLY, 10))
    lab.run()
    page = visit(browse("ann"), "dataset", dag_id="forge", urn="paper")
    page.get_by_label("Rewind to").fill("5")
    page.get_by_role("button", name="Rewind").click()
    details = page.locator("dl")
    expect(details).to_contain_text("[4, 10)")
    act(page, "Rewind", "amounts were wrong")
    history = site.journal("forge").history("paper")
    decision = history.slots[-1].decision
    assert (decision.action, decision.actor, decision.reason) == (Action.REWIND, "ann", "amounts were wrong")
    assert history.state.watermark == LongWatermark(4)


def test_an_action_is_refused_when_the_dataset_has_changed_since(site: Site, browse: Browse) -> None:
    lab = made(site.folder / "forge", Table("glue", ExtractKind.APPEND_ONLY, 10))
    lab.run()
    page = visit(browse("ann"), "action", dag_id="forge", urn="glue", action="rewind", to="5")
    page.get_by_label("Reason").fill("amounts were wrong")
    lab.run(Table("glue", ExtractKind.APPEND_ONLY, 12))
    before = lab.records()
    page.get_by_role("button", name="Rewind").click()
    expect(page.get_by_role("alert")).to_contain_text("it has changed since this was shown; nothing was done")
    assert lab.records() == before


def test_a_verification_finds_what_is_missing(site: Site, browse: Browse) -> None:
    lab = made(site.folder / "forge", Table("tape", ExtractKind.APPEND_ONLY, 8))
    lab.run()
    lab.files("tape")[0].unlink()
    page = visit(browse("ann"), "dataset", dag_id="forge", urn="tape")
    page.get_by_role("link", name="Verify").click()
    act(page, "Verify", "the disk was full")
    expect(page.locator("tbody")).to_contain_text("missing")


def test_units_that_were_not_published_are_listed_with_what_went_wrong(site: Site, browse: Browse) -> None:
    table = Table("nail", ExtractKind.APPEND_ONLY, 10)
    lab = made(site.folder / "forge", table)
    lab.ingestion = replace(lab.ingestion, policy=CommitPolicy.SUCCESSFUL)
    lab.run(table, units=("nail:u1",))
    page = visit(browse("ann"), "dataset", dag_id="forge", urn="nail")
    listed = page.locator("section", has_text="Not published by the newest run").locator("tbody tr td")
    assert (listed.all_inner_texts()[0].split(), listed.count()) == (["u1"], 2)
    assert listed.all_inner_texts()[1] == lab.journal.history("nail").state.previous_units[1].why


def test_a_dataset_in_a_table_shows_the_version_that_each_slot_left_and_opens_no_table(
    site: Site, browse: Browse
) -> None:
    table = Table("anvil", ExtractKind.APPEND_ONLY, 10)
    lab, place = made(site.folder / "forge", table), f"{site.folder}/forge/tables/{{dataset}}"
    lab.ingestion = replace(lab.ingestion, sink=DeltaSink(place, str(lab.folder)))
    lab.run()
    lab.run(replace(table, rows=14))
    page = visit(browse("ann"), "dataset", dag_id="forge", urn="anvil")
    expect(page.locator("header")).to_contain_text(f"Delta table '{place.replace('{dataset}', 'anvil')}'")
    assert (column(page, 7), column(page, 9)) == (["2", "1"], ["4", "10"])
    for name in ("Verify", "Rewind"):
        assert page.get_by_text(name, exact=True).count() == 0
    lab.decide(replace(table, rows=20))
    page = visit(browse("ann"), "dataset", dag_id="forge", urn="anvil")
    expect(page.locator(".card tbody")).to_contain_text("`airflow gobblin show` looks at the table")
    refused = visit(browse("ann"), "action", dag_id="forge", urn="anvil", action="abandon")
    expect(refused.get_by_role("alert")).to_contain_text("which the page doesn't open")
