"""Functions of stages whose rows differ at each evaluation, but for what `tests.protocol.pipelines.reference` computes, too."""

from __future__ import annotations

import uuid
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_gobblin import Out, frame


@frame("chained.one")
def one(a: DataFrame) -> Out:
    return _marked(_together("one", _of_source(a)))


@frame("chained.two")
def two(a: DataFrame, b: DataFrame) -> DataFrame:
    return _together("two", _of_source(a), _of_source(b))


@frame("chained.two_marked")
def two_marked(a: DataFrame, b: DataFrame) -> Out:
    return _marked(two(a, b))


@frame("chained.both")
def both(one: DataFrame, one_marks: DataFrame, two: DataFrame, a: DataFrame) -> DataFrame:
    return _together("both", one, one_marks, two, _of_source(a))


@frame("chained.last")
def last(two: DataFrame, two_marks: DataFrame, a: DataFrame) -> DataFrame:
    return _together("last", two, two_marks, _of_source(a))


def _marked(rows: DataFrame) -> Out:
    """Rows, and marks of the same evaluation as a channel."""
    found = rows.localCheckpoint()
    return Out(found, marks=found.withColumn("value", f.concat(f.lit("mark("), f.col("value"), f.lit(")"))))


def _of_source(rows: DataFrame) -> DataFrame:
    """Rows of a source, by their positions."""
    key = f.regexp_extract("row", r"(\d+)$", 1).alias("key")
    return rows.select(key, f.col("row").alias("value"), f.lit("").alias("made_by"))


def _together(stage: str, *inputs: DataFrame) -> DataFrame:
    """What inputs have of each key, with the evaluation that made it, and those that made the inputs."""
    placed = (some.select("key", "value", "made_by", f.lit(place).alias("place")) for place, some in enumerate(inputs))
    values = f.transform(f.sort_array(f.collect_list(f.struct("place", "value"))), lambda one: one["value"])
    grouped = reduce(DataFrame.unionByName, placed).groupBy("key")
    found = grouped.agg(values.alias("values"), f.collect_set("made_by").alias("before"))
    made_by = f.concat(f.lit(f"{stage} {uuid.uuid4().hex} "), f.current_timestamp().cast("string"))
    return found.select(
        "key",
        f.concat(f.lit(f"{stage}("), f.array_join("values", "+"), f.lit(")")).alias("value"),
        f.array_join(f.array_remove("before", ""), ",").alias("made_from"),
        made_by.alias("made_by"),
    )
