"""Backfills in a real Airflow, over the timetable that keeps data intervals and takes URNs as partition keys."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.airflow.conftest import Shops
from tests.airflow.shop import Shop

CREATE = "airflow backfill create --dag-id {name} --from-date {first} --to-date {last} --max-active-runs 1"


def open_days(shops: Shops, name: str, first: int, last: int, **options: Any) -> Shop:
    """A shop with visits on ten days, some of which are scheduled, run to their ends."""
    (shop,) = shops(name, days=(f"2026-01-{first:02}", f"2026-01-{last:02}"), **options)
    for day in range(first, last + 1):
        run_id = shop.airflow.wait_for("a run", lambda at=f"2026-01-{day:02}": run_ids(shop).get(at))  # type: ignore[misc]
        assert shop.wait(run_id) == "success", shop.states(run_id)
    assert published(shop) == visits(shop, range(first, last + 1))
    return shop


def visits(shop: Shop, days: range) -> Counter[str]:
    """The visits of some days, as the source has them now."""
    return Counter({row: n for row, n in shop.source_rows("visits").items() if json.loads(row)["day"] in days})


def published(shop: Shop) -> Counter[str]:
    return shop.published_rows("visits")


def run_ids(shop: Shop) -> dict[str, str]:
    """The runs of its DAG, by logical date, with their states."""
    answer = shop.airflow.request("GET", f"dags/{shop.name}/dagRuns", params={"limit": 100})
    return {str(run["logical_date"])[:10]: run["dag_run_id"] for run in answer["dag_runs"]}


def backfill(shop: Shop, first: int, last: int, *, state: str, conf: object, reprocess: str = "none") -> list[str]:
    """Run a backfill of some days to its end, as the UI starts it.

    :return: its runs.
    """
    days = [f"2026-01-{day:02}" for day in range(first, last + 1)]
    body = {
        "dag_id": shop.name,
        "from_date": f"{days[0]}T00:00:00Z",
        "to_date": f"{days[-1]}T00:00:00Z",
        "max_active_runs": 1,
        "reprocess_behavior": reprocess,
        "dag_run_conf": conf,
    }
    shop.airflow.request("POST", "backfills", json=body)
    return ended(shop, days, state=state)


def typed(shop: Shop, day: int, *, state: str, conf: object) -> list[str]:
    """Run a backfill of a day to its end, as it is typed.

    :return: its runs.
    """
    at = f"2026-01-{day:02}"
    shop.airflow.command(f"{CREATE.format(name=shop.name, first=at, last=at)} --dag-run-conf '{json.dumps(conf)}'")
    return ended(shop, [at], state=state)


def ended(shop: Shop, days: list[str], *, state: str) -> list[str]:
    """Wait for the runs of some days.

    :return: them.
    """
    runs = [run_ids(shop)[day] for day in days]
    for run_id in runs:
        assert shop.wait(run_id) == state, shop.log(run_id, "finish")
    return runs


def end_backfill(shop: Shop) -> None:
    """Cancel a backfill whose runs have ended: Airflow has one per DAG at a time, and checks for its end every half a minute."""
    for one in shop.airflow.request("GET", "backfills", params={"dag_id": shop.name})["backfills"]:
        if one["completed_at"] is None:
            try:
                shop.airflow.request("PUT", f"backfills/{one['id']}/cancel")
            except RuntimeError as error:  # that check may come first
                if ": 409 " not in str(error):
                    raise


def records(shop: Shop) -> dict[str, bytes | None]:
    """The journal, whole."""
    store = shop.journal.store
    return {key: store.get(key) for key in store.list("")}


def by_hand(shop: Shop, key: str, run_id: str, *, state: str) -> None:
    """A run by hand of one dataset, which its partition key names."""
    body = {"logical_date": None, "partition_key": key, "dag_run_id": run_id}
    shop.airflow.request("POST", f"dags/{shop.name}/dagRuns", json=body)
    assert shop.wait(run_id) == state, shop.states(run_id)


def refused(shop: Shop, run_id: str) -> str:
    """The error of the task that plans, which failed at once."""
    assert shop.states(run_id)["create_work_units"] == ["failed"]
    assert shop.tries(run_id)["create_work_units"] == 1
    return shop.log(run_id, "create_work_units")


def test_backfills_typed_and_from_the_ui(shops: Shops) -> None:
    shop = open_days(shops, "days", 3, 4)
    only = {"datasets": ["visits"]}

    # For a dataset that doesn't exist nothing is done, and the right one can be asked for then.
    before = records(shop)
    (unknown,) = typed(shop, 1, conf={"datasets": ["vists"]}, state="failed")
    refusal = refused(shop, unknown)
    assert "can't plan datasets ['vists']: the source has no such: it has ['countries', 'visits']" in refusal
    assert "Did you mean 'visits'?" in refusal
    by_hand(shop, "nope", "of-nothing", state="failed")
    assert "datasets ['nope']: the source has no such: it has ['countries', 'visits']" in refused(shop, "of-nothing")
    assert records(shop) == before
    end_backfill(shop)

    # Everything open is filled, day by day, and for this dataset only.
    countries = shop.slots("countries")
    backfill(shop, 1, 2, conf=only, state="success", reprocess="failed")
    assert published(shop) == visits(shop, range(1, 5))
    assert (shop.slots("visits"), shop.slots("countries")) == (4, countries)
    end_backfill(shop)

    # A run by hand of one dataset, which its partition key names, takes the rest, and nothing twice.
    by_hand(shop, "visits", "by-hand", state="success")
    assert published(shop) == shop.source_rows("visits")
    assert (shop.slots("visits"), shop.slots("countries")) == (5, countries)

    # A covered range is refused by name, and nothing changes.
    shop.execute("UPDATE visits SET page = 'amended' WHERE day = 3")
    stale = published(shop)
    (covered,) = backfill(shop, 3, 3, conf=only, state="failed", reprocess="completed")
    refusal = shop.end_of_log(covered, "finish")
    assert "is covered already" in refusal
    assert f"in slot 1 by run '{shop.name}/{covered}'" in refusal
    assert published(shop) == stale
    end_backfill(shop)

    # To replace it, ask for that.
    (replaced,) = backfill(shop, 3, 3, conf={**only, "replace": True}, state="success", reprocess="completed")
    assert published(shop) == shop.source_rows("visits")
    assert shop.slots("visits") == 6
    history = shop.journal.history("visits")
    assert [ref.slot for ref in history.slot(6).decision.replaces] == [1]

    # A cleared task then finds its work done, and its log has the command to do it again all the same.
    shop.clear(replaced, "create_work_units", downstream=True)
    assert shop.wait(replaced) == "success", shop.states(replaced)
    assert shop.slots("visits") == 6
    log = shop.log(replaced, "create_work_units")
    assert f"already committed in slot 6 by run '{shop.name}/{replaced}'" in log
    end_backfill(shop)
    (command,) = [line.partition("type: ")[2] for line in log.splitlines() if "type: airflow backfill create" in line]
    shop.execute("UPDATE visits SET page = 'amended again' WHERE day = 3")
    shop.airflow.command(command)
    assert shop.wait(replaced) == "success", shop.states(replaced)
    assert shop.slots("visits") == 7
    assert published(shop) == shop.source_rows("visits")


def test_a_range_from_the_form(shops: Shops) -> None:
    shop = open_days(shops, "form", 3, 3, offered=True)
    form = {
        "datasets": ["visits"],
        "start": "2026-01-06",
        "end": "2026-01-08T00:00:00Z",
        "replace": False,
        "request": None,
    }
    runs = [shop.airflow.trigger(shop.name, conf=form)]
    with pytest.raises(RuntimeError, match=r"(?s)400|422.*nosuch"):
        shop.airflow.trigger(shop.name, conf={"datasets": ["nosuch"]})
    with pytest.raises(RuntimeError, match="nosuch"):
        shop.airflow.command(
            CREATE.format(name=shop.name, first="2026-01-05", last="2026-01-05")
            + """ --dag-run-conf '{"datasets": ["nosuch"]}'"""
        )
    assert "2026-01-05" not in run_ids(shop)
    bad = {"start": "2026-01-08", "end": "2026-01-06"}, {"dataset": ["visits"]}, {"replace": True}, {"start": "soon"}
    runs += [shop.airflow.trigger(shop.name, conf=conf) for conf in bad]
    assert shop.wait(runs[0]) == "success", shop.states(runs[0])
    assert published(shop) >= visits(shop, range(6, 8))
    errors = (
        "is not before its end",
        "Did you mean 'datasets'?",
        "there is no start",
        "a point in time, as ISO 8601 text",
    )
    for run_id, expected in zip(runs[1:], errors, strict=True):
        assert shop.wait(run_id) == "failed"
        assert expected in shop.log(run_id, "verify_recover")
        assert set(shop.tries(run_id).values()) <= {0, 1}, "an error that no retry heals fails at once"


def test_a_backfill_and_a_run_of_all_that_is_open_at_once(shops: Shops) -> None:
    shop = open_days(shops, "at-once", 3, 3)
    shop.close("read-visits")
    everything = shop.trigger("visits")
    shop.wait_held("read-visits")
    form = {"datasets": ["visits"], "start": "2026-01-06", "end": "2026-01-08"}
    part = shop.airflow.trigger(shop.name, conf=form)
    assert shop.wait(part) == "success", shop.states(part)
    assert published(shop) == visits(shop, range(3, 4)) + visits(shop, range(6, 8))
    shop.open("read-visits")
    assert shop.wait(everything) == "failed"
    assert "Clear create_work_units with its downstream tasks to plan anew" in shop.end_of_log(everything, "finish")
    shop.clear(everything, "create_work_units", downstream=True)
    assert shop.wait(everything) == "success", shop.states(everything)
    assert published(shop) == visits(shop, range(3, 11))
