"""A Spark session with two cores, as all contenders on Spark have it: in local mode, or on a warm server."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

__all__ = ["start_session"]


def start_session(jars: str = "", conf: Mapping[str, str] | None = None, remote: str = "") -> SparkSession:
    """Start it, with its SQL engine: a first small job.

    :param jars: paths, with commas between.
    :param conf: more settings.
    :param remote: the URL of a Spark Connect server, which has jars and settings of its own.
    """
    spark = SparkSession.builder.remote(remote).getOrCreate() if remote else _local(jars, conf or {})
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark


def _local(jars: str, conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in conf.items():
        builder = builder.config(name, value)
    return (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
