"""Ingestions and mirrors in YAML, for teams with hundreds of datasets: one file each, with the names of the Python arguments.

for one in load_ingestions("ingestions/*.yaml"):
    with DAG(**one.dag.arguments()):
        GobblinIngestion(one.ingestion, spark=one.spark)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow_gobblin.hooks.ingestion import check_journal
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.operators.located_yaml import Document, ValuePath
from airflow_gobblin.operators.run_requests import ingestion_params
from airflow_gobblin.operators.spark_options import SparkOptions
from airflow_gobblin.operators.yaml_files import FAILED, Builder, folder_of, load_files, root_key
from airflow_gobblin.rows.sources.base import DeclaredSource, Source
from airflow_gobblin.storage.files import check_target

__all__ = ["CronSchedule", "DagOptions", "YamlIngestion", "load_ingestions"]


@dataclass(frozen=True)
class CronSchedule:
    """A schedule with data intervals, which backfills need, and runs of one dataset by partition key.

    :param cron: an expression or a preset.
    :param timezone: the time zone of the expression.
    """

    cron: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.timezone)
        except (KeyError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {self.timezone!r}") from error

    def timetable(self) -> Any:
        """Return Airflow's timetable for this schedule."""
        from airflow_gobblin.plugins.timetables import DatasetCronTimetable

        return DatasetCronTimetable(self.cron, self.timezone)


@dataclass(frozen=True)
class DagOptions:
    """The DAG of an ingestion, with the names of the arguments of Airflow's `DAG`.

    :param schedule: a cron expression or a preset, as Airflow is configured to take it, or one with data intervals. With `None`,
        the DAG runs when it is triggered.
    :param start_date: in Airflow's default time zone if it has no offset; so is `end_date`.
    :param max_active_runs: more are safe, but of two runs that take a snapshot at once, one loses and fails.
    :param datasets: URNs offered by the trigger form. They are no key of the file, but those of the tables that its source names.
    :param ranges: whether the form asks for a range: a mirror has none.
    """

    dag_id: str | None = None
    description: str | None = None
    schedule: str | CronSchedule | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    catchup: bool | None = None
    max_active_runs: int = 1
    tags: tuple[str, ...] = ()
    default_args: Mapping[str, Json] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    ranges: bool = True

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `DAG`, with a form to trigger it; Airflow's defaults apply to those left `None`."""
        return self.common() | {"params": ingestion_params(self.datasets, ranges=self.ranges)}

    def common(self) -> dict[str, Any]:
        """Return the arguments that a DAG without the form has, too."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("datasets", "ranges")}
        given |= {"tags": [*self.tags], "default_args": dict(self.default_args)}
        if isinstance(self.schedule, CronSchedule):
            given["schedule"] = self.schedule.timetable()
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class YamlIngestion:
    """An ingestion as described by one file.

    :param ingestion: it may be a mirror, which has the same tasks: `GobblinIngestion` takes it, too.
    :param dag: has its `dag_id`, by default the ingestion's name, and the datasets that the file names.
    """

    path: Path
    ingestion: Ingestion | Mirror
    spark: SparkOptions
    dag: DagOptions


def load_ingestions(pattern: str, *, relative_to: str | Path | None = None) -> tuple[YamlIngestion, ...]:
    """Read the ingestions of all matching YAML files, in the order of their paths. For a DAG file: it reads nothing else.

    :param pattern: of paths below the DAG file's folder, as `Path.glob` takes it: `*.yaml`, `ingestions/**/*.yaml`.
    :param relative_to: another folder, or a file in it.
    :raises ConfigurationError: a file is not YAML, doesn't fit the schema or can't work, two share a name, or there is none. It
        names file, line and column of each problem, up to the first ten.
    """
    folder = folder_of(relative_to or sys._getframe(1).f_globals.get("__file__"), "ingestions")
    return load_files("ingestions", pattern, folder, _built, _names)


def _names(loaded: YamlIngestion) -> Iterator[tuple[str, str, ValuePath]]:
    yield "ingestion", loaded.ingestion.name, ("name",)
    yield "DAG", str(loaded.dag.dag_id), ("dag", "dag_id")


def _built(document: Document, path: Path) -> YamlIngestion:
    """Build the ingestion, or the mirror, of a file.

    :raises Unreadable: a constructor refused something, or it can't work.
    """
    builder = Builder(document)
    root = builder.given
    if root.get("kind") == "pipeline":
        builder.refuse(("kind",), "it is a pipeline, which `load_pipelines` reads")
        builder.check()
    is_mirror = root.get("kind") == "mirror"
    dag = builder.built(DagOptions, root.get("dag", {}), ("dag",))
    spark = builder.built(SparkOptions, root.get("spark", {}), ("spark",))
    ingestion = builder.built(Mirror if is_mirror else Ingestion, builder.arguments, ())
    if ingestion is not FAILED:
        builder.tried(("journal",), lambda: check_journal(ingestion.journal))
        place = ("target",) if is_mirror else ("sink", *root["sink"], root_key(ingestion.sink))
        builder.tried(place, lambda: check_target(ingestion.work.workspace))
    builder.check()
    datasets = () if is_mirror else _named(ingestion.source)
    dag = replace(dag, dag_id=dag.dag_id or ingestion.name, datasets=datasets, ranges=not is_mirror)
    return YamlIngestion(path, ingestion, spark, dag)


def _named(source: Source) -> tuple[str, ...]:
    """Return the URNs that are known without asking the source; an author's own source may have to look them up."""
    return tuple(dataset.urn for dataset in source.declared) if isinstance(source, DeclaredSource) else ()
