"""Lineage: whether everything that a stage's versions were made from is still there.

A parent is gone if a rewind, a replacement or a drop retired any of its units, even though its files are cleaned up only later.
A stage looks before it plans and when it decides, at the cost of what was retired since its last look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from airflow_gobblin.errors import RecordError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot

__all__ = ["Look", "look", "looked_up_to", "retired"]


@dataclass(frozen=True)
class Look:
    """The findings of a look.

    :param retired: the parents that are gone, by upstream; an upstream that lost nothing isn't in it.
    :param looked: how far it went, by upstream. Only a decision of the stage keeps it.
    """

    retired: Mapping[str, frozenset[ConsumedSlot]]
    looked: Mapping[str, int]


def look(checkpoints: Iterable[Checkpoint], upstreams: Mapping[str, History], since: Mapping[str, int]) -> Look:
    """Look for retired parents.

    :param checkpoints: the checkpoints of every live version, and of the one to be decided.
    :param upstreams: the upstreams, by id.
    :param since: how far the last look that the stage has on record went.
    :raises RecordError: an upstream's journal lacks slots that it had.
    """
    versions = tuple(checkpoints)
    found: dict[str, frozenset[ConsumedSlot]] = {}
    for upstream, history in upstreams.items():
        parents = chain.from_iterable(one.parents.get(upstream, ()) for one in versions)
        gone = retired(parents, history, since.get(upstream, 0))
        if gone:
            found[upstream] = gone
    return Look(found, {upstream: looked_up_to(history) for upstream, history in upstreams.items()})


def retired(parents: Iterable[ConsumedSlot], upstream: History, since: int) -> frozenset[ConsumedSlot]:
    """Return the parents of which an upstream retired anything after a slot. Where slots since then are trimmed, its live units
    show it.

    :raises RecordError: the upstream's journal lacks slots that it had.
    """
    if since > looked_up_to(upstream):
        raise _shortened(upstream, since)
    consumed = frozenset(parents)
    touched = _touched(upstream, since) if _is_the_same(upstream, consumed) else None
    if touched is not None and not touched:
        return frozenset()
    units = Counter(ref.slot for ref in upstream.state.units_of(ROWS))
    suspects = (parent for parent in consumed if touched is None or parent.slot in touched)
    return frozenset(parent for parent in suspects if not _is_valid(parent, upstream, units[parent.slot]))


def looked_up_to(upstream: History) -> int:
    """Return how far a look goes: to the newest slot, but never past one without an outcome."""
    pending = upstream.pending
    return upstream.state.head if pending is None else pending.decision.slot - 1


def _touched(upstream: History, since: int) -> frozenset[int] | None:
    """Return the slots of which anything may have been retired after a slot; `None`: any, since it is no longer on record."""
    later = [slot.decision for slot in upstream.after(since) if slot.done]
    if since < len(upstream.trimmed) or any(decision.action is Action.DROP for decision in later):
        return None
    return frozenset(ref.slot for decision in later for ref in decision.replaces if ref.channel == ROWS)


def _is_the_same(upstream: History, parents: frozenset[ConsumedSlot]) -> bool:
    """Return whether an upstream still has the newest parent, and so all earlier ones, which its record names in a chain.

    It doesn't if its journal was put back to an older copy and has grown again since.
    """
    newest = max(parents, key=lambda parent: parent.slot, default=None)
    return newest is None or _has(upstream, newest)


def _has(upstream: History, parent: ConsumedSlot) -> bool:
    return parent.slot <= upstream.state.head and upstream.token(parent.slot) == parent.token


def _is_valid(parent: ConsumedSlot, upstream: History, units: int) -> bool:
    return units >= parent.units and _has(upstream, parent)


def _shortened(upstream: History, since: int) -> RecordError:
    return RecordError(
        operation="look for what was taken back of",
        subject=f"dataset {upstream.urn!r}",
        cause=f"its slots end at {looked_up_to(upstream)}, and a stage that reads it has seen slot {since}",
        hint="Restore its journal from a newer copy.",
    )
