"""Functions of stages, as an author writes them."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_gobblin import Out, frame


@frame("acme.numbered")
def numbered(rows: DataFrame) -> DataFrame:
    """Each row with its number, and the evaluation that made it."""
    number = f.regexp_extract("row", r"(\d+)$", 1).cast("int")
    return rows.select(f.upper("row").alias("name"), number.alias("number"), f.lit(uuid.uuid4().hex).alias("made_by"))


@frame("acme.both")
def both(one: DataFrame, two: DataFrame) -> DataFrame:
    """All that two stages have of a number, and the evaluations that made it."""
    renamed = one.withColumnRenamed("made_by", "one_by")
    return renamed.join(two, "number", "left").withColumn("made_by", f.lit(uuid.uuid4().hex))


@frame("acme.fickle")
def fickle(rows: DataFrame) -> DataFrame:
    """Other columns than before, once there is a row that ends with 8."""
    more = rows.filter(f.col("row").endswith("8")).count()
    return rows.withColumn("more", f.lit("text")) if more else rows


@frame("acme.twice")
def twice(rows: DataFrame) -> DataFrame:
    return rows.select("row", "row")


@frame("acme.nothing")
def nothing(rows: DataFrame) -> None:
    """No DataFrame."""


@frame("acme.broken")
def broken(rows: DataFrame) -> DataFrame:
    return rows.select("no_such_column")


@frame("acme.totals")
def totals(rows: DataFrame, state: DataFrame) -> Out:
    """The keys that are touched, and all, each with the evaluations that its total went through, and something random."""
    touched = counted(rows)
    before = state.select("key", f.col("total").alias("old"), f.col("by").alias("old_by"), f.col("noise").alias("was"))
    name = f.lit(f"{uuid.uuid4().hex} ")
    old, old_by = f.coalesce("old", f.lit(0)), f.coalesce("old_by", f.lit(""))
    is_new = f.col("new").isNotNull()
    made = touched.join(before, "key", "full").select(
        "key",
        (old + f.coalesce("new", f.lit(0))).alias("total"),
        f.when(is_new, f.concat(old_by, name)).otherwise(old_by).alias("by"),
        f.when(is_new, f.rand()).otherwise(f.col("was")).alias("noise"),
        is_new.alias("is_new"),
    )
    common = made.localCheckpoint()
    return Out(rows=common.filter("is_new").drop("is_new"), state=common.drop("is_new"))


def counted(rows: DataFrame) -> DataFrame:
    key = f.regexp_extract("row", r"(\d+)$", 1).cast("bigint") % 3
    return rows.groupBy(key.alias("key")).agg(f.count("*").alias("new"))


@frame("acme.grown")
def grown(rows: DataFrame, state: DataFrame) -> Out:
    """State without declared columns: the first version's is empty."""
    found = counted(rows)
    both = state.unionByName(found, allowMissingColumns=True).groupBy("key").agg(f.sum("new").alias("new"))
    return Out(found, both)


@frame("acme.gathered")
def gathered(rows: DataFrame, state: DataFrame) -> Out:
    """Lists of rows: none of their elements is null, as Spark declares of the first version, which has no other."""
    key = f.regexp_extract("row", r"(\d+)$", 1).cast("bigint") % 3
    found = rows.groupBy(key.alias("key")).agg(f.sort_array(f.collect_set("row")).alias("seen"))
    if state.isEmpty():
        return Out(found, found)
    both = state.unionByName(found).groupBy("key").agg(f.sort_array(f.flatten(f.collect_list("seen"))).alias("seen"))
    return Out(both, both.localCheckpoint())


@frame("acme.wide")
def wide(rows: DataFrame, state: DataFrame) -> Out:
    """State of ten thousand keys for each row, and in how many parts it is read."""
    first = f.regexp_extract("row", r"(\d+)$", 1).cast("bigint") * 10_000
    found = rows.select(f.explode(f.sequence(first, first + 9_999)).alias("key"))
    parts = state.sparkSession.createDataFrame([(state.rdd.getNumPartitions(),)], "parts int")
    return Out(parts, state.unionByName(found).distinct())


@frame("acme.fickle_state")
def fickle_state(rows: DataFrame, state: DataFrame) -> Out:
    """Other columns of state than before, from the second version on."""
    found = counted(rows)
    return Out(found, found.withColumn("more", f.lit("text")) if state.columns else found)


@frame("acme.keys_twice")
def keys_twice(rows: DataFrame, state: DataFrame) -> Out:
    found = counted(rows)
    return Out(found, found.unionByName(found))


@frame("acme.no_keys")
def no_keys(rows: DataFrame, state: DataFrame) -> Out:
    found = counted(rows)
    return Out(found, found.withColumn("key", f.lit(None).cast("bigint")))


@frame("acme.no_key_column")
def no_key_column(rows: DataFrame, state: DataFrame) -> Out:
    found = counted(rows)
    return Out(found, found.withColumnRenamed("key", "kee"))


@frame("acme.random")
def random(rows: DataFrame, state: DataFrame) -> Out:
    """Rows and state of two evaluations, which Spark would make."""
    found = counted(rows).withColumn("noise", f.rand())
    return Out(found, found)


@frame("acme.timed")
def timed(rows: DataFrame, state: DataFrame) -> Out:
    """Rows and state of two moments."""
    found = counted(rows).withColumn("at", f.current_timestamp())
    return Out(found, found)


@frame("acme.split")
def split(rows: DataFrame) -> Out:
    """Rows with an even number, and the others as a channel, each with the evaluation that made it."""
    found = numbered(rows)
    return Out(found.filter("number % 2 = 0"), odd=found.filter("number % 2 = 1").withColumn("half", f.lit(True)))


@frame("acme.split_fickle")
def split_fickle(rows: DataFrame) -> Out:
    """Other columns of a channel than before, once there is a row that ends with 8."""
    return Out(rows, odd=fickle(rows))


@frame("acme.split_twice")
def split_twice(rows: DataFrame) -> Out:
    """Rows and a channel of two evaluations, which Spark would make."""
    found = rows.withColumn("noise", f.rand())
    return Out(found, odd=found)


@frame("acme.split_sorted")
def split_sorted(even: DataFrame, odd: DataFrame) -> DataFrame:
    """The number of rows that two channels of a stage have, and the evaluations that made them."""
    found = even.unionByName(odd.drop("half"))
    return found.agg(f.count("*").alias("rows"), f.collect_set("made_by").alias("made_by"))


LEAKED = "canary-of-a-stage"
"""A secret that functions leak: as if they had found it."""


@frame("acme.leaking")
def leaking(rows: DataFrame) -> DataFrame:
    raise RuntimeError(f"can't log in by {LEAKED}")


@frame("acme.leaking_columns")
def leaking_columns(rows: DataFrame) -> DataFrame:
    """Other columns than before, one of which has the secret in its name."""
    more = rows.filter(f.col("row").endswith("8")).count()
    return rows.withColumn(LEAKED, f.lit("text")) if more else rows


@frame("acme.only_rows")
def only_rows(rows: DataFrame, state: DataFrame) -> DataFrame:
    return counted(rows)
