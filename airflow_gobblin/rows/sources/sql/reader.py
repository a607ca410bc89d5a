"""The reader of one work unit of a table."""

from __future__ import annotations

import bisect
import time
from collections.abc import Generator, Iterator, Mapping

import pyarrow as pa

from airflow_gobblin.errors import ConfigurationError, GobblinError, Remedy
from airflow_gobblin.model.watermark import Json, Watermark
from airflow_gobblin.model.work import ExtractKind, WorkUnit
from airflow_gobblin.rows.sources.base import ReadRequest
from airflow_gobblin.rows.sources.sql.dialects import Session
from airflow_gobblin.rows.sources.sql.planning import DELTA, end_position
from airflow_gobblin.rows.sources.sql.scan import Scan, open_scan
from airflow_gobblin.rows.sources.sql.tables import SqlTable

BULK_BYTES = 32 << 20
"""The estimated size from which a unit is read in bulk, if possible: the setup takes a tenth of a second."""


MOST_OF_ONE = 200_000
"""The most rows of one position that are kept in memory to be yielded together."""


class SqlReader:
    """A unit being read, in one transaction.

    A limit of rows becomes the unit's end before it is read. Limits of bytes (of the Arrow batches, by their rows' average)
    and seconds are checked while reading in order, and a unit stopped by them doesn't know its expected rows. Rows of one
    position always stay together, so a limit is exceeded if one position alone is above it.

    :param reconcile: whether to find out how many rows the range has, in the same snapshot.
    """

    def __init__(
        self,
        session: Session,
        table: SqlTable,
        unit: WorkUnit,
        schema: pa.Schema,
        request: ReadRequest,
        reconcile: bool,
    ) -> None:
        self._session = session
        self._unit = unit
        self._limits = request.limits
        self._reconcile = reconcile
        self._in_order = request.in_order
        self._position: Watermark | None = None
        self._keys: pa.Array | None = None
        """The delta values of the last batch, in order."""
        self._high: Watermark | None = None
        self._expected: int | None = None
        self._rows = 0
        """The number of rows that were yielded, unless they are limited while they are read."""
        self._scan = self._open(table, schema)

    @property
    def actual_high(self) -> Watermark | None:
        """The first position that was not read; `None` for a whole table."""
        return self._high

    @property
    def expected_rows(self) -> int | None:
        """The count of the range that was read; `None` if it wasn't counted."""
        return self._expected

    @property
    def position(self) -> Watermark | None:
        """The first position that wasn't yielded, if it reads in order, and `None` within one that is too large for a batch.

        Otherwise always `None`: it keeps to its limits itself, going on only to the end of one position, and must not be stopped.
        """
        return self._position

    def cut(self, rows: int) -> tuple[int, Watermark]:
        """Return the place before the position of a row of the last batch."""
        assert self._keys is not None
        return self._beginning(self._keys, rows), self._scan.position(self._keys[rows].as_py())

    @property
    def properties(self) -> Mapping[str, Json]:
        """The column of its positions: planning checks that it stays the same. Empty for a snapshot."""
        return {} if self._scan.table.kind is ExtractKind.SNAPSHOT_ONLY else {DELTA: self._scan.table.delta}

    def close(self) -> None:
        """End the transaction and close the connection."""
        self._session.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        low, high = self._unit.low, self._end()
        stopped: Watermark | None = None
        if low is None or high is None or low < high:
            if self._in_order:
                yield from self._ordered(self._scan.batches(low, high, ordered=True), high)
            elif (self._limits.bytes, self._limits.seconds) == (None, None):
                bulk = self._unit.weight >= BULK_BYTES
                yield from self._in_schema(self._scan.batches(low, high, bulk=bulk))
            else:
                stopped = yield from self._limited(self._scan.batches(low, high, ordered=True))
        self._high = stopped or high
        if stopped is None and self._reconcile:
            self._expected = self._count(low, high)
        self._scan.check_not_rewritten()

    def _open(self, table: SqlTable, schema: pa.Schema) -> Scan:
        try:
            scan = open_scan(self._session, table, schema.names, planned=True)
            changed = [
                f"{f.name!r} was {f.type} and is now {n.type}"
                for f, n in zip(schema, scan.schema, strict=True)
                if f != n
            ]
            if changed:
                raise ConfigurationError(
                    operation="read",
                    subject=self._session.subject,
                    cause=f"since it was planned, columns have changed: {', '.join(changed)}",
                    remedy=Remedy.PLAN,
                )
            if self._unit.low is None and self._limits.any:
                raise ConfigurationError(
                    operation="read",
                    subject=self._session.subject,
                    cause="a limit can't stop it: it has no positions",
                    hint="Take the limits off for it.",
                )
        except GobblinError:
            self._session.close()
            raise
        return scan

    def _end(self) -> Watermark | None:
        """Return where to read to: the expected high, or the present end; less if the rows are limited."""
        low, high = self._unit.low, self._unit.expected_high
        if low is None:
            return high
        if high is None:
            end = end_position(self._scan)
            high = end if end is not None and low < end else low
        cut = self._scan.cut(low, high, self._limits.rows) if self._limits.rows is not None and low < high else None
        return cut or high

    def _count(self, low: Watermark | None, high: Watermark | None) -> int:
        """Return the number of the range's rows.

        The database counts the rows that it finds by an index for a result in bulk: without conditions of the table's own, those
        of the range. Unless exactly as many were read, they are counted by a query of their own.
        """
        visited = 0 if self._scan.table.where else self._session.visited
        return visited if visited and visited == self._rows else self._scan.count(low, high)

    def _in_schema(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self._scan.schema
        for batch in batches:
            self._rows += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema)

    def _ordered(self, batches: Iterator[pa.RecordBatch], high: Watermark | None) -> Iterator[pa.RecordBatch]:
        """Yield batches that end between two positions: the rows of the last position come with the next batch, unless it is
        larger than a batch.
        """
        rest: pa.RecordBatch | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = batch if rest is None else _joined(rest, batch)
            keys = rows.column(len(self._scan.schema))
            end = self._beginning(keys, rows.num_rows - 1)
            within = end == 0 and rows.num_rows > MOST_OF_ONE
            if end or within:
                self._position = None if within else self._scan.position(keys[end].as_py())
                self._keys = keys[:end] if end else keys
                yield from self._in_schema(iter([rows.slice(0, end) if end else rows]))
            rest = None if within else rows.slice(end)
        if rest is not None and rest.num_rows:
            self._position, self._keys = high, rest.column(len(self._scan.schema))
            yield from self._in_schema(iter([rest]))

    def _beginning(self, keys: pa.Array, row: int) -> int:
        """Return the first row that has the position of a row."""
        at = self._scan.position(keys[row].as_py())
        return bisect.bisect_left(range(row), at, key=lambda n: self._scan.position(keys[n].as_py()))

    def _limited(self, batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, Watermark | None]:
        """Yield batches up to a limit; return the first position that was not read, or `None` if no limit was met."""
        schema = self._scan.schema
        started, taken = time.monotonic(), 0
        last: Watermark | None = None
        full = False
        for batch in batches:
            budget = self._budget(batch, started, taken)
            keys = batch.column(len(schema))
            end = batch.num_rows
            if full or budget < end:
                end = self._cut_in(keys, 0 if full else budget, last)
                full = True
            rows = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema).slice(0, end)
            if end:
                yield rows
            if end < batch.num_rows:
                return self._scan.position(keys[end].as_py())
            taken += rows.nbytes
            last = self._scan.position(keys[end - 1].as_py())
        return None

    def _budget(self, batch: pa.RecordBatch, started: float, taken: int) -> int:
        """Return the number of rows of a batch that the limits still allow."""
        if self._limits.seconds is not None and time.monotonic() - started >= self._limits.seconds:
            return 0
        if self._limits.bytes is None:
            return int(batch.num_rows)
        rows: int = max(0, self._limits.bytes - taken) * batch.num_rows // max(1, batch.nbytes)
        return rows

    def _cut_in(self, keys: pa.Array, budget: int, last: Watermark | None) -> int:
        """Return where to cut a batch: at the start of the position at `budget`, or at its end if it was partly yielded."""
        positions = [self._scan.position(key) for key in keys.to_pylist()]
        at = positions[budget]
        start: int = bisect.bisect_left(positions, at)
        end: int = bisect.bisect_right(positions, at)
        return end if start == 0 and (last is None or not last < at) else start


def _joined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches([one, other]).combine_chunks().to_batches()
    return batch
