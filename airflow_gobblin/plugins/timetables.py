"""Timetables that Airflow lacks. `GobblinPlugin` registers them, so that Airflow finds them in serialized DAGs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.timetables.interval import CronDataIntervalTimetable

if TYPE_CHECKING:
    from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
    from pendulum.tz.timezone import FixedTimezone, Timezone

__all__ = ["DatasetCronTimetable", "StageTimetable"]


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


class StageTimetable(CronDataIntervalTimetable):
    """Runs of a stage by time, beside those that events start: for each data interval, due in the middle of the next one.

    When an interval ends, a stage's inputs begin to make the version; a run then would find nothing, and get in their way.
    """

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the next run, or `None` if there is none."""
        found = super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
        if found is None or found.data_interval is None:
            return found
        start, end = found.data_interval
        return found._replace(run_after=end + (end - start) / 2)
