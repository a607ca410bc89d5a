"""The announcements of a publish: events, metrics, the structured event, lineage, a message; none of them fails a run."""

from __future__ import annotations

import json
import logging
import re
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from airflow.sdk import Connection
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
from airflow.sdk.api.client import ServerResponseError
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import AssetStateStoreAccessor
from airflow.sdk.log import mask_secret
from airflow.sdk.observability import stats
from statsd import StatsClient

from airflow_gobblin.copy.options import Delete
from airflow_gobblin.events.announcement import Announcement, announce
from airflow_gobblin.events.assets import asset_uri
from airflow_gobblin.events.lineage import _folder, lineage
from airflow_gobblin.events.metrics import count_publication, count_recoveries, gauge_lags, gauge_quarantines
from airflow_gobblin.events.notifier import IngestionNotifier
from airflow_gobblin.events.publication import publication
from airflow_gobblin.events.structured import LOGGER
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import NoteKind
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.converters.columns import AddColumn, DropColumns, RenameColumns
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.announce import unannounced
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.storage.stores import open_store
from airflow_gobblin.testing import inprocess
from tests.cli.test_docs import stuck
from tests.copy.mirrors import Trees
from tests.events.channel import Channel, running_channel
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.services.environment import ROOT

ORDERS = Table("public.Orders", ExtractKind.APPEND_ONLY, 10)
COUNTRIES = Table("countries", ExtractKind.SNAPSHOT_ONLY, 3)


class OutletEvents:
    """The outlet events of a task, by alias."""

    def __init__(self) -> None:
        self.added: list[tuple[str, Any]] = []

    def __getitem__(self, alias: Any) -> OutletEvents:
        assert alias.name == "gobblin://lab"
        return self

    def add(self, asset: Any, extra: Any) -> None:
        self.added.append((asset.uri, extra))


def context() -> Any:
    task = SimpleNamespace(dag_id="shop", run_id="run-1", task_id="execute", map_index=0, try_number=1)
    return {"outlet_events": OutletEvents(), "ti": task}


def announced(lab: Lab, task_context: Any) -> Announcement:
    return announce(lab.opened(), None, "run key", task_context)


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == LOGGER]


def test_each_publish_is_announced_once_and_nothing_but_publishes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    lab = Lab(tmp_path, ORDERS, COUNTRIES)
    lab.run()
    task_context = context()
    announced(lab, task_context).succeeded(task_context)
    assert sorted(task_context["outlet_events"].added, key=str) == [
        ("gobblin://lab/countries", {"urn": "countries", "watermark": None, "slot": 1, "rows": 3, "files": 1}),
        (
            asset_uri("lab", "public.Orders"),
            {"urn": "public.Orders", "watermark": 10, "slot": 1, "rows": 10, "files": 3},
        ),
    ]
    events = {event["urn"]: event for event in logged(caplog)}
    assert {urn: (event["slot"], event["rows"]) for urn, event in events.items()} == {
        "public.Orders": (1, 10),
        "countries": (1, 3),
    }
    for event in events.values():
        assert event["bytes"] == sum(len(path.read_bytes()) for path in lab.files(event["urn"]))
        assert event["files"] == len(lab.files(event["urn"]))
        assert event["publish_seconds"] >= 0

    again = context()
    announced(lab, again).succeeded(again)
    lab.run(ORDERS)  # nothing new: no slot
    lab.admin.rewind("public.Orders", lab.journal.history("public.Orders").slots[0].decision.ranges[0].low, "a test")
    announced(lab, again).succeeded(again)
    assert again["outlet_events"].added == []
    assert len(logged(caplog)) == 2


def test_the_structured_event_has_the_fields_that_the_docs_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    task_context = context()
    announced(lab, task_context).succeeded(task_context)
    (event,) = logged(caplog)
    (slot,) = lab.journal.history("public.Orders").slots
    page = (ROOT / "docs" / "airflow.md").read_text()
    (rows,) = re.findall(r"\| field \| what \|\n\|[-|]+\|\n(.*?)\n\n", page, re.DOTALL)
    assert {*re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows.splitlines()))} == set(event)
    assert event["dataset"] == dataset_key("public.Orders")
    assert event["watermark"] == {"kind": "long", "value": 10}
    assert event["ranges"] == [{"low": {"kind": "long", "value": 0}, "high": {"kind": "long", "value": 10}}]
    assert event["run_key"] == slot.decision.run_key
    assert (event["dag_id"], event["run_id"], event["task_id"]) == ("shop", "run-1", "execute")


@pytest.mark.parametrize("copied", [True, False])
def test_what_cannot_be_announced_fails_nothing(
    copied: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__GOBBLIN__COPY_WATERMARKS", str(copied))
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    task_context = context()
    del task_context["ti"]  # the structured event can't be made; and no Airflow can mirror anything here
    announced(lab, task_context).succeeded(task_context)
    assert [record.message for record in caplog.records].count("a publish can't be announced") == 1 + copied
    assert lab.journal.history("public.Orders").slots[0].noted(NoteKind.ANNOUNCED)


def refusal_of_the_supervisor(status: int) -> Exception:
    return AirflowRuntimeError(ErrorResponse(detail={"status_code": status}))


def refusal_of_the_server(status: int) -> Exception:
    """As `airflow dags test` gets it, which has no supervisor."""
    request = httpx.Request("PUT", "http://airflow/")
    return ServerResponseError("Server returned error", request=request, response=httpx.Response(status))


@pytest.mark.parametrize("refusal", [refusal_of_the_supervisor, refusal_of_the_server])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            404,
            "Airflow doesn't know the asset of dataset 'public.Orders' yet: its watermark is copied there by the next publish",
        ),
        (500, "the watermark of dataset 'public.Orders' can't be copied to Airflow"),
    ],
)
def test_a_watermark_that_airflow_refuses_to_keep_fails_nothing(
    refusal: Callable[[int], Exception],
    answer: int,
    message: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: AssetStateStoreAccessor, key: str, value: object) -> None:
        raise refusal(answer)

    monkeypatch.setattr(AssetStateStoreAccessor, "set", refuse)
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    task_context = context()
    with caplog.at_level(logging.INFO):
        announced(lab, task_context).succeeded(task_context)
    assert sum(message in record.getMessage() for record in caplog.records) == 1
    assert "a publish can't be announced" not in caplog.text


# Metrics


@contextmanager
def statsd() -> Iterator[Callable[[], Counter[str]]]:
    """Airflow's stats, sent by UDP to here.

    :return: gives what has come, without the values that differ each time.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        host, port = server.getsockname()
        client = StatsClient(host, port)
        logger: Any = SafeStatsdLogger(client, influxdb_tags_enabled=True, statsd_influxdb_enabled=True)
        stats.initialize(factory=lambda: logger, export_legacy_names=False)

        def received() -> Counter[str]:
            stats.incr("end")
            lines: list[str] = []
            while not lines or not lines[-1].startswith("end"):
                lines.append(server.recv(4096).decode())
            return Counter(re.sub(r":[0-9.]+\|ms", ":…|ms", line) for line in lines[:-1])

        try:
            yield received
        finally:
            stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
            client.close()


def test_a_publish_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, ORDERS)
    lab.run()
    ((slot, report),) = unannounced(lab.opened())
    hour = TimestampWatermark(datetime.now(UTC) - timedelta(hours=1))
    with statsd() as received:
        count_publication(publication("lab", slot, report.watermark))
        size = sum(len(path.read_bytes()) for path in lab.files("public.Orders"))
        key = dataset_key("public.Orders")
        assert received() == Counter(
            f"gobblin.{name},ingestion=lab,dataset={key}:{value}"
            for name, value in (
                ("slots", "1|c"),
                ("rows", "10|c"),
                ("files", "3|c"),
                ("bytes", f"{size}|c"),
                ("publish", "…|ms"),
            )
        )
        monkeypatch.setenv("AIRFLOW__GOBBLIN__METRICS_BY_DATASET", "False")
        count_publication(publication("lab", slot, hour))
        (lag,) = (line for line in received() if line.startswith("gobblin.lag"))
    name, _, value = lag.partition(":")
    assert name == "gobblin.lag,ingestion=lab"
    assert 3600 <= float(value.removesuffix("|g")) < 3700


def test_recoveries_and_quarantines_are_counted() -> None:
    statuses = (Status.RECOVERED, Status.IDLE, Status.QUARANTINED, Status.RECOVERED)
    reports = [DatasetReport(str(n), status) for n, status in enumerate(statuses)]
    with statsd() as received:
        count_recoveries("lab", reports[::3])
        gauge_quarantines("lab", reports)
        count_recoveries("lab", [])
        gauge_quarantines("lab", reports[1:2])
        assert received() == Counter(
            [
                "gobblin.recoveries,ingestion=lab:2|c",
                "gobblin.quarantines,ingestion=lab:1|g",
                "gobblin.quarantines,ingestion=lab:0|g",
            ]
        )


def test_the_lag_of_every_dataset_is_reported_and_without_tags_the_greatest(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = {urn: TimestampWatermark(datetime.now(UTC) - timedelta(hours=n)) for n, urn in enumerate(("B", "c"), 1)}
    reports = [DatasetReport(urn, Status.FAILED, watermark=at) for urn, at in behind.items()]
    with statsd() as received:
        gauge_lags(
            "lab",
            [*reports, DatasetReport("keys", Status.IDLE, watermark=LongWatermark(9)), DatasetReport("s", Status.IDLE)],
        )
        tagged = sorted(re.sub(r"\.\d+", "", line) for line in received())
        monkeypatch.setenv("AIRFLOW__GOBBLIN__METRICS_BY_DATASET", "False")
        gauge_lags("lab", reports)
        gauge_lags("lab", [])
        (greatest,) = received()
    assert [line.rpartition(":")[0] for line in tagged] == [
        f"gobblin.lag,ingestion=lab,dataset={dataset_key(urn)}" for urn in behind
    ]
    name, _, value = greatest.partition(":")
    assert name == "gobblin.lag,ingestion=lab"
    assert 7200 <= float(value.removesuffix("|g")) < 7300


def test_the_docs_name_every_metric() -> None:
    code = (ROOT / "airflow_gobblin" / "events" / "metrics.py").read_text()
    page = (ROOT / "docs" / "airflow.md").read_text()
    named = set(re.findall(r"`(gobblin\.\w+)`", page))
    counted = set(re.findall(r'"(gobblin\.\w+)"', code)) | {f"gobblin.{name}" for name in ("rows", "files", "bytes")}
    assert named == counted


# Lineage


def traced(folder: Path, database: str, **options: Any) -> tuple[Any, Any]:
    """The table and the output that OpenLineage gets about an ingested table `orders`."""
    with sqlite3.connect(folder / "shop.db") as made:
        made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY NOT NULL, item TEXT, secret TEXT)")
        made.execute("INSERT INTO orders VALUES (1, 'tea', 'x'), (2, 'rum', 'y')")
    made.close()
    source = SqlSource("db", (SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id", urn="public.Orders"),))
    ingestion = Ingestion("shop", source, ParquetSink(str(folder / "lake")), str(folder / "journal"), **options)
    connections = Connected(f"sqlite:///{folder}/shop.db")
    opened = OpenJob(ingestion, Journal.create(ingestion.journal, "shop"), connections)
    inprocess.run(opened, connections)
    publications = tuple(publication("shop", slot, r.watermark) for slot, r in unannounced(opened))
    found = lineage(ingestion.work, publications, Connected(database or connections.url))
    (output,) = found.outputs
    (table,) = found.inputs
    return table, output


class Connected:
    """One connection."""

    def __init__(self, url: str) -> None:
        self.url = url

    def uri(self, conn_id: str) -> str:
        assert conn_id == "db"
        return self.url


def test_lineage_names_tables_folders_and_columns(tmp_path: Path) -> None:
    converters = (DropColumns(("secret",)), RenameColumns({"item": "article"}), AddColumn("shop", "north"))
    table, output = traced(tmp_path, "postgresql://ann:s3cret@db.example:5433/sales", converters=converters)
    assert (table.namespace, table.name) == ("postgres://db.example:5433", "sales.public.orders")
    key = dataset_key("public.Orders")
    assert (output.namespace, output.name) == ("file", f"{tmp_path}/lake/{key}")
    facets = output.facets
    assert [(field.name, field.type) for field in facets["schema"].fields] == [
        ("id", "int64"),
        ("article", "string"),
        ("shop", "string"),
    ]
    columns = {
        name: [(i.namespace, i.name, i.field) for i in f.inputFields]
        for name, f in facets["columnLineage"].fields.items()
    }
    of_table = ("postgres://db.example:5433", "sales.public.orders")
    assert columns == {"id": [(*of_table, "id")], "article": [(*of_table, "item")]}
    statistics = output.outputFacets["outputStatistics"]
    size = sum(path.stat().st_size for path in (tmp_path / "lake" / key).glob("*.parquet"))
    assert (statistics.rowCount, statistics.fileCount, statistics.size) == (2, 1, size)
    assert facets["version"].datasetVersion == "1"
    (symlink,) = facets["symlinks"].identifiers
    assert (symlink.namespace, symlink.name) == ("gobblin://shop", key)
    assert "s3cret" not in str(output)


def test_no_column_is_traced_through_an_authors_own_converter(tmp_path: Path) -> None:
    table, output = traced(tmp_path, "", converters=(Shout(),))
    assert (table.namespace, table.name) == (f"sqlite:{tmp_path}/shop.db", "main.orders")
    assert "columnLineage" not in output.facets
    assert "schema" in output.facets


@record("test.shout")
@dataclass(frozen=True)
class Shout:
    """A converter that this package doesn't know."""

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        return incoming

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "item", pc.utf8_upper(batch["item"]))


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("/lake/shop", ("file", "/lake/shop/orders")),
        ("file:///lake/a%20b", ("file", "/lake/a b/orders")),
        ("s3://lake_s3@lake/shop", ("s3://lake", "shop/orders")),
        ("gs://lake", ("gs://lake", "orders")),
    ],
)
def test_a_folder_is_named_as_openlineage_does(target: str, name: tuple[str, str]) -> None:
    assert _folder(target, "orders") == name


# Messages


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """A webhook behind the connection `chat`."""
    with running_channel() as running:
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps({"conn_type": "gobblin_webhook", "password": running.url}))
        yield running


def test_a_message_reports_what_happened_and_what_is_stuck(tmp_path: Path, channel: Channel) -> None:
    lab = Lab(tmp_path / "lake", store=open_store(str(tmp_path / "journal")))
    stuck(lab, ORDERS)
    failed = {"ti": context()["ti"], "exception": RuntimeError("the disk is gone")}
    notifier = IngestionNotifier(
        ingestion="lab", journal=str(tmp_path / "journal"), webhook_conn_id="chat", text="Look, {{ ti.dag_id }}!"
    )
    notifier(failed)
    ((path, body),) = channel.posted
    assert path == "/services/s3cret"
    first, second, third = body["text"].splitlines()
    assert first == "Look, shop!"
    assert second == "shop, run run-1: execute failed: the disk is gone"
    assert third.startswith("dataset 'public.stock' is quarantined, slot 1 is not finished: ")
    assert third.endswith("(airflow gobblin show public.stock --ingestion lab)")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"dag_run": {"dag_id": "shop", "dag_run_id": "r1"}, "deadline": {"id": "1"}},
            "A deadline of shop, run r1, is missed.",
        ),
        (
            {"dag_run": SimpleNamespace(dag_id="shop", run_id="r1"), "reason": "task_failure"},
            "shop, run r1: task_failure.",
        ),
    ],
)
def test_what_a_message_reports_of_a_dag(
    given: Mapping[str, Any], expected: str, channel: Channel, tmp_path: Path
) -> None:
    IngestionNotifier(ingestion="lab", journal=str(tmp_path / "nowhere"), webhook_conn_id="chat")(given)
    ((_, body),) = channel.posted
    first, second = body["text"].splitlines()
    assert first == expected
    assert second.startswith("The state of its datasets is unknown: can't open the journal at ")


def test_no_message_shows_a_secret_that_is_known_here(
    tmp_path: Path, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret of a connection of the source's, of another hook of the same task, which Airflow masks in logs, or in a URL."""
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", "postgres://ann:tr0ub4dor%263@db/shop")
    AirflowConnections().uri("shop_db")
    mask_secret("correct-horse-battery")
    cause = f"no route to {channel.url}: tried tr0ub4dor&3, correct-horse-battery, https://bob:st4ple@host/ and gave up"
    failed = {"ti": context()["ti"], "exception": RuntimeError(cause)}
    notifier = IngestionNotifier(ingestion="lab", journal=str(tmp_path / "nowhere"), webhook_conn_id="chat")
    notifier(failed)
    ((_, body),) = channel.posted
    text = body["text"]
    assert "shop, run run-1: execute failed: no route to ***: tried ***, ***, https://***@host/ and gave up" in text
    for secret in ("tr0ub4dor", "horse", "st4ple", "s3cret"):
        assert secret not in text


def test_the_button_tries_a_webhook(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Connection.get("chat").test_connection() == (True, "A message was posted.")
    channel.answers = 410
    worked, message = Connection.get("chat").test_connection()
    assert (worked, message) == (False, "can't post to webhook 'chat': it answered 410")
    for url in ("http://127.0.0.1:9/s3cret", "no url"):
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps({"conn_type": "gobblin_webhook", "password": url}))
        worked, message = Connection.get("chat").test_connection()
        assert not worked
        assert "chat" in message
        assert "s3cret" not in message


def test_what_a_mirror_replaces_and_deletes_is_counted(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"delete": Delete(1)})
    for path in ("a/changes", "a/goes"):
        trees.write(path)
    trees.run()
    trees.write("a/changes", "has changed")
    (trees.source / "a/goes").unlink()
    trees.run()
    with statsd() as received:
        count_publication(publication("photos", trees.journal.history("a#files").slots[-1], None))
        found = {line.partition(",")[0]: line.rpartition(":")[2] for line in received()}
    assert (found["gobblin.files"], found["gobblin.replaced"], found["gobblin.deleted"]) == ("1|c", "1|c", "1|c")
