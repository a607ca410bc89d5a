"""Restoring a stage: a REWIND of its own to before the oldest version with a parent that is gone.

Its downstreams find that by the same rule, so nobody coordinates a restore, and it may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime

from airflow_gobblin.errors import StateGivenUpError
from airflow_gobblin.model.channels import STATE
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot
from airflow_gobblin.model.state import DatasetState, UnitRef

__all__ = ["floor_of", "from_version", "oldest_to_restore", "state_below"]


def oldest_to_restore(state: DatasetState, retired: Mapping[str, AbstractSet[ConsumedSlot]]) -> datetime | None:
    """Return the oldest live version of a stage that has a retired parent: it and all after it are to be taken back.

    :param retired: the parents, by upstream, as `lineage.look` returns them.
    """
    ordered = (state.checkpoints[slot] for slot in state.versions)
    return next((one.version for one in ordered if _has(one, retired)), None)


def from_version(state: DatasetState, version: datetime, *, stateful: bool) -> tuple[UnitRef, ...]:
    """Return the units of a version and of all after it, which a restore retires.

    :param stateful: whether the stage has state, with which it goes on after the version before.
    :raises StateGivenUpError: the state of that version is given up.
    """
    slots = {slot for slot in state.versions if state.checkpoints[slot].version >= version}
    before = [slot for slot in state.versions if slot not in slots]
    if stateful and before and before[-1] < state.floor:
        kept = next((slot for slot in state.versions if slot >= state.floor), None)
        raise StateGivenUpError(
            operation="restore",
            subject=f"stage {state.urn!r} to before version {version.isoformat()}",
            cause="the state of the version before is given up"
            + (
                ""
                if kept is None
                else f": the oldest that is kept is of version {state.checkpoints[kept].version.isoformat()}"
            ),
            hint="Rewind it to its start, where its state is empty: it then makes all versions again.",
        )
    return tuple(sorted(ref for ref in state.live if ref.slot in slots))


def floor_of(state: DatasetState, keep: int) -> int:
    """Return the slot below which the state of a stage's versions is given up: the newest ones keep theirs.

    :param keep: how many do.
    """
    return max(state.floor, *state.versions[-keep:][:1]) if len(state.versions) > keep else state.floor


def state_below(state: DatasetState, floor: int) -> tuple[UnitRef, ...]:
    """Return the live units with the state of the versions below a slot."""
    return tuple(sorted(ref for ref in state.units_of(STATE) if ref.slot < floor))


def _has(one: Checkpoint, retired: Mapping[str, AbstractSet[ConsumedSlot]]) -> bool:
    return any(not gone.isdisjoint(one.parents.get(upstream, ())) for upstream, gone in retired.items())
