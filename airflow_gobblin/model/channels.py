"""Channels: what a version of a stage publishes beside its rows. Each is a unit of its own in the version's slot.

So one decision makes all of them true, and a rewind takes all of them back; but only the rows are what readers of the stage get.
"""

from __future__ import annotations

__all__ = ["ROWS", "STATE", "channel_of", "unit_of"]

ROWS = ""
"""The rows that readers get. Every unit of an ingestion has this channel."""
STATE = "state"
"""What a stage keeps for its next version."""


def unit_of(unit: str, channel: str) -> str:
    """Return the id under which a channel of a work unit is published. A work unit's own id has no dot."""
    return f"{unit}.{channel}" if channel else unit


def channel_of(unit: str) -> str:
    """Return the channel of a published unit."""
    return unit.partition(".")[2]
