"""Whatever a user clears, every row is published once."""

from __future__ import annotations

from collections import Counter

from tests.airflow.conftest import Shops
from tests.airflow.shop import STAGES, Shop

# Each is a list of clears, one after the other; a name that ends in `+` takes its downstream tasks along.
ORDERS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("verify_recover",),),
    (("create_work_units",),),
    (("extract",),),
    (("write_commit_steps",),),
    (("execute_commit_steps",),),
    (("finish",),),
    (STAGES,),
    (("create_work_units+",),),
    (("extract+",),),
    (("execute_commit_steps",), ("write_commit_steps",), ("extract",)),
    (("write_commit_steps", "finish"), ("create_work_units", "execute_commit_steps")),
    (("verify_recover+",), ("write_commit_steps+",)),
)


def clear(shop: Shop, run_id: str, names: tuple[str, ...]) -> None:
    shop.clear(run_id, *(name.rstrip("+") for name in names), downstream=names[0].endswith("+"))


def test_tasks_of_a_finished_and_of_a_failed_run_are_cleared_in_a_dozen_orders(shops: Shops) -> None:
    finished, failed = shops("finished", "failed")
    failed.break_("read-orders")
    runs = {finished: finished.trigger(), failed: failed.trigger()}
    assert finished.wait(runs[finished]) == "success"
    assert failed.wait(runs[failed]) == "failed"
    for order in ORDERS:
        for names in order:
            for shop, run_id in runs.items():
                clear(shop, run_id, names)
            states = {shop: shop.wait(run_id) for shop, run_id in runs.items()}
            assert states[finished] == "success", (names, finished.states(runs[finished]))
            finished.check()
            assert (finished.slots("orders"), finished.slots("countries")) == (1, 1), names
            assert failed.published_rows("orders") == Counter(), names
            assert failed.published_rows("countries") == failed.source_rows("countries"), names
            failed.check_folder()
    assert "already committed in slot 1" in finished.log(runs[finished], "execute_commit_steps")
    failed.mend("read-orders")
    clear(failed, runs[failed], ("extract+",))
    assert failed.wait(runs[failed]) == "success", failed.states(runs[failed])
    failed.check()


def test_two_runs_at_once_publish_every_row_once(shops: Shops) -> None:
    (shop,) = shops("together")
    shop.close("publish")
    first = shop.trigger()
    shop.airflow.wait_for("the first run at its decision", lambda: shop.held("publish") or None)
    second = shop.trigger()
    assert shop.wait(second) == "success"  # it has planned the same rows, and decides first
    shop.check()
    shop.open("publish")
    assert shop.wait(first) in ("success", "failed")
    shop.check()
    assert "was committed by another run" in shop.log(first, "write_commit_steps")


def test_an_old_run_cleared_after_newer_ones_commits_nothing(shops: Shops) -> None:
    (shop,) = shops("old")
    old, state = shop.run()
    assert state == "success"
    for _ in range(2):
        shop.sell(10)
        _, state = shop.run()
        assert state == "success"
    assert shop.slots() == 3
    for names in (("finish",), ("write_commit_steps", "execute_commit_steps"), ("create_work_units+",), STAGES):
        clear(shop, old, names)
        assert shop.wait(old) == "success", (names, shop.states(old))
        shop.check()
        assert shop.slots() == 3
    assert "already committed in slot 1" in shop.log(old, "create_work_units")


def test_an_old_run_that_failed_fills_its_gap_or_commits_nothing(shops: Shops) -> None:
    (shop,) = shops("gap")
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
