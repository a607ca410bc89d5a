"""The inputs of a stage, as its journal has them on record: for people, who see there what it waits for. No rule relies on them.

<journal>/_inputs/<stage>/<number>                    its inputs since some run; the newest is valid
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from airflow_gobblin.errors import RecordError
from airflow_gobblin.journal.journal import slot_name
from airflow_gobblin.model import wire
from airflow_gobblin.model.wire import record
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.storage.stores.base import Store, put_or_read

__all__ = ["StageInputs", "inputs_on_record", "keep_inputs", "stages_on_record"]

_INPUTS = "_inputs/"


@record("stage_inputs")
@dataclass(frozen=True)
class StageInputs:
    """The inputs of a stage.

    :param run: the DAG run that first had them.
    """

    inputs: tuple[Input, ...]
    at: datetime
    run: str = ""


def keep_inputs(store: Store, stage: str, inputs: Iterable[Input], at: datetime, run: str) -> None:
    """Keep the inputs of a stage, each once, unless its newest record has the same. If two are written at once, one counts.

    A record that can't be read is followed by another one, and stops nobody.

    :param store: its journal's.
    :raises StoreError: the store can't be reached.
    """
    keys, found = _keys(store, stage), tuple(dict.fromkeys(inputs))
    newest: StageInputs | None = None
    with suppress(RecordError):
        newest = _newest(store, keys)
    if newest is None or newest.inputs != found:
        put_or_read(store, f"{_prefix(stage)}{slot_name(len(keys) + 1)}", wire.dumps(StageInputs(found, at, run)))


def inputs_on_record(store: Store, stage: str) -> StageInputs | None:
    """Return the inputs of a stage; `None` if no run has planned it yet, or it isn't a stage.

    :raises RecordError: the record is torn or newer.
    """
    return _newest(store, _keys(store, stage))


def stages_on_record(store: Store) -> tuple[str, ...]:
    """Return the names of the stages that have their journals in a store, with one listing."""
    return tuple(sorted({key.split("/")[1] for key in store.list(_INPUTS)}))


def _keys(store: Store, stage: str) -> list[str]:
    return sorted(store.list(_prefix(stage)))


def _newest(store: Store, keys: Sequence[str]) -> StageInputs | None:
    data = store.get(keys[-1]) if keys else None
    return None if data is None else wire.loads(data, StageInputs, keys[-1])


def _prefix(stage: str) -> str:
    return f"{_INPUTS}{stage}/"
