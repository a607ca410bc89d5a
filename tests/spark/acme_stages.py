"""Functions of stages, as an author writes them."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_gobblin import frame


@frame("acme.numbered")
def numbered(rows: DataFrame) -> DataFrame:
    """Each row with its number, and the evaluation that made it."""
    number = f.regexp_extract("row", r"(\d+)$", 1).cast("int")
    return rows.select(f.upper("row").alias("name"), number.alias("number"), f.lit(uuid.uuid4().hex).alias("made_by"))


@frame("acme.both")
def both(one: DataFrame, two: DataFrame) -> DataFrame:
    """What two stages have of a number, and the evaluations that made it."""
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
