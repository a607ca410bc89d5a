"""Spark jobs that call a Python function once in each of their tasks, and collect what it yields.

A driver with a Spark of its own runs them as RDDs. A DataFrame is analysed, planned and compiled for each job, and its rows come
as Arrow's: a job takes a tenth of a second more by that, and the first one of an application a second. Behind Spark Connect there
is nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_gobblin.spark.worker import reading_last

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["TaskRow", "collect"]

TaskRow = tuple[str, bytes]
"""A row that a task yields: a key, and a record or another text."""


def collect(spark: SparkSession, function: Callable[[int], Iterable[TaskRow]], numbers: range) -> list[TaskRow]:
    """Call a function with each number, in a Spark task of its own.

    :param function: it travels in the job's closure, with what it refers to.
    :return: what it yields, in the order of the numbers.
    :raises Exception: whatever Spark raises.
    """
    from pyspark.sql import is_remote

    by = _by_dataframe if is_remote() else _by_rdd
    return by(spark, function, numbers)


def _by_rdd(spark: SparkSession, function: Callable[[int], Iterable[TaskRow]], numbers: range) -> list[TaskRow]:
    def task(index: int, nothing: Iterable[object]) -> Iterator[TaskRow]:
        return reading_last(function(numbers[index]), nothing)

    return spark.sparkContext.parallelize([], len(numbers)).mapPartitionsWithIndex(task).collect()


def _by_dataframe(spark: SparkSession, function: Callable[[int], Iterable[TaskRow]], numbers: range) -> list[TaskRow]:
    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        rows = function(numbers[context.partitionId()])
        found = (
            pa.RecordBatch.from_pydict({"key": [key], "record": pa.array([record], pa.binary())})
            for key, record in rows
        )
        return reading_last(found, batches)

    rows = spark.range(0, len(numbers), 1, len(numbers)).mapInArrow(task, _columns()).collect()
    return [(row.key, bytes(row.record)) for row in rows]


@cache
def _columns() -> StructType:
    """Return the columns of the rows of tasks: as a text they would be parsed for each job."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    return StructType([StructField("key", StringType()), StructField("record", BinaryType())])
