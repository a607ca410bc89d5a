"""Partition columns of ParquetSink: names of folders, and files of one partition each, on a real disk and with real Parquet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.admin import views
from airflow_gobblin.admin.views import FileState
from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.model import wire
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind, StagedFile
from airflow_gobblin.rows.sinks import partitioned_files
from airflow_gobblin.rows.sinks.base import Layout, Sink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sinks.partitions import NULL, folder_of
from airflow_gobblin.storage.files import Files, LocalFiles, open_files
from airflow_gobblin.testing import SinkContract
from airflow_gobblin.testing.arrow_memory import arrow_memory
from airflow_gobblin.testing.memory_files import MemoryObjects
from airflow_gobblin.testing.sinks import SCHEMA, Row, publish, visible, written
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.services.s3 import S3Server

LONG = "ä" * 500
ODD = (
    None,
    "",
    "/",
    "..",
    "a/b",
    "%2F",
    "=",
    " ",
    LONG,
    f"{LONG}2",
    "Ärger",
    NULL,
    "a",
    "A",
    "\n",
    "NULL",
    "null",
    "*?[x]",
)


def name(value: object, kind: pa.DataType) -> str:
    return folder_of(["p"], [pa.scalar(value, kind)])


@pytest.mark.parametrize(
    ("value", "kind", "folder"),
    [
        ("DE", pa.string(), "p=DE"),
        ("a/b c", pa.large_string(), "p=a%2Fb c"),
        ("100%", pa.string(), "p=100%25"),
        ("Ärger", pa.string(), "p=Ärger"),
        (None, pa.string(), f"p={NULL}"),
        (7, pa.int8(), "p=7"),
        (2**64 - 1, pa.uint64(), f"p={2**64 - 1}"),
        (True, pa.bool_(), "p=true"),
        (Decimal("-1.50"), pa.decimal128(9, 2), "p=-1.50"),
        (date(1899, 12, 31), pa.date32(), "p=1899-12-31"),
        (time(1, 2, 3), pa.time64("us"), "p=01%3A02%3A03"),
        (datetime(2024, 2, 29, 12, tzinfo=UTC), pa.timestamp("us"), "p=2024-02-29 12%3A00%3A00"),
        (datetime(2024, 2, 29, 12, 0, 0, 500, UTC), pa.timestamp("us", "UTC"), "p=2024-02-29 12%3A00%3A00.0005Z"),
        (math.nan, pa.float64(), "p=NaN"),
        (-math.inf, pa.float32(), "p=-Infinity"),
        (0.1, pa.float64(), "p=0.1"),
    ],
)
def test_a_value_has_the_name_that_hive_gives_it(value: object, kind: pa.DataType, folder: str) -> None:
    assert name(value, kind) == folder


def test_every_text_has_a_folder_of_its_own_that_every_disk_takes(tmp_path: Path) -> None:
    names = [name(value, pa.string()) for value in ODD]
    assert len(set(names)) == len(ODD)
    for folder in names:
        assert "/" not in folder
        assert len(folder.encode()) <= 255
        (tmp_path / folder).mkdir()
    assert {path.name for path in tmp_path.iterdir()} == set(names)


def test_the_name_of_a_column_is_escaped_too() -> None:
    assert folder_of(["a/b=c"], [pa.scalar(1)]) == "a%2Fb%3Dc=1"


class TestPartitioned(SinkContract):
    @pytest.fixture
    def sink(self, target: str) -> Sink:
        return ParquetSink(target, file_bytes=1 << 20, partition=("name",))

    @pytest.fixture
    def needed(self) -> Sequence[pa.Field]:
        return [pa.field("name", pa.string())]

    @pytest.fixture
    def batches(self) -> Sequence[pa.RecordBatch]:
        rows = [{"id": n, "name": ODD[n % 9]} for n in range(21)]
        return [pa.RecordBatch.from_pylist(some, SCHEMA) for some in (rows[:15], [], rows[15:])]

    @pytest.fixture
    def read(self) -> Callable[[bytes], Iterable[Row]]:
        return lambda content: pq.read_table(pa.BufferReader(content)).to_pylist()


class TestPartitionedOnS3(TestPartitioned):
    @pytest.fixture
    def target(self, versitygw: S3Server) -> str:
        return versitygw.access.url(f"{versitygw.create_bucket()}/lake")

    @pytest.fixture
    def files(self, target: str, versitygw: S3Server) -> Files:
        return open_files(target, versitygw.access)


def write(tmp_path: Path, sink: ParquetSink, *batches: pa.RecordBatch) -> tuple[LocalFiles, tuple[StagedFile, ...]]:
    files = LocalFiles(tmp_path)
    result = written(sink, files, batches)
    publish(sink, files, result)
    return files, result.files


def test_each_file_holds_one_value_and_lies_in_its_folder(tmp_path: Path) -> None:
    rows = [{"id": n, "country": ("DE", "FR", None)[n % 3], "day": date(2024, 1, 1 + n % 2)} for n in range(60)]
    batch = pa.RecordBatch.from_pylist(rows)
    files, _ = write(tmp_path, ParquetSink(str(tmp_path), partition=("country", "day")), batch)
    paths = visible(files)
    assert {path.rpartition("/")[0].removeprefix("main.orders/") for path in paths} == {
        f"country={country}/day=2024-01-0{day}" for country in ("DE", "FR", NULL) for day in (1, 2)
    }
    assert sorted(path.rpartition("/")[2] for path in paths) == [f"t0-u0-{n}.parquet" for n in range(6)]
    for path in paths:
        table = pq.ParquetFile(tmp_path / path).read()
        assert table.schema.equals(batch.schema)
        assert table.num_rows == 10
        assert len({(row["country"], row["day"]) for row in table.to_pylist()}) == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ODD),
        (pa.float64(), (0.0, -0.0, math.nan, None, math.inf, 1e300, -1.5)),
        (pa.timestamp("ns"), (0, 1, 10**18, None)),
        (pa.decimal128(38, 3), (Decimal("0.001"), Decimal(-1), None)),
        (pa.date32(), (date(1, 1, 1), date(1899, 1, 1), None)),
        (pa.bool_(), (True, False, None)),
        (pa.time64("us"), (time(0), time(23, 59, 59, 999999), None)),
    ],
    ids=str,
)
def test_every_value_is_read_from_the_folder_as_it_was(
    tmp_path: Path, kind: pa.DataType, values: Sequence[Any]
) -> None:
    column = pa.array([*values, *values], kind)
    batch = pa.record_batch([column, pa.array(range(len(column)))], ["p", "id"])
    write(tmp_path, ParquetSink(str(tmp_path), partition=("p",)), batch)
    found = ds.dataset(str(tmp_path / "main.orders"), format="parquet", schema=batch.schema).to_table().sort_by("id")
    assert found["id"].to_pylist() == batch["id"].to_pylist()
    assert [repr(value) for value in found["p"].cast(_plain(kind)).to_pylist()] == [
        repr(value) for value in column.cast(_plain(kind)).to_pylist()
    ]


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def test_duckdb_and_arrow_read_usual_values_from_names_and_files_alike(tmp_path: Path) -> None:
    countries = ["DE", "a/b", "Ärger", "50%", "a=b", None, "x:y"]
    batch = pa.record_batch([pa.array(countries * 3), pa.array(range(21))], ["country", "id"])
    write(tmp_path, ParquetSink(str(tmp_path), partition=("country",)), batch)
    expected = sorted((row["id"], row["country"]) for row in batch.to_pylist())
    folder = tmp_path / "main.orders"
    for hive in ("true", "false"):
        query = f"SELECT id, country FROM read_parquet('{folder}/**/*.parquet', hive_partitioning={hive}) ORDER BY id"
        assert duckdb.sql(query).fetchall() == expected
    hive = ds.partitioning(pa.schema([("country", pa.string())]), flavor="hive")
    by_name = ds.dataset(str(folder), format="parquet", partitioning=hive)
    only = by_name.to_table(filter=ds.field("country") == "a/b")
    assert sorted(only["id"].to_pylist()) == [1, 8, 15]
    assert sorted((row["id"], row["country"]) for row in by_name.to_table().to_pylist()) == expected


def test_files_of_a_partition_are_of_about_the_target_size(tmp_path: Path) -> None:
    def batch(seed: int) -> pa.RecordBatch:
        random = np.random.default_rng(seed)
        data = [random.bytes(1000) for _ in range(200)]
        return pa.record_batch([pa.array(random.integers(0, 3, 200)), pa.array(data)], ["p", "b"])

    sink = ParquetSink(str(tmp_path), file_bytes=100_000, partition=("p",))
    _, staged = write(tmp_path, sink, *(batch(seed) for seed in range(10)))
    sizes = sorted(file.size for file in staged)
    assert sum(file.rows for file in staged) == 2000
    assert 15 < len(sizes) < 30
    assert sizes[-1] < 180_000, "a last one holds the rest, too"


@pytest.mark.slow
@pytest.mark.parametrize("at", ["disk", "objects"])
def test_few_files_are_open_and_little_is_gathered_however_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.setattr(partitioned_files, "GATHERED_BYTES", 1 << 20)
    monkeypatch.setattr(partitioned_files, "OPEN_FILES", 16)
    files: Files = LocalFiles(tmp_path) if at == "disk" else MemoryObjects()
    limit = 16 if at == "disk" else partitioned_files.OPEN_UPLOADS
    random = np.random.default_rng(1)
    sink = ParquetSink(str(tmp_path), partition=("p",))
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    writer = sink.open(schema, files, "_gobblin/s/t0/a0/u0-ff/u0", "main.orders/t0-u0")
    assert isinstance(writer, partitioned_files.PartitionedFiles)
    most = 0
    with arrow_memory() as pool:
        for _ in range(40):
            p = random.integers(0, 100, 10_000)
            writer.write(pa.record_batch([pa.array(p), pa.array(p)], schema=schema))
            most = max(most, sum(one.is_open for one in writer._of.values()))
        staged = writer.close()
        assert pool.max_memory() < 16 << 20
    assert most == limit
    assert sum(file.rows for file in staged) == 400_000
    assert len({file.path for file in staged}) == len(staged)


def test_too_many_partitions_of_a_unit_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned_files, "MOST_PARTITIONS", 10)
    files, sink = LocalFiles(tmp_path), ParquetSink(str(tmp_path), partition=("p",))
    writer = sink.open(pa.schema([("p", pa.int64())]), files, "s/u0", "t/u0")
    with pytest.raises(ConfigurationError, match=r"more than 10 partitions.*Partition by a column of fewer values"):
        writer.write(pa.record_batch([pa.array(range(11))], ["p"]))
    writer.abort()
    assert [*files.walk(".")] == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"partition": ("a", "a")}, "a column twice"),
        ({"partition": ("_a",)}, "readers ignore folders that begin like '_a'"),
        ({"partition": ("",)}, "readers ignore"),
        ({"partition": ("a",), "layout": Layout.FOLDER_PER_UNIT}, "has no partition folders"),
    ],
)
def test_a_sink_that_cannot_be_is_refused_by_name(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        ParquetSink("/target", **options)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.binary(), pa.struct([("a", pa.int64())])], ids=str)
def test_columns_that_are_no_names_are_refused_at_planning(kind: pa.DataType) -> None:
    sink = ParquetSink("/target", partition=("p",))
    with pytest.raises(SchemaConflictError, match=r"partition column 'p' is .* can't name a folder"):
        sink.schema(pa.schema([("p", kind)]), None, "x")
    with pytest.raises(SchemaConflictError, match="dataset 'x': it has no column 'p' to partition by"):
        sink.schema(pa.schema([("q", pa.int64())]), None, "x")


def test_runs_publish_partitions_and_a_replaced_unit_leaves_them(tmp_path: Path) -> None:
    """A reader of the journal and one of the folder have each row once, before and after a backfill that replaces some."""
    lab = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 9))
    lab.ingestion = replace(lab.ingestion, sink=ParquetSink(str(tmp_path), partition=("row",)))

    def check(rows: int) -> set[Path]:
        expected = Table("a", ExtractKind.APPEND_ONLY, rows).all_rows()
        published = lab.journal.read_dataset("a")
        by_folder = ds.dataset(str(tmp_path / "a"), format="parquet")
        for dataset in (published.to_arrow(), by_folder):
            assert sorted(dataset.to_table()["row"].to_pylist()) == sorted(expected)
        files = LocalFiles(tmp_path)
        assert {check.state for check in views.verify(lab.journal, files, "a")} == {FileState.OK}
        assert [*views.audit(lab.journal, files, "a")] == []
        found = {*(tmp_path / "a").rglob("*.parquet")}
        assert found == {Path(path) for path in published.paths}
        return found

    assert lab.run()["a"].status == "committed"
    first = check(9)
    assert len(first) == 9
    assert lab.run(Table("a", ExtractKind.APPEND_ONLY, 12))["a"].status == "committed"
    second = check(12)
    lab.admin.rewind("a", LongWatermark(0), "wrong rows")
    for _ in range(2):  # the second removes what the first retired
        lab.run(Table("a", ExtractKind.APPEND_ONLY, 12))
    lab.run(Table("a", ExtractKind.APPEND_ONLY, 13))
    lab.run(Table("a", ExtractKind.APPEND_ONLY, 14))
    assert not check(14) & second


def test_a_record_from_before_partitions_has_none() -> None:
    record = wire.to_json(ParquetSink("/lake"))
    assert isinstance(record, dict)
    del record["partition"]
    assert wire.from_json(ParquetSink, record, "a sink") == ParquetSink("/lake")
