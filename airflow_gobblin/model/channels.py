"""Channels: what a version of a stage publishes alongside its rows. Each is a unit of its own in the version's slot.

So one decision makes all of them true, and a rewind takes all of them back, but readers of the stage get only the rows.
"""

from __future__ import annotations

import re

__all__ = ["ROWS", "STATE", "channel_of", "is_channel", "unit_of"]

ROWS = ""
"""The rows that readers get. Every unit of an ingestion has this channel."""
STATE = "state"
"""The state that a stage keeps for its next version."""


_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def is_channel(name: object) -> bool:
    """Return whether a name is valid for a channel of a stage: it becomes a parameter of `Out`, and a folder."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name not in ("rows", STATE)


def unit_of(unit: str, channel: str) -> str:
    """Return the id under which a channel of a work unit is published. A work unit's own id has no dot."""
    return f"{unit}.{channel}" if channel else unit


def channel_of(unit: str) -> str:
    """Return the channel of a published unit."""
    return unit.partition(".")[2]
