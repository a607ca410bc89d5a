"""The suites can fail: each of the broken implementations is caught, by the case that is about its fault."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from airflow_gobblin import testing
from tests.services.environment import ROOT
from tests.test_import_direction import run_python
from tests.testing import (
    broken_finders,
    broken_sinks,
    broken_sources,
    broken_steps,
    broken_storage,
    broken_tables,
    broken_trees,
    broken_works,
)

MODULES = (
    broken_finders,
    broken_storage,
    broken_sinks,
    broken_sources,
    broken_steps,
    broken_tables,
    broken_trees,
    broken_works,
)
BROKEN = {
    name: (module, value) for module in MODULES for name, value in vars(module).items() if name.startswith("Test")
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """The broken classes and those of the named cases that fail."""
    folder = tmp_path_factory.mktemp("broken")
    options = ("-q", "-rf", "--tb=no", f"--basetemp={folder}/tmp", "-o", f"cache_dir={folder}/cache")
    cases = [f"{module.__file__}::{name}::{broken.caught_by}" for name, (module, broken) in BROKEN.items()]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            *cases,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return {*re.findall(r"^FAILED \S+?::(\w+)::(\w+)", done.stdout, re.MULTILINE)}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_is_caught(fault: str, failed: set[tuple[str, str]]) -> None:
    assert (fault, BROKEN[fault][1].caught_by) in failed


def test_every_suite_has_faults_that_it_is_tried_on() -> None:
    tried = {base for _, broken in BROKEN.values() for base in broken.__mro__}
    suites = {name for name in testing.__all__ if name.endswith("Contract")}
    assert {name for name in suites if getattr(testing, name) not in tried} == set()


def test_the_kit_loads_without_airflow_spark_and_arrow() -> None:
    program = (
        "import sys; sys.modules['airflow'] = sys.modules['pyspark'] = None; import airflow_gobblin.testing as kit\n"
        "print(any(name.startswith('airflow_gobblin.testing.') or name == 'pyarrow' for name in sys.modules))\n"
        "print(len([getattr(kit, name) for name in kit.__all__]))"
    )
    assert run_python(program) == f"False\n{len(testing.__all__)}\n"
