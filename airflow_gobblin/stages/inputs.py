"""What a stage reads, and how: outputs of other jobs, from their journals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, Remedy
from airflow_gobblin.job import Restore
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import PublishedFile
from airflow_gobblin.journal.seals import Seals
from airflow_gobblin.model.checkpoint import Checkpoint
from airflow_gobblin.model.naming import dataset_id, many
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.stages.barrier import Upstream, next_ready
from airflow_gobblin.stages.lineage import Look, look
from airflow_gobblin.stages.restore import from_version, oldest_to_restore
from airflow_gobblin.stages.versions import Available, checkpoint, of_dataset, of_stage

__all__ = ["Input", "check_parents", "files_of", "next_version", "to_restore"]


@dataclass(frozen=True)
class Input:
    """An output of another job, which a stage reads: a dataset of a source, or a stage.

    :param journal: the location of its job's journal.
    :param ingestion: the name of its job.
    :param reach: of a stage, the ids of the sources' datasets that it is made from; empty: it is a source's.
    :param required: whether the stage waits for it.
    """

    journal: str
    ingestion: str
    urn: str
    reach: frozenset[str] = frozenset()
    required: bool = True

    @property
    def id(self) -> str:
        """Its id, by which checkpoints name it."""
        return dataset_id(self.ingestion, self.urn)

    @property
    def upstream(self) -> Upstream:
        """Its part in the barrier."""
        return Upstream(self.id, self.reach or frozenset({self.id}), self.required)


def next_version(inputs: Sequence[Input], state: DatasetState, connections: Connections) -> Checkpoint | None:
    """Return what a stage would make its next version from; `None` if none is ready.

    :param state: the stage's own.
    :raises ConfigurationError: an input doesn't grow, and has no versions.
    :raises GobblinError: an upstream can't be read.
    """
    newest = max((one.version for one in state.checkpoints.values()), default=None)
    available = {one.id: _available(one, newest, connections) for one in inputs}
    version = next_ready([one.upstream for one in inputs], available, state)
    return None if version is None else checkpoint(version, available, state)


def to_restore(
    inputs: Sequence[Input], state: DatasetState, connections: Connections, *, stateful: bool
) -> Restore | None:
    """Return what a stage has to take back, if a parent of one of its versions is gone.

    :raises StateGivenUpError: as `restore.from_version`.
    :raises GobblinError: an upstream can't be read.
    """
    found = _look(inputs, [*state.checkpoints.values()], state, connections)
    version = oldest_to_restore(state, found.retired)
    if version is None:
        return None
    why = f"{_told(found)} was taken back, from which version {version.isoformat()} was made"
    return Restore(from_version(state, version, stateful=stateful), found.looked, why)


def check_parents(
    inputs: Sequence[Input], made: Checkpoint, state: DatasetState, connections: Connections
) -> Mapping[str, int]:
    """Check that everything is still there that a version to be decided, and all live ones, were made from.

    :return: how far it was looked, by upstream.
    :raises LostRaceError: something isn't.
    :raises GobblinError: an upstream can't be read.
    """
    found = _look(inputs, [*state.checkpoints.values(), made], state, connections)
    if found.retired:
        raise LostRaceError(
            operation="commit",
            subject=f"version {made.version.isoformat()} of {state.urn!r}",
            cause=f"{_told(found)} was taken back since it was planned",
            hint="Nothing of this plan was published.",
            remedy=Remedy.PLAN,
        )
    return found.looked


def files_of(one: Input, made: Checkpoint, connections: Connections) -> tuple[PublishedFile, ...]:
    """Return the files that a version consumes of an input, in the order of their slots.

    :raises GobblinError: it can't be read.
    """
    slots = {slot.slot for slot in made.parents[one.id]}
    with _opened(one, connections) as journal:
        history = journal.history(one.urn)
        units = [ref for ref in history.state.live if ref.slot in slots]
        return journal.published_files(history, units)


def _look(
    inputs: Sequence[Input], checkpoints: Sequence[Checkpoint], state: DatasetState, connections: Connections
) -> Look:
    histories = {}
    for one in inputs:
        with _opened(one, connections) as journal:
            histories[one.id] = journal.history(one.urn)
    return look(checkpoints, histories, state.looked)


def _available(one: Input, after: datetime | None, connections: Connections) -> Available:
    with _opened(one, connections) as journal:
        if one.reach:
            return of_stage(_of_versions(one, journal.history(one.urn)))
        seals = Seals(journal)
        number = seals.newest()  # before the datasets, which then have all that it names
        states: dict[str, DatasetState] = {}
        for _, found in journal.histories():
            if isinstance(found, GobblinError):
                raise found  # nobody knows whether it lost something that a seal has
            states[found.urn] = replace(found.state, live={}, retired={}, previous_units=())
        history = _of_versions(one, journal.history(one.urn))
        states[one.urn] = history.state
        return of_dataset(one.id, history, seals.before(number), states, after)


@contextmanager
def _opened(one: Input, connections: Connections) -> Iterator[Journal]:
    journal = Journal.open(one.journal, one.ingestion, connections)
    try:
        yield journal
    finally:
        journal.store.close()


def _of_versions(one: Input, history: History) -> History:
    """Check that a dataset's slots belong to versions once and for all.

    :raises ConfigurationError: its next slot may replace all of it, or it has no units.
    """
    holds = history.holds
    if holds is None or (holds.keeps_units and not holds.replaces_all):
        return history
    raise ConfigurationError(
        operation="read",
        subject=f"dataset {one.urn!r} of {one.ingestion!r} in a stage",
        cause=f"each of its slots holds {holds.what}",
        hint="Stages read datasets that grow, such as those of `append_only` tables, and other stages.",
    )


def _told(found: Look) -> str:
    return " and ".join(f"{many(len(slots), 'slot')} of {name!r}" for name, slots in found.retired.items())
