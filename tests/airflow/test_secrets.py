"""A password of a source gets to Spark and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text

from tests.airflow.canary import CommandLines, files_with, spellings, tables_with
from tests.airflow.conftest import Shops
from tests.airflow.shop import Shop
from tests.airflow.test_links import links

PASSWORD = "kan@ri/9%f1+nch=zwitschert"


@dataclass(frozen=True)
class Places:
    """Where a secret might be found: folders by their content, Airflow's metadata, the journal's database, command lines."""

    folders: dict[str, Path]
    metadata: Engine
    database: Engine
    command_lines: CommandLines

    def with_secret(self, secret: str) -> dict[str, set[str]]:
        """What holds a secret, and where in it."""
        found = {what: {*map(str, files_with(secret, folder))} for what, folder in self.folders.items()}
        for engine in (self.metadata, self.database):
            found |= {f"table {table}": {table} for table in tables_with(secret, engine)}
        found["command lines"] = set(self.command_lines.with_secret(secret))
        return {what: where for what, where in found.items() if where}


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
    url = owned_by_canary(make_url(postgres_database))
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
        places = Places(folders, create_engine(metadata, poolclass=NullPool), shop.database, command_lines)
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

        # Text that is no secret is found in every place, so each place is really searched.
        tables = ("xcom", "rendered_task_instance_fields", "task_instance", "gobblin_journal")
        known = {*folders, "command lines", *(f"table {table}" for table in tables)}
        assert known <= set().union(*(places.with_secret(word) for word in ("canary", "orders", "price")))
        with planted(shop, places) as expected:
            assert {what: len(where) for what, where in places.with_secret(PASSWORD).items()} == expected


def spark_pages(shop: Shop, run_id: str) -> list[bytes]:
    """What Spark's UI shows of the running application of a run's extract; the task links to it."""
    (found,) = links(shop, run_id, "extract")
    with httpx.Client(base_url=found["Spark UI"], follow_redirects=True, timeout=60) as client:
        pages = [client.get(f"/{name}/") for name in ("jobs", "stages", "environment", "executors", "SQL")]
    assert {page.status_code for page in pages} == {200}
    assert all("canary extract" in page.text for page in pages)
    return [page.content for page in pages]


def owned_by_canary(url: URL) -> URL:
    """Give a database to a user with the password."""
    user = f"canary_{uuid.uuid4().hex[:8]}"
    url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'"))
        connection.execute(text(f"ALTER DATABASE {url.database} OWNER TO {user}"))
    engine.dispose()
    return url.set(username=user, password=PASSWORD)


@contextmanager
def planted(shop: Shop, places: Places) -> Iterator[dict[str, int]]:
    """Put the password into every kind of place, each time in another spelling. :return: where it must be found, how often."""
    forms = [form for spelling in spellings(PASSWORD) if (form := spelling.decode()).isascii() and "\\" not in form]
    tables = {"xcom": "value", "rendered_task_instance_fields": "rendered_fields"}
    for n, folder in enumerate(places.folders.values()):
        (folder / f"{n}.log").write_text(f"… {forms[n]} …")
    with places.metadata.begin() as connection:
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
