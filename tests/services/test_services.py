"""The services that other tests stand on really run, and are gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.services.postgres import Postgres, running_postgres
from tests.services.spark_standalone import SparkStandalone


def test_postgres_keeps_what_was_committed_when_it_is_killed(tmp_path: Path) -> None:
    with running_postgres(tmp_path) as server:
        url = server.create_database("kept")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE t AS SELECT 42 AS answer")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT answer FROM t").fetchone() == (42,)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_postgres_asks_for_the_password(postgres_server: Postgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres_server.url().replace(postgres_server.password, "wrong"))


def test_databases_are_apart(postgres: str, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE only_here (x int)")
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT to_regclass('only_here')").fetchone() == (None,)


def test_spark_standalone_runs_python_on_its_executor(spark_standalone: SparkStandalone, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "def name(batches):\n"
        "    import pyarrow, sys\n"
        "    for _ in batches:\n"
        "        yield pyarrow.RecordBatch.from_pydict({'python': [sys.executable]})\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "print('PYTHON', spark.range(1).mapInArrow(name, 'python string').first().python)\n"
    )
    conf = [word for key, value in spark_standalone.conf.items() for word in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        ["spark-submit", "--master", spark_standalone.url, *conf, str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"PYTHON {sys.executable}" in done.stdout, done.stderr
    assert any(log.parts[-1] == "stderr" for log in spark_standalone.log_files)
