"""The state of a dataset: the fold of its journal, as planning sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from airflow_gobblin.model.channels import ROWS, channel_of
from airflow_gobblin.model.checkpoint import Checkpoint
from airflow_gobblin.model.coverage import Coverage
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.work import UnitSummary


@dataclass(frozen=True, order=True, slots=True)
class UnitRef:
    """A published unit: the slot that published it and its id there. Units are retired whole."""

    slot: int
    unit: str

    @property
    def channel(self) -> str:
        """The channel of a version that this unit is."""
        return channel_of(self.unit)


@dataclass(frozen=True, slots=True)
class Pause:
    """The pause of a dataset, during which nothing new is planned for it or decided.

    :param at: the start of the pause, for people to read.
    """

    actor: str
    reason: str
    at: datetime

    def __str__(self) -> str:
        return f"paused by {self.actor}: {self.reason.rstrip('.')}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a dataset, and the DAG that reads it.

    :param read_from: a description of the origin without secrets.
    :param dag: the DAG's id; empty if unknown.
    :param homes: how many homes the ingestion had when this was planned.
    :param given: the number of the home by which a person gave the ingestion to that DAG; 0 if nobody did.
    """

    read_from: str
    dag: str
    homes: int = 0
    given: int = 0

    def bars(self, other: Provenance) -> bool:
        """Return whether another DAG would read the dataset from another origin, without having been given it since."""
        known = all((self.read_from, self.dag, other.read_from, other.dag))
        return known and self.dag != other.dag and self.read_from != other.read_from and not self._given_to(other)

    def followed_by(self, other: Provenance) -> Provenance:
        """Return the provenance after another one was published: a DAG that reads the same, or doesn't state what, is a guest."""
        known = bool(other.read_from and other.dag)
        return self if (self.read_from == other.read_from or not known) and not self._given_to(other) else other

    def against(self, other: Provenance) -> str:
        """Describe for people how another one differs."""
        return f"DAG {self.dag!r} reads it from {self.read_from!r}, and this one from {other.read_from!r}"

    def _given_to(self, other: Provenance) -> bool:
        return other.given > self.homes


@dataclass(frozen=True)
class DatasetState:
    """The state of a dataset according to the journal.

    :param coverage: its committed ranges; empty for a snapshot-only dataset, which has none.
    :param generation: incremented by rewind, set, import and drop; plans of an older one lose.
    :param head: the newest slot, 0 before the first.
    :param pending: whether that slot, or the last one before pauses and their ends, lacks its outcome.
    :param schema: the published schema (Arrow, encoded by `schema.py`).
    :param live: the published units that no later slot retired.
    :param retired: retired units whose files are not yet cleaned, with the slot that retired them.
    :param previous_units: summaries, including failed units, with their properties, of the newest run that left any. Of runs in a
        row that fail in the same way, only the first three leave some.
    :param kept_from: the first position in the source when a slot was last decided; `None` if the source didn't report it.
    :param failures: run keys of the runs that failed to finish the pending slot since it was last released.
    :param provenance: its origin and DAG; `None` before the first slot, and after a drop.
    :param paused: the current pause, if there is one.
    :param origins: the slots whose units replaced others, each with the slot whose version these have: the oldest of those that
        they replaced. A slot that isn't listed has its own version.
    :param spoiled: the heads [low, high) of which something was taken back: for each rewind and drop, from the oldest slot that
        it took a unit of up to its own.
    :param checkpoints: for a stage, what the version of each slot with live units was made from.
    :param looked: for a stage, by the id of each upstream, the newest slot in which it has looked for retired parents.
    :param floor: for a stage, the slot below which the state of versions is given up.
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
    provenance: Provenance | None = None
    origins: Mapping[int, int] = field(default_factory=dict)
    spoiled: tuple[tuple[int, int], ...] = ()
    checkpoints: Mapping[int, Checkpoint] = field(default_factory=dict)
    looked: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The slots of the live versions of a stage, in the order of their versions."""
        return tuple(sorted(self.checkpoints, key=lambda slot: self.checkpoints[slot].version))

    def schema_of(self, channel: str) -> str | None:
        """Return the schema of a channel, encoded; `None` if it was never published, or all of it is taken back."""
        if channel == ROWS:
            return self.schema
        found = (self.checkpoints[slot].channels.get(channel) for slot in reversed(self.versions))
        return next(found, None)

    def units_of(self, channel: str) -> tuple[UnitRef, ...]:
        """Return the live units of a channel."""
        return tuple(ref for ref in self.live if ref.channel == channel)

    def origin(self, slot: int) -> int:
        """Return the slot whose version the live units of a slot have."""
        return self.origins.get(slot, slot)

    def intact(self, head: int) -> bool:
        """Return whether nothing was taken back of what was live when a slot was the newest one, or of what replaced it since."""
        return not any(low <= head < high for low, high in self.spoiled)

    @property
    def watermark(self) -> Watermark | None:
        """The contiguous edge of the coverage: the next position to read."""
        return self.coverage.edge

    @property
    def published_row_bytes(self) -> float | None:
        """The size, in files, of a row that the newest run read; `None` if it read none."""
        rows = sum(unit.rows_read for unit in self.previous_units if unit.files)
        return None if not rows else sum(unit.bytes for unit in self.previous_units) / rows
