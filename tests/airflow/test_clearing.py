"""Whatever a user clears, every row is published once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.airflow.conftest import Shops
from tests.airflow.shop import STAGES, Shop
from tests.proofs import Proved, chosen_by, fresh_seed, sampled, shares

Order = tuple[tuple[str, ...], ...]
"""Clears, one after the other; a name that ends in `+` takes its downstream tasks along."""
ORDERS: tuple[Order, ...] = (
    # Each task alone, and all at once.
    *(((stage,),) for stage in STAGES),
    (STAGES,),
    # One after the other, some with what is downstream of them.
    (("verify_recover",), ("create_work_units",)),
    (("extract+",), ("create_work_units+",)),
    (("execute_commit_steps",), ("write_commit_steps",), ("extract",)),
    (("finish",), ("execute_commit_steps+",), ("extract",), ("write_commit_steps+",)),
    (("write_commit_steps", "finish"), ("create_work_units", "execute_commit_steps")),
    (("verify_recover+",), ("write_commit_steps+",)),
)
OVERTAKEN = ("plan-countries", "read-orders", "publish-orders", "step-orders", None)
"""The gates at which the first of two runs is overtaken by the second; without one, both go on freely."""


Orders = Mapping[Shop, Order]


def clear(shop: Shop, run_id: str, names: tuple[str, ...]) -> None:
    shop.clear(run_id, *(name.rstrip("+") for name in names), downstream=names[0].endswith("+"))


def clear_in_order(orders: Orders, runs: Mapping[Shop, str], state: str) -> None:
    """Clear tasks of many shops' runs, each in its order; every time, the run must end the same way."""
    for n in range(max(map(len, orders.values()))):
        cleared = {shop: order[n] for shop, order in orders.items() if n < len(order)}
        for shop, names in cleared.items():
            clear(shop, runs[shop], names)
        for shop, names in cleared.items():
            assert shop.wait(runs[shop]) == state, (shop.name, names, shop.states(runs[shop]))


def trigger_all(shops: list[Shop]) -> dict[Shop, str]:
    return {shop: shop.trigger() for shop in shops}


@shares(10)
def test_tasks_of_a_finished_run_are_cleared_in_many_orders(shops: Shops, share: int, proved: Proved) -> None:
    seed = fresh_seed()
    orders = sampled(ORDERS, share, seed)
    made = shops(*(f"finished-{seed}-{n}" for n in range(len(orders))))
    runs = trigger_all(made)
    for shop, run_id in runs.items():
        assert shop.wait(run_id) == "success", shop.states(run_id)
    clear_in_order(dict(zip(made, orders, strict=True)), runs, "success")
    for shop in made:
        shop.check()
        assert (shop.slots("orders"), shop.slots("countries")) == (1, 1), shop.name
    for shop in (shop for shop, order in zip(made, orders, strict=True) if ("execute_commit_steps",) in order):
        assert "already committed in slot 1" in shop.log(runs[shop], "execute_commit_steps")
    proved("tasks of finished runs are cleared", f"{len(orders)} orders; none broke a promise", chosen_by(share, seed))


@shares(10)
def test_tasks_of_a_failed_run_are_cleared_in_many_orders(shops: Shops, share: int, proved: Proved) -> None:
    seed = fresh_seed()
    orders = sampled(ORDERS, share, seed)
    made = shops(*(f"failed-{seed}-{n}" for n in range(len(orders))), retries=0)
    undecided, decided = made[::2], made[1::2]  # the extract of a dataset fails, or one of its commit steps
    for shop in made:
        shop.break_("read-orders" if shop in undecided else "step-orders")
    runs = trigger_all(made)
    for shop, run_id in runs.items():
        assert shop.wait(run_id) == "failed", shop.states(run_id)
    clear_in_order(dict(zip(made, orders, strict=True)), runs, "failed")
    for shop in made:
        assert shop.published_rows("orders") == Counter(), shop.name
        assert shop.published_rows("countries") == shop.source_rows("countries"), shop.name
        assert shop.slots("countries") == 1, shop.name
        shop.mend("read-orders" if shop in undecided else "step-orders")
    for shop in decided:
        # It is one run that failed, however often its tasks did.
        assert len(shop.journal.state("orders").failures) == 1
    clear_in_order(dict.fromkeys(made, (("verify_recover+",),)), runs, "success")
    for shop in made:
        shop.check()
        assert (shop.slots("orders"), shop.slots("countries")) == (1, 1), shop.name
    proved("tasks of failed runs are cleared", f"{len(orders)} orders; none broke a promise", chosen_by(share, seed))


def test_an_old_run_cleared_after_a_newer_one_commits_nothing(shops: Shops) -> None:
    (shop,) = shops("old")
    old, state = shop.run()
    assert state == "success"
    shop.sell(10)
    _, state = shop.run()
    assert state == "success"
    assert shop.slots() == 2
    for names in (("finish",), ("write_commit_steps", "execute_commit_steps"), ("create_work_units+",), STAGES):
        clear(shop, old, names)
        assert shop.wait(old) == "success", (names, shop.states(old))
        shop.check()
        assert (shop.slots("orders"), shop.slots("countries")) == (2, 2)
    assert f"already committed in slot 1 by run 'old/{old}'" in shop.log(old, "create_work_units")


def test_an_old_run_that_failed_fills_its_gap_or_commits_nothing(shops: Shops) -> None:
    (shop,) = shops("gap", retries=0)
    shop.break_("read-orders")
    old, state = shop.run()
    assert state == "failed"
    shop.mend("read-orders")
    shop.sell(10)
    new, state = shop.run()
    assert state == "success", shop.states(new)
    shop.check()
    slots = shop.slots()
    clear(shop, old, ("extract+",))
    assert shop.wait(old) == "success", shop.states(old)
    shop.check()
    assert shop.slots() == slots
    shop.sell(10)
    clear(shop, old, ("create_work_units+",))  # a manual run reaches up to now
    assert shop.wait(old) == "success", shop.states(old)
    shop.check()
    assert shop.slots() == slots + 1


@shares(10)
def test_two_runs_at_once_publish_every_row_once(shops: Shops, share: int, proved: Proved) -> None:
    seed = fresh_seed()
    gates = sampled(OVERTAKEN, share, seed)
    made = dict(zip(shops(*(f"together-{seed}-{gate or 'free'}" for gate in gates)), gates, strict=True))
    for shop, gate in made.items():
        if gate:
            shop.close(gate)
    first = trigger_all([*made])
    for shop, gate in made.items():
        if gate:
            shop.wait_held(gate)
    second = trigger_all([*made])
    for shop, run_id in second.items():
        wait_or_plan_anew(shop, run_id)
        shop.check()
    for shop, gate in made.items():
        if gate:
            shop.open(gate)
    for shop, run_id in first.items():
        shop.wait(run_id)
        if made[shop] in ("read-orders", "publish-orders"):
            assert "was committed by another run" in shop.log(run_id, "write_commit_steps")
        lost = wait_or_plan_anew(shop, run_id)
        shop.check()
        assert shop.slots("orders") == 1, shop.name
        if made[shop]:
            assert lost is (made[shop] != "step-orders"), shop.name
    proved(
        "two runs at once", f"overtaken at {', '.join(map(str, gates))}; none broke a promise", chosen_by(share, seed)
    )


def wait_or_plan_anew(shop: Shop, run_id: str) -> bool:
    """Wait for the end of a run. Of two snapshots at once one loses, and its run reports what to clear.

    :return: whether it lost.
    """
    if shop.wait(run_id) == "success":
        return False
    end = shop.end_of_log(run_id, "finish")
    assert "countries: lost" in end, end
    assert "Clear create_work_units with its downstream tasks to plan anew" in end, end
    assert "orders: " not in end, end
    clear(shop, run_id, ("create_work_units+",))
    assert shop.wait(run_id) == "success", (shop.name, shop.states(run_id))
    return True
