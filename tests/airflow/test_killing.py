"""Tasks are killed, or outlive their own attempt, and every row is published once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pytest

from tests.airflow.conftest import Shops
from tests.airflow.shop import Shop
from tests.services.airflow import TaskInstance

# Where a task of each kind is held: in the middle of its work, or when all of it is done and Airflow doesn't know yet.
GATES = {
    "verify_recover": "step",
    "create_work_units": "after-create_work_units",
    "extract": "read",
    "write_commit_steps": "publish",
    "execute_commit_steps": "step",
    "finish": "after-finish",
}


@dataclass(frozen=True)
class Held:
    """A task that is held at its gate."""

    shop: Shop
    run_id: str
    gate: str
    task: TaskInstance

    @property
    def processes(self) -> list[psutil.Process]:
        """The process that supervises the task, the task's own, and what it has started."""
        child = psutil.Process(self.task.pid or 0)
        supervisor = child.parent()
        return [p for p in (supervisor, child, *child.children(recursive=True)) if p is not None]


def hold_each(shops: Shops, prefix: str) -> Iterator[Held]:
    """A run of each shop, held in a task of one kind."""
    made = dict(zip(GATES, shops(*(f"{prefix}-{stage}" for stage in GATES)), strict=True))
    recovering = made["verify_recover"]
    recovering.break_("step")  # an earlier run leaves a decided slot that isn't finished
    _, state = recovering.run()
    assert state == "failed"
    recovering.mend("step")
    assert recovering.journal.state("orders").pending
    runs = {}
    for stage, shop in made.items():
        shop.sell(10)
        shop.close(GATES[stage])
        runs[stage] = shop.trigger()
    for stage, shop in made.items():
        shop.wait_held(GATES[stage])
        (task,) = shop.tasks(runs[stage], stage)
        assert task.state == "running", (stage, task)
        yield Held(shop, runs[stage], GATES[stage], task)


def check_all(held: list[Held]) -> None:
    for one in held:
        assert one.shop.wait(one.run_id) == "success", (one.shop.name, one.shop.states(one.run_id))
        one.shop.check()
        (task,) = one.shop.tasks(one.run_id, one.task.name)
        assert task.try_number == 2, one.shop.name


def test_a_task_of_each_kind_is_killed(shops: Shops) -> None:
    held = list(hold_each(shops, "killed"))
    for one in held:
        assert one.task.pid
        os.kill(one.task.pid, signal.SIGKILL)
    check_all(held)
    for one in held:
        one.shop.open(one.gate)


@pytest.mark.timeout(900)
def test_a_zombie_of_each_kind_goes_on_beside_and_after_its_second_try(shops: Shops) -> None:
    held = list(hold_each(shops, "zombie"))
    stopped = [process for one in held for process in one.processes]
    for process in stopped:
        process.suspend()
    for one in held:
        one.shop.airflow.wait_for_task(
            one.shop.name, one.run_id, one.task.name, lambda t: t.try_number == 2 and t.state != "up_for_retry"
        )
    for one in held[::2]:  # half of them go on beside the second try, the others when all is over
        release(one, stopped)
    check_all(held)
    for one in held[1::2]:
        release(one, stopped)
    gone = [one.task.pid for one in held if one.task.pid]
    held[0].shop.airflow.wait_for("the end of the zombies", lambda: True if not any(map(alive, gone)) else None)
    check_all(held)
    for one in held:
        one.shop.sell(5)
    runs = {one.shop: one.shop.trigger() for one in held}
    for shop, run_id in runs.items():
        assert shop.wait(run_id) == "success", (shop.name, shop.states(run_id))
        shop.check()


def release(one: Held, stopped: list[psutil.Process]) -> None:
    """Open the gate and let the zombie go on."""
    one.shop.open(one.gate)
    for process in stopped:
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                process.resume()


def alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
