"""The report of a Spark driver's run about its pack: predicted against actual load, and its errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.wire import record

__all__ = ["FIRST_ERROR", "SPARK_UI", "GroupReport", "PackReport"]

FIRST_ERROR = "airflow-gobblin: first error: "
"""The start of a failed driver's last line; the error follows on the same line."""
SPARK_UI = "airflow-gobblin: Spark UI: "
"""The start of the line in which a driver, before it runs anything, prints its UI's address, or "none"."""


@dataclass(frozen=True)
class GroupReport:
    """The units of one Spark task.

    :param units: their number.
    :param weight: the predicted load.
    :param bytes: the bytes written.
    :param seconds: the time taken.
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

    :param cores: the number of Spark tasks that the cluster runs at once; 0: nothing depended on it.
    :param finished: units that had a result already.
    :param empty: units with nothing to read, which cost no Spark task.
    :param failures: in order of occurrence.
    :param application: Spark's name of the application; empty if there was none.
    """

    run: str
    pack: int
    label: str
    attempt: str
    started: datetime
    seconds: float
    cores: int
    finished: int
    empty: int
    groups: tuple[GroupReport, ...]
    failures: tuple[Failure, ...]
    application: str = ""

    @classmethod
    def of_failure(cls, run: str, pack: int, attempt: str, failure: Failure) -> PackReport:
        """Return the report of a driver that failed as a whole."""
        now = datetime.now(UTC)
        return cls(run, pack, f"pack {pack}", attempt, now, 0.0, 0, 0, 0, (), (failure,))

    def __str__(self) -> str:
        """Return one line for a log."""
        weight, written = sum(g.weight for g in self.groups), sum(g.bytes for g in self.groups)
        heaviest = max((g.weight for g in self.groups), default=0)
        slowest = max((g.seconds for g in self.groups), default=0.0)
        mean = sum(g.seconds for g in self.groups) / max(1, len(self.groups))
        on = f" on {many(self.cores, 'core')}" if self.cores else ""
        return (
            f"{self.label}: {many(sum(g.units for g in self.groups), 'unit')} in {many(len(self.groups), 'Spark task')}"
            f"{on}, {self.finished:,} with a result already, {self.empty:,} empty, "
            f"{many(len(self.failures), 'error')}; "
            f"weight predicted {weight}, at most {heaviest} a task; actual {written} bytes, {slowest:.1f} s at most a task "
            f"and {mean:.1f} s in the mean; {self.seconds:.1f} s in all"
        )
