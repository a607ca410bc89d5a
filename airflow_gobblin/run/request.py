"""The request of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model import wire
from airflow_gobblin.model.request import Bound
from airflow_gobblin.model.watermark import Json


@dataclass(frozen=True)
class RunRequest:
    """The request of a run.

    Without a start, the run plans everything not covered up to its end, so a scheduled run also fills what earlier ones left.
    With a start it is a backfill: it plans its range, [start, end), and nothing else.

    :param dag_run: names the run, for its run key: the DAG's id and the run's.
    :param end: the end of its data interval, or of its range; `None`: up to now.
    :param datasets: only these URNs; empty for all.
    :param start: where its range begins; for some of several positions, by number: offsets by partition.
    :param flush: whether to read what waits, however little it is for a batch.
    :param replace: whether to replace what is published of its range; otherwise a partly covered range is refused.
    :param request: any text, to distinguish it from an equal request of the same DAG run, so that it is carried out again.
    :param version: the version to seal once everything up to it is published; `None`: the run seals none.
    :raises ConfigurationError: the range is empty or not a range, or there is nothing to replace.
    """

    dag_run: str
    end: Bound | None = None
    datasets: tuple[str, ...] = ()
    start: Bound | None = None
    replace: bool = False
    request: str = ""
    flush: bool = False
    version: datetime | None = None

    def __post_init__(self) -> None:
        start, end = self.start, self.end
        if start is None and (self.replace or isinstance(end, int | Mapping)):
            raise self._refused("there is no start", "Give the range that is meant, from start to end.")
        if start is not None and self.flush:
            raise self._refused("it is a backfill and a flush", "A backfill is never held: leave out the flush.")
        if start is not None and end is not None:
            self._check_order(start, end)

    def _check_order(self, start: Bound, end: Bound) -> None:
        pairs = _pairs(start, end)
        if pairs is None:
            raise self._refused(
                f"its start {start} and its end {end} can't be compared",
                "Give both as points in time, both as integers, or both by partition, with a start for each end.",
            )
        if not all(low < high for low, high in pairs):  # type: ignore[operator]
            raise self._refused(f"its start {start} is not before its end {end}", "Give the earlier one as the start.")

    @property
    def dag(self) -> str:
        """The DAG's id, if recorded."""
        return self.dag_run.rpartition("/")[0]

    @property
    def backfill(self) -> bool:
        """Whether it is for a range."""
        return self.start is not None

    def run_key(self, ingestion: str) -> str:
        """Return the key by which a retried request is recognized as the same."""
        asked: dict[str, Json] = {"end": _json(self.end), "datasets": [*sorted(self.datasets)]}
        if self.backfill:
            asked |= {"start": _json(self.start), "replace": self.replace}
        if self.flush:
            asked["flush"] = True
        if self.request:
            asked["request"] = self.request
        return wire.digest(wire.canonical({"ingestion": ingestion, "dag_run": self.dag_run, "asked": asked}))[:32]

    def _refused(self, cause: str, hint: str) -> ConfigurationError:
        return ConfigurationError(operation="use", subject=f"the range of run {self.dag_run!r}", cause=cause, hint=hint)


def _pairs(start: Bound, end: Bound) -> list[tuple[datetime | int, datetime | int]] | None:
    """Return the parts of both bounds that belong together; `None` if they can't be compared."""
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        return [(start[number], end[number]) for number in end] if {*end} <= {*start} else None
    if isinstance(start, Mapping) or isinstance(end, Mapping) or isinstance(start, int) is not isinstance(end, int):
        return None
    return [(start, end)]


def _json(bound: Bound | None) -> Json:
    if isinstance(bound, Mapping):
        return {str(number): position for number, position in bound.items()}
    return bound.isoformat() if isinstance(bound, datetime) else bound
