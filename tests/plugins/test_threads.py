"""Threads of the page's own: a journal that hangs holds a few of them, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from fastapi import HTTPException, Request
from starlette.types import Message

from airflow_gobblin.errors import RecordError, StoreError
from airflow_gobblin.plugins.page import app as page_app
from airflow_gobblin.plugins.page import threads as page_threads
from airflow_gobblin.plugins.page.threads import Threads

HANGS = 30.0
T = TypeVar("T")


def gathered(*some: Coroutine[Any, Any, Any]) -> list[Any]:
    async def gather() -> list[Any]:
        return await asyncio.gather(*some, return_exceptions=True)

    return run(gather())


def run(some: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: this one may have a loop, of a browser's tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, some).result()


def test_what_hangs_holds_its_own_places_only() -> None:
    threads, gate = Threads(each=2, most=4, seconds=1), threading.Event()
    hanging = [threads.run("dead", "a dead one", lambda: gate.wait(HANGS)) for _ in range(45)]
    started = time.monotonic()

    async def other() -> int:
        await asyncio.sleep(0.05)
        assert sum("dead" in thread.name for thread in threading.enumerate()) == 2
        return await threads.run("alive", "another", lambda: 42)

    *late, answer = gathered(*hanging, other())
    gate.set()
    assert answer == 42
    assert {type(one) for one in late} == {StoreError}
    assert "can't look at a dead one: no answer came in 1 s" in str(late[0])
    assert time.monotonic() - started < HANGS / 2


def test_many_that_hang_hold_no_more_places_than_there_are() -> None:
    threads, gate = Threads(each=2, most=3, seconds=0.3), threading.Event()
    hanging = [threads.run(f"gone {number}", "a gone one", lambda: gate.wait(HANGS)) for number in range(10)]

    async def count() -> int:
        await asyncio.sleep(0.1)
        return sum("gone" in thread.name for thread in threading.enumerate())

    *late, running = gathered(*hanging, count())
    gate.set()
    assert running == 3
    assert {type(one) for one in late} == {StoreError}


def test_what_failed_is_not_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(page_threads, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def fail() -> None:
        asked.append(1)
        raise StoreError(operation="open", subject="a store", cause="it is down", hint="Start it.")

    async def look() -> list[str]:
        threads, errors = Threads(each=2, most=4, seconds=30, remembered=60), []
        for clock.now in (0.0, 59.5, 61.0):
            with pytest.raises(StoreError) as failed:
                await threads.run("one", "one", fail)
            errors.append(str(failed.value))
        assert await threads.run("other", "another", lambda: 1) == 1
        return errors

    first, second, third = run(look())
    assert first == third == "can't open a store: it is down. Start it."
    assert second == f"{first} It is asked again in 1 s."
    assert len(asked) == 2


def test_what_answers_late_is_asked_again_at_once() -> None:
    gate = threading.Event()

    async def look() -> int:
        threads = Threads(each=1, most=1, seconds=0.1, remembered=60)
        with pytest.raises(StoreError, match="no answer came"):
            await threads.run("one", "one", lambda: gate.wait(HANGS))
        with pytest.raises(StoreError, match="asked again in"):
            await threads.run("one", "one", lambda: 1)
        gate.set()
        for _ in range(100):
            await asyncio.sleep(0.05)
            try:
                return await threads.run("one", "one", lambda: 42)
            except StoreError:
                continue
        return 0

    assert run(look()) == 42


def test_what_is_wrong_in_a_journal_is_no_failure_of_it() -> None:
    def torn() -> None:
        raise RecordError(operation="read", subject="a record", cause="it is torn")

    async def look() -> int:
        threads = Threads(each=1, most=1, seconds=5, remembered=60)
        with pytest.raises(RecordError):
            await threads.run("one", "one", torn)
        return await threads.run("one", "one", lambda: 42)

    assert run(look()) == 42


def test_a_form_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends nothing would hold up what waits for the form, for good."""
    monkeypatch.setattr(page_app, "_FORM_SECONDS", 0.1)

    async def nothing() -> Message:
        await asyncio.sleep(HANGS)
        raise AssertionError("it was waited for")

    request = Request({"type": "http", "method": "POST", "path": "/action", "headers": []}, nothing)
    with pytest.raises(HTTPException) as refused:
        run(page_app._form(request))
    assert refused.value.status_code == 408
