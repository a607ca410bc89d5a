"""Iceberg tables with real pyiceberg, in a catalog on SQLite with files on disk."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.errors import ConfigurationError, GobblinError, SchemaConflictError, TableError, TableMovedError
from airflow_gobblin.model.table import ColumnStatistics, DataFile, Mark, Owner, TableUnit
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.tables.iceberg import IcebergTable, OpenIcebergTable
from airflow_gobblin.tables.port import Change, Count, Look, Merge, PartitionField
from tests.services.s3 import CONNECTION, S3Server

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
        self.given: dict[str, str] = {}
        self.uri = f"sqlite://{root}/catalog.db?warehouse={quote(f'file://{root}/warehouse', safe='')}"
        self._opened: list[OpenIcebergTable] = []

    def open(self) -> OpenIcebergTable:
        """As another process has it."""
        opened = self.record.open(Given(catalog=self.uri, **self.given), LocalFiles(self.root))
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
    file = lake.file(look, f"t{slot}", unit, [{"id": number, "city": f"c{number}"} for number in ids])
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
    assert (look.mark, look.owner, look.in_history) == (Mark(0, "t0", done=True), OWNER, True)
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
    assert not table.look(OWNER).in_history
    with pytest.raises((TableMovedError, ValueError)):
        late.commit(look, appended(file), OWNER, Mark(1, "t1", done=True))
    assert ids(lake) == [1]


def test_a_late_commit_after_everything_was_put_back_to_nothing_is_refused(lake: Lake) -> None:
    from pyiceberg.table.update import RemoveSnapshotRefUpdate

    table, late = made(lake), lake.open()
    look = late.look(OWNER)
    file = put(lake, table, 0, [1])
    foreign = lake.foreign()
    update: Any = RemoveSnapshotRefUpdate
    foreign.catalog.commit_table(foreign, (), (update(ref_name="main"),))
    assert not table.look(OWNER).in_history
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
def test_a_lost_answer_leaves_the_mark_to_decide(lake: Lake, takes_hold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake)
    look = table.look(OWNER)
    file = lake.file(look, "t0", "u1", [{"id": 1, "city": "a"}])
    real = table._catalog.commit_table

    def lost(*arguments: Any) -> None:
        if takes_hold:
            real(*arguments)
        raise ConnectionError("no answer")

    monkeypatch.setattr(table._catalog, "commit_table", lost)
    with pytest.raises(TableError, match="no answer"):
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
    assert (again.in_history, again.mark, again.form) == (True, look.mark, look.form)
    late.commit(again, appended(file), OWNER, Mark(1, "t1", done=True))
    assert ids(lake) == sorted([*foreign, 3])
    assert late.total() == Count(late.total().files, len(foreign) + 1)


def test_a_snapshot_that_was_rolled_back_and_then_expired_is_not_in_the_history(lake: Lake) -> None:
    table = made(lake)
    put(lake, table, 0, [1])
    before = int(table.look(OWNER).version)
    put(lake, table, 1, [2])
    gone = int(table.look(OWNER).version)
    lake.foreign().manage_snapshots().rollback_to_snapshot(before).commit()
    lake.foreign().maintenance.expire_snapshots().by_id(gone).commit()
    foreign_append(lake)
    assert not table.look(OWNER).in_history


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
        (PartitionField("day", "day"), 19782, pa.date32()),
        (PartitionField("day", "month"), 649, pa.date32()),
        (PartitionField("day", "year"), 54, pa.date32()),
        (PartitionField("day", "hour"), 1, pa.timestamp("us")),
    ],
)
def test_partitions_are_kept_by_their_transforms(
    lake: Lake, field: PartitionField, value: Any, kind: pa.DataType
) -> None:
    day = "city" if field.column != "day" else "day"
    schema = pa.schema([("id", pa.int64()), (day, kind if field.column == "day" else pa.string())])
    table = lake.open()
    table.create(OWNER, schema, (field,))
    look = table.look(OWNER)
    assert look.partition == (field,)
    one = datetime.fromisoformat("1970-01-01T01:00:00") if field.transform == "hour" else date(2024, 2, 29)
    row = {"id": 1, day: one if day == "day" else (None if value is None else "c1")}
    table.commit(
        look, appended(lake.file(look, "t0", "u1", [row], partition=(value,))), OWNER, Mark(0, "t0", done=True)
    )
    assert lake.rows() == [row]
    foreign = lake.foreign()
    assert len(list(foreign.scan(row_filter="id = 1").plan_files())) == 1
    condition = f"{day} is null" if row[day] is None else f"{day} = '{'T'.join(str(row[day]).split())}'"
    assert foreign.scan(row_filter=condition).to_arrow().to_pylist() == [row]


def test_fields_of_a_partition_have_names_of_their_own(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("day_month", pa.int64())])
    partition = tuple(PartitionField(*one) for one in (("day", "month"), ("id", "bucket", 4), ("id", "bucket", 16)))
    table = lake.open()
    table.create(OWNER, schema, partition)
    assert table.look(OWNER).partition == partition
    assert [field.name for field in lake.foreign().spec().fields] == ["day_month_", "id_bucket", "id_bucket_"]


def test_hive_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lock"):
        IcebergTable("catalog", "raw.t").open(Given(catalog="hive-metastore://host:9083"), LocalFiles(tmp_path))


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("aws://key:secret@", "aws"),
        ("iceberg://host?type=glue", "glue"),
        ("iceberg://host?type=dynamodb", "dynamodb"),
        ("iceberg://host?py-catalog-impl=acme.Catalog", "acme.Catalog"),
        ("sqlite:////x.db?type=in-memory", "in-memory"),
    ],
)
def test_a_catalog_that_was_not_shown_to_fence_is_refused_by_name(tmp_path: Path, uri: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"type '{named}'.*late commit"):
        IcebergTable("catalog", "raw.t").open(Given(catalog=uri), LocalFiles(tmp_path))
    with pytest.raises(ConfigurationError, match="lock"):
        IcebergTable("catalog", "raw.t").open(Given(catalog="iceberg://host?type=hive"), LocalFiles(tmp_path))


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
    files = [lake.file(look, "t0", f"u{number}", [{"id": number, "city": "a"}]) for number in range(5)]
    table.commit(look, appended(*files), OWNER, Mark(0, "t0", done=True))
    assert ids(lake) == [0, 1, 2, 3, 4]
    foreign = lake.foreign()
    assert len(foreign.current_snapshot().manifests(foreign.io)) == 3
    assert table.total() == Count(5, 5)


def test_types_make_the_round_trip(lake: Lake) -> None:
    """Written as the table's own schema has them, read by pyiceberg."""
    berlin = timezone(timedelta(hours=1))
    planned = pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int16()),
            ("unsigned", pa.uint32()),
            ("flag", pa.bool_()),
            ("half", pa.float16()),
            ("price", pa.decimal128(38, 9)),
            ("day", pa.date32()),
            ("at", pa.timestamp("ms")),
            ("instant", pa.timestamp("us", "Europe/Berlin")),
            ("clock", pa.time32("s")),
            ("raw", pa.binary()),
            ("fixed", pa.binary(3)),
            ("tags", pa.large_list(pa.large_string())),
            ("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
            ("counts", pa.map_(pa.string(), pa.int32())),
            ("coded", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    full = {
        "id": 1,
        "small": -5,
        "unsigned": 2**32 - 1,
        "flag": True,
        "half": 0.5,
        "price": Decimal("-12345678901234567890123456789.123456789"),
        "day": date(1582, 10, 14),
        "at": datetime.fromisoformat("0099-12-31T23:59:59.999"),
        "instant": datetime(1850, 1, 1, 1, tzinfo=berlin),
        "clock": time(23, 59, 59),
        "raw": b"\x00\xff",
        "fixed": b"abc",
        "tags": ["a", None, "\u00e9"],
        "place": {"x": float("inf"), "names": ["n", None]},
        "counts": [("a", 1), ("b", None)],
        "coded": "c",
    }
    empty = dict.fromkeys(planned.names) | {"id": 2}
    table = lake.open()
    table.create(OWNER, planned, ())
    look = table.look(OWNER)
    file = lake.file(look, "t0", "u1", [full, empty])
    lows: dict[str, Json] = {
        "price": str(full["price"]),
        "day": (date(1582, 10, 14) - date(1970, 1, 1)).days,
        "raw": "AP8=",
        "instant": (date(1850, 1, 1) - date(1970, 1, 1)).days * 86_400_000_000,
        "clock": 86_399_000_000,
    }
    statistics = {name: ColumnStatistics(values=2, nulls=1, low=low, high=low) for name, low in lows.items()}
    table.commit(look, appended(replace(file, columns=statistics)), OWNER, Mark(0, "t0", done=True))
    assert lake.rows() == [full, empty]
    for condition in ("day = '1582-10-14'", f"price = {full['price']}", "instant = '1850-01-01T00:00:00+00:00'"):
        assert [row["id"] for row in lake.foreign().scan(row_filter=condition).to_arrow().to_pylist()] == [1]
    for condition in ("day > '1582-10-14'", "instant < '1850-01-01T00:00:00+00:00'"):
        assert list(lake.foreign().scan(row_filter=condition).plan_files()) == []


@pytest.mark.parametrize(
    "kind",
    [
        *(
            pa.uint64(),
            pa.timestamp("ns"),
            pa.time64("ns"),
            pa.duration("us"),
            pa.decimal256(60, 2),
            pa.null(),
            pa.date64(),
        ),
        *(pa.list_(pa.uint64()), pa.struct([("at", pa.timestamp("ns"))]), pa.map_(pa.string(), pa.uint64())),
        *(pa.month_day_nano_interval(), pa.dictionary(pa.int8(), pa.uint64()), pa.decimal128(5, -2)),
    ],
    ids=str,
)
def test_what_the_format_cannot_hold_is_refused_by_column(lake: Lake, kind: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("odd", kind), ("other", kind)])
    with pytest.raises(SchemaConflictError, match=r"column 'odd' .*, column 'other'"):
        lake.open().create(OWNER, schema, ())
    assert lake.open().look(OWNER).id == ""


def test_a_table_may_lie_on_s3(lake: Lake, versitygw: S3Server, bucket: str) -> None:
    lake.record = replace(lake.record, storage=CONNECTION)
    lake.uri = lake.uri.partition("warehouse=")[0] + f"warehouse={quote(f's3://{bucket}/lake', safe='')}"
    lake.given = {CONNECTION: versitygw.access.connection}
    table, late = made(lake), lake.open()
    look = table.look(OWNER)
    assert look.location.startswith(f"s3://{CONNECTION}@{bucket}/lake/")
    path = "data/gobblin/t0/1/u1-1x/0.parquet"
    rows = pa.Table.from_pylist([{"id": 1, "city": "a"}], schema=look.schema)
    place = f"{look.location.removeprefix(f's3://{CONNECTION}@')}/{path}"
    filesystem = versitygw.access.filesystem()
    with filesystem.open(place, "wb") as out:
        pq.write_table(rows, out)
    change = appended(DataFile(path, filesystem.size(place), 1, "u1"))
    table.commit(look, change, OWNER, Mark(0, "t0", done=True))
    with pytest.raises(TableMovedError):
        late.commit(look, change, OWNER, Mark(0, "t0", done=True))
    again = late.look(OWNER)
    late.commit(again, Change(removes=(TableUnit("t0", "u1", 1, 1),)), OWNER, Mark(1, "t1", done=True))
    assert (late.count([("t0", "u1")]), late.total()) == ({}, Count())


@pytest.mark.parametrize("spelling", ["sqlite://{}", "sqlite:///{}", "sqlite://%2F{}"])
def test_a_catalog_on_sqlite_is_found_by_any_spelling(lake: Lake, spelling: str) -> None:
    made(lake)
    path, _, options = lake.uri.removeprefix("sqlite://").partition("?")
    lake.uri = spelling.format(path if "%" not in spelling else path.lstrip("/")) + f"?{options}"
    assert lake.open().look(OWNER).owner == OWNER


VERSIONED = pa.schema([("id", pa.int64()), ("city", pa.string()), ("at", pa.int64()), ("position", pa.int64())])
BY_ID = Merge(("id",), "at", ("position",))


def merged(*files: DataFile) -> Change:
    return replace(appended(*files), merge=BY_ID)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("partition", [(), (PartitionField("id"),)], ids=["whole", "partitioned"])
def test_merges_agree_with_an_oracle(lake: Lake, seed: int, partition: tuple[PartitionField, ...]) -> None:
    """Random versions with ties, nulls and late ones, against a dict; equal versions are equal rows."""
    chance = random.Random(seed)
    table = lake.open()
    table.create(OWNER, VERSIONED, partition)
    oracle: dict[int, tuple[tuple[int, int], dict[str, Any]]] = {}
    for slot in range(5):
        look = table.look(OWNER)
        by_file: dict[tuple[int, int], list[dict[str, Any]]] = {}
        seen: set[tuple[int, int | None, int]] = set()
        for _ in range(chance.randint(1, 12)):
            key, at, position = chance.randrange(6), chance.choice([None, 1, 2, 3]), chance.randrange(4)
            row = {"id": key, "city": f"{key}-{at}-{position}", "at": at, "position": position}
            if (key, at, position) in seen:  # of two newest ones in a slot, none would be taken
                continue
            seen.add((key, at, position))
            by_file.setdefault((chance.randrange(2), key if partition else 0), []).append(row)
            version = (-1 if at is None else at, position)
            if key not in oracle or version > oracle[key][0]:
                oracle[key] = (version, row)
        files = [
            lake.file(look, f"t{slot}", f"u{number}_{key}", rows, partition=(key,) if partition else ())
            for (number, key), rows in by_file.items()
        ]
        table.commit(look, merged(*files), OWNER, Mark(slot, f"t{slot}", done=True))
        expected = [row for _, (_, row) in sorted(oracle.items())]
        assert lake.rows() == expected
        assert table.total().rows == len(expected)


def test_a_merge_rewrites_only_files_with_its_keys(lake: Lake) -> None:
    table = lake.open()
    table.create(OWNER, VERSIONED, ())
    for slot, keys in enumerate(([1, 2], [10, 20], [2, 3])):
        look = table.look(OWNER)
        rows = [{"id": key, "city": f"s{slot}", "at": slot, "position": slot} for key in keys]
        table.commit(look, merged(lake.file(look, f"t{slot}", "u", rows)), OWNER, Mark(slot, f"t{slot}", done=True))
    assert [(row["id"], row["city"]) for row in lake.rows()] == [
        (1, "s0"),
        (2, "s2"),
        (3, "s2"),
        (10, "s1"),
        (20, "s1"),
    ]
    assert table.count([(f"t{slot}", "u") for slot in range(3)]) == {("t1", "u"): Count(1, 2), ("t2", "u"): Count(1, 2)}


def test_a_merge_keeps_what_others_put_there_and_is_refused_on_an_old_head(lake: Lake) -> None:
    table = lake.open()
    table.create(OWNER, VERSIONED, ())
    look = table.look(OWNER)
    file = lake.file(look, "t0", "u", [{"id": 1, "city": "ours", "at": 2, "position": 0}])
    lake.foreign().append(
        pa.Table.from_pylist([{"id": key, "city": "f", "at": 1, "position": 0} for key in (1, 5)], schema=VERSIONED)
    )
    with pytest.raises(TableMovedError):
        table.commit(look, merged(file), OWNER, Mark(0, "t0", done=True))
    table.commit(table.look(OWNER), merged(file), OWNER, Mark(0, "t0", done=True))
    assert [(row["id"], row["city"]) for row in lake.rows()] == [(1, "ours"), (5, "f")]


def test_a_merge_with_new_columns_and_null_keys(lake: Lake) -> None:
    table = lake.open()
    table.create(OWNER, VERSIONED, ())
    look = table.look(OWNER)
    table.commit(
        look,
        merged(lake.file(look, "t0", "u", [{"id": key, "city": "old", "at": 1, "position": 0} for key in (1, 2)])),
        OWNER,
        Mark(0, "t0", done=True),
    )
    look, wider = table.look(OWNER), VERSIONED.append(pa.field("note", pa.string()))
    file = lake.file(
        replace(look, schema=wider), "t1", "u", [{"id": 2, "city": "new", "at": 2, "position": 0, "note": "n"}]
    )
    table.commit(look, replace(merged(file), schema=wider), OWNER, Mark(1, "t1", done=True))
    assert [(row["city"], row["note"]) for row in lake.rows()] == [("old", None), ("new", "n")]
    look = table.look(OWNER)
    null = replace(lake.file(look, "t2", "u", [{"id": 7, "city": "x", "at": 1, "position": 0}]), columns=None)
    place = Path(look.location.removeprefix("file://")) / null.path
    pq.write_table(pa.Table.from_pylist([{"id": None}], schema=look.schema), place)
    with pytest.raises(TableError, match="null"):
        table.commit(look, merged(null), OWNER, Mark(2, "t2", done=True))


def test_two_newest_rows_of_a_key_are_refused(lake: Lake) -> None:
    table = lake.open()
    table.create(OWNER, VERSIONED, ())
    look = table.look(OWNER)
    file = lake.file(look, "t0", "u", [{"id": 1, "city": name, "at": 1, "position": 0} for name in "ab"])
    with pytest.raises(TableError, match="newest of their key"):
        table.commit(look, merged(file), OWNER, Mark(0, "t0", done=True))
    assert lake.rows() == []


def test_a_merge_of_more_rows_than_fit_is_refused(lake: Lake) -> None:
    table = made(lake)
    with pytest.raises(TableError, match="10,000,000"):
        table.commit(table.look(OWNER), Change(count=1, rows=10_000_001, merge=BY_ID), OWNER, Mark(0, "t0", done=True))
