"""The interface of sources: a source names datasets, plans work units from their state, and reads one unit as Arrow batches.

`datasets` and `plan` run on an Airflow worker, `read` in a Spark task. A source is a frozen dataclass, registered with
`wire.record`; it holds no secret, only the ids of connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.batch import Backlog, Batch
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.request import RangeRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, Watermark
from airflow_gobblin.model.work import Dataset, Limits, WorkUnit
from airflow_gobblin.tables.port import Merge

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.rows.converters.base import Refuser


@dataclass(frozen=True)
class PlanRequest:
    """The request of a run.

    :param end: the end of the run's data interval, exclusive; `None` for an unscheduled run: up to now.
    :param now: the time of planning, in UTC, by the worker's clock. A source that has a clock uses its own.
    :param ranges: for a backfill: these ranges, in order, instead of the uncovered ones, whether they hold rows or not.
    :param file_bytes: the size of the sink's files, where a unit should preferably read as much as makes one.
    :param batch: if it holds the backlog that the source finds, no units are needed.
    :param in_order: whether the units will be read in the order of their positions, as `ReadRequest.in_order`.
    """

    now: datetime
    end: datetime | None = None
    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, Json] = field(default_factory=dict)
    ranges: tuple[Range, ...] = ()
    batch: Batch | None = None
    file_bytes: int | None = None
    in_order: bool = False


class Consistency(StrEnum):
    """The reason why the units of a load that takes a whole dataset (a snapshot, or the first load of a snapshot-append) show one
    state of it. If units are read at several moments, a row that moves meanwhile is read twice or never.
    """

    ONE_UNIT = "one_unit"
    """There is one unit, read at one moment. A plan of more units is refused."""
    ONE_SNAPSHOT = "one_snapshot"
    """Each unit is read in the snapshot that the source, a `SnapshotSource`, shares."""
    UNCHANGING = "unchanging"
    """The things that the units name don't change: files that are never rewritten, a version of a table."""


@dataclass(frozen=True)
class DatasetPlan:
    """The result of `Source.plan` for one dataset.

    :param units: the work units, iterated once, so there may be more than fit in memory; none if there is nothing new, or if a
        snapshot's dataset is empty: it is then published as empty.
    :param schema: the schema that every unit will be read with; frozen.
    :param planned: the whole range to cover, from the first low to the last expected high.
    :param kept_from: the position from which the source still has its rows, if it removes old ones: rows removed since aren't
        rewound.
    :param consistency: why its units show one state of the dataset, if they take it whole.
    :param backlog: what waits, if the request is for batches and the dataset has positions.
    :param merge: its primary keys, and the columns by which the newest row of a key is known, for a sink that merges; `None`: the
        source knows of no keys.
    """

    units: Iterable[WorkUnit]
    schema: pa.Schema
    planned: Range | None = None
    kept_from: Watermark | None = None
    consistency: Consistency = Consistency.ONE_UNIT
    backlog: Backlog | None = None
    merge: Merge | None = None


@dataclass(frozen=True)
class ReadRequest:
    """The settings for reading a unit.

    :param limits: what the unit may have at most; a reader keeps to them, or is a `PlacedReader`.
    :param options: the ingestion's options; use `WorkUnit.option`, as the unit's own override them.
    :param snapshot: the name of the snapshot to read in, as `SnapshotSource.snapshot` returned it; empty for none.
    :param in_order: whether rows must come in the order of their positions, from an `OrderedReader`: those before an error are
        published.
    """

    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, Json] = field(default_factory=dict)
    snapshot: str = ""
    in_order: bool = False


class Reader(Protocol):
    """A unit being read. Iterate it once, then read its results.

    It keeps to the limits of its request, or is a `PlacedReader`: a reader that does neither fails its unit.
    """

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of the planned schema, each of bounded size.

        :raises SourceError: for example, a row doesn't fit the schema.
        """

    @property
    def actual_high(self) -> Watermark | None:
        """After the last batch: the first position that was not read."""

    @property
    def expected_rows(self) -> int | None:
        """After the last batch: the number of rows there should be, according to the source; `None` if it doesn't know."""

    @property
    def properties(self) -> Mapping[str, Json]:
        """Properties for the next run's plan."""

    def close(self) -> None:
        """Release connections; safe to repeat."""


@dataclass(frozen=True)
class RefusedRows:
    """Rows that a reader or a check refused.

    :param refuser: what refused them: a record with `on_bad`, and perhaps `at_most`, like a row check.
    :param rows: what is known of them, a row each.
    :param reasons: why, a text each.
    :param positions: where each is in the source.
    :param raw: the bytes of each one that can't be decoded.
    """

    refuser: Refuser
    rows: pa.RecordBatch
    reasons: Sequence[str]
    positions: Sequence[Mapping[str, Json]]
    raw: Sequence[bytes | None] | None = None


class RefusingReader(Reader, Protocol):
    """A reader that finds rows that aren't as they should be according to the source. These rows count as read."""

    def refused(self) -> RefusedRows | None:
        """Return what it refused besides the batch that it just yielded, which may have no rows; `None` if it refuses nothing."""


class PlacedReader(Reader, Protocol):
    """A reader that can be stopped between two batches, so that limits are kept for it; or that knows why it goes on."""

    @property
    def position(self) -> Watermark | None:
        """Between two batches: the first position that wasn't yielded yet; `None` if it can't be stopped, within a position."""


class OrderedReader(PlacedReader, Protocol):
    """A reader that yields all rows of a position, and of those before it, before any beyond it. So the rows read before an error
    can be published. Its `position` is `None` only within a position that is too large for one batch.
    """

    def cut(self, rows: int) -> tuple[int, Watermark]:
        """Return a place to cut the last batch at: a number of its first rows, at most `rows`, and the first position beyond
        these. It lies between two positions. If these rows have no such place, the number is 0, and the position isn't used.

        :param rows: fewer than the batch has.
        """


class Source(Protocol):
    """The origin of rows."""

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections that `read` needs: only these are given to Spark."""

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """Return the modules that `read` needs and that can't be shipped, its drivers: executors must have them installed."""

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        """Return the source's datasets, in a stable order.

        :raises SourceError: the source can't be reached.
        """

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        """Plan the work units of one dataset: the uncovered ranges up to the request's end, holes first; or the request's ranges.

        :param states: the state of every dataset of the ingestion, by URN.
        :raises SourceError: this dataset can't be planned; the others go on.
        """

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        """Start to read one unit, in a Spark task."""


@runtime_checkable
class DeclaredSource(Source, Protocol):
    """A source whose author names its datasets, so that they are known without asking it."""

    @property
    def declared(self) -> tuple[Dataset, ...]:
        """Its datasets, in order."""


@runtime_checkable
class OrderedSource(Source, Protocol):
    """A source that can read units in the order of their positions, for the policy `partial`."""

    @property
    def reads_in_order(self) -> bool:
        """Whether it can: then its readers are `OrderedReader`s if a request is `in_order`."""


@runtime_checkable
class RangeSource(Source, Protocol):
    """A source that can be backfilled: it resolves a range to its own positions."""

    def resolve(self, dataset: Dataset, request: RangeRequest, connections: Connections) -> Range:
        """Return the positions of a backfill's range. Never called for a snapshot.

        An end beyond the data is moved back to where the source can be read up to now. `plan` gets the ranges to
        read as `request.ranges`, and its units cover these whole.

        :raises SourceError: the source can't be reached.
        :raises NoSuchRangeError: it is outside the data altogether, or can't be expressed in positions of this dataset.
        """


@runtime_checkable
class SnapshotSource(Source, Protocol):
    """A source that can read several units in one snapshot: those of plans with `Consistency.ONE_SNAPSHOT`."""

    def snapshot(self, connections: Connections) -> AbstractContextManager[str]:
        """Hold open a snapshot of everything as it is now. Its name is not secret, and no other snapshot ever has it.

        The driver of a pack enters it once, before the first unit is read, and leaves it when the last one has ended. Spark
        tasks get the name by `ReadRequest.snapshot`.

        :raises SourceError: the source can't be reached.
        """


@runtime_checkable
class CheckableSource(Source, Protocol):
    """A source that can name every fault of a dataset at once, where planning stops at the first."""

    def check(self, dataset: Dataset, connections: Connections) -> Iterator[GobblinError]:
        """Yield the faults that keep a dataset from being planned, as far as they are known without its rows. Nothing is changed.

        :raises SourceError: the source can't be reached.
        """


@runtime_checkable
class InformedSource(Source, Protocol):
    """A source that wants to know how far a dataset is published, for people who look there. It never reads it back."""

    def inform(self, urn: str, watermark: Watermark, connections: Connections) -> None:
        """Inform the source how far a dataset is published. It may be informed of the same again, or never.

        :raises SourceError: the source can't be reached.
        """
