"""The example DAG of a mirror, as it is, on a real Airflow and a real Spark: it copies a real tree, then finds nothing new."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import airflow as package

from tests.services.airflow import Airflow
from tests.services.environment import ROOT

DAG_ID, URN = "mirror_dataset", "package#files"
SOURCE = os.path.dirname(package.__file__)


def differences(target: Path) -> str:
    """Return what rsync would do to make the target equal to the package, by content, times and permissions.

    A mirror that works in its target keeps no time of that folder itself.
    """
    command = ["rsync", "-n", "-rtp", "--delete", "--checksum", "--itemize-changes", "--omit-dir-times", "--no-links"]
    folders = ["--exclude=__pycache__/", "--exclude=/_gobblin", f"{SOURCE}/", f"{target}/"]
    return subprocess.run([*command, *folders], capture_output=True, text=True, check=True).stdout


def log(airflow: Airflow, run_id: str, name: str) -> str:
    """The log of a run's tasks of a name."""
    tasks = [task for task in airflow.task_instances(DAG_ID, run_id) if task.name == name]
    return "\n".join(line for task in tasks for line in airflow.log(DAG_ID, run_id, task))


def test_the_example_mirrors_a_package_and_the_next_run_is_idle(airflow: Airflow) -> None:
    airflow.put_connection(connection_id="spark_default", conn_type="spark", host="local[1]")
    airflow.add_dag("mirror_dataset.py", (ROOT / "dags" / "mirror_dataset.py").read_text(), DAG_ID)
    target = airflow.home / "mirror" / "copy"
    run_id, state = airflow.run(DAG_ID)
    assert state == "success", airflow.states(DAG_ID, run_id)
    assert differences(target) == ""
    table = log(airflow, run_id, "finish")
    assert f"{URN}  committed  1" in table
    assert "watermark" not in table

    run_id, state = airflow.run(DAG_ID)
    assert state == "success", airflow.states(DAG_ID, run_id)
    assert f"'{URN}': idle, there is nothing new" in log(airflow, run_id, "create_work_units")
    assert airflow.states(DAG_ID, run_id)["extract"] == ["skipped"]
    assert differences(target) == ""
    (target / "__init__.py").write_text("somebody was here")
    assert "__init__.py" in differences(target)
