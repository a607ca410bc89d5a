"""Iceberg tables with real pyiceberg, in a catalog on SQLite with files on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.errors import ConfigurationError, GobblinError, TableError, TableMovedError
from airflow_gobblin.model.table import ColumnStatistics, DataFile, Mark, Owner, TableUnit
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.tables.iceberg import IcebergTable, OpenIcebergTable
from airflow_gobblin.tables.port import Change, Count, Look, PartitionField

OWNER = Owner("journal-1", "lake", "main.flights")
OTHER = Owner("journal-2", "lake", "main.flights")
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


class Given:
    """Connections by their ids."""

    def __init__(self, **uris: str) -> None:
        self._uris = uris

    def uri(self, conn_id: str) -> str:
        return self._uris[conn_id]


class Lake:
    """A catalog, and what is put into a table of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.record = IcebergTable("catalog", "raw.flights")
        self.uri = f"sqlite://{root}/catalog.db?warehouse={quote(f'file://{root}/warehouse', safe='')}"
        self._opened: list[OpenIcebergTable] = []

    def open(self) -> OpenIcebergTable:
        """As another process has it."""
        opened = self.record.open(Given(catalog=self.uri), LocalFiles(self.root))
        self._opened.append(opened)
        return opened

    def close(self) -> None:
        for opened in self._opened:
            opened._catalog.close()

    def file(
        self, look: Look, token: str, unit: str, rows: list[dict[str, Any]], *, partition: tuple[Any, ...] = ()
    ) -> DataFile:
        """A staged file, as a writer would have made it."""
        assert look.schema is not None
        path = f"data/gobblin/{token}/1/{unit}-{len(rows)}x/0.parquet"
        place = Path(look.location.removeprefix("file://")) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=look.schema), place)
        ids = [row["id"] for row in rows]
        columns = {"id": ColumnStatistics(values=len(ids), nulls=0, low=min(ids), high=max(ids))}
        return DataFile(path, place.stat().st_size, len(rows), unit, partition, columns)

    def rows(self) -> list[dict[str, Any]]:
        table = self.open()._load()
        assert table is not None
        return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    def foreign(self) -> Any:
        """The table as somebody else has it."""
        table = self.open()._load()
        assert table is not None
        return table


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def appended(*files: DataFile) -> Change:
    return Change(lambda: iter(files), count=len(files), rows=sum(file.rows for file in files))


def made(lake: Lake, *partition: PartitionField) -> OpenIcebergTable:
    table = lake.open()
    table.create(OWNER, SCHEMA, partition)
    return table


def put(lake: Lake, table: OpenIcebergTable, slot: int, ids: list[int], unit: str = "u1") -> DataFile:
    look = table.look(OWNER)
    file = lake.file(look, f"t{slot}", unit, [{"id": id, "city": f"c{id}"} for id in ids])
    table.commit(look, appended(file), OWNER, Mark(slot, f"t{slot}", done=True))
    return file


def ids(lake: Lake) -> list[int]:
    return [row["id"] for row in lake.rows()]


def test_there_is_no_table_before_it_is_made(lake: Lake) -> None:
    assert lake.open().look(OWNER) == Look(id="")


def test_a_table_is_made_once_for_its_owner(lake: Lake) -> None:
    made(lake)
    first = lake.open().look(OWNER)
    lake.open().create(OTHER, SCHEMA, ())
    again = lake.open().look(OTHER)
    assert (again.id, again.owner, again.mark) == (first.id, OWNER, None)
    assert first.schema is not None
    assert first.schema.names == ["id", "city"]


def test_a_commit_adds_rows_and_leaves_a_mark(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1, 2])
    look = lake.open().look(OWNER)
    assert ids(lake) == [1, 2]
    assert (look.mark, look.owner, look.stands) == (Mark(0, "t0", done=True), OWNER, True)
    assert table.look(OTHER).mark is None
    assert table.count([("t0", "u1"), ("t0", "u2")]) == {("t0", "u1"): Count(1, 2)}
    assert table.total() == Count(1, 2)


def test_statistics_prune_files(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1, 2])
    put(lake, table, 1, [10, 20])
    tasks = list(lake.foreign().scan(row_filter="id > 5").plan_files())
    assert len(tasks) == 1


def test_a_late_commit_after_done_is_refused(lake: Lake) -> None:
    table, late = made(lake), lake.open()
    look = late.look(OWNER)
    file = put(lake, table, 0, [1])
    with pytest.raises(TableMovedError):
        late.commit(look, appended(file), OWNER, Mark(0, "t0", done=True))
    assert ids(lake) == [1]


def test_a_late_commit_after_a_fence_is_refused(lake: Lake) -> None:
    table, late = made(lake), lake.open()
    look = late.look(OWNER)
    file = lake.file(look, "t0", "u1", [{"id": 1, "city": "a"}])
    table.commit(table.look(OWNER), Change(), OWNER, Mark(0, "t0", done=False))
    with pytest.raises(TableMovedError):
        late.commit(look, appended(file), OWNER, Mark(0, "t0", done=True))
    assert ids(lake) == []
    assert table.look(OWNER).mark == Mark(0, "t0", done=False)


def test_a_late_commit_after_a_rollback_is_refused(lake: Lake) -> None:
    table, late = made(lake), lake.open()
    put(lake, table, 0, [1])
    look = late.look(OWNER)
    before = int(look.version)
    file = put(lake, table, 1, [2])
    lake.foreign().manage_snapshots().rollback_to_snapshot(before).commit()
    assert not table.look(OWNER).stands
    with pytest.raises((TableMovedError, ValueError)):
        late.commit(look, appended(file), OWNER, Mark(1, "t1", done=True))
    assert ids(lake) == [1]


def test_a_late_commit_after_everything_was_put_back_to_nothing_is_refused(lake: Lake) -> None:
    from pyiceberg.table.update import RemoveSnapshotRefUpdate

    table, late = made(lake), lake.open()
    look = late.look(OWNER)
    file = put(lake, table, 0, [1])
    foreign = lake.foreign()
    foreign.catalog.commit_table(foreign, (), (RemoveSnapshotRefUpdate(ref_name="main"),))
    assert not table.look(OWNER).stands
    with pytest.raises(TableMovedError):
        late.commit(look, appended(file), OWNER, Mark(0, "t0", done=True))


def test_of_two_at_once_one_commits(lake: Lake) -> None:
    made(lake)
    tables = [lake.open(), lake.open()]
    looks = [table.look(OWNER) for table in tables]
    file = lake.file(looks[0], "t0", "u1", [{"id": 1, "city": "a"}])
    answers: list[str] = []
    start = threading.Barrier(2)

    def commit(number: int) -> None:
        start.wait()
        try:
            tables[number].commit(looks[number], appended(file), OWNER, Mark(0, "t0", done=True))
            answers.append("committed")
        except GobblinError as error:
            answers.append(type(error).__name__)

    threads = [threading.Thread(target=commit, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["TableMovedError", "committed"]
    assert ids(lake) == [1]


@pytest.mark.parametrize("takes_hold", [True, False])
def test_a_lost_answer_leaves_the_mark_to_tell(lake: Lake, takes_hold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake)
    look = table.look(OWNER)
    file = lake.file(look, "t0", "u1", [{"id": 1, "city": "a"}])
    real = table._catalog.commit_table

    def lost(*arguments: Any) -> None:
        if takes_hold:
            real(*arguments)
        raise ConnectionError("no answer")

    monkeypatch.setattr(table._catalog, "commit_table", lost)
    with pytest.raises(ConnectionError):
        table.commit(look, appended(file), OWNER, Mark(0, "t0", done=True))
    assert (lake.open().look(OWNER).mark is not None) == takes_hold


def foreign_append(lake: Lake) -> None:
    lake.foreign().append(pa.Table.from_pylist([{"id": 100, "city": "foreign"}], schema=SCHEMA))


def foreign_delete(lake: Lake) -> None:
    lake.foreign().delete("id = 1")


def expired(lake: Lake) -> None:
    foreign_append(lake)
    table = lake.foreign()
    head = table.current_snapshot().snapshot_id
    for snapshot in table.snapshots():
        if snapshot.snapshot_id != head:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
            table = lake.foreign()


def compacted(lake: Lake) -> None:
    table = lake.foreign()
    table.overwrite(table.scan().to_arrow())


@pytest.mark.parametrize("act", [foreign_append, foreign_delete, expired, compacted])
def test_what_others_commit_is_merged_with(lake: Lake, act: Callable[[Lake], None]) -> None:
    table, late = made(lake), lake.open()
    put(lake, table, 0, [1, 2])
    look = late.look(OWNER)
    act(lake)
    foreign = ids(lake)
    file = lake.file(look, "t1", "u1", [{"id": 3, "city": "c"}])
    with pytest.raises(TableMovedError):
        late.commit(look, appended(file), OWNER, Mark(1, "t1", done=True))
    again = late.look(OWNER)
    assert (again.stands, again.mark, again.form) == (True, look.mark, look.form)
    late.commit(again, appended(file), OWNER, Mark(1, "t1", done=True))
    assert ids(lake) == sorted([*foreign, 3])
    assert late.total() == Count(late.total().files, len(foreign) + 1)


def test_a_snapshot_that_was_rolled_back_and_then_expired_does_not_stand(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1])
    before = int(table.look(OWNER).version)
    put(lake, table, 1, [2])
    gone = int(table.look(OWNER).version)
    lake.foreign().manage_snapshots().rollback_to_snapshot(before).commit()
    lake.foreign().maintenance.expire_snapshots().by_id(gone).commit()
    foreign_append(lake)
    assert not table.look(OWNER).stands


def test_a_table_made_anew_has_another_id(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1])
    look = table.look(OWNER)
    file = lake.file(look, "t1", "u1", [{"id": 2, "city": "b"}])
    table._catalog.drop_table("raw.flights")
    assert table.look(OWNER) == Look(id="")
    with pytest.raises(TableMovedError):
        table.commit(look, appended(file), OWNER, Mark(1, "t1", done=True))
    lake.open().create(OTHER, SCHEMA, ())
    again = table.look(OWNER)
    assert (again.id != look.id, again.owner, again.mark) == (True, OTHER, None)
    with pytest.raises(TableMovedError):
        table.commit(look, appended(file), OWNER, Mark(1, "t1", done=True))
    assert ids(lake) == []


def test_units_are_replaced_in_one_commit(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1, 2], "u1")
    put(lake, table, 1, [3], "u2")
    foreign_append(lake)
    look = table.look(OWNER)
    file = lake.file(look, "t2", "u3", [{"id": 7, "city": "g"}])
    change = replace(appended(file), removes=(TableUnit("t0", "u1", 1, 2),))
    table.commit(look, change, OWNER, Mark(2, "t2", done=True))
    assert ids(lake) == [3, 7, 100]
    assert table.total() == Count(3, 3)
    assert set(table.count([("t0", "u1"), ("t1", "u2"), ("t2", "u3")])) == {("t1", "u2"), ("t2", "u3")}
    assert lake.foreign().current_snapshot().summary["total-records"] == "3"


def test_a_unit_that_was_compacted_is_not_replaced(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1, 2])
    compacted(lake)
    look = table.look(OWNER)
    assert table.count([("t0", "u1")]) == {}
    with pytest.raises(TableError, match="compacted"):
        table.commit(look, Change(removes=(TableUnit("t0", "u1", 1, 2),)), OWNER, Mark(1, "t1", done=True))
    assert ids(lake) == [1, 2]
    assert table.look(OWNER).version == look.version


def test_everything_is_replaced_in_one_commit(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1, 2])
    foreign_append(lake)
    look = table.look(OWNER)
    file = lake.file(look, "t1", "u1", [{"id": 5, "city": "e"}])
    table.commit(look, replace(appended(file), removes_all=True), OWNER, Mark(1, "t1", done=True))
    assert ids(lake) == [5]
    assert table.total() == Count(1, 1)


def test_columns_are_added_and_widened_in_the_same_commit(lake: Lake) -> None:
    table = lake.open()
    table.create(OWNER, pa.schema([("id", pa.int32()), ("city", pa.string())]), ())
    put(lake, table, 0, [1])
    look = table.look(OWNER)
    wider = pa.schema([("id", pa.int64()), ("city", pa.string()), ("note", pa.string())])
    place = lake.file(replace(look, schema=wider), "t1", "u1", [{"id": 2**40, "city": "b", "note": "n"}])
    table.commit(look, replace(appended(place), schema=wider), OWNER, Mark(1, "t1", done=True))
    assert lake.rows() == [{"id": 1, "city": "c1", "note": None}, {"id": 2**40, "city": "b", "note": "n"}]
    assert table.look(OWNER).form != look.form
    snapshot = lake.foreign().current_snapshot()
    assert snapshot.schema_id == lake.foreign().schema().schema_id


def test_a_schema_changed_by_somebody_else_refuses_the_commit(lake: Lake) -> None:
    from pyiceberg.types import StringType

    table = made(lake)
    look = table.look(OWNER)
    file = lake.file(look, "t0", "u1", [{"id": 1, "city": "a"}])
    with lake.foreign().update_schema() as update:
        update.add_column("theirs", StringType())
    with pytest.raises(TableMovedError):
        table.commit(look, appended(file), OWNER, Mark(0, "t0", done=True))
    assert table.look(OWNER).form != look.form


def test_taking_over_shuts_the_former_owner_out(lake: Lake) -> None:
    table, late = made(lake), lake.open()
    put(lake, table, 0, [1])
    look = late.look(OWNER)
    file = lake.file(look, "t1", "u1", [{"id": 2, "city": "b"}])
    table.take_over(table.look(OTHER), OTHER)
    with pytest.raises(TableMovedError):
        late.commit(look, appended(file), OWNER, Mark(1, "t1", done=True))
    again = table.look(OTHER)
    assert (again.owner, again.mark, table.look(OWNER).mark) == (OTHER, None, Mark(0, "t0", done=True))
    assert ids(lake) == [1]


def test_files_that_are_not_as_many_as_decided_are_not_committed(lake: Lake) -> None:
    table = made(lake)
    look = table.look(OWNER)
    file = lake.file(look, "t0", "u1", [{"id": 1, "city": "a"}])
    with pytest.raises(TableError, match="1 files with 1 rows are listed"):
        table.commit(look, replace(appended(file), rows=2), OWNER, Mark(0, "t0", done=True))
    assert table.look(OWNER).mark is None


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        (PartitionField("city"), "c1", pa.string()),
        (PartitionField("city"), None, pa.string()),
        (PartitionField("city", "truncate", 1), "c", pa.string()),
        (PartitionField("id", "bucket", 4), 1392991556 % 4, pa.int64()),
        (PartitionField("day", "day"), "2024-02-29", pa.date32()),
        (PartitionField("day", "month"), 649, pa.date32()),
        (PartitionField("day", "year"), 54, pa.date32()),
        (PartitionField("day", "hour"), 1, pa.timestamp("us")),
    ],
)
def test_partitions_are_kept_by_their_transforms(
    lake: Lake, field: PartitionField, value: Any, kind: pa.DataType
) -> None:
    from datetime import date, datetime

    day = "city" if field.column != "day" else "day"
    schema = pa.schema([("id", pa.int64()), (day, kind if field.column == "day" else pa.string())])
    table = lake.open()
    table.create(OWNER, schema, (field,))
    look = table.look(OWNER)
    assert look.partition == (field,)
    one = datetime(1970, 1, 1, 1) if field.transform == "hour" else date(2024, 2, 29)
    row = {"id": 1, day: one if day == "day" else (None if value is None else "c1")}
    table.commit(
        look, appended(lake.file(look, "t0", "u1", [row], partition=(value,))), OWNER, Mark(0, "t0", done=True)
    )
    assert lake.rows() == [row]
    foreign = lake.foreign()
    assert len(list(foreign.scan(row_filter="id = 1").plan_files())) == 1
    condition = f"{day} is null" if row[day] is None else f"{day} = '{'T'.join(str(row[day]).split())}'"
    assert foreign.scan(row_filter=condition).to_arrow().to_pylist() == [row]


def test_hive_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lock"):
        IcebergTable("catalog", "raw.t").open(Given(catalog="hive-metastore://host:9083"), LocalFiles(tmp_path))


def test_a_catalog_that_cannot_be_reached_is_an_error_of_the_table(tmp_path: Path) -> None:
    table = IcebergTable("catalog", "raw.t")
    with pytest.raises(TableError, match=r"table 'raw\.t' of catalog 'catalog'"):
        table.open(Given(catalog="iceberg://127.0.0.1:9/"), LocalFiles(tmp_path))
    with pytest.raises(TableError):
        table.open(Given(catalog="sqlite:////no/such/folder/catalog.db"), LocalFiles(tmp_path))


def test_a_mark_that_somebody_changed_is_an_error(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1])
    with lake.foreign().transaction() as transaction:
        transaction.set_properties(**{f"gobblin.mark.{OWNER.key}": "nonsense"})
    with pytest.raises(TableError, match="property"):
        table.look(OWNER)


def test_a_version_that_cannot_be_written_is_refused(lake: Lake) -> None:
    table = lake.open()
    table._catalog.create_namespace_if_not_exists("raw")
    table._catalog.create_table("raw.flights", SCHEMA, properties={"format-version": "1"})
    with pytest.raises(TableError, match="version 1"):
        table.look(OWNER)


def test_many_files_make_several_manifests(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_gobblin.tables.iceberg.FILES_PER_MANIFEST", 2)
    table = made(lake)
    look = table.look(OWNER)
    files = [lake.file(look, "t0", f"u{id}", [{"id": id, "city": "a"}]) for id in range(5)]
    table.commit(look, appended(*files), OWNER, Mark(0, "t0", done=True))
    assert ids(lake) == [0, 1, 2, 3, 4]
    foreign = lake.foreign()
    assert len(foreign.current_snapshot().manifests(foreign.io)) == 3
    assert table.total() == Count(5, 5)
