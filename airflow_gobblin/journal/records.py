"""The records of a dataset's journal: what a slot must do, how it ended, and the notes on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from airflow_gobblin.model import wire
from airflow_gobblin.model.checkpoint import Checkpoint
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.state import Provenance, UnitRef
from airflow_gobblin.model.table import TableTarget
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitSummary
from airflow_gobblin.steps.base import CommitStep, HighWatermarkStep, Phase, batches, site_of


class Action(StrEnum):
    """The kind of a decision. COMMIT, REWIND, IMPORT, DROP, FLOOR and TAKE_OVER need an outcome; the others are finished by their
    decision.
    """

    COMMIT = "commit"
    NOOP = "noop"
    """A commit without files: its ranges hold no rows."""
    ABORT = "abort"
    """Its token can no longer win a slot."""
    REWIND = "rewind"
    """Everything from a position on is taken back: its units are retired, their files removed, and its ranges uncovered."""
    SET = "set"
    """The watermark moves forward, and nothing is ingested."""
    IMPORT = "import"
    """The coverage of another journal or tool is taken over, and is never read here."""
    DROP = "drop"
    """Nothing is covered or live any more, and the target is free for others; its files are retired, or stay in place."""
    PAUSE = "pause"
    """From here on nothing new of the dataset is planned or decided. It may follow a slot that is pending."""
    RESUME = "resume"
    """The end of a pause, which may also follow a slot that is pending."""
    FLOOR = "floor"
    """A stage gives up the state of its oldest versions: its units are retired, and their files removed."""
    TAKE_OVER = "take-over"
    """The dataset makes another's table its own."""

    @property
    def needs_outcome(self) -> bool:
        """Whether the slot is unfinished until an outcome exists."""
        return self in _WITH_OUTCOME

    @property
    def pauses(self) -> bool:
        """Whether it begins or ends a pause. Its slot may follow one that is pending, and doesn't wait for that one's outcome."""
        return self in (Action.PAUSE, Action.RESUME)

    @property
    def counts(self) -> bool:
        """Whether its slot, once it is done, may change what is covered or published."""
        return self is not Action.ABORT and not self.pauses


_WITH_OUTCOME = frozenset({Action.COMMIT, Action.REWIND, Action.IMPORT, Action.DROP, Action.FLOOR, Action.TAKE_OVER})


class OutcomeState(StrEnum):
    """How a slot ended."""

    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class ShardRef:
    """A step shard, as its decision names it.

    :param digest: the digest of its record.
    :param phase: the phase of all its steps.
    :param steps: their number.
    :param fenced: whether any of them has a fence.
    :param site: where all of them are carried out.
    """

    digest: str
    phase: Phase
    steps: int
    fenced: bool
    site: Site = Site.TASK


@record("decision")
@dataclass(frozen=True)
class Decision:
    """The binding content of a slot.

    :param generation: the dataset's generation once the slot is done.
    :param previous: the digest of the slot before, its outcome included unless this is a pause or its end; empty for the first.
    :param ranges: the ranges that it covers.
    :param removed: the ranges that it uncovers again.
    :param coverage: the whole new coverage (SET, IMPORT, DROP), in place of those two.
    :param holds: what the slot holds, if a run made it.
    :param planned: the range that was asked for; the first one gives the dataset its origin.
    :param replaces: the units that it retires.
    :param units: a summary of every unit of the plan, published or not.
    :param complete: whether it contains everything that was asked for; only then is its run key answered.
    :param staging: the folder of its token below `target`, the target root.
    :param shards: its step shards, in the order of their phases.
    :param hand_over: the last step, if it has any.
    :param actor: the person who asked.
    :param reason: why, for the audited actions.
    :param run: the DAG run that it was planned in, for people to read.
    :param kept_from: where the source's rows began when it was planned, as far as the source could report it.
    :param provenance: what its rows were read from, if a run made it.
    :param folder: the folder that they are published to, if a run made it.
    :param metadata: what its work adds to its events.
    :param checkpoint: what the version of a stage was made from, if it publishes one.
    :param looked: how far the stage has looked for retired parents, by the id of each upstream: a slot that has ended.
    :param floor: the slot below which the state of its versions is given up; it never falls.
    :param table: the table that its steps commit to, as it was then; `None` if they commit to none.
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
    holds: Holds | None = None
    planned: Range | None = None
    replaces: tuple[UnitRef, ...] = ()
    schema: str | None = None
    units: tuple[UnitSummary, ...] = ()
    complete: bool = True
    staging: str | None = None
    target: str = ""
    shards: tuple[ShardRef, ...] = ()
    hand_over: HighWatermarkStep | None = None
    actor: str = ""
    reason: str = ""
    run: str = ""
    kept_from: Watermark | None = None
    provenance: Provenance | None = None
    folder: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    looked: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0
    table: TableTarget | None = None

    @property
    def steps(self) -> int:
        """The number of its steps, the last one included."""
        return sum(shard.steps for shard in self.shards) + (self.hand_over is not None)

    def of(self, phase: Phase, *sites: Site) -> tuple[ShardRef, ...]:
        """Return the shards of a phase.

        :param sites: only those that are carried out there; by default all.
        """
        return tuple(shard for shard in self.shards if shard.phase is phase and (not sites or shard.site in sites))

    @property
    def by_run(self) -> str:
        """The DAG run that it belongs to, if recorded, as a phrase to append to its name."""
        return f" by run {self.run!r}" if self.run else ""

    def coverage_after(self, before: Coverage, live: Mapping[UnitRef, UnitSummary]) -> Coverage:
        """Return the coverage of the dataset once the slot is done; deciding and folding both use this, so they agree.

        :param before: the coverage before the slot.
        :param live: the units that were live before the slot.
        :raises GobblinError: a range is covered already, or can't be compared with the coverage.
        """
        if self.coverage is not None:
            return self.coverage
        replaced = (live[ref].range for ref in self.replaces if ref in live)
        after = before.without((*(part for part in replaced if part is not None), *self.removed))
        if self.planned is not None:
            after = after.starting_at(self.planned.low)
        for added in self.ranges:
            after = after.add(added)
        return after


@record("outcome")
@dataclass(frozen=True)
class Outcome:
    """How a slot ended.

    :param decision: the digest of the decision that it ends.
    :param table_version: what people call the version of the table that its commit made; empty if it commits to none, or that
        isn't known.
    """

    slot: int
    state: OutcomeState
    decision: str
    run_key: str
    at: datetime
    actor: str = ""
    reason: str = ""
    table_version: str = ""


@record("shard")
@dataclass(frozen=True)
class Shard:
    """Steps of one phase of a sequence, in order; the last step is in the decision.

    :param token: the token they belong to; no two decisions share a shard, so it can be removed with its decision.
    """

    steps: tuple[CommitStep, ...]
    token: str = ""


def shards(token: str, steps: Iterable[CommitStep], files: int) -> Iterator[tuple[ShardRef, bytes]]:
    """Encode steps as shards of one phase and site each. Those of different phases and sites come in no order.

    :param files: about how many files' steps go into each.
    :raises ConfigurationError: a step's class isn't registered.
    """
    registered = (step for step in steps if wire.kind_of(step))
    for some in batches(registered, files):
        data = wire.dumps(Shard(some, token))
        fenced = any(step.fence is not None for step in some)
        yield ShardRef(wire.digest(data), some[0].phase, len(some), fenced, site_of(some[0])), data


class NoteKind(StrEnum):
    """The kind of a note."""

    FAILED = "failed"
    """A run failed to finish the slot."""
    ABANDONING = "abandoning"
    """A person abandons the slot, and its steps are being shut out: anyone who finds one fenced completes it."""
    QUARANTINED = "quarantined"
    RELEASED = "released"
    ANNOUNCED = "announced"
    CLEANED = "cleaned"
    """Everything that the slot retired, or staged and abandoned, is removed."""
    UNPUBLISHED = "unpublished"
    """A run after the slot published nothing: the note has the reason, or the run's units, which are kept for the next plan."""
    CLAIM_RELEASED = "claim-released"
    """The claim on the dataset's folder was released. It concerns no slot, so it is noted on the newest one."""


@record("note")
@dataclass(frozen=True)
class Note:
    """A note on a slot.

    :param failure: why a run published nothing, unless its units show that; `detail` is its text.
    :param urn: the dataset, which no other record names while it has no slot.
    """

    event: NoteKind
    run_key: str
    at: datetime
    detail: str = ""
    token: str = ""
    units: tuple[UnitSummary, ...] = ()
    actor: str = ""
    urn: str = ""
    failure: Failure | None = None


@record("home")
@dataclass(frozen=True)
class Home:
    """Where an ingestion's slots are published, and which DAG owns it.

    :param target: the target root.
    :param mark: the id of the mark that was put there.
    :param source: the kind of the source and its connections, to compare a second DAG with.
    :param dag: the DAG that planned first, also for that comparison.
    :param actor: the person who moved it there, if a person did.
    :param reason: why they moved it.
    """

    target: str
    mark: str
    source: str
    dag: str
    at: datetime
    actor: str = ""
    reason: str = ""


def now() -> datetime:
    """Return the current time, for people to read; no rule depends on it (I13)."""
    return datetime.now(UTC)
