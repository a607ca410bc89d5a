"""Plans: the extraction of one run, written once to staging under a fresh token before anything is read.

A plan binds generation, ranges, schema and the units it would replace. It does not bind a slot, which is taken when the run
decides (`commit/committer.py`).

The units of a large plan are split into separate pieces, so that no process has to hold them all in memory:
`staging.Staging.units`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from airflow_gobblin.errors import GobblinError, Remedy
from airflow_gobblin.model.checkpoint import Checkpoint
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.state import Provenance, UnitRef
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.table import TableTarget, TableUnit
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import DatasetRef, Pack, WorkUnit

UNITS_TOGETHER = 1000
"""The maximum number of units in a plan itself, and in each piece of a larger one."""


ACTS_NAMED = 100
"""How many acts an outline lists one by one."""


class Binding(Protocol):
    """A record, registered with `wire.record`, with the part of a plan that only its work needs."""


@record("plan")
@dataclass(frozen=True)
class Plan:
    """The plan of one dataset in one run.

    :param token: its random id; its staged files are stored under it.
    :param run_key: identifies a request when it is retried.
    :param units: its units, or the first of them.
    :param more: whether the other units are in pieces.
    :param planned: the whole range that the run was to cover; `None` where slots cover no ranges.
    :param open_end: whether its last unit continues beyond that range to an unknown end.
    :param holds: what the dataset's slots hold.
    :param folder: the dataset's folder below the target root.
    :param binding: whatever else its work fixed and only its work reads.
    :param schema: the schema to publish, fixed here; `None` if the published data have none.
    :param replaces: the live units that this plan's units replace.
    :param reopens: ranges covered without a unit, by an import or a skip, that this plan's units replace.
    :param run: the DAG run of the plan, as named in the request.
    :param kept_from: the first position that the source still had when this was planned.
    :param one_snapshot: whether its units run in one snapshot, which the pack's driver holds open.
    :param provenance: the origin of its data, and the DAG that reads it.
    :param head: the dataset's newest slot when it was planned.
    :param metadata: what its work adds to the events of its slot.
    :param takes_from: the tokens of earlier plans whose finished files its units may take. These plans were given up before.
    :param checkpoint: what the version of a stage is made from, if it makes one.
    :param table: the table to publish to, if it is one.
    :param leaves: the units that it replaces, as they are in this table.
    """

    token: str
    ingestion: str
    run_key: str
    generation: int
    urn: str
    holds: Holds
    folder: str
    units: tuple[WorkUnit, ...]
    binding: Binding
    schema: str | None = None
    planned: Range | None = None
    replaces: tuple[UnitRef, ...] = ()
    reopens: tuple[Range, ...] = ()
    run: str = ""
    more: bool = False
    kept_from: Watermark | None = None
    open_end: bool = False
    one_snapshot: bool = False
    provenance: Provenance | None = None
    head: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    takes_from: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    table: TableTarget | None = None
    leaves: tuple[TableUnit, ...] = ()

    def answering(self, run: RunPlan) -> Plan:
        """Return this plan as the answer to a run, which may go on with the plan of an earlier run."""
        return replace(self, run_key=run.run_key, run=run.dag_run)

    def is_like(self, other: Plan) -> bool:
        """Return whether it equals another plan, apart from the units, and whichever run made it and when."""
        return self._timeless() == other._timeless()

    def _timeless(self) -> Plan:
        """Return this plan without whatever would differ in another run's plan."""
        provenance = None if self.provenance is None else replace(self.provenance, homes=0)
        bare = replace(self, token="", run_key="", run="", head=0, provenance=provenance)
        return replace(bare, units=(), more=False, takes_from=())

    @property
    def asked(self) -> str:
        """The range that it was to cover, for people."""
        return f"{self.planned}".rpartition(", ")[0] + ", …)" if self.open_end else f"{self.planned}"


@record("plan_piece")
@dataclass(frozen=True)
class PlanPiece:
    """Further units of a plan that exceeds `UNITS_TOGETHER`.

    :param more: whether another piece follows.
    """

    units: tuple[WorkUnit, ...]
    more: bool


def is_met(planned: Range, open_end: bool, coverage: Coverage) -> bool:
    """Return whether a coverage completes a plan.

    It covers the range, and part of the data after an open end; or, if that range is empty, gives the dataset its first
    watermark.
    """
    if planned.empty and not open_end:
        return coverage.starts(planned.low)
    return coverage.covers(planned) and (not open_end or coverage.reaches_past(planned.high))


def known_ranges(plan: Plan, units: Iterable[WorkUnit]) -> tuple[Range, ...]:
    """Return the ranges that the units of a plan should cover, as far as known; ranges that touch are merged."""
    ranges: list[Range] = []
    for unit in units if plan.holds.covers_ranges else ():
        if unit.low is None or unit.expected_high is None or unit.empty:
            continue
        touches = bool(ranges) and ranges[-1].high == unit.low
        ranges.append(Range(ranges.pop().low if touches else unit.low, unit.expected_high))
    return tuple(ranges)


@dataclass(frozen=True)
class DatasetNote:
    """The reason why a run has no plan for a dataset, or other information about it.

    :param detail: a sentence.

    :param retryable: whether storage was unavailable for planning, and may be back by the next try.
    :param remedy: what to do again once the cause is fixed.
    :param asked: whether the request itself can't be fulfilled: repeating it doesn't help.
    """

    urn: str
    status: Status
    detail: str
    retryable: bool = False
    asked: bool = False
    remedy: Remedy | None = None

    @property
    def already(self) -> bool:
        """Whether the run had committed it before it was planned again."""
        return self.status is Status.COMMITTED


class ActKind(StrEnum):
    """The kind of an act on a file or folder of the target."""

    COPY = "copy"
    REPLACE = "replace"
    DELETE = "delete"
    FOLDER = "folder"
    """A folder is made, or gets its attributes."""
    REMOVE_FOLDER = "remove folder"
    ATTRIBUTES = "attributes"
    """A file gets other attributes, and keeps its content."""


@dataclass(frozen=True, slots=True)
class PlannedAct:
    """An act that a unit of a mirror would do, for people.

    :param path: in the file set, as text.
    :param bytes: the size of the file.
    """

    kind: ActKind
    path: str
    bytes: int = 0


@dataclass
class Outline:
    """The work that the units of a dataset would do: how many acts of each kind, and the first of them.

    :param bytes: the size of the files to be copied.
    """

    counts: Counter[ActKind] = field(default_factory=Counter)
    bytes: int = 0
    first: list[PlannedAct] = field(default_factory=list)

    def add(self, act: PlannedAct) -> None:
        """Add an act of a unit."""
        self.counts[act.kind] += 1
        if act.kind in (ActKind.COPY, ActKind.REPLACE):
            self.bytes += act.bytes
        if len(self.first) < ACTS_NAMED:
            self.first.append(act)


@dataclass(frozen=True)
class DatasetProspect:
    """The current prospect of a dataset in a run.

    :param status: PLANNED, or why there would be no plan.
    :param plan: the plan, whose token will never be used.
    :param units: its units; without what is in an outline.
    :param error: the error that prevents planning.
    :param outline: what they would do, if their work can determine it.
    """

    urn: str
    status: Status
    detail: str = ""
    plan: Plan | None = None
    units: tuple[WorkUnit, ...] = ()
    error: GobblinError | None = None
    outline: Outline | None = None

    @property
    def weight(self) -> int:
        """The estimated cost of its units."""
        return sum(unit.weight for unit in self.units)

    @property
    def ref(self) -> DatasetRef | None:
        """The dataset as an element of a pack, if it would be planned."""
        plan = self.plan
        return None if plan is None else DatasetRef(plan.urn, plan.token, self.weight, plan.planned, plan.open_end)


@dataclass(frozen=True)
class Prospect:
    """The plans that a run would make now.

    :param datasets: in the source's order.
    :param packs: the packs that would be planned.
    """

    datasets: tuple[DatasetProspect, ...]
    packs: tuple[Pack, ...]

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each planned dataset's pack, from 1."""
        return {ref.urn: number for number, pack in enumerate(self.packs, 1) for ref in pack.datasets}


@dataclass(frozen=True)
class Sealing:
    """A version that a run is to seal.

    :param version: the end of the run's data interval; of a run without one, when it was due.
    :param generations: the generation of each dataset when it was planned, by URN, where it isn't 0: data taken back since may
        be missing.
    """

    version: datetime
    generations: Mapping[str, int]


@record("run_plan")
@dataclass(frozen=True)
class RunPlan:
    """The result of `create_work_units` for a whole run: its packs, and a note for every dataset without a plan.

    :param backfill: whether it was for a range, which no other run fills.
    :param at: when it was planned, used only for fairness.
    :param dag_run: the DAG run, as named in the request.
    :param flush: whether it is to publish what waited when it was planned, whoever else runs meanwhile.
    :param versions: whether it makes versions of a stage, one after another, until none is ready.
    :param seals: the version to seal at its end; `None`: none.
    """

    run: str
    run_key: str
    packs: tuple[Pack, ...]
    notes: tuple[DatasetNote, ...]
    backfill: bool = False
    at: datetime | None = None
    dag_run: str = ""
    flush: bool = False
    seals: Sealing | None = None
    versions: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether further plans may take the place of its first ones."""
        return self.flush or self.versions


@record("planned_again")
@dataclass(frozen=True)
class PlannedAgain:
    """The plan that takes the place of one that lost in a flush, or of one whose version of a stage is made."""

    ref: DatasetRef


@record("held_datasets")
@dataclass(frozen=True)
class HeldDatasets:
    """The datasets from which the newest runs read nothing, as too little waits for a batch. For people: no rule relies on it.

    :param details: what waits, by URN.
    """

    details: Mapping[str, str]
    at: datetime


@record("unwritten_steps")
@dataclass(frozen=True)
class UnwrittenSteps:
    """A note that the commit steps of a plan could not be written.

    :param failure: the reason.
    """

    failure: Failure
    at: datetime


@record("finished_run")
@dataclass(frozen=True)
class FinishedRun:
    """A note that a run was reported to its end.

    :param done: the tokens of its plans that were done then.
    """

    done: tuple[str, ...] = ()
