"""Tasks are killed, or outlive their own attempt, and every row is published once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.errors import StepError
from tests.airflow.conftest import Shops
from tests.airflow.shop import STAGES, Shop
from tests.proofs import Proved, chosen_by, fresh_seed, one_in, sampled, shares
from tests.services.airflow import TaskInstance

# Where a task of each kind is held in the middle of its work.
MIDDLES = {
    "verify_recover": "step-orders",  # a file of the slot that it recovers is moved, another isn't
    "create_work_units": "plan-countries",  # one dataset is planned
    "extract": "read-orders",  # rows are read
    "write_commit_steps": "publish-orders",  # the steps are being made
    "execute_commit_steps": "step-orders",
    "finish": "undo-orders",  # an abandoned slot is being cleaned up
}
AIRFLOW_KILLS, SPARK_KILLS = 24, 8
LAUNCHER = "org.apache.spark.launcher.Main"
"""A Java that comes before the driver's, and makes its command line."""
# And where all of it is done, and Airflow doesn't know yet.
ENDS = {stage: f"after-{stage}" for stage in STAGES}


@dataclass(frozen=True)
class Held:
    """A task that is held at its gate."""

    shop: Shop
    run_id: str
    gate: str
    task: TaskInstance

    @property
    def child(self) -> psutil.Process:
        """The task's own process."""
        assert self.task.pid is not None
        return psutil.Process(self.task.pid)

    @property
    def supervisor(self) -> psutil.Process:
        """The process that supervises it."""
        found = self.child.parent()
        assert found is not None
        return found


def hold_each(shops: Shops, prefix: str, gates: Mapping[str, str]) -> list[Held]:
    """A run of each shop, held in a task of one kind."""
    made = dict(zip(gates, shops(*(f"{prefix}-{stage}" for stage in gates)), strict=True))
    leave_a_pending_slot(
        [shop for stage, shop in made.items() if stage == "verify_recover" or gates[stage].startswith("undo")]
    )
    for stage, shop in made.items():
        if gates[stage].startswith("undo"):
            abandon(shop)
    runs = {}
    for stage, shop in made.items():
        shop.sell(10)
        shop.close(gates[stage])
        runs[stage] = shop.trigger()
    held = []
    for stage, shop in made.items():
        shop.wait_held(gates[stage])
        (task,) = shop.tasks(runs[stage], stage)
        assert task.state == "running", (stage, task)
        held.append(Held(shop, runs[stage], gates[stage], task))
    return held


def leave_a_pending_slot(shops: Iterable[Shop]) -> None:
    """Let a run of each shop decide a slot and not finish it."""
    runs = {}
    for shop in shops:
        shop.break_("step-orders")
        runs[shop] = shop.trigger()
    for shop, run_id in runs.items():
        assert shop.wait(run_id) == "failed"
        assert shop.journal.state("orders").pending
        shop.mend("step-orders")


def abandon(shop: Shop) -> None:
    """Give the pending slot up, and fail to clean up after it: the next run will."""
    administration = Administration(shop.journal, str(shop.folder / "lake"), "a tester")
    shop.break_("undo-orders")
    with pytest.raises(StepError, match="undo-orders is broken"):
        administration.abandon("orders", "to see what is left")
    shop.mend("undo-orders")


def check_all(held: Iterable[Held]) -> None:
    for one in held:
        assert one.shop.wait(one.run_id) == "success", (one.shop.name, one.shop.states(one.run_id))
        one.shop.check()
        (task,) = one.shop.tasks(one.run_id, one.task.name)
        assert task.try_number == 2, one.shop.name


@one_in(2, "gates")
@pytest.mark.parametrize("gates", [MIDDLES, ENDS], ids=["in_the_middle_of_its_work", "when_its_work_is_done"])
@shares(10)
def test_a_task_of_each_kind_is_killed(shops: Shops, gates: Mapping[str, str], share: int, proved: Proved) -> None:
    seed = fresh_seed()
    chosen = dict(sampled([*gates.items()], share, seed))
    held = hold_each(shops, f"killed-{seed}", chosen)
    for one in held:
        one.child.kill()
    check_all(held)
    proved(
        "tasks of a real Airflow are killed",
        f"{', '.join(chosen.values())}; none broke a promise",
        chosen_by(share, seed),
    )


@shares(6)
def test_a_zombie_of_each_kind_goes_on_beside_and_after_its_second_try(
    shops: Shops, share: int, proved: Proved
) -> None:
    seed = fresh_seed()
    chosen = dict(sampled([*MIDDLES.items()], share, seed))
    held = hold_each(shops, f"zombie-{seed}", chosen)
    zombies = {one: (one.supervisor, one.child) for one in held}
    for supervisor, child in zombies.values():
        supervisor.suspend()
        child.suspend()
    for one in held:
        one.shop.airflow.wait_for_task(
            one.shop.name, one.run_id, one.task.name, lambda t: t.try_number == 2 and t.state != "up_for_retry"
        )
    for one in held[::2]:  # half of them go on beside the second try, the others when all is over
        release(one, *zombies[one])
    check_all(held)
    for one in held[1::2]:
        release(one, *zombies[one])
    children = [child for _, child in zombies.values()]
    held[0].shop.airflow.wait_for("the end of the zombies", lambda: None if any(map(alive, children)) else True)
    check_all(held)
    runs = {}
    for one in held:
        one.shop.sell(5)
        runs[one.shop] = one.shop.trigger()
    for shop, run_id in runs.items():
        assert shop.wait(run_id) == "success", (shop.name, shop.states(run_id))
        shop.check()
    proved("zombies of a real Airflow go on", f"{', '.join(chosen)}; none broke a promise", chosen_by(share, seed))


def release(one: Held, supervisor: psutil.Process, child: psutil.Process) -> None:
    """Open the gate and let the zombie go on: the task first, or its supervisor might end it before it does anything."""
    one.shop.open(one.gate)
    child.resume()
    one.shop.airflow.wait_for(f"the zombie of {one.shop.name}", lambda: one.shop.passed(one.gate) or None)
    supervisor.resume()


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@shares(2)
def test_an_extract_on_spark_is_killed(shops: Shops, share: int, proved: Proved) -> None:
    """Its task, whose driver goes on beside that of the second try; or its driver."""
    seed = fresh_seed()
    victims = sampled(("task", "driver"), share, seed)
    made = shops(*(f"killed-{victim}-{seed}" for victim in victims), spark="spark_here")
    held = {}
    for victim, shop in zip(victims, made, strict=True):
        shop.close("read-orders")
        held[victim] = shop, shop.trigger()
    orphans = {}
    for victim, (shop, run_id) in held.items():
        shop.wait_held("read-orders")
        (extract,) = shop.tasks(run_id, "extract")
        assert extract.pid is not None
        driver = spark_driver(extract.pid)
        if victim == "task":
            os.kill(extract.pid, signal.SIGKILL)
            orphans[shop] = driver
        else:
            driver.kill()
    for shop, run_id in held.values():
        assert shop.wait(run_id) == "success", (shop.name, shop.states(run_id))
        shop.check()
        assert shop.tries(run_id)["extract"] == 2
        shop.open("read-orders")
    for shop, orphan in orphans.items():
        shop.airflow.wait_for("the end of the first driver", lambda orphan=orphan: None if alive(orphan) else True)  # type: ignore[misc]
        assert shop.passed("read-orders")
        shop.check()
    proved("extracts on real Spark are killed", f"{', '.join(victims)}; none broke a promise", chosen_by(share, seed))


@pytest.mark.soak
def test_tasks_of_every_kind_are_killed_at_any_moment(shops: Shops, proved: Proved) -> None:
    """At least 24 times: each shop has its kind of task, and a new run after each kill."""
    chance, killed, misses = random.Random(1), 0, 0
    made = dict(zip(STAGES, shops(*(f"random-{stage}" for stage in STAGES)), strict=True))

    def strike(stage: str, rows: int, delay: float) -> bool:
        shop = made[stage]
        shop.sell(rows)
        run_id = shop.trigger()
        task = running(shop, run_id, stage)
        time.sleep(delay)
        hit = killed_now(task)
        assert shop.wait(run_id) == "success", (shop.name, shop.states(run_id))
        shop.check()
        return hit

    with ThreadPoolExecutor(len(STAGES)) as pool:
        while killed < AIRFLOW_KILLS:
            assert misses < 2 * AIRFLOW_KILLS, f"only {killed} tasks were killed before they had ended"
            struck = [pool.submit(strike, stage, chance.randint(1, 40), chance.uniform(0, 0.5)) for stage in STAGES]
            hits = [one.result() for one in struck]
            killed, misses = killed + hits.count(True), misses + hits.count(False)
    proved(
        "tasks of a real Airflow",
        f"{killed} of {len(STAGES)} kinds were killed; {misses} had ended before; none broke a promise",
        "seed 1",
    )


@pytest.mark.soak
def test_tasks_and_drivers_on_spark_are_killed_at_any_moment(shops: Shops, proved: Proved) -> None:
    """At least 8 times, killing the task and its driver in turn."""
    chance, killed, misses = random.Random(2), 0, 0
    (shop,) = shops("random-spark", spark="spark_here")
    while killed < SPARK_KILLS:
        assert misses < SPARK_KILLS, f"only {killed} were killed before they had ended"
        shop.sell(chance.randint(1, 40))
        run_id = shop.trigger()
        task = running(shop, run_id, "extract")
        victim = task if task is None or killed % 2 == 0 else driver_of(shop, task)
        time.sleep(chance.uniform(0, 8))
        if killed_now(victim):
            killed += 1
        else:
            misses += 1
        assert shop.wait(run_id) == "success", (shop.name, shop.states(run_id))
        shop.check()
    proved(
        "tasks and drivers on real Spark",
        f"{killed} were killed; {misses} had ended before; none broke a promise",
        "seed 2",
    )


def running(shop: Shop, run_id: str, stage: str) -> psutil.Process | None:
    """The process of a task, when it has one; `None` if it ended meanwhile."""

    def found() -> psutil.Process | bool | None:
        for task in shop.tasks(run_id, stage):
            if task.state == "running" and task.pid is not None:
                with suppress(psutil.NoSuchProcess):
                    return psutil.Process(task.pid)
            if task.state in ("success", "failed"):
                return True
        return None

    process = shop.airflow.wait_for(f"{stage} of {shop.name}", found, every=0.1)  # a task takes a second or less
    return process if isinstance(process, psutil.Process) else None


def driver_of(shop: Shop, task: psutil.Process) -> psutil.Process | None:
    """The driver of a task, when it has one; `None` if the task ended meanwhile."""

    def found() -> psutil.Process | bool | None:
        with suppress(psutil.NoSuchProcess):
            some = (p for p in task.children(recursive=True) if name(p) == "java")
            return next((p for p in some if LAUNCHER not in p.cmdline()), None)
        return True

    process = shop.airflow.wait_for(f"the driver of {shop.name}", found)
    return process if isinstance(process, psutil.Process) else None


def killed_now(process: psutil.Process | None) -> bool:
    """Kill a process.

    :return: whether it was still running.
    """
    if process is None or not alive(process):
        return False
    with suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


def spark_driver(task: int) -> psutil.Process:
    """The driver that a task has started: its Java, which has started its Python."""
    (found,) = (p for p in psutil.Process(task).children(recursive=True) if name(p) == "java")
    return found


def name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""
