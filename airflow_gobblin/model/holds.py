"""The kind of content that the slots of a dataset hold, which decides what they cover and what they replace."""

from __future__ import annotations

from enum import StrEnum


class Holds(StrEnum):
    """The kind of content that each slot of a dataset holds.

    Code that depends on it asks a property here, so a further member is described in this class alone.
    """

    RANGES = "ranges"
    """Units of ranges of positions: a run plans the ranges that no slot covers."""
    SNAPSHOT = "snapshot"
    """The whole dataset as it was at one moment."""
    DIFFERENCE = "difference"
    """Changes that make the target equal to its source: files that are added, replaced and removed."""
    VERSIONS = "versions"
    """A version of a stage, made from slots of its upstreams, which its checkpoint names."""

    @property
    def covers_ranges(self) -> bool:
        """Whether slots cover ranges of positions, each once."""
        return self is Holds.RANGES

    @property
    def follows_head(self) -> bool:
        """Whether a plan holds only while the slot newest at its planning remains so: any later one that counts makes it lose."""
        return self in (Holds.DIFFERENCE, Holds.VERSIONS)

    @property
    def answers_runs(self) -> bool:
        """Whether one slot is all that a run does. A run of a stage makes every version that is ready, one slot each."""
        return self is not Holds.VERSIONS

    @property
    def replaces_all(self) -> bool:
        """Whether a slot replaces everything that was published before."""
        return self is Holds.SNAPSHOT

    @property
    def keeps_units(self) -> bool:
        """Whether the journal knows the published files, by their units, until they are retired.

        Otherwise the target itself is the truth, and every plan looks at it again; a slot that only removes files counts, too.
        """
        return self is not Holds.DIFFERENCE

    @property
    def what(self) -> str:
        """The kind of content of a slot, for people."""
        return _WHAT[self]


_WHAT = {
    Holds.RANGES: "ranges of positions",
    Holds.SNAPSHOT: "a snapshot",
    Holds.DIFFERENCE: "a difference of files",
    Holds.VERSIONS: "a version of a stage",
}
