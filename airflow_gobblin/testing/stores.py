"""The contract of stores: what the journal relies on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from airflow_gobblin.storage.stores.base import Store, probe, put_or_read
from airflow_gobblin.testing.threads import together

__all__ = ["StoreContract"]

WRITERS = 8
RECORDS = 25
"""The number of records that writers race for."""
MANY = 510
"""The number of records of a bulk call."""


class StoreContract:
    """The suite of every `Store`. Override the fixture `open_store`."""

    @pytest.fixture
    def open_store(self) -> Callable[[], Store]:
        """Return a function that opens the same empty store again and again, as other processes would; the suite closes it."""
        raise NotImplementedError("override the fixture `open_store`")

    @pytest.fixture
    def another(self, open_store: Callable[[], Store]) -> Iterator[Callable[[], Store]]:
        """Open the store once more; closed at the end."""
        opened: list[Store] = []

        def open_again() -> Store:
            opened.append(open_store())
            return opened[-1]

        yield open_again
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, another: Callable[[], Store]) -> Store:
        """Open the store."""
        return another()

    def test_it_passes_the_probe(self, store: Store) -> None:
        probe(store)
        assert list(store.list("_probe/")) == []

    def test_a_record_is_created_once_and_never_changes(self, store: Store, another: Callable[[], Store]) -> None:
        assert store.get("a/b") is None
        assert store.put_if_absent("a/b", b"one")
        assert not store.put_if_absent("a/b", b"two")
        assert another().get("a/b") == b"one"
        assert not another().put_if_absent("a/b", b"three")
        assert store.get("a/b") == b"one"

    # aiohttp would rather have a large body as a file, which the clients of GCS and ADLS don't pass.
    @pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
    @pytest.mark.parametrize("data", [b"", b"\0\xff\n", b"x" * 3_000_000], ids=["empty", "binary", "3 MB"])
    def test_any_bytes_are_kept(self, store: Store, another: Callable[[], Store], data: bytes) -> None:
        assert store.put_if_absent("k", data)
        assert another().get("k") == data
        assert not store.put_if_absent("k", b"other")
        assert another().get("k") == data

    def test_many_records_come_in_the_order_of_their_keys(self, store: Store) -> None:
        keys = [f"m/{number:04d}" for number in range(MANY)]
        written = set(keys[::7])
        for key in written:
            store.put_if_absent(key, key.encode())
        asked = keys[::-1]
        assert list(store.get_many(asked)) == [(k, k.encode() if k in written else None) for k in asked]
        assert list(store.get_many([])) == []

    def test_a_prefix_lists_the_keys_that_begin_with_it_sorted(self, store: Store) -> None:
        keys = [
            "i/a/d/0000000002",
            "i/a/d/0000000010",
            "i/a-b/d/0000000001",
            "i/a.b/x",
            "i/B/x",
            "i2/a/x",
            "i/a/é",
            "i/a/o/1",
        ]
        for key in keys:
            store.put_if_absent(key, key.encode())
        for prefix in (
            "",
            "i/",
            "i/a/",
            "i/a/d/",
            "i/a",
            "i/a/d/00000000",
            "i/a/d/0000000010",
            "nothing/",
            "i/%",
            "i_a",
        ):
            assert list(store.list(prefix)) == sorted(k for k in keys if k.startswith(prefix)), prefix

    def test_a_record_is_listed_at_once_by_others(self, store: Store, another: Callable[[], Store]) -> None:
        other = another()
        for number in range(20):
            store.put_if_absent(f"l/{number:02d}", b"")
            assert len(list(other.list("l/"))) == number + 1

    def test_a_delete_is_harmless_twice_and_frees_the_key(self, store: Store) -> None:
        store.put_if_absent("k/1", b"a")
        store.delete("k/1")
        store.delete("k/1")
        assert store.get("k/1") is None
        assert list(store.list("k")) == []
        assert store.put_if_absent("k/1", b"b")
        assert store.get("k/1") == b"b"

    def test_many_records_are_deleted_whether_they_exist_or_not(self, store: Store) -> None:
        keys = [f"m/{number % 7}/{number:04d}" for number in range(MANY)]
        for key in keys[::9]:
            store.put_if_absent(key, b"")
        store.put_if_absent("m/other", b"")
        store.delete_many(keys)
        store.delete_many([])
        assert list(store.list("m/")) == ["m/other"]

    def test_a_key_beside_a_folder_of_its_name_is_its_own(self, store: Store) -> None:
        assert store.put_if_absent("a/b", b"1")
        assert store.put_if_absent("a/bc/d", b"2")
        assert store.get("a/bc") is None
        assert store.get("a/b/c") is None

    def test_of_racing_threads_one_wins_each_record(self, another: Callable[[], Store]) -> None:
        stores = [another() for _ in range(WRITERS)]
        won: list[tuple[str, int]] = []
        for key in (f"race/{number}" for number in range(RECORDS)):

            def write(writer: int, key: str = key) -> None:
                if stores[writer].put_if_absent(key, b"%d" % writer):
                    won.append((key, writer))

            together(write, WRITERS)
        one_winner_each(won, another())

    def test_a_put_is_settled_by_reading_back(self, store: Store) -> None:
        assert put_or_read(store, "s", b"mine") == (b"mine", True)
        assert put_or_read(store, "s", b"other") == (b"mine", False)

    def test_it_has_a_name_for_errors(self, store: Store) -> None:
        assert store.name


def one_winner_each(won: list[tuple[str, int]], store: Store) -> None:
    """Check that `RECORDS` records were won by one writer each, whose number is the record.

    :param won: the key and the writer of each creation.
    """
    assert Counter(key for key, _ in won) == Counter(f"race/{number}" for number in range(RECORDS))
    for key, writer in won:
        assert store.get(key) == b"%d" % writer
