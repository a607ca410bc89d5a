"""The services that other tests rest on really run, and are gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import httpx
import psycopg
import pytest

from tests.services import moto_server, s3
from tests.services.postgres import Postgres, running_postgres
from tests.services.s3_proxy import Fault, Proxy
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


def test_moto_is_done_with_a_request_before_it_begins_with_the_next() -> None:
    """Otherwise two creates of one object at once could both win."""
    under_way: list[int] = []
    at_once: list[int] = []

    def moto(environ: object, start_response: object) -> list[bytes]:
        under_way.append(1)
        time.sleep(0.01)
        at_once.append(len(under_way))
        under_way.pop()
        return []

    served = moto_server.one_at_a_time(moto)
    with ThreadPoolExecutor(4) as clients:
        [*clients.map(lambda _: served({}, mock.Mock()), range(8))]
    assert at_once == [1] * 8


def test_versitygw_keeps_what_it_took_when_it_is_killed_and_checks_signatures(tmp_path: Path) -> None:
    with s3.running(s3.versitygw(tmp_path)) as server:
        bucket = server.create_bucket()
        server.access.filesystem().pipe_file(f"{bucket}/k", b"kept")
        server.kill()
        server.start()
        assert server.access.filesystem().cat_file(f"{bucket}/k") == b"kept"
        with pytest.raises(PermissionError):
            replace(server.access, secret="wrong").filesystem().cat_file(f"{bucket}/k")
    with pytest.raises(httpx.TransportError):
        httpx.get(server.access.endpoint)


def test_the_proxy_harms_the_requests_it_was_set_to(s3_proxy: Proxy) -> None:
    s3_proxy.harm(Fault.INTERNAL_ERROR, "GET", path="^/a", query="x=1", nth=2, times=2)
    s3_proxy.harm(Fault.DROP_ANSWER, "PUT")
    asked = [("GET", "/a?x=1")] * 4 + [("GET", "/a?x=2"), ("GET", "/b?x=1"), ("HEAD", "/a?x=1")]
    answers = [httpx.request(method, s3_proxy.endpoint + target).status_code for method, target in asked]
    assert [status == 500 for status in answers] == [False, True, True, False, False, False, False]
    with pytest.raises(httpx.TransportError):
        httpx.put(s3_proxy.endpoint + "/a")
    assert [request.fault for request in s3_proxy.seen].count(Fault.INTERNAL_ERROR) == 2


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


def test_the_jvms_of_tests_take_the_classes_that_the_set_up_has_kept(tmp_path: Path) -> None:
    if "SPARK_CLASSES" not in os.environ:
        pytest.skip("this Java could keep none")
    loaded = tmp_path / "loaded"
    options = f'{os.environ["SPARK_SUBMIT_OPTS"]} -Xlog:class+load:file="{loaded}"'
    subprocess.run(["spark-submit", "--version"], env=os.environ | {"SPARK_SUBMIT_OPTS": options}, check=True)
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in loaded.read_text()
