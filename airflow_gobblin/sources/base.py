"""What a source is: it names datasets, plans work units from their state, and reads one unit as Arrow batches.

`datasets` and `plan` run on an Airflow worker, `read` in a Spark task. A source is a frozen dataclass, registered with
`wire.record`; it holds no secret, only the ids of connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_gobblin.coverage import Range
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.state import DatasetState
from airflow_gobblin.watermark import Json, Watermark
from airflow_gobblin.work import Dataset, Limits, WorkUnit

if TYPE_CHECKING:
    import pyarrow as pa

Bound = datetime | int
"""Where a backfill begins or ends: a point in time, or a position of a source whose positions are integers."""


class Connections(Protocol):
    """Where secrets come from: Airflow's connections on a worker, the driver's environment in Spark."""

    def uri(self, conn_id: str) -> str:
        """A connection as a URI, with its password. Never put it in a record, a log or an error.

        :raises ConfigurationError: there is no such connection.
        """


@dataclass(frozen=True)
class RangeRequest:
    """What a backfill asks for, to be said in positions.

    :param now: the time of planning, in UTC, by the worker's clock. A source that has a clock goes by its own.
    :param start: where it begins; :param end: where it ends, exclusive; `None`: where the source can be read up to.
    """

    now: datetime
    start: Bound
    end: Bound | None = None


@dataclass(frozen=True)
class PlanRequest:
    """What a run asks for.

    :param end: the end of the run's data interval, exclusive; `None` for an unscheduled run: up to now.
    :param now: the time of planning, in UTC, by the worker's clock. A source that has a clock goes by its own.
    :param ranges: of a backfill: these ranges, in order, instead of what the coverage lacks, and whether they hold rows or not.
    """

    now: datetime
    end: datetime | None = None
    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, Json] = field(default_factory=dict)
    ranges: tuple[Range, ...] = ()


class Consistency(StrEnum):
    """Why the units of a load that takes a dataset whole show one state of it: a snapshot, or the first load of a
    snapshot-append. Read at several moments, a row that moves meanwhile comes twice or never."""

    ONE_UNIT = "one_unit"
    """It is one unit, which is read at one moment. A plan of more is refused."""
    ONE_SNAPSHOT = "one_snapshot"
    """Each unit is read in the snapshot that the source shares: it is a `SnapshotSource`."""
    UNCHANGING = "unchanging"
    """What the units name doesn't change: files that are never rewritten, a version of a table."""


@dataclass(frozen=True)
class DatasetPlan:
    """What `Source.plan` gives for one dataset.

    :param units: the work units, gone through once, so there may be more than memory has room for; none at all where there is
        nothing new.
    :param schema: the schema that every unit will be read with; frozen.
    :param planned: the whole range that is to be covered, from the first low to the last expected high.
    :param kept_from: from where on the source has what it gave before, if it removes old rows: what it has removed since isn't
        rewound.
    :param consistency: why its units show one state of the dataset, if they take it whole.
    """

    units: Iterable[WorkUnit]
    schema: pa.Schema
    planned: Range | None = None
    kept_from: Watermark | None = None
    consistency: Consistency = Consistency.ONE_UNIT


@dataclass(frozen=True)
class ReadRequest:
    """How a unit is to be read.

    :param options: the ingestion's; ask `WorkUnit.option`, for the unit's own win over them.
    :param snapshot: the name of the snapshot to read it in, as `SnapshotSource.snapshot` gave it; empty: in none.
    """

    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, Json] = field(default_factory=dict)
    snapshot: str = ""


class Reader(Protocol):
    """One unit being read. Iterate it once, then ask what it gave.

    It keeps to the limits of its request, or is a `PlacedReader`: one that does neither fails its unit.
    """

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches of the planned schema, each of bounded size. :raises SourceError: a row doesn't fit the schema, say."""

    @property
    def actual_high(self) -> Watermark | None:
        """After the last batch: the first position that was not read."""

    @property
    def expected_rows(self) -> int | None:
        """After the last batch: how many rows the source says it should have been; `None` if it can't tell."""

    @property
    def properties(self) -> Mapping[str, Json]:
        """What the next run's plan should know."""

    def close(self) -> None:
        """Let go of connections; harmless twice."""


class PlacedReader(Reader, Protocol):
    """A reader that can be stopped between two batches, so that limits are kept for it; or that knows why it goes on."""

    @property
    def position(self) -> Watermark | None:
        """Between two batches: the first position that wasn't given yet; `None` where it can't be stopped, within a position."""


class Source(Protocol):
    """Where rows come from."""

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections that `read` needs: only these are given to Spark."""

    def modules(self, connections: Connections) -> tuple[str, ...]:
        """The modules that `read` needs and that can't be shipped, its drivers: executors must have them installed."""

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        """The datasets there are, in a stable order. :raises SourceError: the source can't be reached."""

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        """The work units of one dataset: what its coverage lacks up to the request's end, holes first; or the request's ranges.

        :param states: the state of every dataset of the ingestion, by URN.
        :raises SourceError: this dataset can't be planned; the others go on.
        """

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        """Start to read one unit, in a Spark task."""


@runtime_checkable
class RangeSource(Source, Protocol):
    """A source that can be backfilled: it says a range in its own positions."""

    def resolve(self, dataset: Dataset, request: RangeRequest, connections: Connections) -> Range:
        """The positions of what a backfill asks for, up to where the source can be read now. Never asked of a snapshot.

        :raises SourceError: the source can't be reached.
        :raises NoSuchRangeError: it is outside the data, or can't be said in positions of this dataset.
        """


@runtime_checkable
class SnapshotSource(Source, Protocol):
    """A source that can read several units in one snapshot: those of plans that say `Consistency.ONE_SNAPSHOT`."""

    def snapshot(self, connections: Connections) -> AbstractContextManager[str]:
        """Hold a snapshot of everything, as it is now, open; its name is not secret, and no other snapshot ever has it.

        The driver of a pack enters it once, before the first unit is read, and leaves it when the last one has ended. Spark
        tasks get the name by `ReadRequest.snapshot`. :raises SourceError: the source can't be reached.
        """


@runtime_checkable
class CheckableSource(Source, Protocol):
    """A source that can name everything that is wrong with a dataset at once, where planning stops at the first."""

    def check(self, dataset: Dataset, connections: Connections) -> Iterator[GobblinError]:
        """What keeps a dataset from being planned, as far as that is known without its rows. Nothing is changed.

        :raises SourceError: the source can't be reached.
        """
