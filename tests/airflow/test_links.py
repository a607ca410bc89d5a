"""The links of tasks: from each to the page of its dataset, and from there to its run."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx

from tests.airflow.conftest import Shops
from tests.airflow.shop import Shop
from tests.services.airflow import Airflow


def links(shop: Shop, run_id: str, name: str) -> list[dict[str, Any]]:
    """The links of a task's instances."""
    base = f"dags/{shop.name}/dagRuns/{quote(run_id)}/taskInstances"
    return [
        shop.airflow.request("GET", f"{base}/{task.task_id}/links", params={"map_index": task.map_index})["extra_links"]
        for task in shop.tasks(run_id, name)
    ]


def test_a_task_leads_to_its_dataset_and_the_dataset_to_its_run(airflow: Airflow, shops: Shops) -> None:
    lists = httpx.get(f"{airflow.url}/gobblin/", timeout=60)
    assert (lists.status_code, "linked" in lists.text) == (200, False), "the lists are known for a while from here on"
    (shop,) = shops("linked", max_packs=2)
    run_id, state = shop.run()
    assert state == "success"
    (whole,) = links(shop, run_id, "create_work_units")
    assert parse_qs(urlsplit(whole["Datasets"]).query) == {"dag_id": ["linked"], "ingestion": ["linked"]}
    packs = [parse_qs(urlsplit(found["Datasets"]).query) for found in links(shop, run_id, "execute_commit_steps")]
    assert sorted(words["urn"][0] for words in packs) == ["countries", "orders"]
    with httpx.Client(base_url=shop.airflow.url, timeout=60) as client:
        for found in links(shop, run_id, "execute_commit_steps"):
            way = client.get(f"/{found['Datasets']}")
            assert way.status_code == 303
            page = client.get(way.headers["location"].removeprefix("/plugin/gobblin"))
            assert page.status_code == 200
            assert f'href="../dags/linked/runs/{run_id}"' in page.text
        run = client.get("/gobblin/run", params={"dag_id": "linked", "run_id": run_id})
        assert ">orders</a>" in run.text
        assert ">countries</a>" in run.text
