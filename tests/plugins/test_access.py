"""Permissions to see and to act: Airflow doesn't authenticate the applications of plugins, so their routes must."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import unescape
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from fastapi.routing import APIRoute
from starlette.routing import Mount

from airflow_gobblin.hooks.registry import Registered
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.plugins.page import access
from airflow_gobblin.plugins.page.access import Ticket, read_ticket, sign
from airflow_gobblin.plugins.page.app import app
from tests.lab import Lab, stick
from tests.plugins.conftest import EVIL, Site, made
from tests.protocol.rows import Table

AT = {"dag_id": "shop", "ingestion": "lab", "urn": "orders", "action": "verify", "run_id": "one"}
REFUSED = ("anonymous", "nemo", "vera")


def routes() -> Iterator[tuple[str, str]]:
    """Each route of the page, with its method. A route that something else mounts is not ours, and fails the test."""
    for route in app.routes:
        if isinstance(route, Mount):
            assert route.path == "/static"
            continue
        assert isinstance(route, APIRoute)
        for method in route.methods:
            yield method, route.path


@pytest.fixture(scope="module", params=["anonymous", "nemo"])
def stranger(request: pytest.FixtureRequest, site: Site) -> Iterator[tuple[str, httpx.Client]]:
    """Nobody, or a user without any right."""
    with site.client(None if request.param == "anonymous" else request.param) as client:
        yield request.param, client


@pytest.fixture
def ann(site: Site) -> Iterator[httpx.Client]:
    with site.client("ann") as client:
        yield client


@pytest.fixture
def vera(site: Site) -> Iterator[httpx.Client]:
    with site.client("vera") as client:
        yield client


@dataclass(frozen=True)
class Form:
    """A confirmation, as a browser has it: its address and its ticket."""

    address: str
    ticket: str


def ask(client: httpx.Client, action: str = "verify", **words: str) -> Form:
    """The form of a confirmation."""
    answer = client.get("/gobblin/action", params=AT | {"action": action} | words)
    assert answer.status_code == 200, answer.text
    (address,) = re.findall(r'<form method="post" action="([^"]+)"', answer.text)
    (ticket,) = re.findall(r'name="ticket" value="([^"]+)"', answer.text)
    return Form(unescape(address), unescape(ticket))


def send(client: httpx.Client, form: Form, reason: str = "because", **headers: str) -> httpx.Response:
    data = {"ticket": form.ticket, "reason": reason}
    return client.post(f"/gobblin/{form.address}", data=data, headers=headers)


def records(site: Site, dag_id: str = "shop") -> dict[str, Any]:
    store = site.journal(dag_id).store
    return {key: store.get(key) for key in store.list("")}


@pytest.mark.parametrize(("method", "path"), [*routes()])
@pytest.mark.parametrize("dag_id", ["shop", "vault", "bakery", "no-such-dag", ""])
def test_a_stranger_is_refused_everywhere(
    stranger: tuple[str, httpx.Client], method: str, path: str, dag_id: str
) -> None:
    who, client = stranger
    answer = client.request(method, f"/gobblin{path}", params=AT | {"dag_id": dag_id})
    assert answer.status_code == (401 if who == "anonymous" else 403)
    assert "orders" not in answer.text


def test_there_are_no_other_routes(ann: httpx.Client) -> None:
    assert {path for _, path in routes()} == {
        "/",
        "/datasets",
        "/counts",
        "/dataset",
        "/pipeline",
        "/kept",
        "/run",
        "/open",
        "/action",
    }
    for path in ("docs", "redoc", "openapi.json", "static/", "static/../app.py", "static/%2e%2e/app.py"):
        assert ann.get(f"/gobblin/{path}").status_code == 404


@pytest.mark.parametrize("name", ["page.css", "page.js", "icon.svg", "icon-dark.svg"])
def test_what_is_static_is_open(site: Site, name: str) -> None:
    with site.client() as nobody:
        assert nobody.get(f"/gobblin/static/{name}").status_code == 200


def test_who_may_look_sees_only_the_dags_that_they_may_read(ann: httpx.Client, vera: httpx.Client) -> None:
    everything, some = ann.get("/gobblin/").text, vera.get("/gobblin/").text
    assert "vault" in everything
    assert "shop" in some
    assert "vault" not in some
    for path in ("datasets", "dataset", "counts", "run", "?"):
        answer = vera.get(f"/gobblin/{path}", params=AT | {"dag_id": "vault", "urn": "gold"})
        assert answer.status_code == 403
        assert "gold" not in answer.text


def test_who_may_look_may_not_act(site: Site, ann: httpx.Client, vera: httpx.Client) -> None:
    before = records(site)
    assert "Rewind" not in vera.get("/gobblin/dataset", params=AT).text
    assert vera.get("/gobblin/action", params=AT).status_code == 403
    theirs = ask(ann, "release", urn="stock")
    forged = Ticket("vera", "shop", "lab", "stock", "release", "", "1 x")
    assert send(vera, replace(theirs, ticket=sign(forged))).status_code == 403
    assert send(ann, replace(theirs, ticket=sign(forged))).status_code == 403  # this process signs with another key
    assert send(vera, theirs).status_code == 403
    assert records(site) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
    ids=str,
)
def test_another_site_can_t_act_even_with_a_ticket(site: Site, ann: httpx.Client, headers: dict[str, str]) -> None:
    before = records(site)
    assert send(ann, ask(ann, "release", urn="stock"), **headers).status_code == 403
    assert records(site) == before


@pytest.mark.parametrize("ticket", ["", "x", "eyJhIjoxfQ.aaaa.bbbb"])
def test_without_a_ticket_nothing_is_done(site: Site, ann: httpx.Client, ticket: str) -> None:
    before = records(site)
    assert send(ann, Form("action?dag_id=shop&ingestion=lab", ticket)).status_code == 403
    assert records(site) == before


@pytest.mark.parametrize("reason", ["", " \n", "x" * 2001])
def test_a_reason_is_needed(site: Site, ann: httpx.Client, reason: str) -> None:
    before = records(site)
    answer = send(ann, ask(ann, "release", urn="stock"), reason)
    assert answer.status_code == 400
    assert "Say why" in answer.text
    assert records(site) == before


def test_a_changed_ticket_is_none(ann: httpx.Client) -> None:
    form = ask(ann)
    changed = form.ticket[:-2] + ("aa" if not form.ticket.endswith("aa") else "bb")
    assert send(ann, replace(form, ticket=changed)).status_code == 403
    assert send(ann, form).status_code == 200


def test_tickets_end_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    class Someone:
        def get_id(self) -> str:
            return "ann"

    ticket = Ticket("ann", "shop", "lab", "orders", "verify", "", "1 x")
    assert sign(ticket) != sign(ticket)
    where = Registered("shop", "create_work_units", "lab", "/journal", "/lake")
    assert read_ticket(sign(ticket), where, Someone()) == ticket  # type: ignore[arg-type]
    monkeypatch.setattr(access, "_SECONDS", -1)
    with pytest.raises(HTTPException, match="too old"):
        read_ticket(sign(ticket), where, Someone())  # type: ignore[arg-type]


def test_looking_changes_nothing(site: Site, ann: httpx.Client) -> None:
    before = records(site)
    for method, path in routes():
        for urn in ("orders", "stock", "prices", "public.visits", EVIL):
            if method == "GET":
                assert ann.get(f"/gobblin{path}", params=AT | {"urn": urn}).status_code in (200, 303)
                ann.get(f"/gobblin{path}", params=AT | {"dag_id": "garden", "urn": urn})
    assert records(site) == before
    assert not (site.folder / "never").exists()
    assert not (site.folder / "garden").exists()


def test_pages_take_nothing_from_elsewhere_and_aren_t_kept(ann: httpx.Client) -> None:
    for path in ("", "datasets", "dataset", "action", "nothing"):
        answer = ann.get(f"/gobblin/{path}", params={} if not path else AT)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", answer.text)
        assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", answer.text)


# Two tabs


SPOOL = Table("spool", ExtractKind.APPEND_ONLY, 10)


def quarantined(site: Site, urn: str) -> tuple[Lab, dict[str, str]]:
    """An ingestion with a dataset that is quarantined at slot 1, and the address of its action."""
    lab = made(site.folder / "forge")
    stick(lab, replace(SPOOL, urn=urn))
    return lab, {"dag_id": "forge", "urn": urn}


@pytest.mark.parametrize(("first", "second"), [("release", "abandon"), ("abandon", "release")])
def test_what_was_shown_before_another_tab_did_something_is_not_done(
    site: Site, ann: httpx.Client, first: str, second: str
) -> None:
    lab, where = quarantined(site, f"thread-{first}")
    one, other = ask(ann, first, **where), ask(ann, second, **where)
    assert send(ann, one).status_code == 200
    before = lab.records()
    for ticket in (other, one):
        answer = send(ann, ticket)
        assert answer.status_code == 409
        assert "it has changed since this was shown; nothing was done" in unescape(answer.text)
    assert lab.records() == before


def test_a_release_that_was_sent_releases_no_later_quarantine(site: Site, ann: httpx.Client) -> None:
    lab, where = quarantined(site, "needles")
    ticket = ask(ann, "release", **where)
    assert send(ann, ticket).status_code == 200
    lab.reopened()
    lab.run(replace(SPOOL, urn="needles"))
    assert lab.reopened().state("needles").quarantined
    before = lab.records()
    assert send(ann, ticket).status_code == 409
    assert lab.records() == before


def test_a_pending_dataset_is_not_rewound(site: Site, ann: httpx.Client) -> None:
    lab = made(site.folder / "forge")
    lab.run(replace(SPOOL, urn="yarn"))
    where = {"dag_id": "forge", "urn": "yarn"}
    ticket = ask(ann, "rewind", to="5", **where)
    lab.decide(replace(SPOOL, urn="yarn", rows=12))
    before = lab.records()
    answer = ann.get("/gobblin/action", params=AT | {"action": "rewind", "to": "5"} | where)
    assert (answer.status_code, "slot 2 is pending" in answer.text) == (400, True)
    assert send(ann, ticket).status_code == 409
    assert lab.records() == before


def test_what_the_source_has_removed_is_not_rewound(site: Site, ann: httpx.Client) -> None:
    lab = made(site.folder / "forge")
    felt = replace(SPOOL, urn="felt", kept_from=0)
    lab.run(felt)
    lab.run(replace(felt, rows=felt.rows + 2, kept_from=5))
    before = lab.records()
    where = {"dag_id": "forge", "urn": "felt", "action": "rewind"}
    answer = ann.get("/gobblin/action", params=AT | where | {"to": "5"})
    assert answer.status_code == 400
    assert "of which the source has removed or changed rows since" in unescape(answer.text)
    assert lab.records() == before
    assert ann.get("/gobblin/action", params=AT | where | {"to": "8"}).status_code == 200


def test_of_two_rewinds_one_is_made(site: Site, ann: httpx.Client) -> None:
    lab = made(site.folder / "forge")
    lab.run(replace(SPOOL, urn="wool"))
    one, other = (ask(ann, "rewind", dag_id="forge", urn="wool", to=to) for to in ("8", "4"))
    assert send(ann, one).status_code == 200
    before = lab.records()
    assert send(ann, other).status_code == 409
    assert lab.records() == before
    assert lab.reopened().state("wool").watermark == LongWatermark(8)
