"""Many calls of a storage: by threads only where these take less time than the calls themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest

from airflow_gobblin.storage.files.base import Files, each

ITEMS = range(200)


@dataclass
class Storage:
    """All that `each` asks a storage for."""

    parallel: int


def threads_of(files: Storage, seconds: float, calls: Callable[[int], int]) -> list[bool]:
    """Return for each item whether another thread than this one had it."""
    here = threading.get_ident()

    def work(item: int) -> tuple[int, bool]:
        time.sleep(seconds)
        return item, threading.get_ident() != here

    done = list(each(cast("Files", files), work, ITEMS, calls))
    assert [item for item, _ in done] == [*ITEMS]
    return [elsewhere for _, elsewhere in done]


@pytest.mark.parametrize("calls", [1, 10**6])
def test_a_storage_that_takes_one_call_at_a_time_has_no_threads(calls: int) -> None:
    assert not any(threads_of(Storage(1), 0, lambda _: calls))


def test_an_item_of_many_short_calls_shows_that_no_thread_is_worth_its_start() -> None:
    assert not any(threads_of(Storage(4), 0, lambda _: 10**6))


def test_an_item_of_many_long_calls_shows_that_threads_are() -> None:
    assert threads_of(Storage(4), 0.003, lambda _: 16) == [False, *[True] * (len(ITEMS) - 1)]


def test_items_of_few_calls_are_judged_by_the_first_ones_together() -> None:
    """A single short call shows little: it may be the first one of a connection."""
    found = threads_of(Storage(4), 0.003, lambda _: 1)
    assert all(found)
    found = threads_of(Storage(4), 0, lambda _: 15)
    assert found[:16] == [True] * 16


def test_no_item_needs_no_thread() -> None:
    assert list(each(cast("Files", Storage(4)), str, [])) == []
