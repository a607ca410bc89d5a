"""What a backfill asks for, before its range is resolved to positions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

Bound = datetime | int
"""The start or end of a backfill: a point in time, or a position of a source whose positions are integers."""


@dataclass(frozen=True)
class RangeRequest:
    """The range of a backfill, to be resolved to positions.

    :param now: the time of planning, in UTC, by the worker's clock. A source that has a clock uses its own.
    :param start: the start.
    :param end: the end, exclusive; `None`: the highest position that the source can be read up to.
    """

    now: datetime
    start: Bound
    end: Bound | None = None
