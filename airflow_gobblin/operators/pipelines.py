"""A pipeline, as defined by a DAG author: a DAG for each of its jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, AssetAny, AssetOrTimeSchedule, CronDataIntervalTimetable, DeltaDataIntervalTimetable
from airflow.sdk.definitions.asset import BaseAsset
from airflow.sdk.definitions.timetables.assets import AssetTriggeredTimetable

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.events.assets import versions_asset
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.naming import check_ingestion_name, meant
from airflow_gobblin.operators.task_group import GobblinIngestion
from airflow_gobblin.pipeline import bound_jobs, check_one_source
from airflow_gobblin.plugins.timetables import DatasetCronTimetable, StageTimetable
from airflow_gobblin.stage import Stage, StageJob

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_gobblin.operators.spark_options import SparkOptions

__all__ = ["Pipeline"]


@dataclass(frozen=True)
class Pipeline:
    """Ingestions, and stages that read what they and other stages publish, a version at a time.

    :param name: what the ids of its DAGs begin with.
    :param jobs: its ingestions and stages. A name belongs to one job alone, and so does a target, with all below it.
    :param journal: the journal of its stages; an ingestion has its own, perhaps the same.
    :param code: the modules with the functions of its stages, registered by `@frame`. They are sent to Spark, and aren't imported
        in a DAG file.
    :raises ConfigurationError: two jobs share a name, or a target or nested ones, one reads what no job publishes, or they
        read each other.
    """

    name: str
    jobs: tuple[Ingestion | Stage, ...]
    journal: str
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ingestion_name(self.name)
        _ = self.bound

    @cached_property
    def bound(self) -> tuple[Ingestion | StageJob, ...]:
        """Its jobs with journals and inputs, each after those that it reads."""
        return bound_jobs(self.name, self.jobs, self.journal, self.code)

    def __getitem__(self, name: str) -> Ingestion | StageJob:
        """Return a job by its name.

        :raises ConfigurationError: there is none.
        """
        jobs = {job.name: job for job in self.bound}
        if name not in jobs:
            hint = meant([*jobs], name)
            raise ConfigurationError(
                operation="find", subject=f"job {name!r}", cause="the pipeline has none", hint=hint
            )
        return jobs[name]

    def dags(
        self, *, schedule: Any, start_date: datetime, spark: SparkOptions | None = None, **arguments: Any
    ) -> tuple[DAG, ...]:
        """Return a DAG for each job, `<pipeline>.<job>`. Ingestions run by the schedule, and seal the ends of its intervals as
        versions. A stage is woken by what it reads, but also by time: it needs no event to go on.

        :param schedule: a cron expression, a period, or a timetable with data intervals, by which stages run, too; with cron,
            half an interval later than ingestions. `None`, or assets: an ingestion runs when it is triggered, and seals that
            moment as a version, and stages are only woken.
        :param spark: how its tasks are submitted to Spark.
        :param arguments: other arguments of each `DAG`, for example `default_args`.
        :raises ConfigurationError: there is no schedule, and a stage waits for several ingestions: they share no version.
        """
        timetable = _with_intervals(schedule)
        if timetable is None or _is_of_assets(timetable):
            check_one_source(self.name, self.bound)
        given = {"catchup": False, "max_active_runs": 1, "start_date": start_date, **arguments}
        dags = []
        for job in self.bound:
            when = timetable if isinstance(job, Ingestion) else _woken(job, _later(timetable))
            with DAG(f"{self.name}.{job.name}", schedule=when, **given) as dag:
                GobblinIngestion(job, spark=spark)
            dags.append(dag)
        return tuple(dags)


def _with_intervals(schedule: Any) -> Any:
    """Return a schedule with data intervals, even if Airflow is configured to give cron expressions and periods none."""
    if isinstance(schedule, str):
        return CronDataIntervalTimetable(schedule, "UTC")
    return DeltaDataIntervalTimetable(schedule) if isinstance(schedule, timedelta) else schedule


def _is_of_assets(schedule: Any) -> bool:
    """Return whether a schedule has assets, and no times."""
    if isinstance(schedule, AssetTriggeredTimetable):
        return not isinstance(schedule, AssetOrTimeSchedule)
    return isinstance(schedule, BaseAsset | Collection)


def _woken(stage: StageJob, timetable: Any) -> AssetOrTimeSchedule | AssetAny:
    """Return the schedule of a stage: any event of what it reads, which costs little where others are awaited, and a time."""
    assets = AssetAny(*dict.fromkeys(versions_asset(ingestion=one.ingestion) for one in stage.work.upstreams))
    return assets if timetable is None else AssetOrTimeSchedule(timetable=timetable, assets=assets)


def _later(timetable: Any) -> Any:
    """Return the timetable of the stages, given that of the ingestions: later, if it is known by how much; `None` if they have
    none.
    """
    if _is_of_assets(timetable):
        return None
    if isinstance(timetable, AssetOrTimeSchedule):
        return _later(timetable.timetable)
    if isinstance(timetable, CronDataIntervalTimetable):
        return StageTimetable(timetable.expression, timetable.timezone)
    if isinstance(timetable, DatasetCronTimetable):
        return StageTimetable(timetable._expression, timetable._timezone)
    return timetable
