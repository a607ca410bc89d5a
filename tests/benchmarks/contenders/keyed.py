"""Totals by key, kept by a stage or by a query of Spark's own. The source's rows are ranges of numbers, which cost nothing."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_gobblin import Out, frame

RANGES = "id bigint, first bigint, last bigint, keys bigint"
SCHEMA = "key bigint, rows bigint, total bigint"
_FACTOR = 7919
"""A prime: as many numbers in a row as there are keys have each key once, in no order."""


def ranges(version: int, keys: int, share: float) -> list[tuple[int, int, int, int]]:
    """The ranges of a version: the first one has every key, the later ones a share of them each."""
    first, count = (0, keys) if version == 0 else (keys + round((version - 1) * keys * share), round(keys * share))
    step = max(1, count // 8)
    return [
        (version * 100 + n, first + low, min(first + low + step, first + count), keys)
        for n, low in enumerate(range(0, count, step))
    ]


def counted(found: DataFrame) -> DataFrame:
    numbers = found.repartition(8).select(f.explode(f.sequence("first", f.col("last") - 1)).alias("n"), "keys")
    keyed = numbers.select((f.col("n") * _FACTOR % f.col("keys")).alias("key"), "n")
    return keyed.groupBy("key").agg(f.count("*").alias("rows"), f.sum("n").alias("total"))


@frame("keyed.totals")
def totals(found: DataFrame, state: DataFrame) -> Out:
    new = counted(found)
    touched = state.join(new.select("key"), "key", "left_semi").unionByName(new).groupBy("key")
    total = touched.agg(f.sum("rows").alias("rows"), f.sum("total").alias("total"))
    return Out(rows=total, state=state.join(new.select("key"), "key", "left_anti").unionByName(total))
