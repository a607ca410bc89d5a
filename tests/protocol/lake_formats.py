"""Tables of Delta, Iceberg and PostgreSQL for `lake_histories`, and how readers outside read them.

    $ .venv/bin/python -m tests.protocol.lake_formats WORDS

carries out one run, and is killed at one of its calls: `Lake` starts it.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.model.naming import table_key
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.iceberg import IcebergTable
from airflow_gobblin.tables.port import Merge
from airflow_gobblin.tables.postgres import PostgresTable
from airflow_gobblin.testing.tables import SCHEMA
from tests.duckdb_reader import duckdb_with
from tests.protocol.lake_histories import Format, Read, run_and_die
from tests.protocol.table_world import ORDERS, Row, as_row

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql.connect.session import SparkSession

COLUMNS = ", ".join(SCHEMA.names)


def merging(urn: str) -> dict[str, Any]:
    """Return the options of a sink that merges orders: of each key the row with the highest position stays."""
    return {"merge": Merge(("id",), "position")} if urn == ORDERS else {}


def by_spark(spark: SparkSession | None, name: str, path: Callable[[str], str]) -> Mapping[str, Read]:
    """Return how Spark reads tables, if there is one.

    :param name: of the format.
    :param path: where the table of a dataset is.
    """
    if spark is None:
        return {}

    def read(urn: str) -> Counter[Row]:
        found = spark.read.format(name).load(path(urn)).select(*SCHEMA.names)
        return Counter(map(as_row, found.toArrow().to_pylist()))

    return {"Spark": read}


@dataclass(frozen=True)
class DeltaFormat:
    """Delta tables on a disk.

    :param place: their folder.
    :param spark: a reader, see `running_spark_of_tables`.
    """

    place: str
    spark: SparkSession | None = None
    name = "delta"
    record = DeltaLakeTable
    connections: Connections = field(default_factory=NoConnections)

    def sink(self, urn: str, workspace: str) -> Sink:
        return DeltaSink(f"{self.place}/{{dataset}}", workspace, **merging(urn))

    def _folder(self, urn: str) -> str:
        return f"{self.place}/{table_key(urn)}"

    @cached_property
    def readers(self) -> Mapping[str, Read]:
        duck = duckdb_with("delta")

        def by_deltalake(urn: str) -> Counter[Row]:
            from deltalake import DeltaTable

            return Counter(map(as_row, DeltaTable(self._folder(urn)).to_pyarrow_table().to_pylist()))

        def by_duckdb(urn: str) -> Counter[Row]:
            return Counter(duck.execute(f"SELECT {COLUMNS} FROM delta_scan('{self._folder(urn)}')").fetchall())

        return {"deltalake": by_deltalake, "DuckDB": by_duckdb, **by_spark(self.spark, "delta", self._folder)}


@dataclass(frozen=True)
class IcebergFormat:
    """Iceberg tables of a catalog on SQLite.

    :param place: the folder of both.
    :param spark: a reader, see `running_spark_of_tables`.
    """

    place: str
    spark: SparkSession | None = None
    name = "iceberg"
    record = IcebergTable

    def __post_init__(self) -> None:
        Path(self.place).mkdir(parents=True, exist_ok=True)

    @property
    def connections(self) -> Connections:
        return self

    def uri(self, conn_id: str) -> str:
        assert conn_id == "lake_catalog"
        return f"sqlite://{self.place}/catalog.db?warehouse={quote(f'file://{self.place}/tables', safe='')}"

    def sink(self, urn: str, workspace: str) -> Sink:
        return IcebergSink("lake_catalog", "raw.{dataset}", workspace, **merging(urn))

    @cached_property
    def readers(self) -> Mapping[str, Read]:
        from pyiceberg.catalog.sql import SqlCatalog

        duck = duckdb_with("avro", "iceberg")

        def table(urn: str) -> Table:
            with closing(SqlCatalog("lake_catalog", uri=f"sqlite:///{self.place}/catalog.db")) as catalog:
                return catalog.load_table(("raw", table_key(urn)))

        def by_pyiceberg(urn: str) -> Counter[Row]:
            return Counter(map(as_row, table(urn).scan().to_arrow().to_pylist()))

        def by_duckdb(urn: str) -> Counter[Row]:
            query = f"SELECT {COLUMNS} FROM iceberg_scan('{table(urn).metadata_location}')"
            return Counter(duck.execute(query).fetchall())

        def metadata(urn: str) -> str:
            return table(urn).metadata_location

        return {"pyiceberg": by_pyiceberg, "DuckDB": by_duckdb, **by_spark(self.spark, "iceberg", metadata)}


@dataclass(frozen=True)
class PostgresFormat:
    """Tables of a database.

    :param place: its URL.
    """

    place: str
    name = "postgres"
    record = PostgresTable

    @property
    def connections(self) -> Connections:
        return self

    def uri(self, conn_id: str) -> str:
        assert conn_id == "warehouse"
        return self.place

    def sink(self, urn: str, workspace: str) -> Sink:
        return PostgresSink("warehouse", "public.{dataset}", workspace, **merging(urn))

    @cached_property
    def readers(self) -> Mapping[str, Read]:
        duck = duckdb_with("postgres_scanner")
        duck.execute(f"ATTACH '{self.place}' AS warehouse (TYPE postgres, READ_ONLY)")
        psql = Path(os.environ["POSTGRES_BIN"], "psql")

        def by_psql(urn: str) -> Counter[Row]:
            command = f'COPY (SELECT {COLUMNS} FROM public."{table_key(urn)}") TO STDOUT WITH CSV'
            done = subprocess.run([psql, self.place, "-c", command], check=True, capture_output=True, text=True)
            return Counter(map(_typed, csv.reader(io.StringIO(done.stdout))))

        def by_psycopg(urn: str) -> Counter[Row]:
            with psycopg.connect(self.place) as connection:
                return Counter(connection.execute(f'SELECT {COLUMNS} FROM public."{table_key(urn)}"').fetchall())

        def by_duckdb(urn: str) -> Counter[Row]:
            return Counter(duck.execute(f'SELECT {COLUMNS} FROM warehouse.public."{table_key(urn)}"').fetchall())

        return {"psql": by_psql, "psycopg": by_psycopg, "DuckDB": by_duckdb}


def _typed(texts: Iterable[str]) -> Row:
    number, text, changed, position = texts
    return int(number), text, int(changed), int(position)


FORMATS: Mapping[str, Any] = {of.name: of for of in (DeltaFormat, IcebergFormat, PostgresFormat)}


def open_format(name: str, place: str, spark: SparkSession | None = None) -> Format:
    """Open the tables of a format at a place.

    :param spark: a reader, where the format has one for it.
    """
    found: Format = FORMATS[name](place, *(() if spark is None else (spark,)))
    return found


if __name__ == "__main__":
    run_and_die(sys.argv[1], open_format)
