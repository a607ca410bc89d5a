"""Looks ahead of a run: every finding of a `check`, and the whole of a `plan`; neither makes anything."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cli.deployment import Deployment
from tests.services.environment import ROOT
from tests.services.kafka import Kafka

DAG_FILE = """
from airflow.sdk import DAG

from airflow_gobblin import Batch, ingestion_params
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.operators import GobblinIngestion, SparkOptions
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.model.work import ExtractKind

print("a DAG file may print")
good = (
    SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id", unit_bytes=100),
    SqlTable("countries", ExtractKind.SNAPSHOT_ONLY),
)
held = Ingestion(
    "held", SqlSource("shop_db", good[:1]), ParquetSink("{folder}/held"), "{folder}/journal", batch=Batch(rows=100)
)
bad = (
    SqlTable("odd", ExtractKind.APPEND_ONLY, delta="at", columns=("id", "at", "amount", "anything", "nam")),
    SqlTable("order", ExtractKind.SNAPSHOT_ONLY),
    *good,
)
with DAG("shop", schedule=None):
    GobblinIngestion(Ingestion("shop", SqlSource("shop_db", good), ParquetSink("{folder}/lake"), "{folder}/journal"))
with DAG("held", schedule=None, params=ingestion_params()):
    GobblinIngestion(held)
with DAG("bad", schedule=None):
    GobblinIngestion(
        Ingestion("bad", SqlSource("shop_db", bad), ParquetSink("{folder}/shop.db/lake"), "sqlite:///{folder}/shop.db/j.db"),
        spark=SparkOptions(conn_id="nowhere"),
    )
    GobblinIngestion(Ingestion("lost", SqlSource("lost_db", good), ParquetSink("{folder}/lost"), "lost_journal"))
"""

KINDS_FILE = """
from datetime import datetime

from airflow.sdk import DAG

from airflow_gobblin import (
    DeltaSink, EachFolder, ExtractKind, GobblinIngestion, GobblinMirror, Ingestion, KafkaSource, Mirror, ParquetSink,
    Pipeline, Sql, SqlSource, SqlTable, Stage,
)

JOURNAL = "{folder}/kinds"
orders = SqlSource("shop_db", (SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id"),))
raw = Ingestion("raw", orders, ParquetSink("{folder}/raw"), JOURNAL)
count = Stage("count", Sql("select count(*) as n from {orders}"), {"orders": raw["orders"]}, ParquetSink("{folder}/count"))
for dag in Pipeline("chain", (raw, count), JOURNAL).dags(schedule=None, start_date=datetime(2026, 1, 1)):
    globals()[dag.dag_id] = dag
with DAG("table", schedule=None):
    GobblinIngestion(Ingestion("table", orders, DeltaSink("{folder}/delta/{dataset}", "{folder}/work"), JOURNAL))
with DAG("photos", schedule=None):
    GobblinMirror(Mirror("photos", "{folder}/photos", "{folder}/mirrored", JOURNAL, datasets=EachFolder()))
with DAG("nothing", schedule=None):
    GobblinMirror(Mirror("nothing", "{folder}/nothing", "{folder}/empty", JOURNAL, datasets=EachFolder()))
with DAG("topic", schedule=None):
    GobblinIngestion(Ingestion("topic", KafkaSource("broker", ("{topic}",)), ParquetSink("{folder}/clicks"), JOURNAL))
"""

OTHER_FILE = """
from pathlib import Path

from airflow.sdk import DAG

Path("{folder}/imported").touch()
with DAG("other", schedule=None):
    pass
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Deployment]:
    """A DAG with ingestions, a database for them, and another DAG, whose file shows whether it was imported."""
    folder = tmp_path_factory.mktemp("ahead")
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER NOT NULL, amount REAL)")
        database.executemany("INSERT INTO orders VALUES (?, 1.5)", [(number,) for number in range(40)])
        database.execute("CREATE TABLE countries (name TEXT)")
        database.execute("CREATE TABLE odd (id INTEGER, at, amount MONEY, anything, name TEXT)")
        database.executemany(
            "INSERT INTO odd VALUES (?, ?, ?, ?, 'x')",
            [(n, f"2026-01-0{n} 10:00:00", f"{n}.25", ("a", 1, None)[n - 1]) for n in (1, 2, 3)],
        )
    (folder / "photos" / "a").mkdir(parents=True)
    (folder / "photos" / "a" / "one.jpg").touch()
    topic = kafka.create_topic("clicks_ahead")
    kafka.produce(topic, [b"{}"])
    made = Deployment(
        folder,
        {"shop.py": DAG_FILE, "kinds.py": KINDS_FILE.replace("{topic}", topic), "other.py": OTHER_FILE},
        f"connections add shop_db --conn-uri sqlite:///{folder}/shop.db",
        "connections add spark_default --conn-type spark --conn-host local[*]",
        f"connections add broker --conn-uri {kafka.uri(topic)}",
    )
    (folder / "imported").unlink()
    yield made
    made.close()


def test_a_check_finds_everything_at_once_and_makes_nothing(deployment: Deployment) -> None:
    before = deployment.seen()
    good, bad, unknown, misnamed = deployment.run(
        "gobblin check -d shop -o json",
        "gobblin check -d bad -o json",
        "gobblin check -d shopp",
        "gobblin check -d shop -i better",
    )
    assert good.status == 0, good
    assert {(row["check"], row["of"]): row["state"] for row in good.json} == {
        ("journal", f"{deployment.folder}/journal"): "ok",
        ("connection", "shop_db"): "ok",
        ("target", f"{deployment.folder}/lake"): "ok",
        ("dataset", "orders"): "ok",
        ("dataset", "countries"): "ok",
        ("connection", "spark_default"): "ok",
        ("spark", "pyspark"): "ok",
        ("java", "java"): "ok",
    }
    assert bad.status == 1
    found = [(row["ingestion"], row["check"], row["of"], row["cause"], row["hint"]) for row in bad.json if row["cause"]]
    expected = (
        ("bad", "journal", "", "shop.db is not a folder", "may write to"),
        ("bad", "target", "", "shop.db is not a folder", "may write to"),
        ("bad", "dataset", "odd", "no column 'nam'", "Did you mean 'name'"),
        ("bad", "dataset", "odd", "no type for column 'at'", "casts={'at': 'timestamp'}"),
        ("bad", "dataset", "odd", "no type for column 'amount' (MONEY)", "casts={'amount': 'decimal(38,2)'}"),
        ("bad", "dataset", "odd", "no type for column 'anything'", "casts={'anything': 'string'}"),
        ("bad", "dataset", "odd", "its delta column 'at'", "casts={'at': 'timestamp'}"),
        ("bad", "dataset", "order", "no table 'order'", "Did you mean 'orders'"),
        ("bad", "connection", "nowhere", "no such connection", "Add one of type Spark"),
        ("lost", "connection", "lost_db", "no connection of this id", "airflow connections add lost_db"),
        ("lost", "journal", "lost_journal", "no connection of this id", "airflow connections add lost_journal"),
    )
    for ingestion, what, of, cause, hint in expected:
        assert any(
            (ingestion, what) == one[:2] and of in one[2] and cause in one[3] and hint in one[4] for one in found
        ), "\n".join([cause, *map(str, found)])
    assert sum(row["state"] == "failed" for row in bad.json) == len(expected)
    assert bad.err.endswith(f"{len(expected)} findings")
    assert "Did you mean 'shop'?" in unknown.err
    assert "it has 'shop'" in misnamed.err
    assert deployment.seen() == before, "and no other DAG file was imported"


def test_every_kind_of_job_is_checked_and_planned_ahead(deployment: Deployment) -> None:
    before = deployment.seen()
    dags = ("chain.raw", "chain.count", "table", "photos", "nothing", "topic")
    done = deployment.run(*(f"gobblin {command} -d {dag} -o json" for dag in dags for command in ("check", "plan")))
    checked, planned = (dict(zip(dags, done[n::2], strict=True)) for n in (0, 1))
    causes = {(row["ingestion"], row["of"]): row["cause"] for dag in dags for row in checked[dag].json}
    for dataset, would in {
        ("raw", "orders"): "a run would plan 1 unit",
        ("count", "count"): "there is nothing new",
        ("table", "orders"): "a run would plan 1 unit",
        ("photos", "a#files"): "a run would plan 2 units",
        ("topic", "clicks_ahead"): "a run would plan 1 unit",
    }.items():
        assert causes[dataset] == would
    assert causes["nothing", "nothing"] == f"No such file or directory: {deployment.folder}/nothing"
    status = dict.fromkeys(dags, 0) | {"nothing": 1}
    assert {dag: one.status for dag, one in checked.items()} == status
    assert {dag: one.status for dag, one in planned.items()} == status
    assert [(row["dataset"], row["units"]) for dag in dags[:3] for row in planned[dag].json] == [
        ("orders", 1),
        ("count", 0),
        ("orders", 1),
    ]
    assert deployment.seen() == before


def test_a_plan_shows_what_a_run_would_and_makes_nothing(deployment: Deployment) -> None:
    before = deployment.seen()
    good, one, bad = deployment.run(
        "gobblin plan -d shop -o json", "gobblin plan -d shop --urn countries -o json", "gobblin plan -d bad -i lost"
    )
    assert good.status == 0, good
    assert "a DAG file may print" in good.err
    orders, countries = good.json
    assert (orders["dataset"], orders["status"], orders["range"], orders["pack"]) == ("orders", "planned", "[0, 40)", 1)
    assert orders["units"] == len(orders["unit_ranges"]) > 1
    assert sum(unit["weight"] for unit in orders["unit_ranges"]) == orders["weight"] > 0
    assert orders["unit_ranges"][0]["range"].startswith("[0, ")
    assert (countries["dataset"], countries["status"], countries["pack"]) == ("countries", "planned", 2)
    assert [row["dataset"] for row in one.json] == ["countries"]
    assert bad.status == 1
    assert deployment.seen() == before, "and no other DAG file was imported"


def test_a_flush_triggers_a_run_that_holds_nothing_back(deployment: Deployment) -> None:
    plan, one, every, runs = deployment.run(
        "gobblin plan -d held -o json",
        "gobblin flush orders -d held -r closed --yes -o json",
        "gobblin flush -d held -r all --yes",
        "dags list-runs held -o json",
    )
    (planned,) = plan.json
    assert (planned["status"], one.status, every.status) == ("held", 0, 0), every
    assert "40 rows, about " in planned["detail"]
    assert one.json[0]["run"] in runs.out
    with closing(sqlite3.connect(deployment.folder / "home/airflow.db")) as database:
        confs = [json.loads(conf) for (conf,) in database.execute("SELECT conf FROM dag_run ORDER BY id")]
    assert confs == [
        {"flush": True, "request": "closed", "datasets": ["orders"]},
        {"flush": True, "request": "all"},
    ]


def test_the_commands_of_the_page(deployment: Deployment) -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    written = re.findall(r"^\$ airflow (gobblin (?:check|plan) .+)", page, re.MULTILINE)
    assert len(written) > 2
    assert [done.status for done in deployment.run(*written)] == [0] * len(written)


def test_a_dag_file_that_cannot_be_imported_is_reported(deployment: Deployment) -> None:
    file = deployment.folder / "dags" / "shop.py"
    whole = file.read_text()
    file.write_text("import nowhere_at_all\n")
    try:
        (done,) = deployment.run("gobblin check -d shop")
    finally:
        file.write_text(whole)
    assert done.status == 1
    assert "can't import DAG 'shop'" in done.err
    assert "No module named 'nowhere_at_all'" in done.err
