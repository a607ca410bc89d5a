"""Functions of stages over numbered flights, as an author writes them: those of the pipelines and scripts that are measured."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_gobblin import frame


@frame("flights.clean")
def clean(raw: DataFrame) -> DataFrame:
    mixed = f.abs(f.xxhash64("id"))
    return raw.select(
        "id",
        (mixed % 14).alias("carrier"),
        (mixed % 3001).alias("plane"),
        f.md5(f.col("id").cast("string")).alias("note"),
        (mixed % 1000 / 10 - 20).alias("delay"),
        f.date_add(f.lit("2026-01-01").cast("date"), (f.col("id") % 365).cast("int")).alias("day"),
    )


@frame("flights.daily")
def daily(clean: DataFrame) -> DataFrame:
    return clean.groupBy("carrier", "day").agg(f.count("*").alias("flights"), f.avg("delay").alias("usual"))


@frame("flights.joined")
def joined(clean: DataFrame, daily: DataFrame) -> DataFrame:
    return clean.join(daily, ["carrier", "day"]).withColumn("late", f.col("delay") > f.col("usual"))


@frame("flights.report")
def report(joined: DataFrame) -> DataFrame:
    by_plane = joined.groupBy("plane")
    return by_plane.agg(f.count("*").alias("flights"), f.sum(f.col("late").cast("int")).alias("late"))


@frame("flights.monthly")
def monthly(daily: DataFrame) -> DataFrame:
    return daily.groupBy("carrier", f.month("day").alias("month")).agg(f.sum("flights").alias("flights"))
