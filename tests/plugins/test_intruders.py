"""An intruder, a script gone wild or a journal that hangs can do nothing to the API server that others notice."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from html import unescape

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.plugins.conftest import Site
from tests.plugins.test_access import AT, Form, ask, records, send

BIG = 47 << 20
A_FORM = {"content-type": "application/x-www-form-urlencoded"}
"""As browsers send it: anything that reads forms would read it."""
LOOKS = 45
"""More than Starlette has threads, which all of Airflow's own routes share."""
PATIENCE = 8.0
"""Seconds in which everything else is answered meanwhile, on a busy machine: below the page's own time limit."""


@pytest.fixture
def ann(site: Site) -> Iterator[httpx.Client]:
    with site.client("ann") as client:
        yield client


def big_body() -> Iterator[bytes]:
    """Endless fields, which take long to parse."""
    piece = b"a=1&" * (1 << 14)
    for _ in range(BIG // len(piece)):
        yield piece


@pytest.mark.parametrize(("user", "status"), [("nemo", 403), (None, 401), ("vera", 403), ("ann", 413)])
def test_a_big_body_is_not_read(site: Site, user: str | None, status: int) -> None:
    with site.client(user) as client:
        started = time.monotonic()
        at = {"dag_id": "shop", "ingestion": "lab"}
        answer = client.post("/gobblin/action", params=at, headers=A_FORM, content=big_body())
        assert answer.status_code == status
        assert time.monotonic() - started < PATIENCE


def test_fields_without_end_are_refused(ann: httpx.Client) -> None:
    answer = ann.post("/gobblin/action", params=AT, headers=A_FORM, content=b"a=1&" * 1000)
    assert answer.status_code == 400


@pytest.fixture
def silent(site: Site) -> Iterator[None]:
    """A server that accepts connections to the journal of DAG `swamp`, and never answers."""
    with closing(socket.create_server(("127.0.0.1", site.swamp), backlog=100)):
        yield


def test_a_journal_that_does_not_answer_takes_nothing_along(site: Site, ann: httpx.Client, silent: None) -> None:
    where, others = AT | {"dag_id": "swamp"}, ("/api/v2/version", "/api/v2/monitor/health", "/gobblin/datasets")
    with site.client("ann") as client, ThreadPoolExecutor(LOOKS) as pool:
        client.timeout = 120
        looks = [pool.submit(client.get, "/gobblin/datasets", params=where) for _ in range(LOOKS)]
        time.sleep(1)
        for path in others:
            started = time.monotonic()
            assert ann.get(path, params=AT).status_code == 200
            assert time.monotonic() - started < PATIENCE
        answers = [look.result() for look in looks]
    assert {answer.status_code for answer in answers} == {503}
    assert all("ingestion 'lab'" in unescape(answer.text) for answer in answers)
    started = time.monotonic()
    again = ann.get("/gobblin/counts", params=where)
    assert (again.status_code, "asked again in" in again.text) == (503, True)
    assert time.monotonic() - started < PATIENCE / 2


# Odd input

ODD = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [str(2**63), str(2**64), "-1", "1e999", "NaN", "[" * 4000, "{" * 4000 + "}" * 4000, "9" * 4000, "\0", "\ufeff"]
    ),
    st.sampled_from(
        ["orders", "lab", "shop", "stock", "prices", "rewind", "verify", "abandon", "stuck", "[1, 2]", "5"]
    ),
)
PATHS = ("", "datasets", "counts", "dataset", "pipeline", "kept", "run", "open", "action", "nothing", "static/x")


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],  # on a busy machine
)
@given(
    path=st.sampled_from(PATHS),
    method=st.sampled_from(["GET", "GET", "POST", "HEAD", "PUT"]),
    odd=st.dictionaries(
        st.sampled_from(["dag_id", "ingestion", "urn", "action", "to", "start", "search", "only", "run_id"]),
        ODD,
        max_size=2,  # an address has an end
    ),
    origin=st.sampled_from([None, "http://[", "http://[::1", "null", "\x7f", "http://x:99999", "://", "é"]),
)
@example(path="dataset", method="GET", odd={"start": str(2**63)}, origin=None)
@example(path="datasets", method="GET", odd={"start": str(2**63)}, origin=None)
@example(path="", method="GET", odd={"start": str(2**63), "dag_id": ""}, origin=None)
@example(path="action", method="GET", odd={"action": "rewind", "to": "[" * 4000}, origin=None)
@example(path="action", method="GET", odd={"action": "rewind", "to": "[" + "9" * 4000 + "]"}, origin=None)
@example(path="dataset", method="GET", odd={"urn": "\0"}, origin=None)
@example(path="action", method="POST", odd={}, origin="http://[")
def test_odd_input_is_refused_and_nothing_breaks(
    ann: httpx.Client, path: str, method: str, odd: dict[str, str], origin: str | None
) -> None:
    headers = {} if origin is None else {b"origin": origin.encode()}
    answer = ann.request(method, f"/gobblin/{path}", params=AT | odd, headers=headers)
    assert answer.status_code < 500, answer.text
    if answer.text == "Invalid HTTP request received.":  # by the server itself, before it reaches the page
        return
    if answer.status_code >= 400 and method == "GET" and answer.status_code != 404:
        assert '<section class="card ask failed"' in answer.text


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null"])
def test_an_origin_that_is_none_is_another_site(site: Site, ann: httpx.Client, origin: str) -> None:
    before = records(site)
    assert send(ann, ask(ann, "release", urn="stock"), origin=origin).status_code == 403
    assert records(site) == before


def test_a_ticket_acts_where_it_was_asked_for(ann: httpx.Client, site: Site) -> None:
    before = records(site)
    ticket = ask(ann, "release", urn="stock").ticket
    assert send(ann, Form("action?dag_id=vault&ingestion=lab", ticket)).status_code == 403
    assert records(site) == before
