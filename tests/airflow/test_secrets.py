"""A password of a source gets to Spark and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text

from tests.airflow.canary import CommandLines, Places, owned_by_canary, spellings
from tests.airflow.conftest import Shops
from tests.airflow.shop import Shop, connection_to
from tests.airflow.test_links import links
from tests.copy.test_openpgp import Person
from tests.services.airflow import Airflow
from tests.services.s3 import REGION, S3Server

PASSWORD = "kan@ri/9%f1+nch=zwitschert"
OF_CATALOG, OF_KEYS = "k0hl/mei5e@katal+g", "bl@u meise/schlü%ssel"

DAG_FILE = """
from airflow.sdk import DAG

from airflow_gobblin import (
    Decrypt, EachFolder, ExtractKind, GobblinIngestion, GobblinMirror, IcebergSink, Ingestion, Mirror, SparkOptions, SqlSource,
    SqlTable,
)

photos = Mirror(
    "photos", "s3://aviary_s3@{bucket}/photos", "{lake}/photos", "aviary", EachFolder(), convert=(Decrypt("aviary_keys"),)
)
birds = Ingestion(
    "birds",
    SqlSource("aviary", (SqlTable("birds", ExtractKind.APPEND_ONLY, delta="id"),)),
    IcebergSink("aviary_catalog", "raw.{{dataset}}", "s3://aviary_s3@{bucket}/work"),
    "aviary",
)
conf = {{"spark.ui.enabled": "false", "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}}
spark = SparkOptions("spark_here", {{**conf, "spark.eventLog.dir": "file://{events}"}})
with DAG("aviary", schedule=None):
    GobblinMirror(photos, spark=spark)
    GobblinIngestion(birds, spark=spark)
"""


def test_a_password_is_nowhere_to_be_found(shops: Shops, metadata: str, postgres_database: str, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
    url = owned_by_canary(make_url(postgres_database), PASSWORD)
    (shop,) = shops(
        "canary",
        url=str(url.render_as_string(hide_password=False)),
        journal="shop_canary",  # the connection's id: source and journal are in one database
        spark="spark_here",
        conf=conf,
        retries=0,
    )
    airflow = shop.airflow
    folders = {
        "event logs": events,
        "plans and staging": shop.folder / "lake" / "_gobblin",
        "published": shop.folder / "lake" / "orders",
        "task logs": airflow.home / "logs",
        "component logs": airflow.logs,
    }
    with CommandLines() as command_lines:
        airflows = create_engine(metadata, poolclass=NullPool)
        places = Places(folders, (airflows, shop.database), command_lines)
        shop.leak("read-orders")
        run_id, state = shop.run()
        assert state == "failed"
        # The first error of the driver is at the end of the log; unredacted it would show the password.
        end = shop.end_of_log(run_id, "extract")
        assert "no result of 1 unit of pack 0 (2 datasets). The first error: GobblinError: can't extract" in end
        assert "Leak: read-orders failed at postgresql://***@" in end
        assert shop.published_rows("countries") == shop.source_rows("countries")
        shop.close("read-orders")
        shop.clear(run_id, "extract", downstream=True)
        shop.wait_held("read-orders")
        assert [*(shop.folder / "lake" / "_gobblin").glob("*/p/*")]  # plans and staging exist now
        assert places.with_secret(PASSWORD) == {}
        assert not [page for page in spark_pages(shop, run_id) if any(form in page for form in spellings(PASSWORD))]
        shop.open("read-orders")
        assert shop.wait(run_id) == "success", shop.states(run_id)
        assert [found["Spark UI"] for found in links(shop, run_id, "extract")] == [None]  # that application has ended
        shop.check()
        assert places.with_secret(PASSWORD) == {}

        tables = ("xcom", "rendered_task_instance_fields", "task_instance", "gobblin_journal")
        places.expect_searched("canary", "orders", "price", tables=tables)
        with planted(shop, places, airflows) as expected:
            assert {what: len(where) for what, where in places.with_secret(PASSWORD).items()} == expected


def test_the_secrets_of_a_mirror_and_a_table_are_nowhere_to_be_found(
    airflow: Airflow, metadata: str, postgres_database: str, versitygw: S3Server, tmp_path: Path
) -> None:
    bucket = versitygw.create_bucket()
    with tempfile.TemporaryDirectory(prefix="gpg", dir="/tmp") as home:
        keeper = Person.made(Path(home, "keeper"), "keeper", OF_KEYS)
        try:
            versitygw.access.filesystem().pipe(f"{bucket}/photos/tits/blue.txt.gpg", keeper.encrypted(b"blue", keeper))
            keys = json.dumps({"keys": keeper.private})
        finally:
            subprocess.run(["gpgconf", f"--homedir={keeper.home}", "--kill", "all"], check=True)
    database = aviary(airflow, make_url(postgres_database), f"s3://{bucket}/tables")
    airflow.put_connection(connection_id="aviary_keys", conn_type="generic", password=OF_KEYS, extra=keys)
    access = versitygw.access
    at = json.dumps({"region_name": REGION, "endpoint_url": access.endpoint})
    airflow.put_connection(
        connection_id="aviary_s3", conn_type="aws", login=access.key, password=access.secret, extra=at
    )
    lake, events = tmp_path / "lake", tmp_path / "events"
    events.mkdir()
    with CommandLines() as command_lines:
        airflow.add_dag("aviary.py", DAG_FILE.format(bucket=bucket, lake=lake, events=events), "aviary")
        run_id, state = airflow.run("aviary")
        assert state == "success", airflow.states("aviary", run_id)
        assert (lake / "photos" / "tits" / "blue.txt").read_text() == "blue"
        in_s3 = tmp_path / "in s3"
        versitygw.access.filesystem().get(bucket, str(in_s3), recursive=True)
        assert list((in_s3 / "tables").rglob("*.metadata.json"))
        folders = {
            "mirror": lake,
            "tables and plans": in_s3,
            "event logs": events,
            "task logs": airflow.home / "logs",
            "component logs": airflow.logs,
        }
        places = Places(folders, (create_engine(metadata, poolclass=NullPool), database), command_lines)
        for secret in (OF_CATALOG, OF_KEYS, access.secret, keys.split("\\n")[3]):
            assert places.with_secret(secret) == {}
        tables = ("xcom", "rendered_task_instance_fields", "task_instance", "gobblin_journal", "iceberg_tables")
        places.expect_searched("aviary", "blue", "birds", tables=tables)


def aviary(airflow: Airflow, url: URL, warehouse: str) -> Engine:
    """A database of birds, which is also the catalog of their table, and its connections.

    :param warehouse: where tables lie.
    """
    url = owned_by_canary(url, OF_CATALOG)
    airflow.put_connection(**connection_to("aviary", url))
    airflow.put_connection(**connection_to("aviary_catalog", url), extra=json.dumps({"warehouse": warehouse}))
    database = create_engine(url, poolclass=NullPool)
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE birds (id INTEGER PRIMARY KEY, name TEXT)"))
        connection.execute(text("INSERT INTO birds VALUES (1, 'blue tit'), (2, 'coal tit')"))
    return database


def spark_pages(shop: Shop, run_id: str) -> list[bytes]:
    """The pages that Spark's UI shows of the running application of a run's extract; the task links to it."""
    (found,) = links(shop, run_id, "extract")
    with httpx.Client(base_url=found["Spark UI"], follow_redirects=True, timeout=60) as client:
        pages = [client.get(f"/{name}/") for name in ("jobs", "stages", "environment", "executors", "SQL")]
    assert {page.status_code for page in pages} == {200}
    assert all("canary extract" in page.text for page in pages)
    return [page.content for page in pages]


@contextmanager
def planted(shop: Shop, places: Places, airflows: Engine) -> Iterator[dict[str, int]]:
    """Put the password into every kind of place, each time in another spelling.

    :return: where it must be found, how often.
    :param airflows: Airflow's metadata.
    """
    forms = [form for spelling in spellings(PASSWORD) if (form := spelling.decode()).isascii() and "\\" not in form]
    tables = {"xcom": "value", "rendered_task_instance_fields": "rendered_fields"}
    for n, folder in enumerate(places.folders.values()):
        (folder / f"{n}.log").write_text(f"… {forms[n]} …")
    with airflows.begin() as connection:
        for n, (table, column) in enumerate(tables.items()):
            planting = f"UPDATE {table} SET {column} = json_build_array(CAST(:form AS text)) WHERE dag_id = :dag_id"
            done = connection.execute(text(planting), {"form": forms[n], "dag_id": shop.name})
            assert done.rowcount
    with shop.database.begin() as connection:
        planting = "INSERT INTO gobblin_journal (key, data) VALUES ('planted', convert_to(:form, 'UTF8'))"
        connection.execute(text(planting), {"form": forms[len(tables)]})
    seen = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"--password={forms[-1]}"])
    try:
        shop.airflow.wait_for("the command line", lambda: [*places.command_lines.with_secret(PASSWORD)] or None)
        planted_tables = [f"table {table}" for table in (*tables, "gobblin_journal")]
        yield dict.fromkeys([*places.folders, *planted_tables, "command lines"], 1)
    finally:
        seen.kill()
        seen.wait()
