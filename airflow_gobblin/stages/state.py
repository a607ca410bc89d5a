"""The state of a stage: what its function keeps for its next version. Light to import, as DAG files and Spark tasks import it.

The state of a version is one of its channels, alongside its rows, and is published by the same decision. It is made from the
state of the version before, a parent just like the inputs: a stage that goes back to a version goes on with that version's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_gobblin.errors import ConfigurationError, StateGivenUpError
from airflow_gobblin.model.channels import STATE
from airflow_gobblin.model.checkpoint import StateForm
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.stages.ddl import columns_of

__all__ = ["State", "checked_channels", "checked_form", "state_before"]


@dataclass(frozen=True)
class State:
    """The state that the function of a stage keeps for the next version: a DataFrame, whole, with a row for each key.

    :param key: the columns that distinguish its rows.
    :param schema: its columns as Spark's DDL, such as `"carrier string, flights bigint"`: the first version's function is given a
        DataFrame without rows that has them. Without it, that DataFrame has no columns.
    :param buckets: the number of parts that it is written in, by a hash of the key; parts below a megabyte are put together.
    :param keep: how many of the newest versions keep their state: a stage can be restored to these, and to its start.
    :raises ConfigurationError: it has no key, its schema lacks a column of it, or a number is below 1.
    """

    key: tuple[str, ...]
    schema: str = ""
    buckets: int = 16
    keep: int = 48

    def __post_init__(self) -> None:
        key: object = self.key
        if isinstance(key, str) or not key:
            raise _refused(self, "its key must be columns", "Name them in a tuple: key=('carrier', 'month').")
        object.__setattr__(self, "key", tuple(dict.fromkeys(self.key)))
        if min(self.buckets, self.keep) < 1:
            raise _refused(self, "it has no bucket, or is never kept", "Give `buckets` and `keep` of at least 1.")
        columns = columns_of(self.schema) if self.schema else None
        for name in self.key:
            if columns is not None and name not in columns:
                hint = meant([*columns], name, otherwise="Declare that column, too, or give another key.")
                raise _refused(self, f"its schema has no column {name!r}, which is of its key", hint)


def checked_form(stage: str, state: State | None, own: DatasetState) -> StateForm | None:
    """Return the form that the state of a stage's next version has.

    :param own: the stage's state, as a dataset.
    :raises ConfigurationError: live versions have another one.
    """
    form = None if state is None else StateForm(state.key, state.buckets)
    if not own.versions:
        return form
    newest = own.checkpoints[own.versions[-1]]
    if form == (None if newest.state is None else StateForm(newest.state.key, newest.state.buckets)):
        return newest.state
    raise ConfigurationError(
        operation="plan",
        subject=f"stage {stage!r}",
        cause=f"it has {_described(form)}, and version {newest.version.isoformat()} has {_described(newest.state)}",
        hint="Give it the state that it had; or another name; or let it make all versions again: "
        f"`airflow gobblin pipeline rewind {stage} --start --reason …`.",
    )


def checked_channels(stage: str, channels: tuple[str, ...], own: DatasetState) -> Mapping[str, str | None]:
    """Return the channels that a stage's next version has, each with its schema, if that is known.

    :param own: the stage's state, as a dataset.
    :raises ConfigurationError: live versions have other ones.
    """
    if not own.versions:
        return dict.fromkeys(channels)
    newest = own.checkpoints[own.versions[-1]]
    if newest.channels.keys() == {*channels}:
        return newest.channels
    now, then = (", ".join(sorted(some)) or "none" for some in (channels, newest.channels))
    raise ConfigurationError(
        operation="plan",
        subject=f"stage {stage!r}",
        cause=f"its channels are {now}, and version {newest.version.isoformat()} has {then}",
        hint="Give it the channels that it had; or another name; or let it make all versions again: "
        f"`airflow gobblin pipeline rewind {stage} --start --reason …`.",
    )


def state_before(own: DatasetState) -> UnitRef | None:
    """Return the unit with the state that a stage's next version goes on with; `None`: it is the first.

    :raises StateGivenUpError: it is given up.
    """
    if not own.versions:
        return None
    slot = own.versions[-1]
    found = next((ref for ref in own.units_of(STATE) if ref.slot == slot), None)
    if found is not None:
        return found
    raise StateGivenUpError(
        operation="plan",
        subject=f"stage {own.urn!r}",
        cause=f"the state of version {own.checkpoints[slot].version.isoformat()} is given up",
        hint="Rewind it to its start, where its state is empty: it then makes all versions again.",
    )


def _described(form: StateForm | None) -> str:
    if form is None:
        return "no state"
    return f"state by {', '.join(form.key)} in {form.buckets} buckets"


def _refused(state: State, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="use", subject=str(state), cause=cause, hint=hint)
