"""The storage port of the journal: write-once records by key, and nothing else.

A key is a relative path of plain names, `flights/main.trips/d/0000000001`. A backend raises only two errors: `StoreError` if
nothing was written, and `UnknownOutcomeError` if the record may exist. `open_store` finds the backend by URL and probes it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from airflow_gobblin.errors import ConfigurationError, NotFoundError, RecordError, StoreError, UnreliableStoreError


class Store(Protocol):
    """Write-once records. Every method may raise `StoreError`, or `UnknownOutcomeError` where a write may have happened."""

    @property
    def name(self) -> str:
        """The store's name in errors, without secrets."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write a record unless it exists. Durable on return.

        :return: `True` if it was created, `False` if it exists.
        """

    def get(self, key: str) -> bytes | None:
        """Return a record, or `None` if there is none."""

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield each record, or `None` if there is none, in the order of the keys; only a bounded number of them is in memory."""

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with `prefix`, sorted. Includes every record put before the call."""

    def delete(self, key: str) -> None:
        """Remove a record; harmless if there is none."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove many records, in any order; harmless where there is none.

        After an error some may be gone, and after a power failure some may exist again: only for records that no longer count. If
        a store has folders, a folder named by a number is removed with its last record.
        """

    def close(self) -> None:
        """Release connections."""


class ReadOnlyStore:
    """A store that can be read, and refuses writes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.name

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return self._store.get_many(keys)

    def list(self, prefix: str) -> Iterator[str]:
        return self._store.list(prefix)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        raise self._refused("write", key)

    def delete(self, key: str) -> None:
        raise self._refused("delete", key)

    def delete_many(self, keys: Sequence[str]) -> None:
        raise self._refused("delete", next(iter(keys), ""))

    def close(self) -> None:
        self._store.close()

    def _refused(self, operation: str, key: str) -> ConfigurationError:
        return ConfigurationError(
            operation=operation,
            subject=f"record {key!r} in {self.name}",
            cause="the store was opened to be read",
            hint="Open the journal by `Journal.open(…, write=True)` to change it.",
        )


_TRIES = 5
_PAUSE = 0.05


def put_or_read(store: Store, key: str, data: bytes) -> tuple[bytes, bool]:
    """Put a record until one exists, no matter whose (rule 4, I12).

    "Exists" may mean our own write whose answer was lost; after an error "absent" is still uncertain, so the same bytes are put
    again.

    :return: the stored bytes, and whether they are known to be created by this call.
    :raises StoreError: several tries failed.
    """
    for left in reversed(range(_TRIES)):
        try:
            if store.put_if_absent(key, data):
                return data, True
            stored = store.get(key)
            if stored is not None:
                return stored, False
        except StoreError:
            if left == 0:
                raise
        time.sleep(_PAUSE * (_TRIES - left))  # a mounted file system may show a new file with a delay
    raise RecordError(
        operation="write",
        subject=f"record {key!r} in {store.name}",
        cause="the store reports that it exists, and that it doesn't",
        hint="The store can't be relied on; move the journal to a SQL database.",
    )


def no_journal(place: str, hint: str = "") -> NotFoundError:
    """Return the error for a missing journal.

    :param hint: alternatives to waiting for its first run.
    """
    return NotFoundError(
        operation="open",
        subject=f"the journal at {place}",
        cause="there is none",
        hint=f"It is made by the first run, or by `airflow gobblin import`. {hint}".rstrip(),
    )


PROBE_WRITERS = 4


def probe(store: Store, *, race: bool = True) -> None:
    """Check that a store is reliable: it creates once, keeps its records, accepts empty ones, and lists them.

    :param race: also let writers race; the full probe, run once for a store.
    :raises UnreliableStoreError: it isn't; the cause is the finding.
    """
    prefix = f"_probe/{uuid.uuid4().hex}"
    keys = [f"{prefix}-{name}" for name in ("create", "empty", "race")]  # a separate folder would be left over
    try:
        with _probing(store):
            _expect(store, store.get(keys[0]) is None, "a record exists that nobody wrote")
            _expect(store, _create(store, keys[0], b"one"), "a first create was answered with 'exists'")
            _expect(store, not store.put_if_absent(keys[0], b"two"), "a second create was answered with 'created'")
            _expect(store, store.get(keys[0]) == b"one", "a second create changed the record")
            _expect(store, _create(store, keys[1], b""), "an empty record was not created")
            _expect(store, not store.put_if_absent(keys[1], b"x"), "an empty record was created again")
            _expect(store, store.get(keys[1]) == b"", "an empty record was not kept")
            _expect(store, list(store.list(prefix)) == keys[:2], "the listing doesn't show what was written")
            if race:
                _race(store, keys[2])
            for key in keys:
                store.delete(key)
            _expect(store, not list(store.list(prefix)), "a deleted record is still listed")
    finally:
        for key in keys:
            try:
                store.delete(key)
            except StoreError:  # the findings matter more than a left-over probe
                break


def _create(store: Store, key: str, data: bytes) -> bool:
    """Return whether a record was created: "exists" may mean our own write, whose answer was lost."""
    return store.put_if_absent(key, data) or store.get(key) == data


@contextmanager
def _probing(store: Store) -> Iterator[None]:
    try:
        yield
    except UnreliableStoreError:
        raise
    except StoreError as error:
        raise StoreError(
            operation="open",
            subject=store.name,
            cause=error.cause,
            hint=error.hint or "It must be reachable and allow to write, read, list and delete.",
        ) from error


def _race(store: Store, key: str) -> None:
    answers: list[bool | BaseException] = []
    start = threading.Barrier(PROBE_WRITERS)

    def write(writer: int) -> None:
        start.wait()
        try:
            answers.append(store.put_if_absent(key, b"writer %d" % writer))
        except StoreError as error:
            answers.append(error)

    _together(write)
    if any(isinstance(a, BaseException) for a in answers):
        raise next(a for a in answers if isinstance(a, BaseException))
    stored = store.get(key)
    _expect(store, answers.count(True) <= 1, f"of {PROBE_WRITERS} racing creates {answers.count(True)} won")
    _expect(store, stored in [b"writer %d" % n for n in range(PROBE_WRITERS)], "of racing creates none won")


def _together(write: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=write, args=(n,)) for n in range(PROBE_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _expect(store: Store, holds: bool, finding: str) -> None:
    if not holds:
        raise UnreliableStoreError(
            operation="rely on",
            subject=store.name,
            cause=finding,
            hint="Keep the journal in a SQL database instead: 'postgresql://…', or 'sqlite:////…' for one host.",
        )
