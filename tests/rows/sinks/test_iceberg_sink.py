"""Iceberg tables as a sink declares them: partitions, sorted files, types, columns that change; what is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, GobblinError, SchemaConflictError, TableError
from airflow_gobblin.model import wire
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, ExtractKind, WorkUnit
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, Reader, ReadRequest
from tests.protocol.rows import RowSource, Table
from tests.tables.formats import Iceberg
from tests.tables.labs import TableLab, up_to

A = Table("a", ExtractKind.APPEND_ONLY, 12)


@pytest.fixture
def new_lab(tmp_path: Path) -> Callable[..., TableLab]:
    """Return a function that makes an ingestion into Iceberg tables, with options of the sink."""

    def make(*tables: Table, **options: Any) -> TableLab:
        lab = TableLab(tmp_path / "work", Iceberg.of_sqlite(tmp_path / "lake"), *tables)
        lab.declare(**options)
        return lab

    return make


def iceberg_of(lab: TableLab, urn: str) -> Any:
    """Return a table as pyiceberg opens it."""
    assert isinstance(lab.format, Iceberg)
    return lab.format.table(urn)


def test_a_snapshot_names_its_slot(new_lab: Callable[..., TableLab]) -> None:
    lab = new_lab(A)
    lab.run(request=up_to(5))
    lab.run()
    assert [snapshot.summary["gobblin.slot"] for snapshot in iceberg_of(lab, "a").snapshots()] == ["1", "2"]


def test_files_are_partitioned_sorted_and_have_the_ids_of_the_columns(new_lab: Callable[..., TableLab]) -> None:
    lab = new_lab(A, partition=("bucket(3, row)", "truncate(1, row)"), sort=("row",))
    lab.run()
    assert lab.table_rows("a") == A.all_rows()
    tasks = list(iceberg_of(lab, "a").scan().plan_files())
    assert {task.file.partition[0] for task in tasks} <= {0, 1, 2}
    assert {task.file.partition[1] for task in tasks} == {"a"}
    for task in tasks:
        path = task.file.file_path.removeprefix("file://")
        found = pq.read_table(path)["row"].to_pylist()
        assert found == sorted(found)
        assert pq.read_schema(path).field("row").metadata[b"PARQUET:field_id"] == b"1"
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    (one,) = iceberg_of(lab, "a").scan(row_filter="row = 'a/5'").plan_files()
    assert one.file.record_count < 12


def test_a_table_that_is_partitioned_otherwise_is_refused_by_name(new_lab: Callable[..., TableLab]) -> None:
    lab = new_lab(A)
    lab.run(request=up_to(5))
    lab.declare(partition=("row",))
    with pytest.raises(TableError, match="it is partitioned by nothing, and its sink by row"):
        lab.run()
    assert lab.table_rows("a") == Counter(A.row(n) for n in range(5))


@record("test.typed_rows")
@dataclass(frozen=True)
class TypedRows(RowSource):
    """Rows of many types, in one unit."""

    rows: ClassVar[pa.Table]

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        return replace(super().plan(dataset, states, request, connections), schema=self.rows.schema)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        return TypedReader(super().read(unit, schema, request, connections), self.rows)


class TypedReader:
    def __init__(self, reader: Reader, rows: pa.Table) -> None:
        self._reader, self._rows = reader, rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        assert sum(batch.num_rows for batch in self._reader) == self._rows.num_rows
        yield from self._rows.to_batches()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


def typed(lab: TableLab, rows: pa.Table) -> dict[str, Any]:
    """Run once with some rows.

    :return: the report.
    """
    TypedRows.rows = rows
    table = Table("typed", ExtractKind.SNAPSHOT_ONLY, rows.num_rows)
    lab.ingestion = replace(lab.ingestion, source=TypedRows((table,)))
    report = lab.run()["typed"]
    return {"status": report.status, "detail": report.detail}


FULL: dict[str, tuple[pa.DataType, Any]] = {
    "small": (pa.int16(), -5),
    "unsigned": (pa.uint32(), 2**32 - 1),
    "flag": (pa.bool_(), True),
    "half": (pa.float16(), 0.5),
    "price": (pa.decimal128(38, 9), Decimal("-12345678901234567890123456789.123456789")),
    "day": (pa.date32(), date(1582, 10, 14)),
    "at": (pa.timestamp("ms"), datetime.fromisoformat("0099-12-31T23:59:59.999")),
    "instant": (pa.timestamp("us", "Europe/Berlin"), datetime(1850, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    "clock": (pa.time32("s"), time(23, 59, 59)),
    "raw": (pa.binary(), b"\x00\xff"),
    "fixed": (pa.binary(3), b"abc"),
    "tags": (pa.large_list(pa.large_string()), ["a", None, "\u00e9"]),
    "place": (
        pa.struct([("x", pa.float32()), ("names", pa.list_(pa.string()))]),
        {"x": float("inf"), "names": ["n", None]},
    ),
    "counts": (pa.map_(pa.string(), pa.int16()), [("a", 1), ("b", None)]),
    "coded": (pa.dictionary(pa.int8(), pa.string()), "c"),
}


@pytest.mark.parametrize(
    "partition", [(), ("day(instant)", "year(at)", "truncate(10, price)"), ("price", "raw", "coded", "clock", "day")]
)
def test_types_make_the_round_trip_from_source_to_table(
    new_lab: Callable[..., TableLab], partition: tuple[str, ...]
) -> None:
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in FULL.items())])
    expected = [{"id": 1} | {name: value for name, (_, value) in FULL.items()}, dict.fromkeys(schema.names) | {"id": 2}]
    lab = new_lab(partition=partition)
    columns = [pa.array([row[field.name] for row in expected], field.type) for field in schema]
    report = typed(lab, pa.Table.from_arrays(columns, schema=schema))
    assert report["status"] == "committed", report
    found = iceberg_of(lab, "typed")
    assert sorted(found.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    for condition in ("day = '1582-10-14'", "instant < '1850-01-01T01:00:00+00:00'", "price < 0"):
        assert [row["id"] for row in found.scan(row_filter=condition).to_arrow().to_pylist()] == [1], condition
    assert list(found.scan(row_filter="day > '1582-10-14'").plan_files()) == []


@pytest.mark.slow
def test_new_columns_are_added_in_the_commit_that_has_them(new_lab: Callable[..., TableLab]) -> None:
    lab = new_lab()
    one = pa.table({"id": [1], "tags": pa.array([["a"]])})
    assert typed(lab, one)["status"] == "committed"
    two = pa.table({"id": [2, 3], "tags": pa.array([["b"], None]), "note": ["n", None]})
    assert typed(lab, two)["status"] == "committed"
    assert iceberg_of(lab, "typed").scan().to_arrow().to_pylist() == two.to_pylist()
    three = two.append_column("more", pa.array([{"x": 1}, {"x": 2}]))
    assert typed(lab, three)["status"] == "committed"
    assert iceberg_of(lab, "typed").scan().to_arrow().to_pylist() == three.to_pylist()
    assert typed(lab, three)["status"] in ("committed", "idle")
    wrong = three.set_column(0, "id", pa.array([1.5, 2.5]))
    assert "column 'id' is int64 and would be double" in typed(lab, wrong)["detail"]


def test_columns_are_widened_by_the_rule_and_narrower_ones_still_fit(new_lab: Callable[..., TableLab]) -> None:
    lab = new_lab(schema_rule="widen")
    narrow = pa.table({"id": pa.array([1], pa.int16()), "price": pa.array([Decimal("1.5")], pa.decimal128(5, 1))})
    wide = pa.table(
        {"id": pa.array([2**40], pa.int64()), "price": pa.array([Decimal("1234567.5")], pa.decimal128(9, 1))}
    )
    for one in (narrow, wide, narrow):
        report = typed(lab, one)
        assert report["status"] == "committed", report
        assert iceberg_of(lab, "typed").scan().to_arrow().to_pylist() == one.to_pylist()


@pytest.mark.parametrize("kind", [pa.uint64(), pa.timestamp("ns"), pa.duration("us"), pa.list_(pa.uint64())], ids=str)
def test_columns_that_iceberg_does_not_hold_are_refused_by_name_where_it_is_planned(
    new_lab: Callable[..., TableLab], kind: pa.DataType
) -> None:
    lab = new_lab()
    report = typed(lab, pa.schema([("id", pa.int64()), ("odd", kind), ("other", kind)]).empty_table())
    assert re.search(r"column 'odd' .*, column 'other'", report["detail"])


def test_partitions_and_sorts_of_no_column_are_refused_by_name() -> None:
    columns = pa.schema([("x", pa.int64()), ("y", pa.float64())])
    refused: tuple[dict[str, Any], ...] = ({"partition": ("day(id)",)}, {"sort": ("id",)})
    for options in refused:
        with pytest.raises(SchemaConflictError, match="column 'id'"):
            IcebergSink("c", "raw.t", "/work", **options).schema(columns, None, "d")
    with pytest.raises(ConfigurationError, match="there is no bucket"):
        IcebergSink("c", "raw.t", "/work", partition=("bucket(4, y)",)).schema(columns, None, "d")


@pytest.mark.parametrize(
    "options",
    [
        *({"file_bytes": 0}, {"compression_level": 23}, {"partition": ("weekday(a)",)}, {"schema_rule": "any"}),
        *({"table": "flights"}, {"table": "raw..{dataset}"}, {"table": "raw.{datset}"}),
    ],
    ids=str,
)
def test_what_can_not_be_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        IcebergSink(**{"catalog": "c", "table": "raw.{dataset}", "workspace": "/work", **options})


def test_tables_lie_in_the_store_of_the_workspace_unless_another_is_named() -> None:
    sink = IcebergSink("c", "raw.{dataset}", "s3://lake_s3@lake/work")
    assert sink.connection_ids == ("c", "lake_s3")
    assert replace(sink, storage="other").connection_ids == ("c", "other")
    assert replace(sink, workspace="/work").connection_ids == ("c",)


def test_a_record_of_it_crosses_processes() -> None:
    sink = IcebergSink("c", "raw.{dataset}", "/work", ["day(a)"], sort=["b"])  # type: ignore[arg-type]
    assert wire.loads(wire.dumps(sink), IcebergSink, "it") == sink


def test_the_page_on_sinks_declares_a_sink_that_can_be() -> None:
    page = Path("docs/sinks.md").read_text()
    (code,) = re.findall(r"<!-- test: iceberg -->\n```python\n(.*?)```", page, re.DOTALL)
    made: dict[str, Any] = {}
    exec(code, made)
    assert made["sink"].partition == ("day(updated_at)",)


def test_a_password_of_the_catalog_is_in_no_record_and_no_error(tmp_path: Path) -> None:
    unreachable = "postgres://ann:hunter2secret@127.0.0.1:9/lake?warehouse=file%3A%2F%2F%2Fx"
    lab = TableLab(tmp_path / "work", Iceberg({"lake_catalog": unreachable}), A)
    lab.declare(table="raw.{dataset}")
    detail = ""
    try:
        detail = lab.run()["a"].detail
    except GobblinError as error:
        detail = str(error)
    assert "table 'raw.a' of catalog 'lake_catalog'" in detail
    assert "hunter2secret" not in detail
    assert not [key for key, data in lab.records().items() if b"hunter2secret" in data]
