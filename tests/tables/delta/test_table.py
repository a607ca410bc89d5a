"""A Delta table as a target, by the real library, on a disk and in an S3 server."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import ConfigurationError, SchemaConflictError, TableError, TableMovedError
from airflow_gobblin.model import wire
from airflow_gobblin.model.table import DataFile, Mark, Owner, TableUnit
from airflow_gobblin.rows.sinks.table_files import TableFiles
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.delta import table as delta_table
from airflow_gobblin.tables.delta.table import OpenDeltaTable
from airflow_gobblin.tables.delta.types import delta_schema
from airflow_gobblin.tables.layout import unit_folder
from airflow_gobblin.tables.port import Change, Count, Look, Merge, PartitionField, table_of
from tests.services.s3 import CONNECTION, S3Server

OWNER = Owner("journal-1", "shop", "main.orders")
OTHER = Owner("journal-2", "shop", "main.orders")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.int64())])
TOKEN = "0123456789abcdef0123456789abcdef"


@dataclass
class Place:
    """A place for a table, and what tests do there."""

    record: DeltaLakeTable
    connections: Connections

    def open(self) -> OpenDeltaTable:
        """Open the table anew, as another process would."""
        opened = table_of(self.record).open(self.connections, open_files("/tmp"))
        assert isinstance(opened, OpenDeltaTable)
        return opened

    @property
    def foreign(self) -> DeltaTable:
        """The table, as others open it."""
        return DeltaTable(self.record.url, storage_options=self.options)

    @property
    def options(self) -> dict[str, str] | None:
        """How others reach it."""
        return delta_table._storage_options(self.record, self.connections)

    def made(self, partition: tuple[PartitionField, ...] = (), schema: pa.Schema = SCHEMA) -> OpenDeltaTable:
        """Create the table, for its owner."""
        opened = self.open()
        opened.create(OWNER, schema, partition)
        return opened

    def staged(self, rows: pa.Table, token: str = TOKEN, unit: str = "u1", **others: Any) -> DataFile:
        """Stage a data file."""
        sink = BytesIO()
        pq.write_table(rows, sink)
        data, path = sink.getvalue(), f"data/gobblin/{token}/1/{unit}-r/{others.pop('number', 0)}.parquet"
        if self.record.place is None:
            file = Path(self.record.location, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        else:
            open_filesystem(self.record.place, self.connections).pipe_file(f"{self.record.place.path}/{path}", data)
        return DataFile(path, len(data), len(rows), unit, **others)

    def rows(self) -> list[dict[str, Any]]:
        """Read the table, as others do."""
        found = self.foreign.to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: json.dumps(row, default=str))


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        folder = tmp_path / "a table, é"
        folder.mkdir()
        return Place(DeltaLakeTable(str(folder)), NoConnections())
    server: S3Server = request.getfixturevalue("versitygw")
    bucket: str = request.getfixturevalue("bucket")
    return Place(DeltaLakeTable(f"s3://{CONNECTION}@{bucket}/lake/orders"), server.access)


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    (tmp_path / "table").mkdir()
    return Place(DeltaLakeTable(str(tmp_path / "table")), NoConnections())


def rows(*ids: int, name: str = "n", at: int = 0) -> pa.Table:
    return pa.table({"id": ids, "name": [name] * len(ids), "at": [at] * len(ids)}, schema=SCHEMA)


def adding(*files: DataFile, **others: Any) -> Change:
    return Change(files=lambda: iter(files), count=len(files), rows=sum(one.rows for one in files), **others)


def mark(slot: int, token: str = TOKEN, *, done: bool = True) -> Mark:
    return Mark(slot, token, done)


def commit(place: Place, slot: int, *files: DataFile, token: str = TOKEN, **others: Any) -> Look:
    """Look, and commit a slot."""
    table = place.open()
    table.commit(table.look(OWNER), adding(*files, **others), OWNER, mark(slot, token))
    return table.look(OWNER)


@pytest.mark.slow
def test_a_commit_adds_files_and_moves_the_mark(place: Place) -> None:
    assert place.open().look(OWNER) == Look(id="")
    table = place.made()
    empty = table.look(OWNER)
    assert (empty.owner, empty.mark, empty.in_history, empty.schema) == (OWNER, None, True, SCHEMA)
    file = place.staged(rows(1, 2))
    look = commit(place, 3, file)
    assert (look.id, look.owner, look.mark, look.in_history, look.form) == (empty.id, OWNER, mark(3), True, empty.form)
    assert [row["id"] for row in place.rows()] == [1, 2]
    assert table.count([(TOKEN, "u1"), (TOKEN, "u2")]) == {(TOKEN, "u1"): Count(1, 2)}
    assert table.total() == Count(1, 2)
    recorded = place.foreign.history(1)[0]["gobblin"]
    assert (recorded["slot"], recorded["token"], recorded["done"]) == (3, TOKEN, True)


@pytest.mark.parametrize(
    "token", ["", "t", "seven77", "fourteen-bytes", "ä-token of fifty bytes, which is rather a lot", TOKEN]
)
@pytest.mark.parametrize("done", [True, False])
def test_a_mark_is_read_as_it_was_put_also_after_a_longer_one(disk: Place, token: str, done: bool) -> None:
    table = disk.made()
    long, short = mark(2**30, "x" * 64), mark(2**30 + 1, token, done=done)
    table.commit(table.look(OWNER), Change(), OWNER, long)
    table.commit(table.look(OWNER), Change(), OWNER, short)
    disk.foreign.create_checkpoint()
    assert disk.open().look(OWNER).mark == short
    assert disk.open().look(OTHER).mark is None


@pytest.mark.slow
def test_a_late_commit_after_a_fence_or_after_the_same_commit_changes_nothing(place: Place) -> None:
    table = place.made()
    file, before = place.staged(rows(1)), table.look(OWNER)
    place.open().commit(table.look(OWNER), Change(), OWNER, mark(1, done=False))
    with pytest.raises(TableMovedError):
        table.commit(before, adding(file), OWNER, mark(1))
    look = table.look(OWNER)
    assert look.mark == mark(1, done=False)
    table.commit(look, adding(file), OWNER, mark(2, "second"))
    with pytest.raises(TableMovedError):
        place.open().commit(look, adding(file), OWNER, mark(2, "second"))
    assert [row["id"] for row in place.rows()] == [1]


@pytest.mark.slow
def test_of_two_that_commit_at_once_one_is_moved(place: Place) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    place.made()
    files, barrier = [place.staged(rows(number), unit=f"u{number}") for number in range(4)], Barrier(4)

    def attempt(number: int) -> bool:
        table = place.open()
        look = table.look(OWNER)
        barrier.wait()
        try:
            table.commit(look, adding(files[number]), OWNER, mark(1, f"token-{number}"))
        except TableMovedError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(attempt, range(4)))
    assert sum(won) == 1
    assert [row["id"] for row in place.rows()] == [won.index(True)]
    assert place.open().look(OWNER).mark == mark(1, f"token-{won.index(True)}")


def test_a_lost_answer_of_a_put_that_is_sent_again_is_a_commit(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = disk.made()
    look, put = table.look(OWNER), table._store.put_if_absent

    def twice(key: str, data: bytes) -> bool:
        put(key, data)
        return put(key, data)

    monkeypatch.setattr(table._store, "put_if_absent", twice)
    table.commit(look, adding(disk.staged(rows(1))), OWNER, mark(1))
    assert table.look(OWNER).mark == mark(1)
    assert disk.open().total() == Count(1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["append", "delete", "compact", "vacuum"])
def test_a_foreign_commit_is_reported_and_a_new_look_commits_on_it(place: Place, act: str) -> None:
    table = place.made()
    first = commit(place, 1, place.staged(rows(1, 2)))
    look = table.look(OWNER)
    if act == "append":
        write_deltalake(place.foreign, rows(9), mode="append")
    elif act == "delete":
        place.foreign.delete("id = 1")
    elif act == "compact":
        commit(place, 2, place.staged(rows(3), "t2"), token="t2")
        look = table.look(OWNER)
        place.foreign.optimize.compact()
    else:
        place.foreign.delete("id = 1")
        look = table.look(OWNER)
        place.foreign.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    file = place.staged(rows(5), "t3")
    with pytest.raises(TableMovedError):
        table.commit(look, adding(file), OWNER, mark(3, "t3"))
    again = table.look(OWNER)
    assert (again.in_history, again.form, again.mark) == (True, first.form, look.mark)
    table.commit(again, adding(file), OWNER, mark(3, "t3"))
    expected = {"append": [1, 2, 5, 9], "delete": [2, 5], "compact": [1, 2, 3, 5], "vacuum": [2, 5]}[act]
    assert [row["id"] for row in place.rows()] == expected


@pytest.mark.slow
def test_a_table_that_was_set_back_is_not_in_its_history_until_its_next_mark(place: Place) -> None:
    table = place.made()
    commit(place, 1, place.staged(rows(1)))
    look = table.look(OWNER)
    assert look.in_history
    place.foreign.restore(0)
    place.foreign.create_checkpoint()
    with pytest.raises(TableMovedError):
        table.commit(look, adding(place.staged(rows(2), "t2")), OWNER, mark(2, "t2"))
    back = table.look(OWNER)
    assert (back.mark, back.in_history) == (mark(1), False)
    write_deltalake(place.foreign, rows(9), mode="append")
    assert not table.look(OWNER).in_history
    table.commit(table.look(OWNER), Change(), OWNER, mark(2, done=False))
    assert table.look(OWNER).in_history


def test_a_table_that_is_dropped_or_made_anew_takes_no_late_commit(disk: Place) -> None:
    table = disk.made()
    look, file = table.look(OWNER), disk.staged(rows(1))
    folder = Path(disk.record.location, "_delta_log")
    shutil.rmtree(folder)
    assert table.look(OWNER) == Look(id="")
    with pytest.raises(TableMovedError):
        table.commit(look, adding(file), OWNER, mark(1))
    disk.made()
    assert table.look(OWNER).id not in ("", look.id)
    with pytest.raises(TableMovedError):
        table.commit(look, adding(file), OWNER, mark(1))
    assert table.total() == Count()


@pytest.mark.parametrize("act", ["all expired", "one expired", "made anew"])
def test_an_entry_under_the_number_of_an_expired_one_is_not_taken_for_a_commit(
    disk: Place, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    table = disk.made()
    look, late, put = table.look(OWNER), disk.staged(rows(9), "late"), table._put

    def put_late(*entry: Any) -> bool:
        if act == "made anew":
            shutil.rmtree(Path(disk.record.location, "_delta_log"))
            disk.made()
            return put(*entry)
        for slot in (1, 2, 3):
            commit(disk, slot, disk.staged(rows(slot), f"t{slot}"), token=f"t{slot}")
        disk.foreign.create_checkpoint()
        for version in (0, 1, 2) if act == "all expired" else (1,):
            Path(disk.record.location, f"_delta_log/{version:020}.json").unlink()
        return put(*entry)

    monkeypatch.setattr(table, "_put", put_late)  # all of that happens between its last look and its entry
    with pytest.raises(TableError, match="isn't there"):
        table.commit(look, adding(late), OWNER, mark(1, "late"))
    if act != "made anew":
        assert disk.open().look(OWNER).mark == mark(3, "t3")
        assert disk.open().total().rows == 3


@pytest.mark.slow
def test_units_leave_in_the_commit_that_replaces_them(place: Place) -> None:
    table = place.made()
    commit(place, 1, place.staged(rows(1, 2), unit="a-b"), place.staged(rows(3), unit="c"))
    new = place.staged(rows(7), "t2", "a-b")
    with pytest.raises(TableError, match="somebody compacted"):
        commit(place, 2, new, token="t2", removes=(TableUnit(TOKEN, "a-b", 2, 2),))
    assert table.look(OWNER).mark == mark(1)
    commit(place, 2, new, token="t2", removes=(TableUnit(TOKEN, "a-b", 1, 2),))
    assert [row["id"] for row in place.rows()] == [3, 7]
    write_deltalake(place.foreign, rows(9), mode="append")
    commit(place, 3, place.staged(rows(8), "t3"), token="t3", removes_all=True)
    assert [row["id"] for row in place.rows()] == [8]
    place.foreign.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert [row["id"] for row in place.rows()] == [8]


@pytest.mark.slow
def test_columns_are_added_in_the_commit_and_nothing_else_is_changed(place: Place) -> None:
    table = place.made()
    look = commit(place, 1, place.staged(rows(1)))
    wider = SCHEMA.append(pa.field("extra", pa.string()))
    more = pa.table({"id": [2], "name": ["n"], "at": [0], "extra": ["e"]}, schema=wider)
    after = commit(place, 2, place.staged(more, "t2"), token="t2", schema=wider)
    assert (after.schema, after.id) == (wider, look.id)
    assert after.form != look.form
    assert [row["extra"] for row in place.rows()] == [None, "e"]
    for refused in (
        SCHEMA.remove(0),
        wider.set(0, pa.field("id", pa.string())),
        wider.append(pa.field("needed", pa.int64(), nullable=False)),
    ):
        with pytest.raises(SchemaConflictError, match=r"column '(id|needed|extra)'"):
            commit(place, 3, token="t3", schema=refused)
    assert table.look(OWNER).mark == mark(2, "t2")


@pytest.mark.slow
def test_a_foreign_table_becomes_ours_with_the_first_commit_and_anothers_by_taking_it_over(place: Place) -> None:
    write_deltalake(place.record.url, rows(9), storage_options=place.options)
    table = place.open()
    look = table.look(OWNER)
    assert (look.owner, look.mark) == (None, None)
    first = commit(place, 1, place.staged(rows(1)))
    assert (first.owner, first.form) == (OWNER, look.form)
    assert table.look(OTHER).owner == OWNER
    late = table.look(OWNER)
    place.open().take_over(table.look(OTHER), OTHER)
    assert table.look(OWNER).owner == OTHER
    with pytest.raises(TableMovedError):
        table.commit(late, adding(place.staged(rows(2), "t2")), OWNER, mark(2, "t2"))
    look = table.look(OTHER)
    table.commit(look, Change(), OTHER, mark(1, "other"))
    assert table.look(OTHER).mark == mark(1, "other")
    assert [row["id"] for row in place.rows()] == [1, 9]


@pytest.mark.slow
def test_partitions_are_columns_with_values_that_are_no_paths(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("c", pa.string()), ("d", pa.date32())])
    table = place.made((PartitionField("c"), PartitionField("d")), schema)
    assert table.look(OWNER).partition == (PartitionField("c"), PartitionField("d"))
    values = ["DE/ä=%25", None, "x" * 1000, "..", "a b"]
    day = dt.date(1850, 2, 3)
    files = [
        place.staged(
            pa.table({"id": [number], "c": [value], "d": [day]}, schema=schema),
            number=number,
            partition=(value, (day - dt.date(1970, 1, 1)).days),
        )
        for number, value in enumerate(values)
    ]
    commit(place, 1, *files)
    found = {row["id"]: (row["c"], row["d"]) for row in place.rows()}
    assert found == {number: (value, day) for number, value in enumerate(values)}
    assert len(place.foreign.to_pyarrow_table(filters=[("c", "=", "DE/ä=%25")])) == 1
    with pytest.raises(TableError, match="empty text"):
        commit(place, 2, place.staged(rows(1), "t2", partition=("", None)), token="t2")
    assert table.look(OWNER).mark == mark(1)


MERGE = Merge(("id",), "at", ("pos",))
MERGED = pa.schema([("id", pa.int64()), ("v", pa.string()), ("at", pa.int64()), ("pos", pa.int64())])


def versions(*found: tuple[int, str, int | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(MERGED.names, one, strict=True)) for one in found], schema=MERGED)


@pytest.mark.slow
def test_a_merge_keeps_the_newest_version_of_each_key_and_is_carried_out_once(place: Place) -> None:
    table = place.made(schema=MERGED)
    commit(place, 1, place.staged(versions((1, "a", 5, 0), (2, "b", 5, 0), (1, "old", 4, 9))), merge=MERGE)
    second = place.staged(versions((1, "later", 6, 0), (2, "tie", 5, 1), (3, "c", None, 0), (2, "same", 5, 0)), "t2")
    before = table.look(OWNER)
    commit(place, 2, second, token="t2", merge=MERGE)
    with pytest.raises(TableMovedError):
        table.commit(before, adding(second, merge=MERGE), OWNER, mark(2, "t2"))
    commit(place, 3, place.staged(versions((1, "late", 1, 9), (3, "d", 0, 0)), "t3"), token="t3", merge=MERGE)
    assert [(row["id"], row["v"]) for row in place.rows()] == [(1, "later"), (2, "tie"), (3, "d")]
    assert table.look(OWNER).mark == mark(3, "t3")


@pytest.mark.slow
def test_a_merge_that_others_overtake_is_moved_and_succeeds_on_a_new_look(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.made(schema=MERGED)
    commit(place, 1, place.staged(versions((1, "a", 5, 0))), merge=MERGE)
    look, newest = table.look(OWNER), table._newest
    file = place.staged(versions((1, "b", 6, 0)), "t2")

    def overtaken(change: Change, merge: Merge) -> pa.Table:
        other = place.open()
        other.commit(other.look(OWNER), Change(), OWNER, mark(2, "t2", done=False))
        return newest(change, merge)

    monkeypatch.setattr(table, "_newest", overtaken)
    with pytest.raises(TableMovedError):
        table.commit(look, adding(file, merge=MERGE), OWNER, mark(2, "t2"))
    assert table.look(OWNER).mark == mark(2, "t2", done=False)
    assert [row["v"] for row in place.rows()] == ["a"]


@pytest.mark.slow
def test_merges_equal_a_dict_on_random_versions(disk: Place) -> None:
    from random import Random

    random, table = Random(7), disk.made(schema=MERGED)
    kept: dict[int, tuple[tuple[int, int], str]] = {}
    for slot in range(1, 9):
        some = [
            (random.randrange(12), f"{slot}-{number}", random.choice([None, *range(9)]), 100 * slot + number)
            for number in range(random.randrange(1, 15))
        ]
        commit(disk, slot, disk.staged(versions(*some), f"t{slot}"), token=f"t{slot}", merge=MERGE)
        for key, value, at, position in some:
            newness = (-1 if at is None else at, position)
            if key not in kept or kept[key][0] < newness:
                kept[key] = newness, value
    assert {row["id"]: row["v"] for row in disk.rows()} == {key: value for key, (_, value) in kept.items()}
    assert table.total().rows == len(kept)


def test_a_merge_of_null_keys_or_of_too_much_is_refused(disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = disk.made(schema=MERGED)
    nothing = pa.table({"id": [None], "v": ["a"], "at": [1], "pos": [1]}, schema=MERGED)
    same = disk.staged(versions((1, "a", 1, 1), (1, "b", 1, 1)), unit="same")
    with pytest.raises(TableError, match="1 row too many"):
        commit(disk, 1, same, merge=MERGE)
    with pytest.raises(TableError, match="null in column 'id'"):
        commit(disk, 1, disk.staged(nothing), merge=MERGE)
    assert table.look(OWNER).mark is None
    monkeypatch.setattr(delta_table, "MERGED_BYTES", 10)
    commit(disk, 1, disk.staged(versions((1, "a", 1, 1)), unit="u2"), merge=MERGE)  # as it is: there are no rows yet
    with pytest.raises(TableError, match="at most 10 are merged"):
        commit(disk, 2, disk.staged(versions((1, "a", 1, 1)), "t2", unit="u2"), token="t2", merge=MERGE)
    assert table.look(OWNER).mark == mark(1)


def test_columns_of_a_table_that_is_merged_into_are_added_apart(disk: Place) -> None:
    """deltalake's merge would give the table another id, and lose its owner."""
    table = disk.made(schema=MERGED)
    commit(disk, 1, disk.staged(versions((1, "a", 1, 1))), merge=MERGE)
    look, wide = table.look(OWNER), MERGED.append(pa.field("more", pa.string()))
    file = disk.staged(pa.table({"id": [1], "v": ["b"], "at": [2], "pos": [2], "more": ["m"]}, schema=wide), "t2")
    with pytest.raises(TableError, match="gives a table another id"):
        commit(disk, 2, file, token="t2", merge=MERGE, schema=wide)
    table.change_columns(look, OWNER, wide)
    after = table.look(OWNER)
    assert (after.id, after.owner, after.mark) == (look.id, look.owner, look.mark)
    with pytest.raises(TableMovedError):
        table.change_columns(look, OWNER, wide)
    commit(disk, 2, file, token="t2", merge=MERGE)
    assert table.look(OWNER).id == look.id
    assert [(row["v"], row["more"]) for row in disk.rows()] == [("b", "m")]


@pytest.mark.slow
def test_a_merge_makes_a_foreign_table_ours_first(place: Place) -> None:
    write_deltalake(place.record.url, versions((1, "a", 5, 0)), storage_options=place.options)
    table, file = place.open(), place.staged(versions((1, "b", 6, 0)))
    with pytest.raises(TableMovedError):
        table.commit(table.look(OWNER), adding(file, merge=MERGE), OWNER, mark(1))
    assert table.look(OWNER).owner == OWNER
    commit(place, 1, file, merge=MERGE)
    assert [row["v"] for row in place.rows()] == ["b"]


@pytest.mark.parametrize(
    ("configuration", "named"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 1 days"}, "setTransactionRetentionDuration"),
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
    ],
)
def test_a_table_that_asks_for_what_is_not_done_is_refused_by_name(
    disk: Place, configuration: dict[str, str], named: str
) -> None:
    DeltaTable.create(disk.record.url, schema=SCHEMA, configuration=configuration)
    with pytest.raises(TableError, match=named):
        disk.open().look(OWNER)


def test_from_a_table_that_only_grows_nothing_leaves(disk: Place) -> None:
    DeltaTable.create(disk.record.url, schema=SCHEMA, configuration={"delta.appendOnly": "true"})
    commit(disk, 1, disk.staged(rows(1)))
    with pytest.raises(TableError, match=r"delta\.appendOnly"):
        commit(disk, 2, token="t2", removes_all=True)


def test_a_checkpoint_is_made_where_one_is_due(disk: Place) -> None:
    DeltaTable.create(disk.record.url, schema=SCHEMA, configuration={"delta.checkpointInterval": "3"})
    for slot in range(1, 5):
        commit(disk, slot, disk.staged(rows(slot), f"t{slot}"), token=f"t{slot}")
    assert Path(disk.record.location, "_delta_log/00000000000000000003.checkpoint.parquet").exists()
    assert disk.open().look(OWNER).mark == mark(4, "t4")
    assert disk.open().total() == Count(4, 4)


def values() -> Iterator[tuple[pa.DataType, Any]]:
    utc = dt.UTC
    yield from ((pa.int8(), -1), (pa.int16(), -2), (pa.int32(), -3), (pa.int64(), 2**62), (pa.bool_(), True))
    yield from ((pa.float32(), 0.5), (pa.float64(), float("inf")), (pa.string(), "ä\0"), (pa.binary(), b"\xff\0"))
    yield from ((pa.date32(), dt.date(1582, 1, 1)), (pa.decimal128(38, 10), Decimal("-1.0000000001")))
    yield pa.timestamp("us", "UTC"), dt.datetime(1850, 1, 1, 1, 2, 3, 456789, utc)
    yield pa.timestamp("us"), dt.datetime(1850, 1, 1, 1, 2, 3, 456789)  # noqa: DTZ001
    yield pa.list_(pa.field("element", pa.int64())), [1, None]
    yield (
        pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.list_(pa.field("element", pa.string())))]),
        {"a": 1, "b": []},
    )


@pytest.mark.slow
def test_types_round_trip(place: Place) -> None:
    kinds = list(values())
    schema = pa.schema([pa.field(f"c{number}", kind) for number, (kind, _) in enumerate(kinds)])
    table = place.made(schema=schema)
    assert table.look(OWNER).schema == schema
    row = {f"c{number}": value for number, (_, value) in enumerate(kinds)}
    commit(place, 1, place.staged(pa.Table.from_pylist([row, dict.fromkeys(row)], schema=schema)))
    found = place.foreign.to_pyarrow_table()
    assert found.schema == schema
    assert found.to_pylist() == [row, dict.fromkeys(row)]


REFUSED = (
    pa.uint64(),
    pa.time64("us"),
    pa.duration("s"),
    pa.timestamp("ns"),
    pa.decimal256(50, 2),
    pa.null(),
    pa.float16(),
)


@pytest.mark.parametrize("kind", REFUSED, ids=str)
@pytest.mark.parametrize("within", [lambda kind: kind, pa.list_, lambda kind: pa.struct([("x", kind)])])
def test_what_delta_can_not_hold_is_refused_by_column(
    kind: pa.DataType, within: Callable[[pa.DataType], pa.DataType]
) -> None:
    with pytest.raises(SchemaConflictError, match="column 'bad"):
        delta_schema(pa.schema([("good", pa.int64()), ("bad", within(kind))]), "a table")


@pytest.mark.parametrize("names", [("a", "A"), ("a", "b c"), ("", "b")])
def test_names_that_delta_can_not_hold_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(SchemaConflictError, match="its name"):
        delta_schema(pa.schema([(name, pa.int64()) for name in names]), "a table")


@pytest.mark.parametrize(
    "field",
    [PartitionField("at", "bucket", 4), PartitionField("gone"), PartitionField("blob"), PartitionField("price")],
    ids=str,
)
def test_partitions_that_delta_lacks_are_refused_by_column(disk: Place, field: PartitionField) -> None:
    with pytest.raises(SchemaConflictError, match=f"column '{field.column}'"):
        disk.made((field,), pa.schema([*SCHEMA, ("blob", pa.binary()), ("price", pa.decimal128(9, 2))]))
    assert disk.open().look(OWNER).id == ""


def test_a_record_names_its_table_without_its_connection() -> None:
    record = DeltaLakeTable("s3://lake@bucket/a/b")
    assert (record.name, record.connection_ids) == ("Delta table 's3://bucket/a/b'", ("lake",))
    assert wire.loads(wire.dumps(record), DeltaLakeTable, "it") == record
    assert DeltaLakeTable("file:///a/b").name == DeltaLakeTable("/a/b").name
    for wrong in ("relative", "gs://bucket/a", "s3://bucket/a?b"):
        with pytest.raises(ConfigurationError):
            DeltaLakeTable(wrong)


def test_rows_are_found_by_the_statistics_of_files_that_were_written_for_the_table(disk: Place) -> None:
    utc = dt.UTC
    found: dict[str, tuple[pa.DataType, list[Any]]] = {
        "n": (pa.int64(), [-5, 7]),
        "d": (pa.date32(), [dt.date(1582, 1, 1), dt.date(2026, 1, 2)]),
        "z": (
            pa.timestamp("us", "UTC"),
            [dt.datetime(1850, 1, 1, 0, 0, 0, 999, utc), dt.datetime(2026, 1, 1, 0, 0, 0, 1, utc)],
        ),
        "c": (pa.decimal128(30, 4), [Decimal("-99999999999999999999.0001"), Decimal("0.1")]),
        "f": (pa.float64(), [-0.5, 1e300]),
        "t": (pa.string(), ["a" * 100, "\U0010ffff" * 100]),
    }
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in found.items()])
    table = disk.made((PartitionField("z"),), schema)
    writer = TableFiles(
        schema, open_files(disk.record.location), unit_folder(TOKEN, "1", "u-r"), "u", partition=(PartitionField("z"),)
    )
    for number in (0, 1):
        values = {name: [some[number]] for name, (_, some) in found.items()}
        writer.write(pa.RecordBatch.from_pydict(values, schema))
    writer.close()
    commit(disk, 1, *writer.data_files)
    assert table.count([(TOKEN, "u")]) == {(TOKEN, "u"): Count(2, 2)}
    log = Path(disk.record.location, "_delta_log/00000000000000000001.json").read_text()
    assert '"partitionValues":{"z":"1850-01-01T00:00:00.000999Z"}' in log, "another reader's zone is another one"
    for name, (_, some) in found.items():
        for value in some:
            assert disk.foreign.to_pyarrow_table(filters=[(name, "=", value)])[name].to_pylist() == [value]
