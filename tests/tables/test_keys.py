"""Keys and columns as authors write them: whole runs from tables of a database into tables, merged by primary key."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.table import Owner
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.converters.columns import DropColumns
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.tables.port import Merge, SchemaRule
from airflow_gobblin.testing import inprocess
from airflow_gobblin.testing.memory_table import MemoryTable, MemoryTableSink
from tests.rows.sources.databases import DATABASES, Database, PostgresDatabase, empty_database
from tests.services.environment import ROOT

APPEND, MERGED, SNAPSHOT = ExtractKind.APPEND_ONLY, ExtractKind.SNAPSHOT_APPEND, ExtractKind.SNAPSHOT_ONLY
AT = datetime(2026, 3, 1, tzinfo=UTC)
SINKS = ("memory", "delta", "postgres")


@dataclass
class Shop:
    """An ingestion of tables of a database into tables of a warehouse."""

    ingestion: Ingestion
    journal: Journal
    database: Database
    warehouse: PostgresDatabase | None

    def uri(self, conn_id: str) -> str:
        return self.database.uri(conn_id) if self.warehouse is None or conn_id == "db" else self.warehouse.url

    def run(self, **changes: Any) -> dict[str, DatasetReport]:
        self.ingestion = replace(self.ingestion, **changes)
        return inprocess.run(OpenJob(self.ingestion, self.journal, self), self)

    def with_sink(self, **options: Any) -> Sink:
        return replace(self.ingestion.sink, **options)  # type: ignore[type-var]

    def rows(self, urn: str) -> list[dict[str, Any]]:
        """Return the rows of a dataset's table, as a reader outside gets them, by their first column."""
        sink = self.ingestion.sink
        assert isinstance(sink, TableSink)
        (dataset,) = [one for one in self.ingestion.source.datasets(self) if one.urn == urn]
        table = sink.table_of(dataset)
        if isinstance(table, MemoryTable):
            found: Iterable[Mapping[str, Any]] = table.rows()
        elif isinstance(sink, DeltaSink):
            found = DeltaTable(table.url).to_pyarrow_table().to_pylist()  # type: ignore[attr-defined]
        else:
            assert self.warehouse is not None
            with psycopg.connect(self.warehouse.url, row_factory=psycopg.rows.dict_row) as connection:
                found = connection.execute(f"SELECT * FROM {table.quoted}").fetchall()  # type: ignore[attr-defined]
        plain = ({name: row[name] for name in row if name != "_gobblin_unit"} for row in found)
        return sorted(plain, key=lambda row: str([*row.values()]))


@pytest.fixture(params=SINKS)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    work = str(tmp_path / "work")
    if request.param == "memory":
        return MemoryTableSink(work, f"{uuid.uuid4().hex}.{{dataset}}", merge=True)
    if request.param == "delta":
        return DeltaSink(str(tmp_path / "lake" / "{dataset}"), work, merge=True)
    return PostgresSink("warehouse", "raw.{dataset}", work, merge=True)


@pytest.fixture(params=["sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return empty_database(request, tmp_path)


@pytest.fixture
def shop(request: pytest.FixtureRequest, sink: Sink, database: Database) -> Callable[..., Shop]:
    """Return a function that makes an ingestion of tables."""
    warehouse = None
    if isinstance(sink, PostgresSink):
        warehouse = PostgresDatabase(request.getfixturevalue("postgres_database"))
        warehouse.run("CREATE SCHEMA raw")

    def make(*tables: SqlTable, **options: Any) -> Shop:
        source = SqlSource("db", tables)
        ingestion = Ingestion("shop", source, sink, "unused", retention=timedelta(0), **options)
        return Shop(ingestion, Journal.create(MemoryStore(), "shop"), database, warehouse)

    return make


def orders(**options: Any) -> SqlTable:
    return SqlTable("orders", MERGED, **{"delta": "at", "lag": 0, **options})


CREATE = (
    "CREATE TABLE orders (shop integer, number integer, at integer NOT NULL, note text, PRIMARY KEY (number, shop))"
)


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_rows_are_merged_by_the_primary_keys_of_the_catalog_and_the_delta_column(
    shop: Callable[..., Shop], database: Database
) -> None:
    database.run(CREATE)
    database.insert("orders", [(1, 1, 10, "a"), (1, 2, 10, "b"), (2, 1, 11, None)])
    lab = shop(orders())
    assert lab.run()["orders"].status == "committed"
    database.run("UPDATE orders SET at = 20, note = 'new' WHERE shop = 1 AND number = 2")
    database.insert("orders", [(3, 1, 21, "c")])
    lab.run()
    assert [(row["shop"], row["number"], row["note"]) for row in lab.rows("orders")] == [
        (1, 1, "a"),
        (1, 2, "new"),
        (2, 1, None),
        (3, 1, "c"),
    ]
    assert lab.run()["orders"].status == "idle"


def test_an_author_may_name_the_keys_that_a_view_does_not_have(shop: Callable[..., Shop], database: Database) -> None:
    database.run(CREATE, "CREATE VIEW recent AS SELECT shop, at, note FROM orders")
    database.insert("orders", [(1, 1, 10, "a"), (2, 1, 10, "b")])
    view = SqlTable("recent", MERGED, delta="at", lag=0)
    lab = shop(view)
    assert "no primary keys" in lab.run()["recent"].detail
    source = SqlSource("db", (replace(view, primary_keys=("shop",)),))
    assert lab.run(source=source)["recent"].status == "committed"
    database.run("UPDATE orders SET at = 12, note = 'z' WHERE shop = 2")
    lab.run(source=SqlSource("db", (view,)), sink=lab.with_sink(merge=Merge(("shop",), "at")))
    assert [(row["shop"], row["note"]) for row in lab.rows("recent")] == [(1, "a"), (2, "z")]


@pytest.mark.slow
def test_only_what_is_loaded_by_snapshot_append_is_merged(shop: Callable[..., Shop], database: Database) -> None:
    database.run(
        "CREATE TABLE s (id integer PRIMARY KEY, at integer)", "CREATE TABLE a (id integer PRIMARY KEY, at integer)"
    )
    for name in "as":
        database.insert(name, [(1, 1), (2, 2)])
    lab = shop(SqlTable("s", SNAPSHOT), SqlTable("a", APPEND, delta="at", lag=0))
    assert {report.status for report in lab.run().values()} == {"committed"}
    database.run("DELETE FROM s WHERE id = 1", "UPDATE a SET at = 3 WHERE id = 2")
    lab.run()
    assert [(row["id"], row["at"]) for row in lab.rows("a")] == [(1, 1), (2, 2), (2, 3)]
    assert [row["id"] for row in lab.rows("s")] == [2]


def test_a_key_that_is_null_fails_by_name_and_nothing_is_published(
    shop: Callable[..., Shop], database: Database
) -> None:
    database.run(CREATE.replace(", PRIMARY KEY (number, shop)", ""), CREATE.replace("orders", "others"))
    database.insert("orders", [(1, 1, 10, "a"), (1, None, 11, "b")])
    database.insert("others", [(1, 1, 10, "a")])
    lab = shop(orders(primary_keys=("shop", "number")), SqlTable("others", MERGED, delta="at", lag=0))
    reports = lab.run()
    assert "column 'number' is published as not null" in reports["orders"].detail
    assert reports["others"].status == "committed"
    assert lab.rows("orders") == []
    database.run("DELETE FROM orders WHERE number IS NULL")
    assert lab.run()["orders"].status == "committed"


def test_a_column_to_merge_by_must_stay(shop: Callable[..., Shop], database: Database) -> None:
    database.run(CREATE)
    database.insert("orders", [(1, 1, 10, "a")])
    lab = shop(orders(), converters=(DropColumns(("number",)),))
    assert "column 'number' of dataset 'orders'" in lab.run()["orders"].detail


def test_a_new_column_follows_the_rule_of_its_dataset_and_is_logged(
    shop: Callable[..., Shop], database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run(CREATE)
    database.insert("orders", [(1, 1, 10, "a")])
    lab = shop(orders())
    lab.run()
    database.run("ALTER TABLE orders ADD COLUMN more text")
    database.insert("orders", [(2, 1, 20, "b", "m")])
    with caplog.at_level(logging.INFO, "airflow_gobblin.rows.tables"):
        report = lab.run()["orders"]
    assert report.status == "committed", report.detail
    assert "column 'more' (string) is added" in caplog.text
    assert [row.get("more") for row in lab.rows("orders")] == [None, "m"]


def test_a_type_that_changes_is_refused_by_default_and_widened_where_the_format_can(
    shop: Callable[..., Shop], database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run("CREATE TABLE t (id integer PRIMARY KEY, at integer, price numeric(6,2))")
    database.insert("t", [(1, 10, 1)])
    lab = shop(SqlTable("t", MERGED, delta="at", lag=0))
    lab.run()
    database.insert("t", [(2, 20, 2)])
    wider = SqlSource("db", (SqlTable("t", MERGED, delta="at", lag=0, casts={"price": "decimal(12,2)"}),))
    assert "column 'price' is decimal128(6, 2) and would be decimal128(12, 2)" in lab.run(source=wider)["t"].detail
    with caplog.at_level(logging.INFO, "airflow_gobblin.rows.tables"):
        report = lab.run(sink=lab.with_sink(schema_rule={"t": SchemaRule.WIDEN}))["t"]
    if isinstance(lab.ingestion.sink, DeltaSink):
        assert "would be decimal128(12, 2)" in report.detail
    else:
        assert report.status == "committed", report.detail
        assert "goes from decimal128(6, 2) to decimal128(12, 2)" in caplog.text
        assert [row["id"] for row in lab.rows("t")] == [1, 2]


def test_two_datasets_of_an_ingestion_with_one_table_are_refused_where_it_is_made(tmp_path: Path) -> None:
    source = SqlSource("db", (SqlTable("a", SNAPSHOT), SqlTable("b", SNAPSHOT)))
    for sink in (DeltaSink("/lake/t", "/work"), PostgresSink("warehouse", "raw.t", "/work")):
        with pytest.raises(ConfigurationError, match="the table of dataset 'a', too"):
            Ingestion("shop", source, sink, "unused")
        Ingestion("shop", SqlSource("db", source.tables[:1]), sink, "unused")


def test_a_table_of_another_ingestion_is_refused_by_name(shop: Callable[..., Shop], database: Database) -> None:
    database.run(CREATE)
    database.insert("orders", [(1, 1, 10, "a")])
    first, second = shop(orders()), shop(orders())
    first.run()
    assert "belongs to" in second.run()["orders"].detail


def test_spark_is_given_the_connections_of_tables() -> None:
    source = SqlSource("db", (SqlTable("a", SNAPSHOT),))
    for sink, ids in (
        (PostgresSink("warehouse", "raw.{dataset}", "/work"), ("db", "warehouse")),
        (DeltaSink("s3://lake@bucket/{dataset}", "/work"), ("db", "lake")),
        (DeltaSink("/lake/{dataset}", "/work"), ("db",)),
    ):
        work = Ingestion("shop", source, sink, "unused").work
        assert work.connection_ids == ids
        assert "lake" not in work.source_identity


def test_the_table_of_a_dataset_is_named_by_its_key() -> None:
    (dataset,) = SqlSource("db", (SqlTable("Orders", SNAPSHOT, namespace="sales"),)).declared
    assert PostgresSink("w", "raw.{dataset}", "/work").table_of(dataset).quoted == '"raw"."sales___x4f_rders"'
    assert DeltaSink("/lake/{dataset}", "/work").table_of(dataset).location == "/lake/sales___x4f_rders"


def test_two_rows_of_a_key_that_nothing_distinguishes_are_refused_before_anything_is_decided(
    shop: Callable[..., Shop], database: Database
) -> None:
    database.run(
        "CREATE TABLE orders (id integer, at integer)", "CREATE TABLE others (id integer PRIMARY KEY, at integer)"
    )
    database.insert("orders", [(1, 10), (2, 10), (2, 10)])
    database.insert("others", [(1, 10)])
    lab = shop(orders(primary_keys=("id",)), SqlTable("others", MERGED, delta="at", lag=0))
    reports = lab.run()
    assert "1 row too many are the newest of their key by 'at': {'id': 2}" in reports["orders"].detail
    assert reports["others"].status == "committed"
    assert lab.journal.history("orders").pending is None
    assert lab.rows("orders") == []
    database.run("DELETE FROM orders WHERE id = 2")
    assert lab.run()["orders"].status == "committed"


def merge_little(lab: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sink of a lake, or of memory, merge 20 kB at most."""
    if isinstance(lab.ingestion.sink, DeltaSink):
        monkeypatch.setattr(DeltaSink, "merged_bytes", 20_000)
    else:
        lab.ingestion = replace(lab.ingestion, sink=lab.with_sink(merged_bytes=20_000))


def test_more_rows_than_are_merged_at_once_are_refused_when_they_are_planned(
    shop: Callable[..., Shop], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE orders (id integer PRIMARY KEY, at integer, note text)")
    database.insert("orders", [(n, n, "x" * 100) for n in range(100)])
    lab = shop(orders())
    assert lab.run()["orders"].rows == 100  # a table without rows takes them as they are
    if isinstance(lab.ingestion.sink, PostgresSink):
        assert lab.ingestion.sink.merged_bytes is None
        return
    merge_little(lab, monkeypatch)
    database.insert("orders", [(n, n, "y" * 100) for n in range(100, 400)])
    assert re.search("estimated at .* or more, and at most 20.0 kB are merged", lab.run()["orders"].detail)
    database.run("DELETE FROM orders WHERE id > 105")
    assert lab.run()["orders"].status == "committed"
    assert len(lab.rows("orders")) == 106


def test_a_first_load_into_a_table_that_somebody_else_filled_is_refused_when_it_is_planned_if_it_has_too_many_rows(
    shop: Callable[..., Shop], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE orders (id integer PRIMARY KEY, at integer, note text)")
    database.insert("orders", [(n, n, "x" * 100) for n in range(300)])
    lab = shop(orders())
    sink = lab.ingestion.sink
    if isinstance(sink, PostgresSink):
        return
    merge_little(lab, monkeypatch)
    if isinstance(sink, DeltaSink):
        rows = pa.table({"id": [1], "at": [1], "note": ["theirs"]})
        write_deltalake(sink.location.replace("{dataset}", "orders"), rows)
    else:
        assert isinstance(sink, MemoryTableSink)
        table, schema = MemoryTable(sink.name.replace("{dataset}", "orders")), [("id", pa.int64()), ("at", pa.int64())]
        owner = Owner(lab.journal.id, lab.journal.ingestion, "orders")
        table.open(lab, LocalFiles(sink.workspace)).create(owner, pa.schema([*schema, ("note", pa.string())]), ())
        table.append([{"id": 1, "at": 1, "note": "theirs"}])
    assert re.search("estimated at .* or more, and at most 20.0 kB are merged", lab.run()["orders"].detail)
    assert lab.journal.history("orders").pending is None
    database.run("DELETE FROM orders WHERE id > 5")
    assert lab.run()["orders"].status == "committed"
    assert len(lab.rows("orders")) == 6


def test_the_page_declares_sinks_that_merge() -> None:
    (code,) = re.findall(
        r"<!-- test: merging -->\n```python\n(.*?)```", (ROOT / "docs" / "sinks.md").read_text(), re.DOTALL
    )
    made: dict[str, Any] = {}
    exec(code, made)
    assert made["by_primary_key"].merge is True
    assert made["by_columns"].merge == Merge(("id",), "updated_at")
