"""`airflow gobblin take-over` on a DAG whose table belongs to another journal, and what the other commands report of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_gobblin import DeltaSink, ExtractKind, Ingestion, Journal, SqlSource, SqlTable
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.testing import inprocess
from tests.cli.deployment import Deployment
from tests.rows.sources.databases import FixedUri

DAG_FILE = """
from airflow.sdk import DAG

from airflow_gobblin import DeltaSink, ExtractKind, Ingestion, ParquetSink, SqlSource, SqlTable
from airflow_gobblin.operators import GobblinIngestion

source = SqlSource("shop_db", (SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id"),))
with DAG("shop", schedule=None):
    GobblinIngestion(
        Ingestion("shop", source, DeltaSink("{folder}/tables/{dataset}", "{folder}/work"), "{folder}/journal")
    )
with DAG("files", schedule=None):
    GobblinIngestion(Ingestion("files", source, ParquetSink("{folder}/lake"), "{folder}/journal of files"))
"""


def run(folder: Path, journal: str, work: str) -> DatasetReport:
    """Run the ingestion, with a journal."""
    source = SqlSource("shop_db", (SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id"),))
    sink = DeltaSink(f"{folder}/tables/{{dataset}}", f"{folder}/{work}")
    job = Ingestion("shop", source, sink, f"{folder}/{journal}")
    secrets = FixedUri(f"sqlite:///{folder}/shop.db")
    return inprocess.run(OpenJob(job, Journal.create(job.journal, "shop"), secrets), secrets)["orders"]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A DAG whose table another journal has published to."""
    folder = tmp_path_factory.mktemp("shop")
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER, name TEXT)")
        database.executemany("INSERT INTO orders VALUES (?, 'x')", [(n,) for n in range(5)])
    made = Deployment(folder, {"shop.py": DAG_FILE}, f"connections add shop_db --conn-uri sqlite:///{folder}/shop.db")
    assert run(folder, "lost", "former").status == "committed"
    yield made
    made.close()


def test_a_table_is_taken_over_by_a_command_and_all_commands_report_it(deployment: Deployment) -> None:
    folder, where = deployment.folder, "-d shop --reason lost"
    assert "airflow gobblin take-over" in run(folder, "journal", "work").detail
    asked, misspelt, without, files, done, history = deployment.run(
        f"gobblin take-over orders {where}",
        f"gobblin take-over ordres {where} --yes",
        f"gobblin take-over orders --journal file://{folder}/journal --name shop --target {folder}/work --reason lost --yes",
        "gobblin take-over orders -d files --reason lost --yes",
        f"gobblin take-over orders {where} --yes -o json",
        "gobblin history orders -d shop -o json",
    )
    table, former = f"Delta table '{folder}/tables/orders'", Journal.open(f"{folder}/lost", "shop")
    for text in (
        f"table: {table}",
        f"from: dataset 'orders' of ingestion 'shop', journal {former.id}",
        "to be there twice",
    ):
        assert text in asked.err
    assert asked.err.endswith("Nothing was changed.")
    assert "Did you mean 'orders'?" in misspelt.err
    assert "Name the DAG: --dag-id" in without.err
    assert "it is published as files" in files.err
    assert {one.status for one in (asked, misspelt, without, files)} == {1}
    assert (done.status, done.json[0]["action"], done.json[0]["slot"]) == (0, "take-over", 1), done.err
    assert [(row["action"], row["reason"], row["table_version"]) for row in history.json] == [
        ("take-over", "lost", "2")
    ]

    assert run(folder, "journal", "work").status == "committed"
    again, listed, audit, lost = deployment.run(
        f"gobblin take-over orders {where} --yes",
        "gobblin datasets -d shop -o json",
        "gobblin audit -d shop -o json",
        f"gobblin audit --journal file://{folder}/lost --name shop --target {folder}/former -o json",
    )
    assert "is this dataset's already" in again.err
    assert [row["table"] for row in listed.json] == [table]
    assert [(row["level"], row["check"]) for row in audit.json] == [("note", "rows")]
    assert ("problem", "table") in {(row["level"], row["check"]) for row in lost.json}
    assert lost.status == 1
