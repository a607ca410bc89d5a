"""The status of a dataset, as tasks report it, plans note it, and lists show it; and the state of a slot."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The status of a dataset in a run or, for the last three, at rest."""

    COMMITTED = "committed"
    """All that the run planned for it is published."""
    RECOVERED = "recovered"
    """The slot that an earlier run left unfinished is done."""
    COVERED = "covered"
    """Other runs committed the range."""
    IDLE = "idle"
    """There is nothing to do."""
    HELD = "held"
    """Too little waits for it in the source for a batch."""
    WAITING = "waiting"
    """It is left to the next run: it had no room, and goes first there; or the plan of a version lost."""
    PAUSED = "paused"
    """Nothing new is planned or decided until somebody resumes it."""
    PLANNED = "planned"
    """A run would plan it now."""
    PENDING = "pending"
    """A slot is decided and not finished."""
    PARTIAL = "partial"
    """A part of what was planned is published."""
    SKIPPED = "skipped"
    """Nothing is decided for it."""
    LOST = "lost"
    """Its plan can no longer win, and its range may be open."""
    FAILED = "failed"
    QUARANTINED = "quarantined"
    """Its pending slot failed in too many runs, and is left alone until somebody releases it."""
    OK = "ok"
    UNPUBLISHED = "unpublished"
    """No run has published it yet."""
    UNREADABLE = "unreadable"
    """Its journal can't be read."""

    @property
    def green(self) -> bool:
        """Whether a run may end with this status. (It may end partial, too, if the ingestion allows that.)"""
        return self in _GREEN

    @property
    def bad(self) -> bool:
        """Whether a task that leaves a dataset with this status fails."""
        return self in (Status.FAILED, Status.LOST, Status.QUARANTINED)

    @property
    def open(self) -> bool:
        """Whether something of it isn't finished: a slot, its first publish, or the repair of its journal."""
        return self in (Status.PENDING, Status.QUARANTINED, Status.UNPUBLISHED, Status.UNREADABLE)


_GREEN = frozenset(
    {
        Status.COMMITTED,
        Status.RECOVERED,
        Status.COVERED,
        Status.IDLE,
        Status.HELD,
        Status.WAITING,
        Status.PAUSED,
        Status.OK,
    }
)


class SlotState(StrEnum):
    """How far a slot is."""

    PENDING = "pending"
    """It is decided and not finished."""
    QUARANTINED = "quarantined"
    """It is pending, and left alone until somebody releases it."""
    DONE = "done"
    ABORTED = "aborted"
    """It publishes nothing, and keeps a plan from winning a slot."""
    ABANDONED = "abandoned"
    """Somebody gave it up before it was finished."""
