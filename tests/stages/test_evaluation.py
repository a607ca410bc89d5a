"""A Spark task of a version, without Spark: the files that it stages of its partition."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin import ParquetSink
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.stages.evaluation import WriteOrder, _types, write_partition

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
SCHEMA = pa.schema([("number", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def order(root: Path) -> WriteOrder:
    sink = ParquetSink(str(root))
    connections = SparkConnections({})
    return WriteOrder(str(root), sink, SCHEMA, "version", "try", "_gobblin/s/token/try", "joined/token-", connections)


def batches(rows: int = 3) -> Iterator[pa.RecordBatch]:
    """As Spark gives them: with times in the zone of its session."""
    for number in range(rows):
        at = pa.array([AT], pa.timestamp("us", "Europe/Zurich"))
        yield pa.RecordBatch.from_arrays([pa.array([number]), at], names=["number", "at"])


def staged(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"))


def test_each_try_of_a_task_stages_its_rows_in_a_folder_of_its_own(tmp_path: Path) -> None:
    first, second = (write_partition(order(tmp_path), 7, batches()) for _ in range(2))
    assert [file.path.rpartition("/")[2] for result in (first, second) for file in result.files] == [
        "version-7-0.parquet"
    ] * 2
    assert len(staged(tmp_path)) == 2
    (file,) = first.files
    assert (first.rows_written, file.rows, first.schema) == (3, 3, None)
    table = pq.read_table(tmp_path / file.path)
    assert table.schema.equals(SCHEMA)
    assert table["at"].to_pylist() == [AT] * 3


def test_a_partition_without_rows_has_no_file(tmp_path: Path) -> None:
    assert write_partition(order(tmp_path), 0, batches(0)).files == ()


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise ValueError("the function failed here")

    with pytest.raises(ValueError, match="failed here"):
        write_partition(order(tmp_path), 0, failing())
    assert staged(tmp_path) == []


def nested(*, nullable: bool) -> pa.Schema:
    def field(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable)

    inner = pa.struct([field("x", pa.int64()), field("some", pa.list_(field("element", pa.string())))])
    of_key = pa.map_(pa.field("key", inner, nullable=False), field("value", inner))
    return pa.schema(
        [field("some", pa.list_(field("element", inner))), field("by_key", of_key), field("plain", pa.date32())]
    )


def test_columns_are_the_same_whether_or_not_spark_knows_that_nothing_in_them_is_null() -> None:
    """It knows that of the result of `collect_set`, and no longer once that was joined, or read from a file."""
    assert nested(nullable=False) != nested(nullable=True)
    assert _types(nested(nullable=False)) == _types(nested(nullable=True))
    assert _types(pa.schema([("some", pa.list_(pa.int64()))])) != _types(pa.schema([("some", pa.list_(pa.string()))]))
