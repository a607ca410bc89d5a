"""A durable driver under a real Airflow: the task is killed in the middle, and its next try finds the driver again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_gobblin.spark.connections import FILE_VARIABLE
from tests.airflow.conftest import Shops
from tests.services.spark_standalone import SparkStandalone, running_spark_standalone


@pytest.fixture
def connections_file(tmp_path: Path) -> Path:
    """Where drivers on the cluster find their secrets."""
    file = tmp_path / "connections.json"
    file.touch(mode=0o600)
    return file


@pytest.fixture
def cluster(connections_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    """A master and two workers."""
    folder, environment = tmp_path_factory.mktemp("durable"), {FILE_VARIABLE: str(connections_file)}
    with running_spark_standalone(folder, workers=2, worker_environment=environment) as running:
        yield running


@pytest.mark.soak
def test_an_extract_is_killed_and_its_driver_is_found_again(
    shops: Shops, cluster: SparkStandalone, connections_file: Path
) -> None:
    conf = {**cluster.conf, "spark.cores.max": "1"}
    (shop,) = shops("durable", spark="spark_cluster", conf=conf, durable=True)
    connections_file.write_text(json.dumps({"shop_durable": f"sqlite:///{shop.folder}/shop.db"}))
    connection = {"connection_id": "spark_cluster", **json.loads(cluster.connection)}
    connection["extra"] = json.dumps(connection["extra"])
    shop.airflow.request("POST", "connections", json=connection)

    shop.close("read-orders")
    run_id = shop.trigger()
    shop.wait_held("read-orders")
    (driver,) = cluster.drivers
    (task,) = shop.tasks(run_id, "extract")
    assert task.pid is not None
    child = psutil.Process(task.pid)
    supervisor = child.parent()
    assert supervisor is not None
    child.suspend()  # so that it notices nothing, and can't end its driver
    supervisor.kill()
    child.kill()
    shop.airflow.wait_for_task(shop.name, run_id, "extract", lambda t: t.try_number == 2 and t.state == "running")
    shop.airflow.wait_for("the driver in the log", lambda: driver in shop.log(run_id, "extract") or None)
    assert cluster.drivers == [driver]
    shop.open("read-orders")
    assert shop.wait(run_id) == "success", shop.states(run_id)
    assert cluster.drivers == [driver]
    shop.check()
    assert shop.tries(run_id)["extract"] == 2

    # Clearing anything once all is done finds nothing to do, and submits nothing.
    shop.clear(run_id, "extract")
    assert shop.wait(run_id) == "success"
    assert cluster.drivers == [driver]
