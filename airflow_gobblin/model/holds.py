"""What the slots of a dataset hold, which decides what they cover and what they replace."""

from __future__ import annotations

from enum import StrEnum


class Holds(StrEnum):
    """What each slot of a dataset holds.

    Whatever depends on it asks a property here, so a further member is described in this class alone.
    """

    RANGES = "ranges"
    """Units of ranges of positions: a run plans what no slot covers."""
    SNAPSHOT = "snapshot"
    """The whole dataset as it was at one moment."""

    @property
    def covers_ranges(self) -> bool:
        """Whether slots cover ranges of positions, each once. Otherwise a plan loses if any slot was published since."""
        return self is Holds.RANGES

    @property
    def replaces_all(self) -> bool:
        """Whether a slot replaces everything that was published before."""
        return self is Holds.SNAPSHOT

    @property
    def what(self) -> str:
        """What a slot holds, for people."""
        return {Holds.RANGES: "ranges of positions", Holds.SNAPSHOT: "a snapshot"}[self]
