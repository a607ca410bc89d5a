"""Runs to extract, planned by the real pipeline, and their submission by hand: what the operator does, without Airflow."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal import Journal
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.plan import Plan, RunPlan
from airflow_gobblin.sinks.parquet import ParquetSink
from airflow_gobblin.spark.connections import SparkConnections, give_connections
from airflow_gobblin.spark.report import PackReport
from airflow_gobblin.spark.ship import ship
from airflow_gobblin.spark_jobs import spark_job
from airflow_gobblin.work import UnitResult
from tests.spark.acme_rows import RowsSource, Squares

CODE = ("tests.spark.acme_rows",)


@dataclass(frozen=True)
class PlannedRun:
    """One run, planned, with its pipeline. It has one dataset, so one pack."""

    folder: Path
    pipeline: Pipeline
    run: RunPlan

    @property
    def plan(self) -> Plan:
        (pack,) = self.run.packs
        (dataset,) = pack.datasets
        plan = self.pipeline.staging.plan(dataset.token)
        assert plan is not None
        return plan

    @property
    def results(self) -> dict[str, UnitResult]:
        """The results that stand, by unit."""
        found = {unit.id: self.pipeline.staging.result(self.plan.token, unit.id) for unit in self.plan.units}
        return {unit: result for unit, result in found.items() if result is not None}

    @property
    def failures(self) -> dict[str, UnitResult]:
        """The failed results, by unit."""
        return self.pipeline.staging.failed_results(self.plan.token)

    @property
    def reports(self) -> list[PackReport]:
        """What drivers said of the pack, in the order in which they started."""
        return sorted(self.pipeline.staging.reports(self.run.run, PackReport), key=lambda report: report.started)


def planned_run(folder: Path, source: RowsSource, *, squares: bool = False, code: Sequence[str] = CODE) -> PlannedRun:
    """Plan a run of the rows source into `<folder>/target`, with its journal beside it."""
    ingestion = Ingestion(
        "acme",
        source,
        ParquetSink(str(folder / "target")),
        journal=str(folder / "journal"),
        converters=(Squares("id"),) if squares else (),
        code=tuple(code),
    )
    pipeline = Pipeline(ingestion, Journal.open(ingestion.journal, ingestion.name), SparkConnections({}))
    return PlannedRun(folder, pipeline, pipeline.create_work_units(RunRequest("test")))


def submit_command(planned: PlannedRun, *, master: str, conf: Mapping[str, str] | None = None) -> list[str]:
    """The command line that extracts the run's pack."""
    staging, code = planned.pipeline.staging, planned.pipeline.ingestion.code
    settings = {"spark.ui.enabled": "false", **(conf or {})}
    return [
        "spark-submit",
        f"--master={master}",
        f"--py-files={ship(code, planned.folder / 'code')}",
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        str(spark_job("extract_pack.py")),
        f"--root={staging.files.root}",
        f"--staging={staging.folder}",
        f"--run={planned.run.run}",
        "--pack=0",
        *(f"--code={module}" for module in code),
    ]


def submit_environment(uris: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a driver is given connections."""
    return os.environ | give_connections(SparkConnections(uris), uris)


def submit(
    planned: PlannedRun, *, master: str, conf: Mapping[str, str] | None = None, uris: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Extract the run's pack and wait for the end of it."""
    return subprocess.run(
        submit_command(planned, master=master, conf=conf),
        capture_output=True,
        text=True,
        check=False,
        env=submit_environment(uris or {}),
    )


def overlapping(results: Mapping[str, UnitResult]) -> Iterator[tuple[str, str]]:
    """The pairs of units that ran at the same time."""
    times = {unit: (r.metrics["started"], r.metrics["finished"]) for unit, r in results.items()}
    for one in times:
        for other in times:
            if one < other and times[one][0] < times[other][1] and times[other][0] < times[one][1]:
                yield one, other
