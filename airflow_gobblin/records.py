"""The records of a dataset's journal: what a slot is bound to, how it ended, and what is remarked on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.state import UnitRef
from airflow_gobblin.steps import Step
from airflow_gobblin.watermark import Watermark
from airflow_gobblin.wire import record
from airflow_gobblin.work import UnitSummary


class Action(StrEnum):
    """What a decision does. COMMIT, REWIND, IMPORT and DROP need an outcome; the others are finished by their decision."""

    COMMIT = "commit"
    NOOP = "noop"
    """A commit without files: its ranges hold no rows."""
    ABORT = "abort"
    """Its token can win no slot any more."""
    REWIND = "rewind"
    SET = "set"
    IMPORT = "import"
    DROP = "drop"

    @property
    def needs_outcome(self) -> bool:
        """Whether the slot is unfinished until an outcome stands."""
        return self in (Action.COMMIT, Action.REWIND, Action.IMPORT, Action.DROP)


class OutcomeState(StrEnum):
    """How a slot ended."""

    DONE = "done"
    ABANDONED = "abandoned"


@record("decision")
@dataclass(frozen=True)
class Decision:
    """What a slot is bound to.

    :param generation: the dataset's generation once the slot is done.
    :param previous: the digest of the slot before, its outcome included; empty for the first.
    :param ranges: the ranges that it covers; :param removed: the ranges that it uncovers again.
    :param coverage: the whole new coverage (SET, IMPORT, DROP), in place of those two.
    :param planned: the range that was asked for; the first one gives the dataset its origin.
    :param replaces: the units that it retires.
    :param units: a summary of every unit of the plan, published or not.
    :param complete: whether everything that was asked for is in it; only then is its run key answered.
    :param staging: the folder of its token below `target`, the target root; :param shards: digests of its step shards, in order.
    :param actor: who asked; :param reason: why, for the audited actions.
    :param run: the DAG run that it was planned in, for people to read.
    :param kept_from: where the source's rows began when it was planned, as far as the source could tell.
    """

    slot: int
    action: Action
    urn: str
    token: str
    run_key: str
    generation: int
    previous: str
    at: datetime
    ranges: tuple[Range, ...] = ()
    removed: tuple[Range, ...] = ()
    coverage: Coverage | None = None
    planned: Range | None = None
    replaces: tuple[UnitRef, ...] = ()
    schema: str | None = None
    units: tuple[UnitSummary, ...] = ()
    complete: bool = True
    staging: str | None = None
    target: str = ""
    shards: tuple[str, ...] = ()
    steps: int = 0
    actor: str = ""
    reason: str = ""
    run: str = ""
    kept_from: Watermark | None = None

    @property
    def by_run(self) -> str:
        """Whose it is, as far as it says, to be told behind what it is."""
        return f" by run {self.run!r}" if self.run else ""


@record("outcome")
@dataclass(frozen=True)
class Outcome:
    """How a slot ended. :param decision: the digest of the decision that it is the outcome of."""

    slot: int
    state: OutcomeState
    decision: str
    run_key: str
    at: datetime
    actor: str = ""
    reason: str = ""


@record("shard")
@dataclass(frozen=True)
class Shard:
    """Steps of a sequence, in order. :param token: whose they are: no two decisions share a shard, so it can go with its own."""

    steps: tuple[Step, ...]
    token: str = ""


class NoteKind(StrEnum):
    """What a note says."""

    FAILED = "failed"
    """A run failed to finish the slot."""
    QUARANTINED = "quarantined"
    RELEASED = "released"
    ANNOUNCED = "announced"
    CLEANED = "cleaned"
    """What the slot retired, or staged and abandoned, is removed."""
    UNPUBLISHED = "unpublished"
    """A run that came after the slot published nothing: why, or its units, which are kept for the next plan."""
    CLAIM_RELEASED = "claim-released"
    """The claim on the dataset's folder was released, which is no slot's affair: it is noted on the newest one."""
    PAUSED = "paused"
    """From here on nothing new of the dataset is planned or decided. Noted on the newest slot, too."""
    RESUMED = "resumed"


@record("note")
@dataclass(frozen=True)
class Note:
    """A remark on a slot. :param urn: the dataset, which no other record names while it has no slot."""

    says: NoteKind
    run_key: str
    at: datetime
    detail: str = ""
    token: str = ""
    units: tuple[UnitSummary, ...] = ()
    actor: str = ""
    urn: str = ""


@record("home")
@dataclass(frozen=True)
class Home:
    """Where an ingestion's slots are published, and whose it is.

    :param target: the target root. :param mark: the id of the mark that was put there.
    :param source: the kind of the source and its connections; :param dag: the DAG that planned first: both for a second DAG to be
        compared with.
    :param actor: who moved it there, and :param reason: why, if a person did.
    """

    target: str
    mark: str
    source: str
    dag: str
    at: datetime
    actor: str = ""
    reason: str = ""


def now() -> datetime:
    """The time, for people to read; no rule rests on it (I13)."""
    return datetime.now(UTC)
