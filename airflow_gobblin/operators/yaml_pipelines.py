"""Pipelines in YAML: one file each, with the names of the Python arguments.

for one in load_pipelines("pipelines/*.yaml"):
    for dag in one.dags():
        globals()[dag.dag_id] = dag
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_gobblin.hooks.ingestion import check_journal
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.operators.located_yaml import Document, ValuePath
from airflow_gobblin.operators.pipelines import Pipeline
from airflow_gobblin.operators.spark_options import SparkOptions
from airflow_gobblin.operators.yaml_files import FAILED, Builder, folder_of, load_files, root_key
from airflow_gobblin.operators.yaml_ingestions import DagOptions
from airflow_gobblin.pipeline import check_one_source, check_published
from airflow_gobblin.stage import Stage
from airflow_gobblin.storage.files import check_target

if TYPE_CHECKING:
    from airflow.sdk import DAG

__all__ = ["YamlPipeline", "load_pipelines"]


@dataclass(frozen=True)
class YamlPipeline:
    """A pipeline as described by one file.

    :param dag: what each of its DAGs has.
    """

    path: Path
    pipeline: Pipeline
    spark: SparkOptions
    dag: DagOptions

    def dags(self, **arguments: Any) -> tuple[DAG, ...]:
        """Return a DAG for each job, as `Pipeline.dags` does.

        :param arguments: other arguments of each `DAG`, which YAML can't express: `on_failure_callback=notify`.
        """
        return self.pipeline.dags(spark=self.spark, **{"schedule": None} | self.dag.common(), **arguments)


def load_pipelines(pattern: str, *, relative_to: str | Path | None = None) -> tuple[YamlPipeline, ...]:
    """Read the pipelines of all matching YAML files, in the order of their paths. For a DAG file: it reads nothing else.

    :param pattern: as for `load_ingestions`.
    :param relative_to: as for `load_ingestions`.
    :raises ConfigurationError: as `load_ingestions`.
    """
    folder = folder_of(relative_to or sys._getframe(1).f_globals.get("__file__"), "pipelines")
    return load_files("pipelines", pattern, folder, _built, _names)


def _names(loaded: YamlPipeline) -> Iterator[tuple[str, str, ValuePath]]:
    yield "pipeline", loaded.pipeline.name, ("name",)
    for place, job in enumerate(loaded.pipeline.jobs):
        yield "job", job.name, ("jobs", place, "name")


def _built(document: Document, path: Path) -> YamlPipeline:
    """Build the pipeline of a file.

    :raises Unreadable: a constructor refused something, or it can't work.
    """
    root = Builder(document)
    if root.given.get("kind") != "pipeline":
        root.refuse(("kind",), "it is not a pipeline: `load_ingestions` reads it")
        root.check()
    dag = root.built(DagOptions, root.given["dag"], ("dag",))
    spark = root.built(SparkOptions, root.given.get("spark", {}), ("spark",))
    places: list[ValuePath] = [("jobs", number) for number, _ in enumerate(root.given["jobs"])]
    jobs = {place: _job(document, root, place) for place in places}
    root.tried(("journal",), lambda: check_journal(root.given["journal"]))
    root.check()
    _check_reads(root, jobs)
    root.check()
    arguments = root.arguments | {"jobs": tuple(jobs.values()), "code": tuple(root.given.get("code", ()))}
    pipeline = root.tried(("jobs",), lambda: Pipeline(**arguments))
    root.check()
    if dag.schedule is None:
        root.tried(("dag", "schedule"), lambda: check_one_source(pipeline.name, pipeline.bound))
        root.check()
    return YamlPipeline(path, pipeline, spark, dag)


def _job(document: Document, root: Builder, place: ValuePath) -> Any:
    """Build an ingestion, whose own `code` has its kinds, or a stage. Their problems are those of the file."""
    own = Builder(document, place)
    is_stage = "source" not in own.given
    job = (root if is_stage else own).built(Stage if is_stage else Ingestion, own.arguments, place)
    root.problems += own.problems
    if job is not FAILED:
        if not is_stage:
            root.tried((*place, "journal"), lambda: check_journal(job.journal))
        key, sink = ("writes", job.writes) if is_stage else ("sink", job.sink)
        root.tried((*place, key, *own.given[key], root_key(sink)), lambda: check_target(sink.target))
    return job


def _check_reads(root: Builder, jobs: Mapping[ValuePath, Ingestion | Stage]) -> None:
    """Note what a stage reads that no job publishes."""
    name, by_name = root.given["name"], {job.name: job for job in jobs.values()}
    for place, job in jobs.items():
        for given, outputs in {} if isinstance(job, Ingestion) else job.inputs.items():
            for output in outputs:
                root.tried((*place, "reads", given), partial(check_published, name, job.name, output, by_name))
