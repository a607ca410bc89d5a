"""The range that a backfill asks for, before it is resolved to positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

Bound = datetime | int | Mapping[int, int]
"""The start or end of a backfill: a point in time, a position of a source whose positions are integers, or one in each of
several positions, by their numbers (offsets by partition).
"""


@dataclass(frozen=True)
class RangeRequest:
    """The range of a backfill, to be resolved to positions.

    :param now: the time of planning, in UTC, by the worker's clock. A source that has a clock uses its own.
    :param start: the start. One given by numbers leaves out the positions that it doesn't name.
    :param end: the end, exclusive; `None` for the highest position that the source can be read up to, which is also the end of
        each position that an end given by numbers doesn't name.
    """

    now: datetime
    start: Bound
    end: Bound | None = None
