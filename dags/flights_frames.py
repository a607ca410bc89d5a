"""The functions of the stages in `flights_pipeline.py`: plain PySpark, which Airflow doesn't load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gobblin import Out, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STRONG_WIND = 20.0
"""In miles per hour."""


@frame("flights.with_weather")
def with_weather(flights: DataFrame, weather: DataFrame) -> Out:
    """Return flights, each with the weather of its hour at its origin; some hours have none. Those without a time of departure
    were cancelled.
    """
    seen = weather.select("origin", "time_hour", "temp", "wind_speed", "precip", "visib")
    left = flights.filter("dep_time IS NOT NULL").join(seen, ["origin", "time_hour"], "left")
    return Out(rows=left, cancelled=flights.filter("dep_time IS NULL"))


@frame("flights.month_to_date")
def month_to_date(joined: DataFrame, cancelled: DataFrame, state: DataFrame) -> Out:
    """Return the sums of each carrier's months that have new flights; the state has those of all."""
    from pyspark.sql import functions as f

    key = ["carrier", "year", "month"]
    left = joined.groupBy(*key).agg(
        f.count("*").alias("flights"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("minutes"),
        f.count(f.when(f.col("wind_speed") >= STRONG_WIND, 1)).alias("windy"),
        f.lit(0).cast("bigint").alias("cancelled"),
    )
    none = [f.lit(0).cast("bigint").alias(name) for name in ("flights", "minutes", "windy")]
    new = left.unionByName(cancelled.groupBy(*key).agg(*none, f.count("*").alias("cancelled")))
    sums = [f.sum(name).alias(name) for name in ("flights", "minutes", "windy", "cancelled")]
    total = state.unionByName(new).groupBy(*key).agg(*sums)
    return Out(rows=total.join(new, key, "left_semi"), state=total)
