"""Tables of PostgreSQL and SQLite as a source: planned by ranges of a delta column, read through ADBC straight into Arrow.

    SqlSource(
        conn_id="shop",
        tables=(
            SqlTable("orders", ExtractKind.APPEND_ONLY, delta="updated_at", primary_keys=("id",)),
            SqlTable("countries", ExtractKind.SNAPSHOT_ONLY),
        ),
    )

A unit reads its range in one transaction that sees one state of the database, in batches, whatever the size of the table. A
snapshot, and the first load of a snapshot-append, show one state in all of their units: PostgreSQL's transactions share a
snapshot, and in SQLite, which has none to share, they are one unit. Rows that are committed at the source later than the lag,
with a delta value below what was read, are not seen.

A DAG file imports this module and `tables`; everything else, with Arrow and the drivers, is loaded when a table is planned or
read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, ReadRequest
from airflow_gobblin.rows.sources.sql.tables import Predicate, SqlTable

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.rows.sources.sql.reader import SqlReader

__all__ = ["Predicate", "SqlSource", "SqlTable"]


@record("sql_source")
@dataclass(frozen=True)
class SqlSource:
    """Tables behind one connection.

    :param conn_id: an Airflow connection whose URI begins with `postgresql://`, `postgres://` or `sqlite://`.
    :param reconcile: whether the rows that each unit reads are compared with the count of the database, in the same snapshot.
    """

    conn_id: str
    tables: tuple[SqlTable, ...]
    reconcile: bool = True

    def __post_init__(self) -> None:
        check_tuples(self)
        counts = Counter(table.urn for table in self.tables)
        if twice := sorted(urn for urn, count in counts.items() if count > 1):
            raise ConfigurationError(
                operation="use",
                subject=f"SqlSource({self.conn_id!r})",
                cause=f"two tables have the URN {twice[0]!r}",
                hint="Give one of them another `urn`.",
            )

    @property
    def reads_in_order(self) -> bool:
        """Whether it can read in order: by the delta column. Planning refuses a table that has no index for that."""
        return True

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The one connection."""
        return (self.conn_id,)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return the database's driver.

        :raises ConfigurationError: the connection is of an unknown type.
        """
        from airflow_gobblin.rows.sources.sql.database import Database

        return (Database(self.conn_id, connections).dialect.driver,)

    @property
    def declared(self) -> tuple[Dataset, ...]:
        """One dataset per table, in the order given."""
        return tuple(Dataset(table.urn, table.extract, table.read_from) for table in self.tables)

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        """Return the declared datasets. The database is not queried."""
        return self.declared

    def check(self, dataset: Dataset, connections: Connections) -> Iterator[GobblinError]:
        """Yield the faults that keep a table from being read as described: each column, with a cast that fits its first values.

        :raises SourceError: the database can't be reached.
        """
        from airflow_gobblin.rows.sources.sql.checking import check_table
        from airflow_gobblin.rows.sources.sql.database import Database

        yield from check_table(Database(self.conn_id, connections), self._table(dataset.urn))

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        """Plan the uncovered ranges of a table, holes first, split into units; or the whole table, for a snapshot.

        :raises SourceError: the database can't be reached, or rows have no position.
        :raises ConfigurationError: an unknown table or column, or a type that can't be read without a cast.
        """
        from airflow_gobblin.rows.sources.sql.database import Database
        from airflow_gobblin.rows.sources.sql.planning import plan_table

        table = self._table(dataset.urn)
        with Database(self.conn_id, connections).open("plan", table) as session:
            return plan_table(session, table, states.get(dataset.urn, DatasetState(dataset.urn)), request)

    def resolve(self, dataset: Dataset, request: RangeRequest, connections: Connections) -> Range:
        """Resolve a backfill's range by the delta column: points in time for dates and timestamps, values for integers.

        :raises SourceError: the database can't be reached.
        :raises ConfigurationError: it is outside the data, or the column is of another kind.
        """
        from airflow_gobblin.rows.sources.sql.database import Database
        from airflow_gobblin.rows.sources.sql.planning import resolve_range

        table = self._table(dataset.urn)
        with Database(self.conn_id, connections).open("backfill", table) as session:
            return resolve_range(session, table, request)

    def snapshot(self, connections: Connections) -> AbstractContextManager[str]:
        """Hold a snapshot of the database, in PostgreSQL.

        :raises SourceError: the database can't be reached, or has no snapshots.
        """
        from airflow_gobblin.rows.sources.sql.database import Database

        return Database(self.conn_id, connections).hold()

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> SqlReader:
        """Start to read a unit.

        :raises SourceError: the database can't be reached, or its snapshot is gone.
        :raises ConfigurationError: columns changed since it was planned.
        """
        from airflow_gobblin.rows.sources.sql.database import Database
        from airflow_gobblin.rows.sources.sql.reader import SqlReader

        table = self._table(unit.urn)
        session = Database(self.conn_id, connections).open("read", table, request.snapshot)
        return SqlReader(session, table, unit, schema, request, self.reconcile)

    def _table(self, urn: str) -> SqlTable:
        for table in self.tables:
            if table.urn == urn:
                return table
        raise ConfigurationError(
            operation="read",
            subject=f"dataset {urn!r}",
            cause=f"the source has {[t.urn for t in self.tables][:20]}",
            hint="Correct its URN, or add the table to the source.",
        )
