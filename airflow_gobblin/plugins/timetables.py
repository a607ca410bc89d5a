"""Timetables that Airflow lacks. `GobblinPlugin` registers them, so that Airflow finds them in serialized DAGs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.timetables.interval import CronDataIntervalTimetable

if TYPE_CHECKING:
    from pendulum.tz.timezone import FixedTimezone, Timezone

__all__ = ["DatasetCronTimetable"]


class DatasetCronTimetable(CronDataIntervalTimetable):
    """Runs by a cron expression, each for the data interval that ends then; and manual runs of one dataset, by partition key.

    Airflow's own timetables with data intervals, which backfills need, take no partition keys, and those that take
    partition keys have no data intervals. ::

        with DAG("shop", schedule=DatasetCronTimetable("0 2 * * *", timezone="Europe/Paris"), …):
            GobblinIngestion(…)

    :param expression: a cron expression or a preset.
    :param timezone: the time zone of the expression.
    """

    partitioned_at_runtime = True

    def __init__(self, expression: str, timezone: str | Timezone | FixedTimezone = "UTC") -> None:
        super().__init__(expression, timezone=timezone)
