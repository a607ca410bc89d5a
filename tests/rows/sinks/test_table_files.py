"""Data files for tables: where they lie, what they hold, and what is known of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.model import wire
from airflow_gobblin.model.table import DataFile
from airflow_gobblin.rows.sinks.table_files import TableFiles
from airflow_gobblin.storage.files import Files, LocalFiles, open_files
from airflow_gobblin.tables.layout import unit_folder, unit_of
from airflow_gobblin.tables.partition import parse_partition
from airflow_gobblin.testing.failing_files import FailingFiles
from airflow_gobblin.testing.memory_files import MemoryObjects
from tests.services.s3 import S3Server

FOLDER = unit_folder("t0", "a0", "u-0-ff")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7"}),
        pa.field("at", pa.timestamp("us", "UTC"), metadata={"PARQUET:field_id": "8"}),
        pa.field("price", pa.float64(), metadata={"PARQUET:field_id": "9"}),
    ]
)
START = datetime(1969, 12, 30, tzinfo=UTC)


def batch(rows: int, start: int = 0) -> pa.RecordBatch:
    ids = range(start, start + rows)
    at = [START + timedelta(hours=n) if n % 10 else None for n in ids]
    price = [math.nan if n % 3 == 0 else n / 2 for n in ids]
    plain = pa.schema([pa.field(field.name, field.type, field.nullable) for field in SCHEMA])
    return pa.record_batch([pa.array(ids), pa.array(at, plain.field("at").type), pa.array(price)], schema=plain)


def finished(writer: TableFiles, *batches: pa.RecordBatch) -> tuple[DataFile, ...]:
    for one in batches:
        writer.write(one)
    staged = writer.close()
    assert [(file.path, file.size, file.rows) for file in staged if file.upload is None] == sorted(
        [(file.path, file.size, file.rows) for file in writer.data_files],
        key=lambda file: [one.path for one in staged].index(file[0]),
    )
    return writer.data_files


def read(files: Files, file: DataFile) -> pa.Table:
    content = files.read(file.path)
    assert len(content) == file.size
    return pq.read_table(pa.BufferReader(content))


@pytest.fixture(params=["disk", "memory objects", "versitygw"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "disk":
        return LocalFiles(tmp_path)
    if request.param == "memory objects":
        return MemoryObjects()
    server: S3Server = request.getfixturevalue("versitygw")
    return open_files(server.access.url(f"{server.create_bucket()}/table"), server.access)


@pytest.mark.slow
def test_files_are_whole_under_their_names_once_the_unit_is_closed(files: Files) -> None:
    writer = TableFiles(SCHEMA, files, FOLDER, "u-0", partition=parse_partition(["day(at)", "bucket(2, id)"]))
    found = finished(writer, batch(40), batch(33, 40))
    assert sorted(files.walk(".")) == sorted(file.path for file in found)
    assert sorted(file.path for file in found) == sorted(f"{FOLDER}/{n}.parquet" for n in range(len(found)))
    assert {unit_of(file.path) for file in found} == {("t0", "u-0")}
    rows = [row for file in found for row in read(files, file).to_pylist()]
    assert sorted(row["id"] for row in rows) == [*range(73)]
    assert sum(file.rows for file in found) == 73
    assert wire.loads(wire.dumps(found[0]), DataFile, "a data file") == found[0]


def test_each_file_has_one_partition_and_the_statistics_of_its_rows(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    found = finished(TableFiles(SCHEMA, files, FOLDER, "u-0", partition=parse_partition(["day(at)"])), batch(73))
    assert sorted((file.partition for file in found), key=repr) == sorted([(None,), (-2,), (-1,), (0,), (1,)], key=repr)
    for file in found:
        table = read(files, file)
        (day,) = {
            None if at is None else (at - datetime(1970, 1, 1, tzinfo=UTC)).days for at in table["at"].to_pylist()
        }
        assert file.partition == (day,)
        assert file.columns is not None
        ids, price = file.columns["id"], file.columns["price"]
        assert (ids.low, ids.high) == (min(table["id"].to_pylist()), max(table["id"].to_pylist()))
        assert (ids.values, ids.nulls, ids.nans) == (file.rows, 0, None)
        assert price.nans == sum(map(math.isnan, table["price"].to_pylist()))
        assert file.columns["at"].nulls == table["at"].null_count


def test_fields_keep_their_ids_and_columns_are_compressed_by_zstd(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    (file,) = finished(TableFiles(SCHEMA, files, FOLDER, "u-0"), batch(10))
    metadata = pq.read_metadata(tmp_path / file.path)
    assert [field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(tmp_path / file.path)] == [b"7", b"8", b"9"]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.partition == ()


def test_rows_are_sorted_and_files_of_about_the_target_size(tmp_path: Path) -> None:
    files, random = LocalFiles(tmp_path), np.random.default_rng(1)
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    writer = TableFiles(schema, files, FOLDER, "u-0", file_bytes=200_000, sort=[("a", True), ("b", False)])
    columns = [pa.array(random.integers(0, 50, 100_000)), pa.array(random.integers(0, 2**60, 100_000))]
    found = finished(writer, pa.record_batch(columns, schema=schema))
    assert len(found) > 3
    assert all(150_000 < file.size < 350_000 for file in found[:-1])
    for file in found:
        rows = pq.read_table(tmp_path / file.path).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["a"], -row["b"]))


def test_a_sorted_file_is_sorted_across_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_gobblin.rows.sinks.table_files.ROW_GROUP_BYTES", 10_000)
    files, random = LocalFiles(tmp_path), np.random.default_rng(2)
    schema = pa.schema([("a", pa.int64())])
    writer = TableFiles(schema, files, FOLDER, "u-0", sort=[("a", True)])
    batches = [pa.record_batch([pa.array(random.integers(0, 2**40, 1000))], schema=schema) for _ in range(10)]
    (file,) = finished(writer, *batches)
    assert pq.read_metadata(tmp_path / file.path).num_row_groups > 5
    found = pq.read_table(tmp_path / file.path)["a"].to_pylist()
    assert found == sorted(found)


def test_nothing_is_left_by_a_unit_that_is_given_up(files: Files) -> None:
    writer = TableFiles(SCHEMA, files, FOLDER, "u-0", partition=parse_partition(["day(at)"]))
    writer.write(batch(50))
    writer.close()
    writer.abort()
    writer.abort()
    assert [*files.walk(".")] == []
    assert writer.data_files == ()


def test_every_error_passes_and_leaves_nothing(tmp_path: Path) -> None:
    def write(files: LocalFiles) -> None:
        writer = TableFiles(SCHEMA, files, FOLDER, "u-0", partition=parse_partition(["bucket(2, id)"]))
        try:
            finished(writer, batch(10))
        except OSError:
            writer.abort()
            raise

    healthy = FailingFiles(tmp_path / "healthy", at=-1)
    write(healthy)
    assert any(call.startswith("sync_folder") for call in healthy.calls)
    for at in range(len(healthy.calls)):
        files = FailingFiles(tmp_path / f"{at}", at)
        with pytest.raises(OSError, match="No space left"):
            write(files)
        assert [*files.walk(".")] == []


@pytest.mark.parametrize(
    "path", ["data/x/1.parquet", "data/gobblin/t/a/1.parquet", "x", "lake/gobblin/t/a/u-ff/1.parquet"]
)
def test_a_file_of_somebody_else_has_no_unit(path: str) -> None:
    assert unit_of(path) is None
    assert unit_of("data/gobblin/t0/a/u0-1-ff/3.parquet") == ("t0", "u0-1")
