"""What one run of a Spark driver says of its pack: predicted against actual load, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_gobblin.naming import many
from airflow_gobblin.wire import record

__all__ = ["FIRST_ERROR", "SPARK_UI", "GroupReport", "PackReport"]

FIRST_ERROR = "airflow-gobblin: first error: "
"""How the last line of a driver that failed begins; the error follows, on the same line."""
SPARK_UI = "airflow-gobblin: Spark UI: "
"""How the line begins by which a driver tells, before it runs anything, where its UI is; the address follows, or "none"."""


@dataclass(frozen=True)
class GroupReport:
    """The units of one Spark task.

    :param units: how many. :param weight: the predicted load. :param bytes: what was written. :param seconds: how long it took.
    """

    units: int
    failed: int
    weight: int
    bytes: int
    rows: int
    seconds: float


@record("pack_report")
@dataclass(frozen=True)
class PackReport:
    """A pack's extract, as its driver saw it.

    :param slots: how many Spark tasks the cluster runs at once. :param standing: units that had a result already.
    :param empty: units with nothing to read, which cost no Spark task. :param errors: in the order in which they came.
    :param probe_seconds: the part of `seconds` until the executors' Pythons were started and checked.
    :param application: what Spark calls the application; empty if it came to none.
    """

    run: str
    pack: int
    label: str
    attempt: str
    started: datetime
    seconds: float
    slots: int
    standing: int
    empty: int
    groups: tuple[GroupReport, ...]
    errors: tuple[str, ...]
    probe_seconds: float = 0.0
    application: str = ""

    @classmethod
    def of_failure(cls, run: str, pack: int, attempt: str, error: str) -> PackReport:
        """The report of a driver that came to nothing."""
        now = datetime.now(UTC)
        return cls(run, pack, f"pack {pack}", attempt, now, 0.0, 0, 0, 0, (), (error,))

    def __str__(self) -> str:
        """One line for a log."""
        weight, written = sum(g.weight for g in self.groups), sum(g.bytes for g in self.groups)
        heaviest = max((g.weight for g in self.groups), default=0)
        slowest = max((g.seconds for g in self.groups), default=0.0)
        mean = sum(g.seconds for g in self.groups) / max(1, len(self.groups))
        return (
            f"{self.label}: {many(sum(g.units for g in self.groups), 'unit')} in {many(len(self.groups), 'Spark task')} on "
            f"{many(self.slots, 'slot')}, {self.standing:,} with a result already, {self.empty:,} empty, "
            f"{many(len(self.errors), 'error')}; "
            f"weight predicted {weight}, at most {heaviest} a task; actual {written} bytes, {slowest:.1f} s at most a task "
            f"and {mean:.1f} s in the mean; {self.seconds:.1f} s in all, {self.probe_seconds:.1f} s to start Python"
        )
