"""What parsing a DAG file costs: nothing heavy is loaded, and nothing is opened or connected to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.environment import ROOT

# What Airflow and the Spark provider load by themselves is loaded first, and not counted.
PARSE = """
import json, runpy, sys
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
sys.addaudithook(look)
runpy.run_path(sys.argv[1])
loaded = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(json.dumps([sorted(loaded), touched]))
"""


@pytest.mark.parametrize("dag", sorted((ROOT / "dags").glob("*.py")), ids=lambda path: path.name)
def test_parsing_a_dag_file_loads_nothing_heavy_and_touches_nothing(dag: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PARSE, str(dag)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded, touched = json.loads(done.stdout.splitlines()[-1])
    assert set(loaded) <= {"airflow", "airflow_gobblin", "packaging"}
    assert touched == []
