"""What is told of a published slot, whoever it is told to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING

from airflow_gobblin.coverage import Coverage, Range
from airflow_gobblin.naming import dataset_key
from airflow_gobblin.records import now
from airflow_gobblin.watermark import Json, TimestampWatermark, Watermark, encode, split
from airflow_gobblin.work import UnitState

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_gobblin.history import Slot

__all__ = ["Publication", "lag", "publication"]


@dataclass(frozen=True)
class Publication:
    """A slot that was published.

    :param watermark: the dataset's, the next position to read; a snapshot has none.
    :param lag: how far that is behind now, where it is a time. :param retired: how many units it retired.
    :param ranges: what it covers, where that has one position without the bounds of its units.
    :param decided: when it was decided; :param done: when its outcome was written.
    :param schema: the published schema (Arrow, encoded by `schema.py`).
    """

    ingestion: str
    urn: str
    slot: int
    watermark: Watermark | None
    lag: timedelta | None
    ranges: tuple[Range, ...]
    rows: int
    files: int
    bytes: int
    retired: int
    decided: datetime
    done: datetime
    run_key: str
    schema: str | None

    @property
    def dataset(self) -> str:
        """The dataset's key: what its URN is called where not every text can be a name."""
        return dataset_key(self.urn)

    @property
    def took(self) -> timedelta:
        """How long it took from the slot's decision to its outcome, by the clocks of those who wrote them."""
        return max(timedelta(0), self.done - self.decided)

    @property
    def event(self) -> Mapping[str, Json]:
        """What the asset event holds."""
        watermark = None if self.watermark is None else self.watermark.to_json()
        return {"urn": self.urn, "watermark": watermark, "slot": self.slot, "rows": self.rows, "files": self.files}

    @property
    def position(self) -> Json:
        """The watermark with its kind."""
        return None if self.watermark is None else encode(self.watermark)


def publication(ingestion: str, slot: Slot, watermark: Watermark | None) -> Publication:
    """What is told of a slot that is done.

    :param watermark: the dataset's, now.
    """
    decision, outcome = slot.decision, slot.outcome
    return Publication(
        ingestion=ingestion,
        urn=decision.urn,
        slot=decision.slot,
        watermark=watermark,
        lag=lag(watermark),
        ranges=_merged(decision.ranges),
        rows=slot.rows,
        files=slot.files,
        bytes=sum(unit.bytes for unit in decision.units if unit.state is UnitState.SUCCESSFUL),
        retired=len(decision.replaces),
        decided=decision.at,
        done=decision.at if outcome is None else outcome.at,
        run_key=decision.run_key,
        schema=decision.schema,
    )


def lag(watermark: Watermark | None) -> timedelta | None:
    """How far a watermark is behind now, if it is a time."""
    return max(timedelta(0), now() - watermark.value) if isinstance(watermark, TimestampWatermark) else None


def _merged(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Ranges that meet made one; of several positions, none is."""
    if not ranges or len(split(ranges[0].low)) > 1:
        return ranges
    return reduce(Coverage.filled, ranges, Coverage()).ranges()
