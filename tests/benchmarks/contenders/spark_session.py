"""A Spark session in local mode with two cores, as all contenders on Spark have it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

__all__ = ["start_session"]


def start_session(jars: str = "", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start it, with its SQL engine: a first small job. :param jars: paths, with commas between. :param conf: more settings."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    spark = (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark
