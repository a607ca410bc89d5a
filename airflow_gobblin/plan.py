"""Plans: what one run is to extract, written once to staging under a fresh token before anything is read.

A plan binds generation, ranges, schema and the units it would replace. It does not bind a slot: that is taken when the run
decides (`commit.py`).

The units of a large plan are in pieces of their own, so that nobody has to have them all in memory: `staging.Staging.units`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.state import UnitRef
from airflow_gobblin.watermark import Watermark
from airflow_gobblin.wire import record
from airflow_gobblin.work import Dataset, DatasetRef, Pack, WorkUnit

UNITS_TOGETHER = 1000
"""So many units are in a plan itself, and in each piece of a larger one."""


@record("plan")
@dataclass(frozen=True)
class Plan:
    """The plan of one dataset in one run.

    :param token: its random id; its staged files live under it.
    :param run_key: what makes a request the same when it is retried.
    :param units: its units, or the first of them; :param more: whether the others are in pieces.
    :param planned: the whole range that the run was to cover, if the dataset has positions.
    :param open_end: whether its last unit goes on from the end of that range to one that isn't known.
    :param source_schema: what the source gives; :param schema: what is published, after the converters. Both are frozen here.
    :param folder: the dataset's folder below the target root.
    :param replaces: the live units that this plan's units stand for.
    :param reopens: ranges that are covered without a unit, by an import or a skip, and that this plan's units stand for.
    :param run: the DAG run that it is for, as the request names it. :param kept_from: where the source's rows began then.
    :param one_snapshot: whether its units are read in one snapshot, which the pack's driver holds.
    """

    token: str
    ingestion: str
    run_key: str
    generation: int
    dataset: Dataset
    folder: str
    units: tuple[WorkUnit, ...]
    source_schema: str
    schema: str
    planned: Range | None = None
    replaces: tuple[UnitRef, ...] = ()
    reopens: tuple[Range, ...] = ()
    run: str = ""
    more: bool = False
    kept_from: Watermark | None = None
    open_end: bool = False
    one_snapshot: bool = False

    @property
    def urn(self) -> str:
        """The dataset's URN."""
        return self.dataset.urn

    @property
    def asked(self) -> str:
        """The range that it was to cover, for people."""
        return f"{self.planned}".rpartition(", ")[0] + ", …)" if self.open_end else f"{self.planned}"


@record("plan_piece")
@dataclass(frozen=True)
class PlanPiece:
    """Some of the units that a plan has no room for. :param more: whether another piece comes after it."""

    units: tuple[WorkUnit, ...]
    more: bool


def is_met(planned: Range, open_end: bool, coverage: Coverage) -> bool:
    """Whether a coverage leaves nothing of what a plan was to do: to cover a range, and some of what comes after an open end; or,
    where that range is empty, to give the dataset its first watermark.
    """
    if planned.empty and not open_end:
        return coverage.starts(planned.low)
    return coverage.covers(planned) and (not open_end or coverage.reaches_past(planned.high))


def known_ranges(plan: Plan, units: Iterable[WorkUnit]) -> tuple[Range, ...]:
    """The ranges that the units of a plan should cover, as far as they are known; those that touch are one."""
    ranges: list[Range] = []
    for unit in units if plan.planned is not None else ():
        if unit.low is None or unit.expected_high is None or unit.empty:
            continue
        touches = bool(ranges) and ranges[-1].high == unit.low
        ranges.append(Range(ranges.pop().low if touches else unit.low, unit.expected_high))
    return tuple(ranges)


@dataclass(frozen=True)
class DatasetNote:
    """Why a run has no plan for a dataset, or what it knows about it: `status` is a word, `detail` a sentence.

    :param retryable: it couldn't be planned for storage that may be there again by the next try.
    :param asked: what was asked for can't be: to ask again for the same doesn't help.
    """

    urn: str
    status: str
    detail: str
    retryable: bool = False
    asked: bool = False

    @property
    def already(self) -> bool:
        """Whether the run had committed it before it was planned again."""
        return self.status == "committed"


@dataclass(frozen=True)
class DatasetProspect:
    """What a run would do now for a dataset: `status` is `planned`, or says why there would be no plan.

    :param plan: the plan, whose token nobody will ever use; :param units: its units.
    :param error: what keeps the dataset from being planned.
    """

    urn: str
    status: str
    detail: str = ""
    plan: Plan | None = None
    units: tuple[WorkUnit, ...] = ()
    error: GobblinError | None = None

    @property
    def weight(self) -> int:
        """The estimated cost of its units."""
        return sum(unit.weight for unit in self.units)

    @property
    def ref(self) -> DatasetRef | None:
        """It as a dataset of a pack, if it would be planned."""
        plan = self.plan
        return None if plan is None else DatasetRef(plan.urn, plan.token, self.weight, plan.planned, plan.open_end)


@dataclass(frozen=True)
class Prospect:
    """What a run would plan now. :param datasets: in the source's order; :param packs: those that would be planned."""

    datasets: tuple[DatasetProspect, ...]
    packs: tuple[Pack, ...]

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each planned dataset's pack, from 1."""
        return {ref.urn: number for number, pack in enumerate(self.packs, 1) for ref in pack.datasets}


@record("run_plan")
@dataclass(frozen=True)
class RunPlan:
    """What `create_work_units` gave for a whole run: its packs, and a note for every dataset that has no plan.

    :param backfill: whether it was for a range, which no other run fills.
    """

    run: str
    run_key: str
    packs: tuple[Pack, ...]
    notes: tuple[DatasetNote, ...]
    backfill: bool = False


@record("finished_run")
@dataclass(frozen=True)
class FinishedRun:
    """That a run was reported to its end. :param done: the tokens of those of its plans that were done then."""

    done: tuple[str, ...] = ()
