"""A real Airflow for the tests of this folder, with a shop for each name that a test asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.shop import DAG_FILE, Shop
from tests.services.airflow import Airflow, running_airflow
from tests.services.postgres import Postgres

Shops = Callable[..., list[Shop]]


@pytest.fixture(scope="package")
def metadata(postgres_server: Postgres) -> str:
    """The URL of Airflow's metadata: SQLite doesn't withstand a dozen runs at once."""
    return postgres_server.create_database("airflow").replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture(scope="package")
def airflow(metadata: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """A running Airflow with a Spark connection of local mode. The example of Kafka has no schedule there."""
    environment = {
        "AIRFLOW_CONN_SPARK_HERE": '{"conn_type": "spark", "host": "local[1]"}',
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata,
        "KAFKA_SCHEDULE": "",
    }
    with running_airflow(tmp_path_factory.mktemp("airflow"), environment) as running:
        (running.dags / ".airflowignore").write_text("gated.py\nshop_dag.py\n")
        for module in ("gated.py", "shop_dag.py"):
            running.add_dag(module, (Path(__file__).parent / module).read_text())
        yield running


@pytest.fixture
def shops(airflow: Airflow, tmp_path: Path) -> Iterator[Shops]:
    """Make shops with a DAG each: by name, and with the options of `shop_dag.shop`.

    Each has a database of its own, or uses the one at `url`, which also has the journal if the database's connection names it.
    """

    everywhere: list[Shop] = []

    def make(*names: str, url: str | None = None, **options: Any) -> list[Shop]:
        folder = tmp_path / "shops"
        made = [Shop(airflow, folder, name, url, url if "journal" in options else None) for name in names]
        everywhere.extend(made)
        for name in names:  # a file each: every task reads all of its own
            airflow.put_dag_file(f"{name}.py", DAG_FILE.format(shops=str(folder), name=name, options=options))
        for name in names:
            airflow.wait_for_dag(name)
        return made

    yield make
    for shop in everywhere:
        shop.close_journal()
