"""Whole runs in a real Airflow, some on real Spark, and what they report."""

from __future__ import annotations

import json
from collections import Counter

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.model.naming import dataset_key
from tests.airflow.conftest import Shops
from tests.airflow.shop import DATASETS, STAGES, Shop

PACK_STAGES = ("extract", "write_commit_steps", "execute_commit_steps")


def test_a_run_publishes_every_row_once_and_the_next_what_is_new(shops: Shops) -> None:
    (shop,) = shops("everyday", max_packs=2, spark="spark_here")
    first, state = shop.run()
    assert state == "success", shop.states(first)
    shop.check()
    for stage in PACK_STAGES:
        assert sorted(str(t.label) for t in shop.tasks(first, stage)) == ["countries", "orders"]

    shop.sell(20)
    second, state = shop.run("orders")
    assert state == "success", shop.states(second)
    shop.check()
    assert (shop.slots("orders"), shop.slots("countries")) == (2, 1)

    log = shop.log(second, "execute_commit_steps")
    assert "slot 2: step 1 of 3 is done" in log
    assert "'orders': committed, committed in slot 2" in log
    table = shop.log(second, "finish")
    assert "predicted load" in table
    assert "orders   committed  2     1      20" in table

    # Clearing an extract after everything is published submits nothing.
    events = shop.events()
    for downstream in (False, True):
        shop.clear(first, "extract", downstream=downstream)
        assert shop.wait(first) == "success", shop.states(first)
        log = shop.log(first, "extract")
        assert log.count("nothing to do") == 2
        assert "Spark-Submit cmd" not in log
        shop.check()
        assert (shop.slots("orders"), shop.slots("countries")) == (2, 1)
    assert shop.events() == events


def test_a_run_hands_over_short_references_only_and_is_announced_once(shops: Shops) -> None:
    (shop,) = shops("announced")
    run_id, state = shop.run()
    assert state == "success", shop.states(run_id)
    check_short_references(shop, run_id)
    expected = {"urn": "orders", "slot": 1, "rows": 500, "files": 1, "watermark": 501}
    countries = {**expected, "urn": "countries", "rows": 2, "watermark": None}
    assert shop.events() == Counter(json.dumps(event, sort_keys=True) for event in (expected, countries))
    assert shop.announced() == 1
    shop.clear(run_id, "execute_commit_steps", "finish")
    assert shop.wait(run_id) == "success"
    assert shop.events().total() == 2


def check_short_references(shop: Shop, run_id: str) -> None:
    """Nothing but references and links goes through XCom."""
    entries = shop.airflow.request("GET", f"dags/{shop.name}/dagRuns/{run_id}/taskInstances/~/xcomEntries")
    found = {}
    for entry in entries["xcom_entries"]:
        path = f"dags/{shop.name}/dagRuns/{run_id}/taskInstances/{entry['task_id']}/xcomEntries/{entry['key']}"
        answer = shop.airflow.request("GET", path, params={"map_index": entry["map_index"]})
        found[entry["task_id"], entry["key"]] = answer["value"]
    links = {
        key: value for key, value in found.items() if key[1].startswith("_link_")
    }  # where Airflow keeps extra links
    assert set(found) - set(links) == {("create_work_units", "run"), ("create_work_units", "return_value")}
    assert len(json.dumps([value for key, value in found.items() if key not in links])) < 300
    assert links
    assert all(isinstance(link, str) and len(link) < 300 for link in links.values())


def test_finish_is_tried_again_where_the_journal_cannot_be_read(shops: Shops) -> None:
    (shop,) = shops("unreadable", retries=5)
    shop.close("after-execute_commit_steps")
    run_id = shop.trigger()
    shop.wait_held("after-execute_commit_steps")
    record = shop.folder / "journal" / shop.name / "orders" / "d" / "0000000001"
    kept = record.rename(shop.folder / "kept")
    record.symlink_to(record)  # readers get an error of the disk
    shop.open("after-execute_commit_steps")
    shop.airflow.wait_for_task(shop.name, run_id, "finish", lambda task: task.try_number > 1)
    kept.replace(record)
    assert shop.wait(run_id) == "success", shop.states(run_id)
    shop.check()


def test_urns_of_any_kind_are_shown_safely(shops: Shops) -> None:
    hostile = ("orders\ncountries  committed  1  1  2", "countries/" + "x" * 1014)
    templates = ("{{ 6 * 7 }} é", "{% raise %}")
    made = {
        shop: urns
        for urns, name in ((hostile, "hostile"), (templates, "templates"))
        for shop in shops(name, urns=urns, max_packs=2)
    }
    runs = {shop: shop.trigger() for shop in made}
    for shop, run_id in runs.items():
        assert shop.wait(run_id) == "success", shop.states(run_id)
        for table, urn in zip(DATASETS, made[shop], strict=True):
            assert shop.published_rows(urn) == shop.source_rows(table)
        assert {json.loads(event)["urn"] for event in shop.events()} == {*made[shop]}
        shown = {dataset_key(urn) for urn in hostile} if made[shop] == hostile else {*templates}
        for stage in PACK_STAGES:
            assert {task.label for task in shop.tasks(run_id, stage)} == shown
        for stage in STAGES:
            log = shop.log(run_id, stage)
            assert not [line for line in log.splitlines() if line.startswith("countries  committed")], stage
        for urn in made[shop]:
            assert repr(urn) in shop.log(run_id, "create_work_units")
            assert (urn if urn.isprintable() else repr(urn)) in shop.log(run_id, "finish")


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
    assert shop.tries(run_id)["extract"] == 2
    assert shop.published_rows("orders") == shop.source_rows("orders")
    assert shop.published_rows("countries") == Counter()
    assert "read-countries is broken" in shop.end_of_log(run_id, "extract")
    assert "countries: failed" in shop.end_of_log(run_id, "finish")
    shop.mend("read-countries")
    shop.clear(run_id, "extract", downstream=True)
    assert shop.wait(run_id) == "success"
    shop.check()
    assert shop.slots("orders") == 1


def test_what_no_retry_can_heal_fails_at_once(shops: Shops) -> None:
    unconnected, unplanned, untabled = (
        *shops("no-spark", spark="spark_nowhere"),
        *shops("no-database", "no-table"),
    )
    unplanned.airflow.request("DELETE", f"connections/shop_{unplanned.name}")
    untabled.execute("DROP TABLE countries")
    runs = {shop: shop.trigger() for shop in (unconnected, unplanned, untabled)}
    for shop, run_id in runs.items():
        assert shop.wait(run_id) == "failed"
        assert set(shop.tries(run_id).values()) <= {0, 1}, (shop.name, shop.tries(run_id))

    run_id = runs[unconnected]
    assert shop_states(unconnected.states(run_id)) == "success success failed failed success failed"
    assert "Spark connection 'spark_nowhere': Airflow has no such connection" in unconnected.end_of_log(
        run_id, "extract"
    )

    end = unplanned.end_of_log(runs[unplanned], "finish")
    assert "connection 'shop_no-database': Airflow has no connection of this id" in end
    assert unplanned.published_rows("orders") == Counter()

    run_id = runs[untabled]
    assert shop_states(untabled.states(run_id)) == "success success success success success failed"
    assert "countries: failed" in untabled.end_of_log(run_id, "finish")
    assert untabled.published_rows("orders") == untabled.source_rows("orders")


def shop_states(states: dict[str, list[str | None]]) -> str:
    """The states of a run's tasks, one of each, in the order of the stages."""
    return " ".join(str(state) for stage in STAGES for state in states[stage])


def test_a_run_without_a_plan_is_red_and_reports_it(shops: Shops) -> None:
    (shop,) = shops("unplanned")
    shop.break_("datasets")
    run_id, state = shop.run()
    assert state == "failed"
    states = shop.states(run_id)
    assert [states[stage] for stage in STAGES[1:]] == [["failed"], *[["upstream_failed"]] * 3, ["failed"]]
    assert shop.tries(run_id)["create_work_units"] == 2
    assert "create_work_units gave no plan" in shop.end_of_log(run_id, "finish")
    shop.mend("datasets")
    shop.clear(run_id, "create_work_units", downstream=True)
    assert shop.wait(run_id) == "success"
    shop.check()


def test_a_dataset_is_quarantined_when_three_runs_could_not_finish_it_and_the_others_go_on(shops: Shops) -> None:
    (shop,) = shops("quarantine", max_packs=2)
    shop.break_("step-orders")
    run_id = ""
    for runs in range(1, 5):
        shop.sell(10)
        if runs == 4:  # it is so until somebody releases it
            shop.mend("step-orders")
        run_id, state = shop.run()
        assert state == "failed"
        assert shop.published_rows("orders") == Counter()
        assert shop.published_rows("countries") == shop.source_rows("countries")
        assert shop.slots("countries") == runs
        # Each of its slots is announced, once, though each run is red.
        announced = [(event["urn"], event["slot"]) for event in map(json.loads, shop.events().elements())]
        assert sorted(announced) == [("countries", slot + 1) for slot in range(runs)]
        found = shop.journal.state("orders")
        assert (len(found.failures), found.quarantined) == (min(runs, 3), runs >= 3)
    assert "orders: quarantined" in shop.end_of_log(run_id, "finish")
    assert "step-orders is broken" in shop.end_of_log(run_id, "finish")

    Administration(shop.journal, str(shop.folder / "lake"), "a tester").release("orders", "it is mended")
    run_id, state = shop.run()
    assert state == "success", shop.states(run_id)
    shop.check()
    assert shop.slots("orders") == 2
