"""Run every test in five lanes at once, each a process of pytest: `make test`.

Tests that wait for Airflow, Spark and browsers leave a core free much of the time; others take it. Each lane starts the
services that it needs, on free ports and in folders of their own, so the lanes don't meet. `make durations` records how
long each file took in `durations.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from tests.services.environment import ROOT

DURATIONS = "GOBBLIN_DURATIONS"
"""The environment variable that names a file for the seconds of each test file; without it they aren't kept."""
RECORDED = ROOT / "tests" / "durations.json"
FOLDERS: Mapping[str, Sequence[str]] = {
    "airflow": ("admin", "airflow", "cli", "commit", "operators", "plugins", "run"),
    "spark": ("demo", "journal", "spark", "tables"),
    "services": ("copy", "rows", "steps", "storage"),
    "protocol": ("protocol",),
}
"""The folders of the lanes that wait for servers, and others that make up the time, and of the proofs; a last lane has the rest.
So one lane starts an Airflow, one a Spark in its process, and one HDFS. The proofs and the rest compute more than they wait: two
lanes of them keep two cores busy when the others have ended.
"""
LANES: Mapping[str, Sequence[str]] = {
    **{lane: [f"tests/{folder}" for folder in folders] for lane, folders in FOLDERS.items()},
    "computing": ["tests", *(f"--ignore=tests/{folder}" for folders in FOLDERS.values() for folder in folders)],
}
NICE: Mapping[str, int] = {"services": 1, "protocol": 8, "computing": 8}
"""How far lanes give way where several want a core. Those that wait most don't: they would be the last to end."""
MEMORY = "/dev/shm"
IN_MEMORY = frozenset(["airflow", "spark", "protocol", "computing"])
"""The lanes whose files are in memory, if there is plenty: they would take a fifth more CPU time on a disk, and wait for it. The
other one has what reads and writes files by itself.
"""
PLENTY = 12 << 30
"""The bytes of memory, available and in `MEMORY`, of which these lanes take some."""
MINUTES = 54.0
"""A lane that hasn't ended by then is killed: pytest's own limits end a test that hangs, but not a process that doesn't end."""
STUCK_SECONDS = 1500
"""A test that runs for so long ends its lane and shows the stack of each thread: pytest's own limit hasn't ended it."""
_SUMMARY = re.compile(r"\d+ \w+.* in \d+(\.\d+)?s\b")
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed|warnings?)\b")


def main() -> int:
    """Run all lanes, and report the result in one line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--record", action="store_true", help=f"keep how long each file took in {RECORDED.name}")
    parser.add_argument("options", nargs="*", help="for pytest, after --")
    arguments = parser.parse_args()
    started = time.monotonic()
    until = started + 60 * MINUTES
    lanes = {name: _Lane(name, [*chosen, *arguments.options]) for name, chosen in LANES.items()}
    codes = {name: lane.wait(until) for name, lane in lanes.items()}
    counts = sum((lane.counts for lane in lanes.values()), Counter())
    if arguments.record:
        durations: defaultdict[str, float] = defaultdict(float)
        for file, seconds in (took for lane in lanes.values() for took in lane.durations().items()):
            durations[file] += seconds  # several lanes have tests of a contract
        rounded = {file: round(seconds, 1) for file, seconds in sorted(durations.items())}
        RECORDED.write_text(json.dumps(rounded, indent=1) + "\n")
    failed = counts["failed"] + counts["error"] + counts["errors"]
    bad = [name for name, code in codes.items() if code]
    print(f"\nlanes: {', '.join(f'{name} ended with {code}' for name, code in codes.items())}; ", end="")
    print(f"in {(time.monotonic() - started) / 60:.1f} minutes")
    print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped", flush=True)
    for line in (line for lane in lanes.values() for line in lane.failures):
        print(line, end="", flush=True)  # once more: those of the lane that ended first are far above
    return 1 if bad else 0


class _Lane:
    """A process of pytest, whose lines are passed on with its name before them."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._durations = ROOT / ".build" / f"durations-{name}.json"
        self._durations.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*_priority(name), sys.executable, "-m", "pytest", *_options(name), *arguments],
            cwd=ROOT,
            env={**os.environ, **_place(name), DURATIONS: str(self._durations)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def wait(self, until: float) -> int:
        """The exit code of the process once it has ended.

        :param until: when it is killed, with all that it started, by the monotonic clock.
        """
        self._reader.join(max(0.0, until - time.monotonic()))
        if self._reader.is_alive():
            print(f"{self.name:>9} | this lane has not ended in time: it is killed", flush=True)
            pytest = psutil.Process(self._process.pid)
            for process in (*pytest.children(recursive=True), pytest):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._reader.join(60)
        return self._process.wait()

    def durations(self) -> Mapping[str, float]:
        """The seconds that each file took."""
        found: dict[str, float] = json.loads(self._durations.read_text())
        return found

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        summary = ""
        with self._process.stdout as lines:
            for line in lines:
                print(f"{self.name:>9} | {line}", end="", flush=True)
                summary = line if _SUMMARY.search(line) else summary  # processes that end later may warn after it
                if line.startswith(("FAILED ", "ERROR ")):
                    self.failures.append(line)
        self.counts.update({kind: int(number) for number, kind in _COUNT.findall(summary)})


def _priority(name: str) -> list[str]:
    return ["nice", "-n", str(NICE.get(name, 0))]


def _place(name: str) -> dict[str, str]:
    """Return the variables that put the temporary files of a lane's tests elsewhere than in the checkout, on its disk."""
    if name not in IN_MEMORY or not os.access(MEMORY, os.W_OK):
        return {}
    room = min(psutil.virtual_memory().available, psutil.disk_usage(MEMORY).free)
    return {"PYTEST_DEBUG_TEMPROOT": MEMORY} if room > PLENTY else {}


def _options(name: str) -> list[str]:
    """A lane's own options: a cache, and an end of what hangs, with the stacks of all threads."""
    settings = {
        "cache_dir": f".build/pytest-{name}",
        "faulthandler_timeout": STUCK_SECONDS,
        "faulthandler_exit_on_timeout": "true",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


if __name__ == "__main__":
    sys.exit(main())
