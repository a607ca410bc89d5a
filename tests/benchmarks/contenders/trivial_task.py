"""The smallest Python job on Spark: one task of one row, by Arrow, run like the units of a pack."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import SparkSession


def unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    assert [row.id for row in spark.range(0, 1, 1, 1).mapInArrow(unchanged, "id long").collect()] == [0]
    spark.stop()


if __name__ == "__main__":
    main()
