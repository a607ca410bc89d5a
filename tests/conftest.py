"""Fixtures that every test may use. Services are real, started on first use, and stopped at the end."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

from tests import lanes, proofs
from tests.proofs import proved, pytest_report_header, pytest_runtest_makereport
from tests.services import s3
from tests.services.emulators import Emulator, running_azurite, running_gcs
from tests.services.environment import ROOT, TEMPORARY, hurry_java, use_environment
from tests.services.hdfs import Hdfs, running_hdfs
from tests.services.hive import Metastore, running_metastore
from tests.services.iceberg_rest import IcebergRest, running_iceberg_rest
from tests.services.kafka import Kafka, running_kafka
from tests.services.packages import build_wheel
from tests.services.postgres import Postgres, running_postgres
from tests.services.registry import Registry, running_registry
from tests.services.s3_proxy import Proxy, running_proxy
from tests.services.spark_connect import SparkConnect, running_spark_connect
from tests.services.spark_standalone import SparkStandalone, running_spark_standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["proved", "pytest_report_header", "pytest_runtest_makereport"]

SERVICES = frozenset(
    (
        *(
            "azurite",
            "bucket",
            "deployment",
            "gcs",
            "hdfs",
            "iceberg_rest",
            "iceberg_rest_in_s3",
            "kafka",
            "metastore",
            "mortal",
            "moto",
            "registry",
            "s3_proxy",
            "versitygw",
            "wheel",
        ),
        *("postgres", "postgres_database", "postgres_server", "postgresql"),
        *("spark", "spark_connect", "spark_standalone"),
    )
)
SLOW_FOLDERS = frozenset(
    ("airflow", "benchmarks", "demo", "events", "operators", "plugins", "protocol", "services", "spark", "testing")
)

use_environment()
hurry_java()
proofs.case_seed()  # the same in all processes of a run
set_hypothesis_home_dir(ROOT / ".build" / "hypothesis")
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
# Airflow makes its home when it is imported, so it is chosen before.
_AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="airflow-", dir=TEMPORARY))
os.environ["AIRFLOW_HOME"] = str(_AIRFLOW_HOME)
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


_SECONDS: defaultdict[str, float] = defaultdict(float)


def pytest_collection() -> None:
    """Look for no garbage while modules are imported and tests collected: hardly any of it becomes that."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave all of that out of what is looked through for garbage from now on: it took a sixth of the time."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # clients of object stores make so many objects that it looks all the time


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _SECONDS[report.location[0]] += report.duration


def pytest_unconfigure() -> None:
    shutil.rmtree(_AIRFLOW_HOME, ignore_errors=True)
    if kept := os.environ.get(lanes.DURATIONS):
        Path(kept).write_text(json.dumps({file: round(seconds, 1) for file, seconds in _SECONDS.items()}))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't even import slow folders when slow tests are left out: some bring Airflow's API or a browser along."""
    slow = collection_path.parent == ROOT / "tests" and collection_path.name in SLOW_FOLDERS
    return True if slow and "not slow" in config.option.markexpr else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that start services or are slow, which `make quick` leaves out, and cases that `make test` leaves out."""
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        # A parameter may name the fixture that a test asks for by itself.
        asked = {*getattr(item, "fixturenames", ()), *re.findall(r"\w+", item.name)}
        if folder in SLOW_FOLDERS or not SERVICES.isdisjoint(asked):
            item.add_marker(pytest.mark.slow)
        if proofs.PAGE in os.environ:  # instead of a limit of its own, which is for what `make test` plays
            item.add_marker(pytest.mark.timeout(proofs.MOST_SECONDS), append=False)
    proofs.leave_to_soak(items, config.option.markexpr)


@pytest.fixture
def thawed_heap() -> Iterator[None]:
    """A heap that nobody has frozen, as that of a process which runs a task: that of all tests is."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A running PostgreSQL server."""
    with running_postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(postgres_server: Postgres) -> str:
    """The URL of a database that the whole session shares."""
    return postgres_server.url()


@pytest.fixture
def postgres_database(postgres_server: Postgres) -> str:
    """The URL of an empty database of the test's own."""
    return postgres_server.create_database(f"test_{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A running Kafka."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A running schema registry."""
    with running_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    """A running REST catalog of Iceberg tables."""
    with running_iceberg_rest(tmp_path_factory.mktemp("iceberg_rest")) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def iceberg_rest_in_s3(tmp_path_factory: pytest.TempPathFactory, versitygw: s3.S3Server) -> Iterator[IcebergRest]:
    """A running REST catalog of Iceberg tables, which are in `versitygw`."""
    warehouse, folder = f"s3://{versitygw.create_bucket()}/lake", tmp_path_factory.mktemp("iceberg_rest_in_s3")
    with running_iceberg_rest(folder, warehouse, versitygw.access) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """A running S3 server that keeps its data on disk, and checks credentials."""
    with s3.running(s3.versitygw(tmp_path_factory.mktemp("versitygw"))) as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """A running S3 server that keeps its data in memory, and accepts any credentials."""
    with s3.running(s3.moto(tmp_path_factory.mktemp("moto"))) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A running server that emulates Google Cloud Storage."""
    with running_gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A running server that emulates Azure's blob storage."""
    with running_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A running HDFS: a namenode and a datanode."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """A running Hive metastore."""
    with running_metastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture
def bucket(versitygw: s3.S3Server) -> str:
    """An empty bucket of the test's own, on versitygw."""
    return versitygw.create_bucket()


@pytest.fixture
def s3_proxy(versitygw: s3.S3Server) -> Iterator[Proxy]:
    """A proxy in front of versitygw, that does no harm yet."""
    with running_proxy(versitygw.access.endpoint) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def spark_standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    """A Spark master with one worker, whose executors use this Python."""
    with running_spark_standalone(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """A warm Spark with two cores, reached by Spark Connect; it writes an event log into `events` beside its log."""
    folder = tmp_path_factory.mktemp("connect")
    events = folder / "events"
    events.mkdir()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    with running_spark_connect(folder, logged | {"spark.eventLog.compress": "false"}) as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark in local mode inside this process, with two cores."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    # It logs closed connections when nobody listens any more.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))
