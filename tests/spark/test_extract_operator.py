"""The operator submits what is missing, gives secrets to the driver's process alone, and checks the units afterwards."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.operators.run_requests import run_request
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run import replan
from airflow_gobblin.spark.connections import VARIABLE
from airflow_gobblin.testing import inprocess
from tests.operators import test_run_requests as run_requests
from tests.services.spark_connect import SparkConnect
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import PlannedRun, Watch, command_lines, extract_operator, planned_run

CANARY = "canary-Zq8vP3"


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's connections: a Spark in local mode, and a database."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_FAR",
        json.dumps({"conn_type": "spark", "host": "spark://far", "port": 7077, "extra": {"deploy-mode": "cluster"}}),
    )
    monkeypatch.setenv("AIRFLOW_CONN_DB", f"postgresql://reader:{CANARY}@nowhere/db")


def operator(planned: PlannedRun, **options: Any) -> ExtractOperator:
    return extract_operator(planned, **{"conn_id": "spark_here", "conf": {"spark.ui.enabled": "false"}, **options})


@pytest.mark.parametrize(
    ("lacking", "expected"),
    [
        (
            {"JAVA_HOME": "/nowhere"},
            "JAVA_HOME is '/nowhere', and there is no /nowhere/bin/java. Install Java 17 or 21",
        ),
        ({"JAVA_HOME": None, "PATH": "/nowhere"}, "JAVA_HOME isn't set, and no 'java' is on the PATH. Install Java"),
        (
            {"SPARK_HOME": "/nowhere", "PATH": "/usr/bin:/bin"},
            "no jars/spark-core_*.jar below it. Point SPARK_HOME at a Spark",
        ),
    ],
)
def test_without_java_or_spark_the_task_fails_at_once_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: dict[str, str | None], expected: str
) -> None:
    planned = planned_run(tmp_path, RowsSource(1))
    for name, value in lacking.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises(AirflowFailException) as caught:
        operator(planned).execute({})
    assert expected in str(caught.value)
    assert caught.value.__suppress_context__  # Airflow logs it, and no other traceback
    assert planned.reports == []


def test_it_extracts_with_secrets_that_nobody_sees(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if Airflow is started by its path: nothing sets where Spark is, nor which Python to use.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name)
    planned = planned_run(tmp_path, RowsSource(2, conn_id="db"), squares=True)
    task = operator(planned, env_vars={"ACME_SETTING": 1}, conf={"spark.ui.port": "0"})
    with Watch() as watch:
        task.execute({})
    assert set(planned.results) == {"u0", "u1"}
    assert any("extract_pack.py" in line for line in watch.seen)
    assert not [line for line in watch.seen if CANARY in line]
    rendered = {name: str(getattr(task, name)) for name in task.template_fields}
    assert not [name for name, value in rendered.items() if CANARY in value]
    output = "".join(capfd.readouterr())
    assert "Spark-Submit cmd" in output
    assert "pack report" in output
    assert CANARY not in output
    logged = [line for line in output.splitlines() if " INFO " in line]
    assert logged
    assert all(" INFO airflow_gobblin." in line for line in logged)  # none of Spark's hundred lines
    assert "the task has no link to http://" in caplog.text  # no Airflow keeps it, and that fails nothing
    assert VARIABLE not in os.environ
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]

    # A retry has nothing to do, so not even the Spark connection is looked at.
    operator(planned, conn_id="spark_nowhere").execute({})
    assert len(planned.reports) == 1


def test_the_first_error_of_the_driver_ends_the_task(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("u1")
    planned = planned_run(tmp_path, RowsSource(2, failing=str(failing)))
    with pytest.raises(AirflowException) as caught:
        operator(planned).execute({})
    assert not isinstance(caught.value, AirflowFailException)  # a source may recover
    assert str(caught.value).startswith("no result of 1 unit of acme.rows0. The first error: SourceError: ")
    assert "it is made to fail" in str(caught.value).splitlines()[-1]


def test_what_no_retry_heals_fails_at_once(tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1, needs=("acme_driver_that_nobody_has",)))
    with pytest.raises(AirflowFailException, match=r"EnvironmentMismatchError: .*'acme_driver_that_nobody_has'"):
        operator(planned).execute({})


def test_killing_the_task_ends_spark_submit_and_its_driver(tmp_path: Path) -> None:
    gate, before = tmp_path / "gate", command_lines()
    planned = planned_run(tmp_path, RowsSource(1, waiting=("u0",), gate=str(gate)))
    task = operator(planned)
    failures: list[BaseException] = []

    def execute() -> None:
        with pytest.raises(AirflowException) as caught:
            task.execute({})
        failures.append(caught.value)

    running = threading.Thread(target=execute)
    running.start()
    arrived = tmp_path / "gate.u0"
    try:
        while running.is_alive() and not arrived.exists():
            time.sleep(0.1)
        assert arrived.exists()
    finally:
        task.on_kill()
    running.join(60)
    assert failures
    deadline = time.monotonic() + 60
    while left := [line for pid, line in command_lines().items() if pid not in before and "pyspark" in line]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert planned.results == {}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"conn_id": "spark_nowhere"}, "'spark_nowhere': Airflow has no such connection"),
        ({"conn_id": "spark_far"}, "'spark_far' in deploy mode 'cluster'"),
        ({"deploy_mode": "cluster"}, "'spark_here' in deploy mode 'cluster'"),
        ({"conf": {"spark.submit.deployMode": "cluster"}}, "'spark_here' in deploy mode 'cluster'"),
    ],
)
def test_a_place_that_cannot_hold_secrets_is_refused(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    planned = planned_run(tmp_path, RowsSource(1, conn_id="db"))
    with pytest.raises(AirflowFailException, match=why):
        operator(planned, **options).execute({})
    assert planned.reports == []


def test_a_missing_connection_of_the_source_is_named(tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1, conn_id="db_nowhere"))
    with pytest.raises(AirflowFailException, match=r"connection 'db_nowhere'"):
        operator(planned).execute({})


def test_a_flush_whose_plan_lost_is_planned_and_extracted_again_and_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_connect: SparkConnect
) -> None:
    """Another run decides when the units of the flush have their results: a second driver extracts the rest."""
    uri = f"sqlite:///{tmp_path / 'shop.db'}"
    monkeypatch.setenv("AIRFLOW_CONN_DB", uri)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_WARM", spark_connect.connection)
    source = SqlSource("db", (SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id"),))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        database.execute("INSERT INTO orders VALUES (1), (2)")
    rival = planned_run(tmp_path, source, code=(), uris={"db": uri})
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("INSERT INTO orders VALUES (3)")
    asked = run_requests.context(conf={"flush": True})
    planned = planned_run(tmp_path, source, code=(), uris={"db": uri}, request=run_request(asked))
    decide = replan.decide_and_plan_again
    decided: list[bool] = []

    def late(*arguments: Any) -> bool:
        if not decided:
            inprocess.go_on(rival.opened, rival.run, rival.opened.connections)
        decided.append(decide(*arguments))
        return decided[-1]

    monkeypatch.setattr(replan, "decide_and_plan_again", late)
    operator(planned, conn_id="spark_warm", conf={}).execute(asked)
    assert decided == [True, False]
    assert len(planned.reports) == 2
    run = planned.opened.staging.run(planned.run.run)
    assert run is not None
    (report,) = inprocess.go_on(planned.opened, run, planned.opened.connections).values()
    assert (report.status, report.slot, report.rows) == ("committed", 2, 1)
    rows = planned.opened.journal.read_dataset("orders").to_arrow().to_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 2, 3]
