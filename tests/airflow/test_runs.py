"""Whole runs in a real Airflow on real Spark."""

from __future__ import annotations

import json
from collections import Counter

from tests.airflow.conftest import Shops
from tests.airflow.shop import STAGES


def test_a_run_publishes_every_row_once_and_the_next_has_nothing_to_do(shops: Shops) -> None:
    (shop,) = shops("everyday", max_packs=2, spark=True)
    first, state = shop.run()
    assert state == "success", shop.states(first)
    shop.check()
    assert {t.label for t in shop.tasks(first, "extract")} == {"orders", "countries"}

    shop.sell(20)
    second, state = shop.run()
    assert state == "success", shop.states(second)
    shop.check()
    assert shop.slots("orders") == 2

    log = shop.log(second, "execute_commit_steps")
    assert "slot 2: step 1 of 3 is done" in log
    assert "'orders': committed, committed in slot 2" in log
    table = shop.log(second, "finish")
    assert "predicted load" in table
    assert "orders     committed  2     1      20" in table


def test_nothing_but_short_references_goes_through_xcom(shops: Shops) -> None:
    (shop,) = shops("references")
    run_id, state = shop.run()
    assert state == "success", shop.states(run_id)
    entries = shop.airflow.request("GET", f"dags/{shop.name}/dagRuns/{run_id}/taskInstances/~/xcomEntries")
    found = {}
    for entry in entries["xcom_entries"]:
        path = f"dags/{shop.name}/dagRuns/{run_id}/taskInstances/{entry['task_id']}/xcomEntries/{entry['key']}"
        found[entry["task_id"], entry["key"]] = shop.airflow.request("GET", path)["value"]
    assert set(found) == {("create_work_units", "run"), ("create_work_units", "return_value")}
    assert len(json.dumps([*found.values()])) < 300


def test_what_is_published_is_announced_once(shops: Shops) -> None:
    (shop,) = shops("announced")
    run_id, state = shop.run()
    assert state == "success", shop.states(run_id)

    def events() -> Counter[str]:
        answer = shop.airflow.request("GET", "assets/events", params={"source_dag_id": shop.name, "limit": 100})
        return Counter(json.dumps(e["extra"], sort_keys=True) for e in answer["asset_events"])

    expected = {"urn": "orders", "slot": 1, "rows": 500, "files": 1, "watermark": 501}
    assert events() == Counter(
        [
            json.dumps(expected, sort_keys=True),
            json.dumps({**expected, "urn": "countries", "rows": 2, "watermark": None}, sort_keys=True),
        ]
    )
    assert shop.announced() == 1
    shop.clear(run_id, "finish")
    assert shop.wait(run_id) == "success"
    assert sum(events().values()) == 2


def test_one_bad_dataset_stops_no_other_and_the_run_is_red_at_its_end(shops: Shops) -> None:
    (shop,) = shops("apart")
    shop.break_("read-countries")
    run_id, state = shop.run()
    assert state == "failed"
    assert shop.states(run_id) == {
        "verify_recover": ["success"],
        "create_work_units": ["success"],
        "extract": ["failed"],
        "write_commit_steps": ["failed"],
        "execute_commit_steps": ["success"],
        "finish": ["failed"],
    }
    assert shop.published_rows("orders") == shop.source_rows("orders")
    assert shop.published_rows("countries") == Counter()
    assert "read-countries is broken" in shop.log(run_id, "extract").splitlines()[-1]
    assert "countries: failed" in shop.log(run_id, "finish")
    shop.mend("read-countries")
    shop.clear(run_id, "extract", "write_commit_steps", "execute_commit_steps", "finish")
    assert shop.wait(run_id) == "success"
    shop.check()
    assert shop.slots("orders") == 1


def test_a_run_without_a_plan_is_red_and_says_so(shops: Shops) -> None:
    (shop,) = shops("unplanned")
    shop.break_("datasets")
    run_id, state = shop.run()
    assert state == "failed"
    states = shop.states(run_id)
    assert [states[stage] for stage in STAGES[1:]] == [["failed"], *[["upstream_failed"]] * 3, ["failed"]]
    assert "create_work_units gave no plan" in shop.log(run_id, "finish")
    shop.mend("datasets")
    shop.clear(run_id, "create_work_units", downstream=True)
    assert shop.wait(run_id) == "success"
    shop.check()
