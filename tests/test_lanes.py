"""The lanes of `make test`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import lanes
from tests.services.environment import ROOT

HANGING = """
import subprocess
import time

def test_it():
    subprocess.Popen(["sh", "-c", "echo $$ > {left}; sleep 600"])
    time.sleep(600)
"""


def test_every_test_is_in_one_lane() -> None:
    *waiting, rest = lanes.LANES.values()
    folders = [folder for chosen in waiting for folder in chosen]
    assert all((ROOT / folder).is_dir() for folder in folders)
    assert len({*folders}) == len(folders)
    assert [f"--ignore={folder}" for folder in folders] == [option for option in rest if option != "tests"]


@pytest.mark.slow
def test_the_seconds_of_a_file_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "durations.json"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/model/test_packing.py"],
        cwd=ROOT,
        env={**os.environ, lanes.DURATIONS: str(kept)},
        check=True,
        capture_output=True,
    )
    assert [*json.loads(kept.read_text())] == ["tests/model/test_packing.py"]


@pytest.mark.slow
def test_a_lane_that_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    left = tmp_path / "left"
    (tmp_path / "test_left.py").write_text(HANGING.format(left=left))
    lane = lanes._Lane("hanging", ["-c", "pyproject.toml", str(tmp_path)])
    deadline = time.monotonic() + 120
    while not (left.exists() and left.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert lane.wait(time.monotonic()) != 0
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(left.read_text())).wait(60)


WARNING = """
import os
import subprocess

def test_it():
    runs = f"grep -qs 'State:.[^Z]' /proc/{os.getpid()}/status"
    subprocess.run(f"(while {runs}; do sleep 0.1; done; echo 3 warnings of mine) &", shell=True, check=True)
"""


@pytest.mark.slow
def test_what_is_printed_after_the_end_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "test_warning.py").write_text(WARNING)
    lane = lanes._Lane("warning", ["-c", "pyproject.toml", "-s", str(tmp_path)])
    assert lane.wait(time.monotonic() + 120) == 0
    assert lane.counts == {"passed": 1}


STUCK = """
import threading

import pytest

@pytest.fixture
def server():
    yield
    threading.Event().wait()

def test_it(server):
    pass
"""


@pytest.mark.slow
def test_what_is_stuck_ends_its_lane_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lanes, "STUCK_SECONDS", 1)
    (tmp_path / "test_stuck.py").write_text(STUCK)
    lane = lanes._Lane("stuck", [str(tmp_path / "test_stuck.py")])
    assert lane.wait(time.monotonic() + 60) == 1
    assert 'test_stuck.py", line 9 in server' in capsys.readouterr().out


@pytest.mark.slow
def test_what_failed_is_kept_to_be_named_once_more(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text("def test_it():\n    assert 1 == 2\n")
    lane = lanes._Lane("failing", [str(tmp_path / "test_failing.py")])
    assert lane.wait(time.monotonic() + 120) == 1
    assert [line.split()[0] for line in lane.failures] == ["FAILED"]
    assert "test_failing.py::test_it" in lane.failures[0]
