"""The example DAG of Kafka, as it is, on a real Airflow, Spark and broker: runs are held, then due, then flushed.

Its connection is by TLS, with a password that is nowhere to be found.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import NullPool, create_engine

from airflow_gobblin.journal.journal import Journal
from tests.airflow.canary import CommandLines, Places
from tests.rows.sources.kafka_lake import expect_ordered, expect_same, numbered, records_of
from tests.services.airflow import Airflow
from tests.services.environment import ROOT
from tests.services.kafka import PASSWORDS, USER, Kafka

DAG_ID = "kafka_to_lake"
TOPICS = ("clicks", "orders.eu")
HOUR_MS = 3600 * 1000
WRONG = "wr0ng-k4nary"


@pytest.fixture
def dag(airflow: Airflow, kafka: Kafka) -> Iterator[str]:
    """The DAG, with connections to a Spark and to a broker that has its topics."""
    for topic in TOPICS:
        kafka.create_topic(topic, partitions=3)
        kafka.produce(topic, numbered(100), 0, b"of a user")
    airflow.put_connection(connection_id="spark_default", conn_type="spark", host="local[1]")
    connect(airflow, kafka)
    airflow.add_dag(f"{DAG_ID}.py", (ROOT / "dags" / f"{DAG_ID}.py").read_text(), DAG_ID)
    yield DAG_ID
    for topic in TOPICS:
        kafka.delete_topic(topic)


def connect(airflow: Airflow, kafka: Kafka, password: str | None = None) -> None:
    """Make the connection to the broker.

    :param password: by default, the right one.
    """
    extra = json.dumps(kafka.secure_settings(password=password))
    airflow.put_connection(connection_id="kafka_default", conn_type="kafka", extra=extra)


def run(airflow: Airflow, dag: str, **conf: object) -> str:
    """A run, which succeeds.

    :return: its id.
    """
    run_id, state = airflow.run(dag, conf=conf)
    assert state == "success", airflow.states(dag, run_id)
    return run_id


def log(airflow: Airflow, run_id: str, name: str) -> str:
    tasks = [task for task in airflow.task_instances(DAG_ID, run_id) if task.name == name]
    return "\n".join(line for task in tasks for line in airflow.log(DAG_ID, run_id, task))


def published(lake: Path, topic: str) -> list[str]:
    """The files of a topic, by the journal."""
    return Journal.open(f"file://{lake}/journal", "clicks").read_dataset(topic).paths


def expect_all(kafka: Kafka, lake: Path, topic: str) -> None:
    """Expect what an independent consumer reads."""
    tables = [pq.read_table(path) for path in published(lake, topic)]
    expect_same((record for table in tables for record in records_of(table)), kafka.records(topic))
    for table in tables:
        expect_ordered(table)


def test_the_example_holds_what_is_small_publishes_what_is_due_and_is_flushed(
    airflow: Airflow, kafka: Kafka, dag: str, metadata: str
) -> None:
    lake = airflow.home / "kafka"
    with CommandLines() as command_lines:
        held = run(airflow, dag)
        for topic in TOPICS:
            assert f"'{topic}': held, 100 rows" in log(airflow, held, "create_work_units")
        assert airflow.states(dag, held)["extract"] == ["skipped"], "no Spark starts"
        assert not (lake / "raw" / "clicks").exists()

        old = round(time.time() * 1000) - 2 * HOUR_MS
        kafka.produce(
            "clicks", [b"it waits for two hours"], 1, timestamp=old
        )  # the first one of a partition shows the age
        run(airflow, dag)
        expect_all(kafka, lake, "clicks")
        assert len(published(lake, "clicks")) == 1
        assert not (lake / "raw" / "orders.eu").exists(), "the other topic waits on"

        kafka.produce("clicks", numbered(50, 100))
        run(airflow, dag, flush=True)
        for topic in TOPICS:
            expect_all(kafka, lake, topic)
        assert [len(published(lake, topic)) for topic in TOPICS] == [2, 1]

        connect(airflow, kafka, password=WRONG)
        run_id = airflow.trigger(dag)
        airflow.wait_for_task(dag, run_id, "create_work_units", lambda task: task.state == "up_for_retry")
        assert "Correct user, password and security protocol" in log(airflow, run_id, "create_work_units")
        airflow.request("PATCH", f"dags/{dag}/dagRuns/{run_id}", json={"state": "failed"})  # in place of its next try
        folders = {"lake": lake, "task logs": airflow.home / "logs", "component logs": airflow.logs}
        places = Places(folders, [create_engine(metadata, poolclass=NullPool)], command_lines)
        for secret in (WRONG, PASSWORDS[USER]):
            assert places.with_secret(secret) == {}
        places.expect_searched("clicks", "kafka_to_lake", tables=("xcom", "task_instance"))
