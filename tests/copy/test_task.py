"""A Spark task of a mirror: one of its bundles is copied at a time, while those before it are made durable."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Lock

import pytest

from airflow_gobblin.copy.blocks import Checksum
from airflow_gobblin.copy.conversion.converting import ConvertingOrigin
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.transfer.local import DiskDestination
from airflow_gobblin.model import wire
from airflow_gobblin.model.work import UnitResult, UnitState
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.probe import Needs
from airflow_gobblin.spark.task import TaskSpec, run_task
from tests.copy.mirrors import Trees

NAMES = ["a", "b", "c", "d", "e", "f"]


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskSpec:
    """A task of a mirror, with a bundle for each file."""
    monkeypatch.setattr("airflow_gobblin.copy.bundles.MOST_FILES", 1)
    trees = Trees(tmp_path)
    for name in NAMES:
        trees.write(f"set/{name}")
    opened = trees.opened()
    plan = create_work_units(opened, RunRequest("run"))
    (ref,) = plan.packs[0].datasets
    found = opened.staging.plan(ref.token)
    assert found is not None
    units = {ref.token: tuple(unit.id for unit in opened.staging.units(found) if unit.files)}
    root, folder = opened.files.root, opened.staging.folder
    return TaskSpec((), root, folder, "a0", plan.run, units, {}, SparkConnections({}), Needs(()))


def results(order: TaskSpec) -> list[UnitResult]:
    """The results of a task."""
    return [wire.loads(result, UnitResult, "a result") for _, result in run_task(order)]


def test_the_next_bundle_is_copied_while_one_is_made_durable(order: TaskSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, finish, second, turn = ConvertingOrigin.copy_to_disk, DiskDestination.finish, Event(), Lock()
    copied: list[str] = []

    def copying(self: ConvertingOrigin, entry: Entry, file: int, checksum: Checksum) -> None:
        assert turn.acquire(blocking=False), "one at a time"
        copy(self, entry, file, checksum)
        copied.append(entry.path)
        turn.release()
        if len(copied) == 2:
            second.set()

    def finishing(self: DiskDestination) -> None:
        assert second.wait(30), "the next one waits for the disk"
        finish(self)

    monkeypatch.setattr(ConvertingOrigin, "copy_to_disk", copying)
    monkeypatch.setattr(DiskDestination, "finish", finishing)
    found = results(order)
    assert [result.state for result in found] == [UnitState.SUCCESSFUL] * len(NAMES)
    assert [file.path.rpartition("/")[2] for result in found for file in result.files] == NAMES
    assert sorted(copied) == NAMES


def test_a_bundle_that_cannot_be_made_durable_has_failed_alone(
    order: TaskSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = DiskDestination.finish

    def finishing(self: DiskDestination) -> None:
        if "c" in self._made:
            raise OSError(5, "the disk is broken")
        finish(self)

    monkeypatch.setattr(DiskDestination, "finish", finishing)
    states = [result.state for result in results(order)]
    assert states == [UnitState.FAILED if name == "c" else UnitState.SUCCESSFUL for name in NAMES]
