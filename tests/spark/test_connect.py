"""Extracting on a warm Spark, by Spark Connect: the same operator, another type of connection."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.spark import session
from airflow_gobblin.spark.ship import ship
from tests.services.packages import make_environment
from tests.services.processes import free_port
from tests.services.spark_connect import SparkConnect, running_spark_connect
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import CODE, PlannedRun, Watch, command_lines, extract_operator, planned_run

CANARY = "canary-Lw3xN9"


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch, spark_connect: SparkConnect) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_WARM", spark_connect.connection)
    monkeypatch.setenv("AIRFLOW_CONN_DB", f"postgresql://reader:{CANARY}@nowhere/db")


def operator(planned: PlannedRun, **options: Any) -> ExtractOperator:
    return extract_operator(planned, **{"conn_id": "spark_warm", **options})


def test_it_extracts_with_secrets_that_nobody_sees(
    tmp_path: Path, spark_connect: SparkConnect, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    planned = planned_run(tmp_path, RowsSource(3, conn_id="db"), squares=True)
    task = operator(planned, env_vars={"ACME_SETTING": 1}, conf={"spark.sql.shuffle.partitions": "3"})
    with Watch() as watch, caplog.at_level("INFO"):
        task.execute({})
    assert set(planned.results) == {"u0", "u1", "u2"}
    (report,) = planned.reports
    assert (report.failures, report.cores) == ((), 2)
    assert any("extract_pack.py" in line for line in watch.seen)
    assert "pack report" in caplog.text
    rendered = "".join(str(getattr(task, name)) for name in task.template_fields)
    for text in (*watch.seen, rendered, caplog.text, *capfd.readouterr()):
        assert CANARY not in text
    # Beside the server's log: its event log, and everything it keeps of sessions.
    searched = [path for folder in (tmp_path, spark_connect.log.parent) for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in searched if CANARY.encode() in path.read_bytes()]
    events = "".join(path.read_text() for path in searched if "events" in path.parts)
    assert "SparkListenerConnectOperationStarted" in events
    assert f'"App ID":"{report.application}"' in events


def test_later_drivers_find_the_session_warm(tmp_path: Path, spark_connect: SparkConnect) -> None:
    operator(planned_run(tmp_path / "first", RowsSource(2))).execute({})
    daemons = spark_connect.python_daemons
    for number in range(2):
        planned = planned_run(tmp_path / str(number), RowsSource(2))
        operator(planned).execute({})
        assert set(planned.results) == {"u0", "u1"}
    assert spark_connect.python_daemons == daemons


def test_a_session_is_given_its_code_and_settings_once_and_each_driver_can_import_it(
    tmp_path: Path, spark_connect: SparkConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_shipped.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    program = """if True:
        import sys
        from pyspark.sql.connect.session import SparkSession
        from airflow_gobblin.spark.session import spark_session
        given, add = [], SparkSession.addArtifacts
        SparkSession.addArtifacts = lambda *args, **kwargs: given.append(args) or add(*args, **kwargs)
        with spark_session("test", zips=sys.argv[1:2]) as spark:
            print(len(given), spark.conf.get("spark.sql.shuffle.partitions"))
            import acme_shipped
            if sys.argv[2:]:
                spark.stop()
    """
    environment = os.environ | {
        session.REMOTE: spark_connect.url,
        session.CONF: '{"spark.sql.shuffle.partitions": "7"}',
    }
    command = [sys.executable, "-c", program, str(ship(["acme_shipped"], tmp_path / "code"))]
    found = [
        subprocess.check_output([*command, *more], env=environment, text=True, stderr=subprocess.DEVNULL).split()
        for more in ([], ["stop"], ["stop"])
    ]
    assert found == [["1", "7"], ["0", "7"], ["1", "7"]]


def test_drivers_that_open_a_session_at_once_all_have_it(tmp_path: Path, spark_connect: SparkConnect) -> None:
    program = """if True:
        import os, sys
        from airflow_gobblin.spark.session import REMOTE, spark_session
        url = os.environ[REMOTE]
        for code in sys.argv[1:]:
            print("ready", flush=True)
            input()
            os.environ[REMOTE] = url
            with spark_session("test", zips=[code]) as spark:
                print(spark.session_id, flush=True)
    """
    codes = []
    for number in range(3):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as code:
            code.writestr("acme_large.py", f"{number}\n" + "# long\n" * 2_000_000)
        codes.append(code.filename or "")
    command, environment = [sys.executable, "-c", program, *codes], os.environ | {session.REMOTE: spark_connect.url}
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True))
            for _ in range(4)
        ]
        for _ in codes:
            assert [_line_of(driver) for driver in drivers] == ["ready"] * 4
            for driver in drivers:
                print(file=driver.stdin, flush=True)
            assert len({_line_of(driver) for driver in drivers}) == 1


def _line_of(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    return driver.stdout.readline().strip()


def test_a_session_that_was_closed_is_followed_by_another(tmp_path: Path, spark_connect: SparkConnect) -> None:
    planned = planned_run(tmp_path, RowsSource(1))
    shipped = ship(CODE, tmp_path / "code")
    program = (
        "import sys; from airflow_gobblin.spark.session import spark_session\n"
        "with spark_session('test', zips=[sys.argv[1]]) as spark: print(spark.session_id); spark.stop()"
    )
    environment = os.environ | {session.REMOTE: spark_connect.url}
    command = [sys.executable, "-c", program, str(shipped)]
    closed = {subprocess.check_output(command, env=environment, text=True, stderr=subprocess.DEVNULL) for _ in range(2)}
    assert len(closed) == 2
    operator(planned).execute({})
    assert set(planned.results) == {"u0"}


def test_a_unit_that_fails_is_reported_and_a_retry_runs_only_it(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("u1")
    planned = planned_run(tmp_path, RowsSource(3, failing=str(failing)))
    with pytest.raises(AirflowException) as caught:
        operator(planned).execute({})
    assert not isinstance(caught.value, AirflowFailException)
    assert str(caught.value).startswith("no result of 1 unit of acme.rows0. The first error: SourceError: ")
    before = planned.results
    assert set(before) == {"u0", "u2"}
    failing.write_text("")
    operator(planned).execute({})
    after = planned.results
    assert {unit: after[unit] for unit in before} == before
    assert [(r.finished, len(r.failures)) for r in planned.reports] == [(0, 1), (2, 0)]


def test_a_process_that_ends_fails_its_own_units(tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(3, crashing=("u1",)))
    with pytest.raises(AirflowException, match="Python worker exited"):
        operator(planned).execute({})
    assert set(planned.results) == {"u0", "u2"}


def test_killing_the_task_ends_its_driver_and_what_runs_on_the_server_and_nothing_of_others(tmp_path: Path) -> None:
    mine, other = (
        planned_run(tmp_path / name, RowsSource(1, waiting=("u0",), gate=str(tmp_path / name / "gate")))
        for name in ("mine", "other")
    )
    tasks = {"mine": operator(mine), "other": operator(other)}
    failures: dict[str, BaseException] = {}

    def execute(name: str) -> None:
        try:
            tasks[name].execute({})
        except AirflowException as error:
            failures[name] = error

    threads = {name: threading.Thread(target=execute, args=(name,)) for name in tasks}
    arrivals = {name: tmp_path / name / "gate.u0" for name in tasks}
    for thread in threads.values():
        thread.start()
    try:
        _until(lambda: all(file.exists() and file.read_text() for file in arrivals.values()), "both at the gate")
        tasks["mine"].on_kill()
        threads["mine"].join(60)
        assert "ended with status 143" in str(failures["mine"])
        working = int(arrivals["mine"].read_text())
        _until(lambda: not psutil.pid_exists(working), "the end of its Python worker")
        assert threads["other"].is_alive()
    finally:
        (tmp_path / "other" / "gate").touch()
        (tmp_path / "mine" / "gate").touch()
        threads["other"].join(60)
    assert set(failures) == {"mine"}
    assert (set(mine.results), set(other.results)) == (set(), {"u0"})
    assert not [line for line in command_lines().values() if "extract_pack.py" in line]
    operator(mine).execute({})
    assert set(mine.results) == {"u0"}


def _until(holds: Any, what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.1)


def test_what_executors_lack_fails_at_once(tmp_path: Path) -> None:
    planned = planned_run(tmp_path, RowsSource(1, needs=("acme_driver_that_nobody_has",)))
    with pytest.raises(AirflowFailException, match=r"EnvironmentMismatchError: .*'acme_driver_that_nobody_has'"):
        operator(planned).execute({})


def test_a_python_without_arrow_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, folder = make_environment(tmp_path / "env"), tmp_path / "server"
    folder.mkdir()
    with running_spark_connect(folder, executor_python=python) as bare:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_BARE", bare.connection)
        planned = planned_run(tmp_path, RowsSource(1))
        with pytest.raises(
            AirflowFailException, match=r"EnvironmentMismatchError: .*'pyarrow' can't be imported"
        ) as caught:
            operator(planned, conn_id="spark_bare").execute({})
        assert f"({python})" in str(caught.value)
        assert planned.failures == {}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"driver_memory": "2g"}, "driver_memory with Spark connection 'spark_warm'.*where the server is started"),
        ({"jars": "acme.jar"}, "jars with Spark connection 'spark_warm'"),
        (
            {"conf": {"spark.driver.memory": "2g"}},
            "ConfigurationError: .*spark.driver.memory.*the others are the server's",
        ),
    ],
)
def test_what_only_a_new_application_could_have_is_refused(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    planned = planned_run(tmp_path, RowsSource(1))
    with pytest.raises(AirflowFailException, match=why):
        operator(planned, **options).execute({})
    assert planned.results == {}


def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv(session.REMOTE, f"sc://127.0.0.1:{port}/;token={CANARY}")
    monkeypatch.setattr(session, "PATIENCE", 0.5)
    with (
        pytest.raises(GobblinError, match=rf"can't reach the Spark Connect server at 127.0.0.1:{port}: ") as caught,
        session.spark_session("test"),
    ):
        pass
    assert CANARY not in str(caught.value)
    assert session.REMOTE not in os.environ


def test_channels_that_would_come_out_otherwise_each_time_are_recognized_by_their_plans(
    spark_connect: SparkConnect,
) -> None:
    program = (
        "from pyspark.sql import SparkSession, functions as f\n"
        "from airflow_gobblin.errors import ConfigurationError\n"
        "from airflow_gobblin.stages.agreement import check_agreement\n"
        "import sys; spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate(); rows = spark.range(3)\n"
        "random, now = rows.select(f.uuid()), spark.sql('SELECT now() AS at')\n"
        "for pair in ((random, now), (now, now), (random, rows), (random.localCheckpoint(),) * 2):\n"
        "    try: print(check_agreement('delays', dict(enumerate(pair))))\n"
        "    except ConfigurationError as error: print('refused')\n"
    )
    command = [sys.executable, "-c", program, spark_connect.url]
    found = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    assert found.split() == ["refused", "refused", "None", "None"]
