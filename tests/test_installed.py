"""The wheel, installed with all that it requires into an environment of its own, works without a checkout."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.services.environment import ROOT
from tests.services.packages import install, make_environment, pip

CHECK_SPARK = """
from airflow_gobblin.hooks.environment import check_pyspark
from airflow_gobblin.errors import EnvironmentMismatchError
try:
    print(check_pyspark())
except EnvironmentMismatchError as error:
    print(error)
"""
PARSE = """
import json, sys
import airflow_gobblin.operators
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
print(json.dumps([airflow_gobblin.operators.__file__, *bag.dags["flights"].task_ids]))
"""
OPEN = """
import sys
import adbc_driver_postgresql.dbapi, adbc_driver_sqlite.dbapi
from airflow_gobblin.journal.journal import Journal
print(Journal.create(sys.argv[1], "installed").ingestion)
"""

PAGE = """
from importlib.metadata import entry_points
from importlib.resources import files

(entry,) = entry_points(group="airflow.plugins", name="gobblin")
from airflow_gobblin.plugins.page.showing import render

html = render("error", title="", detail="")
static = files("airflow_gobblin.plugins.page") / "static"
print(entry.load().name, *(n for n in ("page.css", "page.js") if f'"static/{n}"' in html and (static / n).is_file()))
"""


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel, its extras, and what they need, in the order that an installer chooses."""
    return make_environment(tmp_path_factory.mktemp("installed") / "env", f"{wheel}[sql,postgres]")


def run(python: Path, home: Path, program: str, *arguments: str) -> str:
    """The last line printed by a program that runs elsewhere and sees nothing of this checkout's environment."""
    hidden = ("PYTHONPATH", "SPARK_HOME", "VIRTUAL_ENV", "AIRFLOW_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"AIRFLOW_HOME": str(home), "PATH": f"{python.parent}:/usr/bin:/bin"}
    done = subprocess.run(
        [python, "-c", program, *arguments], capture_output=True, text=True, check=False, cwd="/", env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_it_parses_a_dag_and_opens_a_journal(python: Path, postgres_database: str, tmp_path: Path) -> None:
    dag = shutil.copy(ROOT / "dags" / "flights.py", tmp_path / "my_flights.py")
    where, *tasks = json.loads(run(python, tmp_path / "home", PARSE, str(dag)))
    assert Path(where).is_relative_to(python.parents[1])
    assert [task.removeprefix("flights.") for task in tasks] == [
        "verify_recover",
        "create_work_units",
        "pack.extract",
        "pack.write_commit_steps",
        "pack.execute_commit_steps",
        "finish",
    ]
    assert run(python, tmp_path / "home", OPEN, postgres_database) == "installed"


def test_it_has_the_page_with_all_its_files(python: Path, tmp_path: Path) -> None:
    assert run(python, tmp_path / "home", PAGE) == "gobblin page.css page.js"


@pytest.mark.slow
def test_it_is_installed_by_the_lines_of_the_readme(tmp_path: Path) -> None:
    """Typed in the checkout, where the README is, they install the package and a complete Spark."""
    python = make_environment(tmp_path / "env")
    (line, again) = re.findall(r"^\$ pip (.+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    pip(python, *shlex.split(line))
    pip(python, *shlex.split(again))
    version = run(python, tmp_path, CHECK_SPARK)
    assert f"'pyspark=={version}'" in line
    assert run(python, tmp_path, "import airflow_gobblin; print(airflow_gobblin.__file__)").startswith(str(tmp_path))


def test_spark_is_whole_in_it_or_the_error_shows_how_to_make_it_whole(python: Path, tmp_path: Path) -> None:
    pins = (ROOT / ".setup" / "pins.txt").read_text()
    (version,), (client,) = (
        re.findall(r"^pyspark==(\S+)", pins, re.MULTILINE),
        re.findall(r"^pyspark-client==\S+", pins, re.MULTILINE),
    )
    output = run(python, tmp_path, CHECK_SPARK)
    if output == version:  # pyspark happened to be installed last
        install(python, client, dependencies=False, again=True)
        output = run(python, tmp_path, CHECK_SPARK)
    assert "was overwritten by pyspark-client" in output
    (wanted,) = re.findall(r"Install pyspark last: pip install --force-reinstall --no-deps '(\S+)'", output)
    assert wanted == f"pyspark=={version}"
    install(python, wanted, dependencies=False, again=True)
    assert run(python, tmp_path, CHECK_SPARK) == version
