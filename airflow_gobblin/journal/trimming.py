"""Trimming: folding a dataset's oldest slots into a snapshot and removing their records.

The snapshot is durable before anything is removed, and from then on it alone counts: records that remain, or that an old attempt
writes late, are void. So a crash anywhere leaves nothing but void records, which the next trim removes. A trimmed slot never
opens again: `Journal.put_decision` and `put_outcome` look for a snapshot after they have written.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.history import History, Snapshot, take_snapshot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Decision, now
from airflow_gobblin.model import wire

KEPT = 10
"""How many of the newest slots keep their records."""
TRIMMED_TOGETHER = 20
"""The least number of slots that is worth a snapshot."""
_REMOVED_TOGETHER = 1000


def worth_trimming(history: History) -> bool:
    """Return whether many of a dataset's oldest slots are settled, or an earlier trim wasn't completed."""
    return history.settled(KEPT) - len(history.trimmed) >= TRIMMED_TOGETHER or bool(history.void)


def trim(journal: Journal, history: History) -> bool:
    """Fold the oldest slots of a dataset into a snapshot, if they are many and nothing remains to be done for them.

    Also remove whatever an earlier trim left.

    :return: whether anything was removed.
    """
    upto = history.settled(KEPT)
    if upto - len(history.trimmed) >= TRIMMED_TOGETHER:
        journal.put_snapshot(take_snapshot(history, upto, now()))
        history = journal.history(history.urn)
    if history.snapshot is None or not history.void:
        return False
    _remove(journal, history, history.snapshot)
    return True


def _remove(journal: Journal, history: History, snapshot: Snapshot) -> None:
    """Remove void records, beginning with the steps that are no longer needed, since the other records name them.

    Decisions are removed oldest first. So a writer that takes a trimmed slot anew, where the snapshot can't be listed yet (on a
    mounted disk, which removes in this order), finds a gap below it, and never a chain that holds.
    """
    store, urn = journal.store, history.urn
    void = [journal.key(urn, key) for key in history.void]
    for start in range(0, len(void), _REMOVED_TOGETHER):
        some = void[start : start + _REMOVED_TOGETHER]
        named = {name for key, data in store.get_many(some) for name in _shards(key, data, snapshot)}
        store.delete_many([journal.key(urn, "c", name) for name in sorted(named - snapshot.shards)])
        store.delete_many(some)


def _shards(key: str, data: bytes | None, snapshot: Snapshot) -> Iterator[str]:
    """Yield the step shards that a void record names, if it ever counted; one that didn't may yet be decided in another slot."""
    kind = key.split("/")[2]
    if data is None or kind not in ("d", "snap"):
        return
    try:
        if kind == "snap":
            yield from wire.loads(data, Snapshot, key).shards
        else:
            decision = wire.loads(data, Decision, key)
            if snapshot.slots[decision.slot - 1].token == decision.token:
                yield from (shard.digest for shard in decision.shards)
    except GobblinError:  # the record is removed; its steps stay
        return
