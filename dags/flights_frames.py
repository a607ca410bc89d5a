"""The functions of the stages in `flights_pipeline.py`: plain PySpark, which Airflow doesn't load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gobblin import frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@frame("flights.with_weather")
def with_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return flights, each with the weather of its hour where it left; some hours have none."""
    seen = weather.select("origin", "time_hour", "temp", "wind_speed", "precip", "visib")
    return flights.join(seen, ["origin", "time_hour"], "left")
