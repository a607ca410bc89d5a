"""Announcements to a real Airflow and its listeners: assets and their state, metrics, lineage, messages, callbacks, deadlines."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.events.assets import asset_uri
from tests.airflow.shop import Shop
from tests.events.channel import Channel, running_channel
from tests.services.airflow import Airflow, running_airflow
from tests.services.postgres import Postgres

DAG_FILE = """
from datetime import timedelta
from airflow.sdk import DAG, DeadlineAlert, DeadlineReference, SyncCallback
from airflow_gobblin.events.notifier import IngestionNotifier
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.model.work import ExtractKind
from gated import GatedSink, Gates
from shop_dag import wire_by_hand

settings = {{"ingestion": "{name}", "journal": "{folder}/journal", "webhook_conn_id": "chat", "code": ["gated"]}}
late = DeadlineAlert(
    reference=DeadlineReference.DAGRUN_QUEUED_AT,
    interval=timedelta(seconds=1),
    callback=SyncCallback(IngestionNotifier, kwargs={{**settings, "text": "It is late."}}),
)
arguments = {{"retries": 0, "on_failure_callback": IngestionNotifier(**settings), "on_success_callback": [
    lambda context: open("{folder}/succeeded", "a").write(context["ti"].task_id + "\\n") and None
]}}
tables = (
    SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id", urn="public.Orders"),
    SqlTable("countries", ExtractKind.SNAPSHOT_ONLY),
)
with DAG("{name}", schedule=None, deadline=late, default_args=arguments):
    wire_by_hand(Ingestion(
        name="{name}",
        source=SqlSource("shop_{name}", tables),
        sink=GatedSink(ParquetSink("{folder}/lake"), Gates("{folder}")),
        journal="{folder}/journal",
        code=("gated",),
    ))
"""


class Metrics:
    """A StatsD server that receives our metrics, with tags as InfluxDB has them."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def received(self) -> dict[str, str]:
        """The last value of each of our metrics since the last call."""
        found: dict[str, str] = {}
        while True:
            try:
                name, _, value = self.socket.recv(65536).decode().partition(":")
            except BlockingIOError:
                return found
            if ".gobblin." in name:
                found[name.removeprefix("airflow.")] = value


@pytest.fixture(scope="module")
def metrics() -> Iterator[Metrics]:
    made = Metrics()
    yield made
    made.socket.close()


@pytest.fixture(scope="module")
def channel() -> Iterator[Channel]:
    with running_channel() as running:
        yield running


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that OpenLineage writes to."""
    return tmp_path_factory.mktemp("lineage") / "events.jsonl"


@pytest.fixture(scope="module")
def airflow(
    metrics: Metrics,
    channel: Channel,
    lineage: Path,
    postgres_server: Postgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Airflow]:
    """An Airflow that announces through every channel."""
    metadata = postgres_server.create_database("announcing").replace("postgresql://", "postgresql+psycopg://")
    transport = {"type": "file", "log_file_path": str(lineage), "append": True}
    environment = {
        "AIRFLOW_CONN_CHAT": json.dumps({"conn_type": "gobblin_webhook", "password": channel.url}),
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata,
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(metrics.port),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "1",
    }
    with running_airflow(tmp_path_factory.mktemp("airflow"), environment) as running:
        (running.dags / ".airflowignore").write_text("gated.py\nshop_dag.py\n")
        for module in ("gated.py", "shop_dag.py"):
            running.add_dag(module, (Path(__file__).parent / module).read_text())
        yield running


@pytest.fixture
def shop(request: pytest.FixtureRequest, airflow: Airflow, tmp_path: Path) -> Iterator[Shop]:
    """A shop with the name that the test gives."""
    made = Shop(airflow, tmp_path / "shops", request.param)
    airflow.add_dag(f"{made.name}.py", DAG_FILE.format(name=made.name, folder=made.folder), made.name)
    yield made
    made.close_journal()


@pytest.mark.parametrize("shop", ["announced"], indirect=True)
def test_everybody_is_informed(shop: Shop, airflow: Airflow, metrics: Metrics, channel: Channel, lineage: Path) -> None:
    first, state = shop.run()
    assert state == "success", shop.states(first)
    assert shop.published_rows("public.Orders") == shop.source_rows("orders")

    # Metrics, tagged.
    uri = asset_uri("announced", "public.Orders")
    key = uri.rpartition("/")[2]
    found = metrics.received()
    assert found[f"gobblin.rows,ingestion=announced,dataset={key}"] == "500|c"
    assert found["gobblin.rows,ingestion=announced,dataset=countries"] == "2|c"
    assert found["gobblin.quarantines,ingestion=announced"] == "0|g"
    assert {name.partition(",")[0] for name in found} == {
        f"gobblin.{name}" for name in ("slots", "rows", "files", "bytes", "publish", "quarantines")
    }

    # One structured event a dataset, in the task's log.
    lines = [line for line in shop.log_entries(first, "execute_commit_steps") if line.startswith('{"event": "dataset_')]
    events = {event["urn"]: event for event in map(json.loads, lines)}
    assert {urn: (event["slot"], event["rows"], event["run_id"]) for urn, event in events.items()} == {
        "public.Orders": (1, 500, first),
        "countries": (1, 2, first),
    }
    assert len(lines) == 2

    # OpenLineage's, with its columns.
    outputs = airflow.wait_for("the lineage of both datasets", lambda: published_twice(lineage))
    assert set(outputs) == {f"{shop.folder}/lake/{key}", f"{shop.folder}/lake/countries"}
    orders = outputs[f"{shop.folder}/lake/{key}"]
    assert orders["outputFacets"]["outputStatistics"]["rowCount"] == 500
    columns = orders["facets"]["columnLineage"]["fields"]
    assert {name: [f["field"] for f in fields["inputFields"]] for name, fields in columns.items()} == {
        name: [name] for name in ("id", "item", "price")
    }

    # The callbacks of every task, which are called after its state is known; and the deadline's.
    tasks = Counter(task.task_id for task in airflow.task_instances("announced", first))
    succeeded = shop.folder / "succeeded"
    airflow.wait_for("the callbacks", lambda: Counter(succeeded.read_text().split()) == tasks or None)
    airflow.wait_for("the message of the deadline", lambda: channel.posted or None)
    ((_, body),) = channel.posted
    assert body["text"].startswith(f"It is late.\nA deadline of announced, run {first}, is missed.")

    # The watermark in the asset state store, once Airflow has the asset.
    airflow.wait_for("the asset", lambda: asset_of(airflow, uri))
    shop.sell(20)
    second, state = shop.run()
    assert state == "success", shop.states(second)
    copied = airflow.request("GET", f"assets/{asset_of(airflow, uri)}/state-store/watermark")
    assert copied["value"]["watermark"] == {"kind": "long", "value": 521}
    assert copied["value"]["slot"] == 2
    assert shop.events().total() == 4  # of a snapshot, each run


def published_twice(lineage: Path) -> dict[str, Any] | None:
    """The datasets that OpenLineage knows to be published, by name; `None` as long as they are less than two."""
    found = {
        output["name"]: output
        for event in map(json.loads, lineage.read_text().splitlines())
        if event["eventType"] == "COMPLETE" and event["job"]["name"].endswith("execute_commit_steps")
        for output in event["outputs"]
    }
    return found if len(found) >= 2 else None


def asset_of(airflow: Airflow, uri: str) -> int | None:
    """The id of an asset that Airflow has as active."""
    found = airflow.request("GET", "assets", params={"only_active": True, "limit": 100})["assets"]
    return next((asset["id"] for asset in found if asset["uri"] == uri), None)


@pytest.mark.parametrize("shop", ["failing"], indirect=True)
def test_a_failure_is_reported_with_what_is_stuck(shop: Shop, airflow: Airflow, channel: Channel) -> None:
    channel.posted.clear()
    shop.break_("step-countries")
    run_id, state = shop.run()
    assert state == "failed"
    texts = [body["text"] for _, body in channel.posted if not body["text"].startswith("It is late.")]
    assert [re.sub(r": .*", "", text.splitlines()[0]) for text in texts] == [
        f"failing, run {run_id}",
        f"failing, run {run_id}",
    ]
    for text in texts:
        assert "dataset 'countries' is pending, slot 1 is not finished: " in text
        assert "(airflow gobblin show countries --ingestion failing)" in text
    shop.mend("step-countries")
    run_id, state = shop.run()
    assert state == "success"
    assert shop.published_rows("public.Orders") == shop.source_rows("orders")


def test_the_button_of_the_ui(airflow: Airflow, tmp_path: Path) -> None:
    body: dict[str, Any] = {
        "connection_id": "a_journal",
        "conn_type": "gobblin_journal",
        "extra": json.dumps({"url": f"sqlite:///{tmp_path}/journal.db"}),
    }
    assert airflow.request("POST", "connections/test", json=body) == {
        "status": True,
        "message": f"There is no journal at {tmp_path}/journal.db yet. It is made by the first run, or by "
        "`airflow gobblin import`. If there was one: is its disk mounted here?",
    }
    answer = airflow.request("POST", "connections/test", json={**body, "extra": '{"url": "lake/journal"}'})
    assert not answer["status"]
    assert "not an absolute path" in answer["message"]
