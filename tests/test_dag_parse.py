"""The cost of parsing a DAG file: nothing heavy is loaded, and nothing is opened or connected to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.services.environment import ROOT

pytestmark = pytest.mark.slow

# Modules that Airflow and the Spark provider load by themselves are loaded first, and not counted; each file has its own process.
PARSE = """
import json, os, runpy, sys
from airflow.sdk import DAG, AssetAlias, BaseHook, BaseOperator, TaskGroup, conf, task_group
import airflow.providers.apache.spark.operators.spark_submit

with DAG("empty", schedule=None), TaskGroup("empty"):
    BaseOperator(task_id="empty")
touched, before = [], set(sys.modules)
OUTSIDE = ("socket.connect", "socket.bind", "sqlite3.connect", "subprocess.Popen", "os.mkdir", "os.rename", "os.remove")
WRITING = set("wax+")

def look(event, arguments):
    if event in OUTSIDE or (event == "open" and WRITING & set(arguments[1] or "")):
        touched.append(f"{event} {arguments[0]}")

sys.dont_write_bytecode = True
for path in sys.argv[1:]:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, path
        continue
    sys.addaudithook(look)
    runpy.run_path(path)
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
    print(json.dumps([path, sorted(loaded), touched]), flush=True)
    os._exit(0)
"""

# A DAG with the names that people use of this package, and thousands of tables. The time is CPU time.
LARGE = """
import sys, time
from airflow.sdk import DAG, AssetAlias, BaseHook, BaseOperator, TaskGroup, conf, task_group
import airflow.providers.apache.spark.operators.spark_submit

with DAG("empty", schedule=None), TaskGroup("empty"):
    BaseOperator(task_id="empty")
started = time.process_time()

from airflow_gobblin import (
    AddColumn,
    DropColumns,
    ExtractKind,
    GobblinIngestion,
    Ingestion,
    Matches,
    NotNull,
    ParquetSink,
    SparkOptions,
    SqlSource,
    SqlTable,
)

tables = tuple(SqlTable(f"t{n}", ExtractKind.APPEND_ONLY, delta="id") for n in range(5_000))
large = Ingestion(
    "large",
    SqlSource("shop_db", tables),
    ParquetSink("s3://lake_s3@lake/shop"),
    "s3://lake_s3@lake/journal",
    converters=(DropColumns(("secret",)), AddColumn("shop", "north")),
    checks=(NotNull(("id",)), Matches("code", "[A-Z]{3}")),
)
with DAG("large", schedule=None):
    GobblinIngestion(large, spark=SparkOptions(conn_id="spark_default"))
needless = ("pyarrow", "pandas", "pyspark", "airflow_gobblin.mirror", "airflow_gobblin.operators.yaml_ingestions")
print(time.process_time() - started, [name for name in needless if name in sys.modules])
"""


def test_parsing_a_dag_file_loads_nothing_heavy_and_touches_nothing() -> None:
    dags = sorted(map(str, (ROOT / "dags").glob("*.py")))
    done = subprocess.run([sys.executable, "-c", PARSE, *dags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parsed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [path for path, _, _ in parsed] == dags
    for path, loaded, touched in parsed:
        assert set(loaded) <= {"airflow", "airflow_gobblin", "packaging"}, path
        assert touched == [], path


def test_parsing_takes_less_than_300_ms_beyond_airflows_own() -> None:
    seconds: list[float] = []
    while not any(took < 0.3 for took in seconds):  # other work of this machine only ever adds to it
        assert len(seconds) < 10, seconds
        took, loaded = parsed_large()
        assert loaded == "[]"
        seconds.append(took)


def parsed_large() -> tuple[float, str]:
    """How long a large DAG takes a fresh process, and which heavy modules it loads."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds, _, loaded = done.stdout.splitlines()[-1].partition(" ")
    return float(seconds), loaded
