"""The example `dags/shop_to_iceberg.py`, whose ingestions are carried out in this process."""

from __future__ import annotations

import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.services.environment import ROOT
from tests.tables.formats import Postgres

TABLES = ("orders", "payments", "customers")


def test_events_are_there_once_by_day_and_customers_as_they_are_now(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_LAKE", str(tmp_path / "lake"))
    dag = runpy.run_path(str(ROOT / "dags" / "shop_to_iceberg.py"))
    shop, catalog, store = Postgres(postgres_database), tmp_path / "catalog.db", MemoryStore()
    warehouse = quote(f"file://{tmp_path}/tables", safe="")
    connections = SparkConnections(
        {"shop_db": postgres_database, "lake_catalog": f"sqlite://{catalog}?warehouse={warehouse}"}
    )

    def run(day: int) -> None:
        for name in ("events", "customers"):
            opened = OpenJob(dag[name], Journal.create(store, dag[name].name), connections)
            request = RunRequest(f"up to {day}", datetime(2026, 3, day, tzinfo=UTC))
            reports = inprocess.run(opened, connections, request)
            assert {report.status for report in reports.values()} == {"committed"}, reports

    def rows(table: str) -> Any:
        lake = SqlCatalog("lake_catalog", uri=f"sqlite:///{catalog}")
        try:
            return lake.load_table(f"shop.{table}").scan().to_arrow().sort_by("id").to_pylist()
        finally:
            lake.close()

    for table in TABLES:
        shop.sql(f"CREATE TABLE {table} (id bigint PRIMARY KEY, note text, updated_at timestamptz NOT NULL)")
        shop.sql(f"INSERT INTO {table} SELECT n, 'old', date '2026-03-01' + n FROM generate_series(1, 3) n")
    run(10)
    for table in TABLES:
        shop.sql(f"INSERT INTO {table} VALUES (4, 'new', '2026-03-11')")
    shop.sql("UPDATE customers SET note = 'new', updated_at = '2026-03-12' WHERE id = 2")
    run(20)
    assert [(row["id"], row["note"]) for row in rows("customers")] == [(1, "old"), (2, "new"), (3, "old"), (4, "new")]
    assert [row["id"] for row in rows("orders")] == [row["id"] for row in rows("payments")] == [1, 2, 3, 4]
