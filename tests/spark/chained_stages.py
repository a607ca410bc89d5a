"""Functions of stages whose rows differ at each evaluation, but for what `tests.protocol.pipelines.reference` computes, too."""

from __future__ import annotations

import uuid
from functools import reduce

from pyspark.sql import Column, DataFrame
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


@frame("chained.sums")
def sums(one: DataFrame, two: DataFrame, state: DataFrame) -> Out:
    """All values so far of odd and of even keys, as state with the evaluations that made it; rows show them by a digest."""
    placed = (some.select(_parity(), "value", "made_by") for some in (one, two))
    new = reduce(DataFrame.unionByName, placed).groupBy("parity")
    found = new.agg(f.collect_set("value").alias("new"), f.collect_set("made_by").alias("made_from"))
    made_by = f.concat(f.lit(f"sums {uuid.uuid4().hex} "), f.current_timestamp().cast("string"))
    nothing = f.array().cast("array<string>")
    common = (
        found.withColumn("made_by", made_by)
        .join(state, "parity", "full")
        .select(
            "parity",
            f.array_union(f.coalesce("seen", nothing), f.coalesce("new", nothing)).alias("seen"),
            f.array_compact(f.array_append(f.coalesce("made", nothing), f.col("made_by"))).alias("made"),
            "made_by",
            f.array_join("made_from", ",").alias("made_from"),
        )
        .localCheckpoint()
    )
    digest = f.substring(f.sha2(f.array_join(f.array_sort("seen"), "\n"), 256), 1, 12)
    value = f.concat(f.lit("sums["), digest, f.lit("]")).alias("value")
    rows = common.filter("made_by IS NOT NULL").select(f.col("parity").alias("key"), value, "made_from", "made_by")
    return Out(rows, state=common.select("parity", "seen", "made"))


def _parity() -> Column:
    """Whether the number of a row is odd."""
    return f.when(f.substring("key", -1, 1).cast("int") % 2 == 1, "odd").otherwise("even").alias("parity")


def _marked(rows: DataFrame) -> Out:
    """Rows, and marks of the same evaluation as a channel."""
    found = rows.localCheckpoint()
    return Out(found, marks=found.withColumn("value", f.concat(f.lit("mark("), f.col("value"), f.lit(")"))))


def _of_source(rows: DataFrame) -> DataFrame:
    """Rows of a source, by their positions."""
    key = f.regexp_extract("row", r"(\d+)$", 1).alias("key")
    return rows.select(key, f.col("row").alias("value"), f.lit("").alias("made_by"))


def _together(stage: str, *inputs: DataFrame) -> DataFrame:
    """All that inputs have of each key, with the evaluation that made it, and those that made the inputs."""
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
