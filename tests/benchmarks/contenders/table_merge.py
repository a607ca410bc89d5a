"""The merge of new versions into a table that has many rows: by our commit, or by the library's own call from a script.

Both get the same staged Parquet files, and read them themselves. The table is filled before the clock, by our own commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_gobblin.model.table import DataFile, Mark, Owner
from airflow_gobblin.rows.sinks.table_files import TableFiles
from airflow_gobblin.storage.files import Files, open_files
from airflow_gobblin.tables.delta import DeltaLakeTable
from airflow_gobblin.tables.iceberg import IcebergTable
from airflow_gobblin.tables.layout import unit_folder
from airflow_gobblin.tables.port import Change, Look, Merge, OpenTable, Table
from airflow_gobblin.tables.postgres import PostgresTable
from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures

OWNER = Owner("0" * 32, "benchmark", "orders")
MERGE = Merge(("id",), "updated_at")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("product", pa.string()),
        ("price", pa.float64()),
        ("updated_at", pa.timestamp("us", "UTC")),
    ]
)
_PIECE = 500_000
_NEWER = 10**12


@dataclass(frozen=True)
class Given:
    """The connections of all formats."""

    url: str
    folder: Path

    def uri(self, conn_id: str) -> str:
        if conn_id == "warehouse":
            return self.url
        return f"sqlite://{self.folder}/catalog.db?warehouse={quote(f'file://{self.folder}/warehouse', safe='')}"


def orders(ids: pa.Array, since: int) -> pa.RecordBatch:
    """Orders, all of whose values follow from their ids.

    :param since: added to their times: versions are newer.
    """
    product = pc.binary_join_element_wise("product-", pc.bit_wise_and(ids, 8191).cast(pa.string()), "")
    price = pc.divide(pc.bit_wise_and(pc.multiply(ids, 7919), 0xFFFFF).cast(pa.float64()), 100.0)
    times = pc.add(ids, since).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch([ids, pc.divide(ids, 7), product, price, times], schema=SCHEMA)


def pieces(rows: int, step: int, since: int) -> Iterator[pa.RecordBatch]:
    """Every so many-th of the orders, in pieces."""
    for first in range(0, rows, _PIECE * step):
        yield orders(pa.array(range(first, min(rows, first + _PIECE * step), step), pa.int64()), since)


def staged(look: Look, files: Files, token: str, batches: Iterator[pa.RecordBatch]) -> tuple[DataFile, ...]:
    """Write data files as a unit does."""
    assert look.schema is not None
    writer = TableFiles(look.schema, files, unit_folder(token, "a", "u0-r"), "u0")
    for batch in batches:
        writer.write(batch.cast(look.schema))
    writer.close()
    return writer.data_files


def table_of(kind: str, folder: Path) -> Table:
    if kind == "delta":
        return DeltaLakeTable(str(folder / "delta"))
    return PostgresTable("warehouse", "public", "orders") if kind == "postgres" else IcebergTable("lake", "shop.orders")


def filled(opened: OpenTable, files: Files, own: Files, rows: int) -> None:
    """Fill the table, a commit for all."""
    opened.create(OWNER, SCHEMA, ())
    look = opened.look(OWNER)
    where = open_files(look.location) if look.location else own
    first = staged(look, where, "1" * 32, pieces(rows, 1, 0))
    opened.commit(look, _change(first), OWNER, Mark(1, "1" * 32, done=True))


def _change(files: tuple[DataFile, ...], merge: Merge | None = None) -> Change:
    return Change(lambda: iter(files), len(files), sum(file.rows for file in files), merge=merge)


def by_library(kind: str, folder: Path, url: str, paths: list[Path]) -> None:
    """Merge as a script does."""
    new: Any = pa.concat_tables([pq.read_table(path) for path in paths])
    if kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(folder / "delta"))
        merger = table.merge(new, predicate="t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all("s.updated_at > t.updated_at").when_not_matched_insert_all().execute()
    elif kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        iceberg = load_catalog("lake", **properties).load_table("shop.orders")
        iceberg.upsert(new.cast(iceberg.schema().as_arrow()), join_cols=["id"])
    else:
        from adbc_driver_postgresql import dbapi

        names = ", ".join(SCHEMA.names)
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in SCHEMA.names)
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("new", new, mode="create", temporary=True)
            cursor.execute(
                f"INSERT INTO orders AS present ({names}) SELECT {names} FROM new ON CONFLICT (id) "
                f"DO UPDATE SET {sets} WHERE EXCLUDED.updated_at > present.updated_at"
            )
            connection.commit()


def main() -> None:
    asked = arguments(folder="", kind="", way="", rows="", share="100")
    folder, rows, step = Path(asked.folder), int(asked.rows), int(asked.share)
    given, own = Given(asked.url, folder), open_files(str(folder / "work"))
    if asked.kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        load_catalog("lake", type="sql", uri=f"sqlite:///{folder}/catalog.db").create_namespace("shop")
    opened = table_of(asked.kind, folder).open(given, own)
    if asked.kind == "postgres":
        _emptied(asked.url)
    filled(opened, own, own, rows)
    if asked.kind == "postgres":
        _settled(asked.url)
    look = opened.look(OWNER)
    where = open_files(look.location) if look.location else own
    new = staged(look, where, "2" * 32, pieces(rows, step, _NEWER))
    clock = Laps()
    if asked.way == "ours":
        opened.commit(opened.look(OWNER), _change(new, MERGE), OWNER, Mark(2, "2" * 32, done=True))
    else:
        by_library(asked.kind, folder, asked.url, [Path(where.root, file.path) for file in new])
    seconds = clock.lap("merge")
    print_figures(seconds, clock.phases, rows=opened.total().rows, merged=sum(file.rows for file in new))


def _emptied(url: str) -> None:
    """Drop the table of an earlier round, with its marks."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")


def _settled(url: str) -> None:
    """Give the table its key, and let the server settle."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE UNIQUE INDEX ON orders (id)")
        connection.execute("VACUUM (FREEZE, ANALYZE) orders")
        connection.execute("CHECKPOINT")


if __name__ == "__main__":
    main()
