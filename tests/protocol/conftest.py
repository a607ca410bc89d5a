"""Fixtures that the proofs share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.protocol.matrix import Pool
from tests.services.postgres import Postgres
from tests.services.s3 import S3Server
from tests.services.spark_tables import running_spark_of_tables

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The workers of the crash matrix: it takes them seconds to warm up."""
    with Pool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture
def new_database(postgres_server: Postgres) -> Callable[[], str]:
    """Return a function that makes an empty database and returns its URL."""
    return lambda: postgres_server.create_database(f"test_{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def spark_of_tables(tmp_path_factory: pytest.TempPathFactory, versitygw: S3Server) -> Iterator[SparkSession]:
    """A warm Spark that reads tables of Iceberg and Delta, also in `versitygw`."""
    with running_spark_of_tables(tmp_path_factory.mktemp("spark_of_tables"), versitygw.access) as session:
        yield session
