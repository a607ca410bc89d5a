"""The facts announced of a published slot, the same for all listeners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING

from airflow_gobblin.journal.records import now
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.watermark import Json, TimestampWatermark, Watermark, encode, split

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_gobblin.journal.history import Slot

__all__ = ["Publication", "lag", "publication"]


@dataclass(frozen=True)
class Publication:
    """A published slot.

    :param watermark: the dataset's, the next position to read; `None` for a snapshot.
    :param lag: how far the watermark is behind now, if it is a time.
    :param replaced: how many of its files took the place of others, in a mirror.
    :param deleted: how many files it deleted, in a mirror.
    :param holds: what it holds.
    :param retired: the number of units it retired.
    :param ranges: the ranges it covers, merged across units if they have one position.
    :param decided: when it was decided.
    :param done: when its outcome was written.
    :param schema: the published schema (Arrow, encoded by `schema.py`).
    :param dead_letters: how many refused rows some of its files hold.
    :param metadata: what its work added.
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
    replaced: int
    deleted: int
    holds: Holds | None
    retired: int
    decided: datetime
    done: datetime
    run_key: str
    schema: str | None
    dead_letters: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """The dataset's key: a name for its URN, which may be any text."""
        return dataset_key(self.urn)

    @property
    def took(self) -> timedelta:
        """The time from the slot's decision to its outcome, by the clocks of their writers."""
        return max(timedelta(0), self.done - self.decided)

    @property
    def event(self) -> Mapping[str, Json]:
        """The content of the asset event."""
        return self._facts | ({"metadata": dict(self.metadata)} if self.metadata else {})

    @property
    def _facts(self) -> dict[str, Json]:
        if self.holds is Holds.DIFFERENCE:
            acts = {"files": self.files, "replaced": self.replaced, "deleted": self.deleted, "bytes": self.bytes}
            return {"urn": self.urn, "slot": self.slot, **acts}
        watermark = None if self.watermark is None else self.watermark.to_json()
        return {"urn": self.urn, "watermark": watermark, "slot": self.slot, "rows": self.rows, "files": self.files}

    @property
    def position(self) -> Json:
        """The watermark with its kind."""
        return None if self.watermark is None else encode(self.watermark)


def publication(ingestion: str, slot: Slot, watermark: Watermark | None) -> Publication:
    """Return the publication of a slot that is done.

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
        bytes=slot.bytes,
        replaced=slot.replaced,
        deleted=slot.deleted,
        holds=slot.holds,
        retired=len(decision.replaces),
        decided=decision.at,
        done=decision.at if outcome is None else outcome.at,
        run_key=decision.run_key,
        schema=decision.schema,
        dead_letters=slot.dead_letters,
        metadata=decision.metadata,
    )


def lag(watermark: Watermark | None) -> timedelta | None:
    """Return how far a watermark is behind now, if it is a time."""
    return max(timedelta(0), now() - watermark.value) if isinstance(watermark, TimestampWatermark) else None


def _merged(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Merge adjacent ranges; leave those of several positions as they are."""
    if not ranges or len(split(ranges[0].low)) > 1:
        return ranges
    return reduce(Coverage.filled, ranges, Coverage()).ranges()
