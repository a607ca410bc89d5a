"""The two lanes of `make test`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import lanes
from tests.services.environment import ROOT


def test_every_test_is_in_one_lane() -> None:
    assert all((ROOT / "tests" / folder).is_dir() for folder in lanes.WAITING)
    first, second = lanes.LANES.values()
    assert [f"--ignore={folder}" for folder in first] == [option for option in second if option != "tests"]


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
