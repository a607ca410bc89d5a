"""Rows for tables on a real Spark: its executors write the data files, and the worker commits them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.spark.connections import SparkConnections
from tests.proofs import one_in
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import PlannedRun, Submit, planned_run, run_on
from tests.tables.formats import Format, format_of


@pytest.fixture
def form(request: pytest.FixtureRequest, tmp_path: Path) -> Format:
    return format_of(request.param, tmp_path / "tables", request.getfixturevalue)


def planned_for(form: Format, folder: Path) -> PlannedRun:
    return planned_run(folder, RowsSource(3), uris=form.uris, sink=form.sink(f"{folder}/target"))


def committed(planned: PlannedRun, form: Format) -> None:
    """Commit what was extracted, and check that a reader outside has each row once."""
    assert {file.unit for result in planned.results.values() for file in result.data_files} == {"u0", "u1", "u2"}
    (pack,) = planned.run.packs
    write_commit_steps(planned.opened, planned.run, pack)
    execute_commit_steps(planned.opened, planned.run, pack)
    (report,) = finish(planned.opened, planned.run)
    assert (report.status, report.rows) == ("committed", 300)
    assert sorted(form.rows("acme__rows0", "id")) == [*range(300)]


@one_in(2)
@pytest.mark.parametrize("form", ["delta", "iceberg on versitygw"], indirect=True)
def test_executors_write_the_data_files_of_a_table(shipped_spark: SparkSession, tmp_path: Path, form: Format) -> None:
    planned = planned_for(form, tmp_path)
    assert run_on(shipped_spark, planned, SparkConnections(form.uris)).failures == ()
    committed(planned, form)


@pytest.mark.parametrize("form", ["iceberg_rest"], indirect=True)
def test_a_submitted_pack_goes_to_a_table_of_a_rest_catalog(tmp_path: Path, form: Format) -> None:
    planned = planned_for(form, tmp_path)
    submitted = Submit(uris=form.uris).run(planned)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    committed(planned, form)
