"""The state of a dataset: the fold of its journal, as planning sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_gobblin.coverage import Coverage
from airflow_gobblin.watermark import Watermark
from airflow_gobblin.work import UnitSummary


@dataclass(frozen=True, order=True, slots=True)
class UnitRef:
    """A published unit: the slot that published it and its id there. Units are retired whole."""

    slot: int
    unit: str


@dataclass(frozen=True, slots=True)
class Pause:
    """That a dataset is paused: nothing new of it is planned or decided. :param at: since when, for people to read."""

    actor: str
    reason: str
    at: datetime

    def __str__(self) -> str:
        return f"paused by {self.actor}: {self.reason.rstrip('.')}"


@dataclass(frozen=True)
class DatasetState:
    """What the journal says of a dataset.

    :param coverage: its committed ranges; empty for a snapshot-only dataset, which has none.
    :param generation: raised by rewind, set, import and drop; plans of an older one lose.
    :param head: the newest slot, 0 before the first; `pending` says whether its outcome is missing.
    :param schema: the published schema (Arrow, encoded by `schema.py`).
    :param live: the published units that no later slot retired.
    :param retired: retired units, with the slot that retired them, whose files are not yet cleaned.
    :param previous_units: summaries of the newest run that left any, failed units too, with their properties.
    :param kept_from: where the source's rows began when a slot was last decided; `None`: the source didn't tell.
    :param failures: run keys of the runs that failed to finish the pending slot since it was last released.
    :param paused: by whom and why, if somebody paused it and nobody resumed it since.
    """

    urn: str
    coverage: Coverage = field(default_factory=Coverage)
    generation: int = 0
    head: int = 0
    pending: bool = False
    schema: str | None = None
    live: Mapping[UnitRef, UnitSummary] = field(default_factory=dict)
    retired: Mapping[UnitRef, int] = field(default_factory=dict)
    previous_units: tuple[UnitSummary, ...] = ()
    kept_from: Watermark | None = None
    failures: tuple[str, ...] = ()
    quarantined: bool = False
    paused: Pause | None = None

    @property
    def watermark(self) -> Watermark | None:
        """The contiguous edge of the coverage: the next position to read."""
        return self.coverage.edge
