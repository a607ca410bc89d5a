"""The tree of commands: Airflow imports it for every command of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_gobblin.cli import ahead, commands, copying, definition, pipelines, verifying
from tests.cli.command import run

LIGHT = """
import json, sys
import airflow.cli.cli_config
before = set(sys.modules)
from airflow_gobblin.cli.definition import get_gobblin_cli_commands
get_gobblin_cli_commands()
print(json.dumps(sorted({name for name in set(sys.modules) - before if "." not in name or name.startswith("airflow")})))
"""
NAMES = [command.name for command in definition.COMMANDS]
WITHOUT_DAG = {"copy"}
"""The commands that work without a DAG: such a one makes a job of its own, and so changes none that others rely on."""


@pytest.mark.slow
def test_the_tree_is_light() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout)) - set(sys.stdlib_module_names)
    assert loaded - {"airflow_gobblin"} == {"airflow_gobblin.cli", "airflow_gobblin.cli.definition"}


def test_airflow_knows_the_commands() -> None:
    assert definition.get_gobblin_cli_commands in ProvidersManager().cli_command_functions  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_there_and_explains_itself(name: str) -> None:
    function = name.replace("-", "_") if name != "import" else "import_"
    assert any(hasattr(module, function) for module in (commands, ahead, copying, verifying))
    done = run(["gobblin", name, "--help"])
    assert done.status == 0
    assert ("--dag-id" in done.out) == (name not in WITHOUT_DAG)


@pytest.mark.parametrize("name", [command.name for command in definition.OF_STAGES])
def test_every_command_on_stages_is_there_and_explains_itself(name: str) -> None:
    assert hasattr(pipelines, name)
    done = run(["gobblin", "pipeline", name, "--help"])
    assert done.status == 0
    assert "--dag-id" in done.out
    assert ("--reason" in done.out) == ("--yes" in done.out) == (name == "rewind")


def test_what_changes_something_needs_a_reason_and_asks() -> None:
    looking = {"datasets", "show", "history", "pending", "verify", "audit", "export", "check", "plan"} | WITHOUT_DAG
    for command in definition.COMMANDS:
        flags = {flag for arg in command.args for flag in arg.flags}
        assert ({"--reason", "--yes"} <= flags) == (command.name not in looking)
