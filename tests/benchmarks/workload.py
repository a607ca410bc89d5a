"""The workload of the benchmarks of tables: a PostgreSQL of their own, with a table of orders of 12 columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.services.postgres import Postgres, running_postgres

__all__ = ["COLUMNS", "TABLE", "add_orders", "create_orders", "orders_database"]

TABLE = "orders"
COLUMNS = 12
SEED = "gobblin"

_CREATE = f"""
    CREATE TABLE {TABLE} (
        id bigint PRIMARY KEY,
        customer bigint NOT NULL,
        product text NOT NULL,
        note text,
        latitude double precision,
        longitude double precision,
        quantity integer NOT NULL,
        store integer,
        paid boolean NOT NULL,
        created_at timestamp NOT NULL,
        updated_at timestamp NOT NULL,
        price numeric(12, 2) NOT NULL
    )"""
# Every value follows from the row's number and the seed, so that a table is the same wherever it is made.
_INSERT = f"""
    INSERT INTO {TABLE}
    SELECT n,
           h %% 1000003,
           'product-' || (h %% 9973),
           CASE WHEN n %% 10 < 7 THEN md5(n::text) END,
           CASE WHEN n %% 50 > 0 THEN (h %% 180000000) / 1000000.0 - 90 END,
           CASE WHEN n %% 50 > 0 THEN (h %% 360000007) / 1000000.0 - 180 END,
           1 + h %% 12,
           CASE WHEN n %% 20 > 0 THEN h %% 250 END,
           h %% 3 > 0,
           timestamp '2025-01-01' + n * interval '11.3 seconds' - (h %% 86400) * interval '1 second',
           timestamp '2025-01-01' + n * interval '11.3 seconds',
           (h %% 10000000) / 100.0
    FROM (SELECT n, hashint8extended(n, hashtext('{SEED}')) & x'7fffffffffffffff'::bigint AS h
          FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n) AS numbers"""


@contextmanager
def orders_database(folder: Path, rows: int) -> Iterator[tuple[Postgres, str]]:
    """A server with its data in `folder`, and the URL of a database with so many orders."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_postgres(folder) as server:
        url = server.create_database("shop")
        create_orders(url, rows)
        yield server, url


def create_orders(url: str, rows: int) -> None:
    """Replace the table, with orders 1 to `rows`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}".encode())
        connection.execute(_CREATE.encode())
        connection.execute(f"CREATE INDEX ON {TABLE} (updated_at)".encode())
    add_orders(url, 1, rows)


def add_orders(url: str, first: int, last: int) -> None:
    """Add the orders `first` to `last`, and let the server settle, so that its own work is not measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_INSERT.encode(), {"first": first, "last": last})
        connection.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}".encode())
        connection.execute("CHECKPOINT")
