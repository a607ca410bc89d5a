"""The examples of the pages on writing and testing one's own pass their suites, in a folder of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from airflow_gobblin import testing
from tests.services.environment import ROOT
from tests.test_docs import BLOCK

PAGE = (ROOT / "docs" / "testing-your-own.md").read_text()
BLOCKS = dict(BLOCK.findall(PAGE + (ROOT / "docs" / "extending.md").read_text()))
SUITES = [name.removeprefix("suite ") for name in BLOCKS if name.startswith("suite ")]


@pytest.mark.parametrize("suite", SUITES)
def test_an_example_passes_its_suite(suite: str, tmp_path: Path) -> None:
    for name, code in BLOCKS.items():
        (tmp_path / f"{name.split()[1]}.py").write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ("-q", "-p", "no:cacheprovider", "-W", "error", f"--basetemp={tmp_path}/tmp")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"{suite}.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE), "none is skipped"


@pytest.mark.parametrize("part", ["acme_lines", "acme_json", "acme_marker"])
def test_an_example_is_short(part: str) -> None:
    module, suite = BLOCKS[f"module {part}"], BLOCKS[f"suite test_{part}"]
    assert len((module + suite).splitlines()) < 150


def test_the_page_installs_what_the_suites_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (extra,) = re.findall(r"^\$ pip install '\.\[(\w+)\]'$", PAGE, re.MULTILINE)
    assert [requirement.partition(">")[0] for requirement in extras[extra]] == ["pytest"]


def test_the_page_has_each_suite() -> None:
    assert [name for name in testing.__all__ if f"`{name}`" not in PAGE] == []
