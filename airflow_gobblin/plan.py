"""Plans: what one run is to extract, written once to staging under a fresh token before anything is read.

A plan binds generation, ranges, schema and the units it would replace. It does not bind a slot: that is taken when the run
decides (`commit.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gobblin.coverage import Range
from airflow_gobblin.state import UnitRef
from airflow_gobblin.wire import record
from airflow_gobblin.work import Dataset, Pack, WorkUnit


@record("plan")
@dataclass(frozen=True)
class Plan:
    """The plan of one dataset in one run.

    :param token: its random id; its staged files live under it.
    :param run_key: what makes a request the same when it is retried.
    :param planned: the whole range that the run was to cover, if the dataset has positions.
    :param source_schema: what the source gives; :param schema: what is published, after the converters. Both are frozen here.
    :param folder: the dataset's folder below the target root.
    :param replaces: the live units that this plan's units stand for.
    :param reopens: ranges that are covered without a unit, by an import or a skip, and that this plan's units stand for.
    :param run: the DAG run that it is for, as the request names it.
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

    @property
    def urn(self) -> str:
        """The dataset's URN."""
        return self.dataset.urn

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges that its units should cover, as far as they are known."""
        if self.planned is None:
            return ()
        known = (Range(u.low, u.expected_high) for u in self.units if u.low is not None and u.expected_high is not None)
        return tuple(r for r in known if not r.empty)

    @property
    def weight(self) -> int:
        """The predicted load of all its units."""
        return sum(u.weight for u in self.units)


@dataclass(frozen=True)
class DatasetNote:
    """Why a run has no plan for a dataset, or what it knows about it: `status` is a word, `detail` a sentence."""

    urn: str
    status: str
    detail: str

    @property
    def already(self) -> bool:
        """Whether the run had committed it before it was planned again."""
        return self.status == "committed"


@record("run_plan")
@dataclass(frozen=True)
class RunPlan:
    """What `create_work_units` gave for a whole run: its packs, and a note for every dataset that has no plan."""

    run: str
    run_key: str
    packs: tuple[Pack, ...]
    notes: tuple[DatasetNote, ...]
