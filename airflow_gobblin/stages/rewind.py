"""Rewinds of stages by people, to a version. Downstreams follow by themselves, as in any restore."""

from __future__ import annotations

from datetime import datetime

from airflow_gobblin.admin.actions import Administration, Change
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.journal.records import Action
from airflow_gobblin.stages.restore import from_version

__all__ = ["would_rewind"]


def would_rewind(admin: Administration, stage: str, to: datetime | None) -> Change:
    """Preview taking back all versions of a stage after one, which are then made again. `Administration.carry_out` does it.

    :param to: the last version that stays; `None`: none does.
    :raises ConfigurationError: it isn't a stage, or has no version after that one.
    :raises StateGivenUpError: it has no state any more to go on with from there.
    """
    history = admin.finished(stage)
    state = history.state
    versions = [state.checkpoints[slot].version for slot in state.versions]
    oldest = next((version for version in versions if to is None or version > to), None)
    if oldest is None:
        newest = f"its newest is {versions[-1].isoformat()}" if versions else "it has no version"
        after = "" if to is None else f" after {to.isoformat()}"
        raise ConfigurationError(
            operation="rewind",
            subject=f"stage {stage!r}",
            cause=f"there is nothing to take back{after}: {newest}",
            hint="`airflow gobblin pipeline versions` lists them.",
        )
    return Change(Action.REWIND, history, replaces=from_version(state, oldest, stateful=True))
