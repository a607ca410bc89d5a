"""The submitted scripts are found in a checkout and in a wheel installed elsewhere."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from airflow_gobblin.errors import EnvironmentMismatchError
from airflow_gobblin.hooks.spark_jobs import spark_job
from tests.services.environment import ROOT
from tests.services.packages import install, make_environment

SCRIPTS = sorted(script.name for script in (ROOT / "spark_jobs").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_found_in_the_checkout(name: str) -> None:
    assert spark_job(name) == ROOT / "spark_jobs" / name


def test_a_job_that_does_not_exist_is_named() -> None:
    with pytest.raises(EnvironmentMismatchError, match=r"'nothing\.py'.*neither in.*Install"):
        spark_job("nothing.py")


def test_the_wheel_carries_package_and_jobs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {f"airflow_gobblin/_spark_jobs/{name}" for name in SCRIPTS} <= set(names)
    assert "airflow_gobblin/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"airflow_gobblin"}


def test_found_in_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env")
    install(python, wheel, dependencies=False)
    program = (
        "import sys; from airflow_gobblin.hooks.spark_jobs import spark_job; print(spark_job(sys.argv[1]).read_text())"
    )
    for name in SCRIPTS:
        done = subprocess.run([python, "-c", program, name], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.stdout == (ROOT / "spark_jobs" / name).read_text() + "\n", done.stderr
