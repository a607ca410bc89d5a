"""Chains in a journal in memory, written slot by slot without any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Decision, Note, NoteKind, OutcomeState, now
from airflow_gobblin.journal.seals import Seal, SealedDataset, Seals
from airflow_gobblin.journal.trimming import trim, worth_trimming
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.work import UnitState, UnitSummary
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.storage.stores.memory import MemoryStore

SOURCE = "raw/flights"
"""The id of an upstream."""


def at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=UTC)


def consumed(*slots: int, units: int = 1) -> tuple[ConsumedSlot, ...]:
    return tuple(ConsumedSlot(slot, f"token {slot}", units) for slot in slots)


def version(hour: int, *slots: int) -> Checkpoint:
    """A version that was made from slots of the upstream."""
    return Checkpoint(at(hour), {SOURCE: consumed(*slots)}, {SOURCE: consumed(*slots)})


class Chain:
    """The chain of a dataset, or of a stage."""

    def __init__(self, urn: str = "d", journal: Journal | None = None) -> None:
        self.urn = urn
        self.journal = journal or Journal.create(MemoryStore(), "job")

    @property
    def history(self) -> History:
        return self.journal.history(self.urn)

    def take(
        self,
        action: Action = Action.COMMIT,
        *units: str,
        replaces: Sequence[UnitRef] = (),
        token: str = "",
        made: Checkpoint | None = None,
        looked: Mapping[str, int] | None = None,
        floor: int = 0,
        ends: bool = True,
    ) -> int:
        """Take the next slot.

        :param ends: whether it gets an outcome, and all that remains to be done is noted.
        """
        before = self.history
        slot = before.state.head + 1
        decision = Decision(
            slot=slot,
            action=action,
            urn=self.urn,
            token=token or f"token {slot}",
            run_key="",
            generation=before.state.generation + (action in (Action.REWIND, Action.DROP)),
            previous=before.named_by(action),
            at=now(),
            holds=None if made is None else Holds.VERSIONS,
            replaces=tuple(replaces),
            units=tuple(UnitSummary(u, UnitState.SUCCESSFUL, None, None, None, 0, 0, 0, 0, 0, 0, 0.0) for u in units),
            checkpoint=made,
            looked=looked or {},
            floor=floor,
        )
        assert self.journal.put_decision(decision) == decision
        if ends and action.needs_outcome:
            self.journal.put_outcome(self.history.slot(slot), OutcomeState.DONE, "")
            for kind in (NoteKind.ANNOUNCED, NoteKind.CLEANED):
                self.journal.put_note(self.urn, slot, Note(kind, "", now()))
        return slot

    def publish(self, made: Checkpoint, **options: Sequence[UnitRef] | Mapping[str, int]) -> int:
        """Publish a version of a stage."""
        return self.take(Action.COMMIT, "version", made=made, **options)  # type: ignore[arg-type]


def backlog(location: str, versions: int) -> Input:
    """Let a source publish and seal so many versions, a slot each, and trim its journal as runs do.

    :return: its dataset.
    """
    source = Chain("d", Journal.create(location, "raw"))
    seals = Seals(source.journal)
    for number in range(1, versions + 1):
        hour = datetime.fromtimestamp(3600 * number, UTC)
        sealed = {"d": SealedDataset(source.take(Action.COMMIT, "u1"), 0)}
        assert seals.put(Seal(number, hour, hour, sealed, seals.digest(number - 1), hour))
        if worth_trimming(source.history):
            trim(source.journal, source.history)
    return Input(location, "raw", "d")
