"""The part of the demo about files: a mirror is killed while it overwrites, recovers, and rsync finds nothing left to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path

import psutil

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Decision, OutcomeState
from tests.demo.kill import stop_when
from tests.demo.runs import Runs, airflow_below
from tests.demo.show import headline, show, table
from tests.demo.verdict import DemoError
from tests.services.airflow import Airflow
from tests.services.environment import ROOT

__all__ = ["play"]

DAG, URN = "mirror_dataset", "package#files"
PACKAGES = ("airflow", "sqlalchemy", "pyarrow")
TRIES = 3
"""How often a run that is to be killed may be too fast."""


def play(folder: Path) -> str:
    """Run the demo below an empty folder.

    :return: its last line.
    :raises DemoError: a promise doesn't hold.
    """
    started = time.monotonic()
    rsync = shutil.which("rsync")
    if rsync is None:
        raise DemoError("rsync, which checks the result, is not installed (Debian: apt-get install rsync)")
    headline(f"The source: the files of {', '.join(PACKAGES)}, as they are installed")
    tree = Tree(folder / "source")
    show(f"{len(tree.files()):,} files of {tree.bytes() / 1e6:,.0f} MB.")

    headline("Airflow: API server, DAG processor, scheduler, LocalExecutor")
    with airflow_below(folder / "airflow", _environment(folder, tree)) as airflow:
        show(f"up after {time.monotonic() - started:.0f} s. It runs dags/mirror_dataset.py unchanged, with Spark.")
        demo = Demo(airflow, tree, folder / "lake")
        demo.mirror("Run 1: everything is new")
        killed = demo.kill_a_run()
        demo.recover(killed)
        demo.mirror("Run {}: nothing is new")

    headline("The checker: rsync, dry, by the content of each file")
    command = [rsync, "-n", "-rtpl", "--omit-dir-times", "--delete", "--checksum", "--itemize-changes"]
    command += ["--exclude=/_gobblin", f"{tree.root}/", f"{demo.target}/"]
    show(f"$ {' '.join(command).replace(rsync, 'rsync', 1).replace(f'{ROOT}/', '')}")
    left = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if left:
        raise DemoError(f"rsync finds differences: {' '.join(left.splitlines()[:5])}")
    show("It prints nothing: source and target are equal.")
    return (
        f"passed: {demo.runs.count} runs, 1 of them killed while it overwrote, and the next recovered; "
        f"{len(tree.files()):,} files, each as in the source; {time.monotonic() - started:.0f} s"
    )


class Tree:
    """The source: a copy of installed packages, which changes between the runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._changes = 0
        places = sysconfig.get_paths()["purelib"]
        for name in PACKAGES:
            without = shutil.ignore_patterns("__pycache__", "*.so*", "*.a")
            shutil.copytree(Path(places) / name, root / name, ignore=without)

    def files(self) -> list[Path]:
        """All files."""
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def bytes(self) -> int:
        """Their size."""
        return sum(path.stat().st_size for path in self.files())

    def change(self) -> tuple[list[str], list[str], list[str]]:
        """Change the tree, as an upgrade would.

        :return: the paths of files that changed, are new, and are gone.
        """
        self._changes += 1
        files = self.files()
        changed, gone = files[self._changes :: 3], files[self._changes + 1 :: 30]
        for path in changed:
            with path.open("ab") as file:
                file.write(b"# it was changed\n")
        for path in gone:
            path.unlink()
        new = [self.root / PACKAGES[0] / f"added_{self._changes}" / f"{number}.py" for number in range(20)]
        new[0].parent.mkdir()
        for path in new:
            path.write_text(f"NUMBER = {path.stem}\n")
        return self._paths(changed), self._paths(new), self._paths(gone)

    def _paths(self, files: list[Path]) -> list[str]:
        return [str(path.relative_to(self.root)) for path in files]


@dataclass(frozen=True)
class Killed:
    """A run that was killed: its slot's decision, and the files that it had to overwrite."""

    decision: Decision
    changed: list[str]


class Demo:
    """The runs, and what they left."""

    def __init__(self, airflow: Airflow, tree: Tree, lake: Path) -> None:
        self.runs = Runs(airflow, DAG)
        self.target = lake / "copy"
        self._tree = tree
        self._lake = lake

    @property
    def journal(self) -> Journal:
        return Journal.open(f"file://{self._lake}/journal", "package")

    def mirror(self, title: str) -> None:
        """Run once."""
        headline(title.format(self.runs.count + 1))
        before = self.journal.state(URN).head if self.runs.count else 0
        self.runs.finish_well(self.runs.trigger())
        slots = self.journal.history(URN).slots
        if slots[-1].decision.slot == before:
            show("The file set is idle: nothing was written.")
        else:
            self._show_slot(slots[-1].decision.slot)

    def kill_a_run(self) -> Killed:
        """Let the source change, and kill the run that mirrors it while it overwrites files."""
        for _ in range(TRIES):
            headline(f"Run {self.runs.count + 1}: killed between a rename and the outcome")
            changed = self._change()
            killed = self._kill(changed)
            if killed is not None:
                return killed
            show("It was too fast, and ended well. Once more, with other files.")
        raise DemoError(f"of {TRIES} runs, none could be stopped while it overwrote files")

    def recover(self, killed: Killed) -> None:
        """Let the source change once more, and run again."""
        headline(f"Run {self.runs.count + 1}: recovers first, then goes on")
        self._change()
        run = self.runs.trigger()
        self.runs.finish_well(run)
        slots = self.journal.history(URN).slots
        slot = slots[killed.decision.slot - 1]
        lines = [line for line in self.runs.logged_by(run, "verify_recover", URN) if ": step " not in line]
        if not lines or slot.outcome is None or slot.outcome.state is not OutcomeState.DONE:
            raise DemoError(f"slot {killed.decision.slot} was not finished by verify_recover of {run}: {lines}")
        show(f"verify_recover finished slot {killed.decision.slot}:")
        for line in lines:
            show(f"  {line}")
        show("Then the run's own difference was planned and published:")
        self._show_slot(slots[-1].decision.slot)

    def _change(self) -> list[str]:
        changed, new, gone = self._tree.change()
        show(f"In the source {len(changed):,} files change, {len(new):,} are new, and {len(gone):,} go.")
        return changed

    def _show_slot(self, number: int) -> None:
        slot = self.journal.history(URN).slots[number - 1]
        show(
            f"Slot {number}: {slot.files:,} files of {slot.bytes / 1e6:,.0f} MB copied, {slot.replaced:,} of them in place of "
            f"others, {slot.deleted:,} deleted."
        )

    def _kill(self, changed: list[str]) -> Killed | None:
        """Start a run, and kill the task that overwrites files; `None` if it was too fast."""
        first = [self.target / path for path in changed]
        inodes = [path.stat().st_ino for path in first]
        run = self.runs.trigger()
        publishing = self.runs.wait_for_publisher(run, URN)
        stopped = False
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(publishing.pid)
            middle = len(first) // 3  # steps are in the order of the paths: enough are done, and enough are left
            stopped = stop_when(process, lambda: os.stat(first[middle]).st_ino != inodes[middle], seconds=60)
        slot = self.journal.history(URN).pending
        if not stopped or slot is None:
            if stopped:
                process.resume()
            self.runs.finish_well(run)
            return None
        done = self._overwritten(changed)
        process.kill()
        psutil.wait_procs([process], timeout=10)
        if self._overwritten(changed) != done:
            raise DemoError(f"process {process.pid} went on after it was killed")
        number = slot.decision.slot
        show(
            f"SIGKILL to process {process.pid}, execute_commit_steps [{URN}]. Slot {number} is decided, and has no outcome:"
        )
        table(
            ("files to overwrite", "have the new content", "have the old content"),
            [(len(changed), sum(done), len(done) - sum(done))],
        )
        show("Each file is whole, the old one or the new one. The slot is bound to be finished.")
        self.runs.give_up(run)
        return Killed(slot.decision, changed)

    def _overwritten(self, changed: list[str]) -> list[bool]:
        """Which files have the content of the source.

        :raises DemoError: none or all have.
        """
        done = [cmp(self._tree.root / path, self.target / path, shallow=False) for path in changed]
        if all(done) or not any(done):
            raise DemoError(f"of {len(done)} files {sum(done)} are overwritten: it was not killed between two")
        return done


def _environment(folder: Path, tree: Tree) -> Mapping[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # A slow machine is not a dead task.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "FLIGHTS_LAKE": str(folder / "flights"),
        "MIRROR_LAKE": str(folder / "lake"),
        "MIRROR_SOURCE": str(tree.root),
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} -XX:+UseSerialGC",
    }
