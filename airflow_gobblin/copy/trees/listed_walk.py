"""The walk of a tree that is listed folder by folder, with the next folders listed ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from airflow_gobblin.copy.entries import Entry, EntryKind, key_of
from airflow_gobblin.copy.trees.base import joined
from airflow_gobblin.storage.files.base import OWN_FOLDER

_AHEAD = 8
"""The number of folders in a folder that are listed ahead."""

Listing = Callable[[str], Sequence[Entry]]
"""A function that returns what is in a folder, in any order.

:raises FileNotFoundError: there is no such folder.
"""


def walk_listed(listing: Listing, folder: str, enter: Callable[[str], bool], at_once: int) -> Iterator[Entry]:
    """Yield everything below a folder. See `Tree.walk`.

    :param at_once: the number of folders worth listing at once.
    """
    pool = ThreadPoolExecutor(at_once, "listing")
    try:
        yield from _below(_listed(listing, folder), listing, enter, pool)
    finally:
        pool.shutdown(cancel_futures=True)


def folders_listed(listing: Listing, folder: str) -> Iterator[str]:
    """Yield the names of the folders in a folder, in order. See `Tree.folders`."""
    found = (entry for entry in _listed(listing, folder) if entry.kind is EntryKind.FOLDER)
    return iter([entry.path.rpartition("/")[2] for entry in found])


def _listed(listing: Listing, folder: str) -> list[Entry]:
    own = joined(folder, OWN_FOLDER)
    return [entry for entry in sorted(listing(folder), key=key_of) if entry.path != own]


def _below(
    entries: list[Entry], listing: Listing, enter: Callable[[str], bool], pool: ThreadPoolExecutor
) -> Iterator[Entry]:
    """Yield the entries of a folder, and after each folder what is in it."""
    inner = iter([one.path for one in entries if one.kind is EntryKind.FOLDER and enter(one.path)])
    begun: deque[tuple[str, Future[Sequence[Entry]]]] = deque()

    def begin() -> None:
        for path in inner:
            begun.append((path, pool.submit(listing, path)))
            if len(begun) >= _AHEAD:
                return

    begin()
    for entry in entries:
        yield entry
        if begun and begun[0][0] == entry.path and entry.kind is EntryKind.FOLDER:
            _, found = begun.popleft()
            begin()
            yield from _below(sorted(found.result(), key=key_of), listing, enter, pool)
