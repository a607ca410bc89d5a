"""A real Airflow for the tests of this folder, with a shop for each name that a test asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.airflow.shop import DAG_FILE, Shop
from tests.services.airflow import Airflow, running_airflow

Shops = Callable[..., list[Shop]]


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """A running Airflow with a Spark connection of local mode."""
    environment = {"AIRFLOW_CONN_SPARK_HERE": '{"conn_type": "spark", "host": "local[1]"}'}
    with running_airflow(tmp_path_factory.mktemp("airflow"), environment) as running:
        (running.dags / ".airflowignore").write_text("gated.py\nshop_dag.py\n")
        for module in ("gated.py", "shop_dag.py"):
            running.add_dag(module, (Path(__file__).parent / module).read_text())
        yield running


@pytest.fixture
def shops(airflow: Airflow, tmp_path: Path) -> Shops:
    """Makes shops with a DAG each: by name, with the number of packs at the most, and on Spark or without it."""

    def make(*names: str, max_packs: int = 1, spark: bool = False) -> list[Shop]:
        folder = tmp_path / "shops"
        made = [Shop(airflow, folder, name) for name in names]
        text = DAG_FILE.format(shops=str(folder), names=names, max_packs=max_packs, spark=spark)
        airflow.add_dag(f"{names[0]}.py", text, *names)
        return made

    return make
