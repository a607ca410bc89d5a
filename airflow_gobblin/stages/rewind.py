"""Previews of rewinds of stages and sources to a version; `admin/actions.py` carries them out.

Stages below follow by themselves, as in any restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime

from airflow_gobblin.admin.actions import Administration, Change
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.seals import Seals, newest_up_to
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.stages.restore import from_version, oldest_to_restore

__all__ = ["following", "would_rewind", "would_rewind_source"]


def would_rewind(admin: Administration, stage: str, to: datetime | None) -> Change:
    """Preview taking back all versions of a stage after one, which are then made again. `Administration.carry_out` does it.

    :param to: the last version that stays; `None`: none does.
    :raises ConfigurationError: it isn't a stage, or has no version after that one.
    :raises StateGivenUpError: it no longer has a state to go on with from there.
    """
    history = admin.finished(stage)
    state = history.state
    versions = [state.checkpoints[slot].version for slot in state.versions]
    oldest = next((version for version in versions if to is None or version > to), None)
    if oldest is None:
        newest = f"its newest is {versions[-1].isoformat()}" if versions else "it has no version"
        raise _nothing(f"stage {stage!r}", to, newest)
    return Change(Action.REWIND, history, replaces=from_version(state, oldest, stateful=True))


def would_rewind_source(admin: Administration, to: datetime | None) -> tuple[Change, ...]:
    """Preview taking back what an ingestion has published after a version, of all its datasets. Its next run extracts it anew.

    The slots that belong to a version follow from seals. Snapshots have none, and stay.

    :param to: the version; if it isn't sealed, the newest sealed one before it; `None`: everything is taken back.
    :raises ConfigurationError: nothing was published after that version, none up to it is sealed, a slot is pending, or
        the source has since lost rows that would be taken back.
    :raises GobblinError: a dataset can't be read.
    """
    journal = admin.journal
    seals = Seals(journal)
    number = seals.newest()  # before the datasets
    histories = [_readable(found) for _, found in journal.histories()]
    states = {history.urn: history.state for history in histories}
    newest = None if to is None else newest_up_to(to, seals.before(number), states)
    if newest is None and to is not None:
        raise ConfigurationError(
            operation="rewind",
            subject=f"ingestion {journal.ingestion!r} to version {to.isoformat()}",
            cause="no version up to that is sealed",
            hint="Give a later one; or --start, to take back everything.",
        )
    heads = {} if newest is None else {urn: sealed.head for urn, sealed in newest.datasets.items()}
    growing = [
        one for one in histories if one.holds is not None and one.holds.keeps_units and not one.holds.replaces_all
    ]
    changes = (admin.would_take_back(history.urn, heads.get(history.urn, 0)) for history in growing)
    found = tuple(change for change in changes if change is not None)
    if not found:
        raise _nothing(f"ingestion {journal.ingestion!r}", to, "nothing was published since")
    return found


def following(
    taken: Mapping[str, AbstractSet[int]], stages: Mapping[str, DatasetState]
) -> Mapping[str, tuple[datetime, ...]]:
    """Return the versions that stages take back by themselves in their next runs, once slots that they read are gone.

    :param taken: the slots of which something is taken back, by the ids of their datasets.
    :param stages: the states of stages, by their ids, in any order.
    :return: the versions, by the ids of the stages that take back any, besides what is taken back of them anyway.
    """
    gone = {dataset: set(slots) for dataset, slots in taken.items()}
    found: dict[str, tuple[datetime, ...]] = {}
    changed = True
    while changed:
        changed = False
        for name, state in stages.items():
            oldest = oldest_to_restore(state, _retired(state.checkpoints.values(), gone))
            slots = {
                slot for slot in state.versions if oldest is not None and state.checkpoints[slot].version >= oldest
            }
            if not slots <= gone.get(name, set()):
                gone[name] = gone.get(name, set()) | slots
                more = gone[name] - taken.get(name, set())
                found[name] = tuple(sorted(state.checkpoints[slot].version for slot in more))
                changed = True
    return found


def _retired(
    checkpoints: Iterable[Checkpoint], gone: Mapping[str, AbstractSet[int]]
) -> Mapping[str, AbstractSet[ConsumedSlot]]:
    found: dict[str, set[ConsumedSlot]] = {}
    for one in checkpoints:
        for upstream, slots in one.parents.items():
            found.setdefault(upstream, set()).update(slot for slot in slots if slot.slot in gone.get(upstream, ()))
    return found


def _readable(found: History | GobblinError) -> History:
    if isinstance(found, GobblinError):
        raise found
    return found


def _nothing(subject: str, to: datetime | None, newest: str) -> ConfigurationError:
    after = "" if to is None else f" after {to.isoformat()}"
    return ConfigurationError(
        operation="rewind",
        subject=subject,
        cause=f"there is nothing to take back{after}: {newest}",
        hint="`airflow gobblin pipeline versions` lists the versions of stages.",
    )
