"""How a stage reads what other jobs publish: from their journals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, Remedy
from airflow_gobblin.job import Restore
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import PublishedDataset
from airflow_gobblin.journal.seals import Seal, Seals
from airflow_gobblin.model.checkpoint import Checkpoint, Reads, StateForm
from airflow_gobblin.model.naming import many, meant
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.stages.barrier import next_ready
from airflow_gobblin.stages.lineage import Look, look
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.stages.restore import from_version, oldest_to_restore
from airflow_gobblin.stages.versions import Available, checkpoint, of_dataset, of_stage, reached, slots_to_read
from airflow_gobblin.storage.locations import is_place

__all__ = [
    "available",
    "check_parents",
    "each_once",
    "next_version",
    "opened",
    "published",
    "published_state",
    "to_restore",
]

_SEALS = 16
"""How many seals of a source are read at first: in a long backlog, the next version is among the oldest."""
_FIRST = datetime.min.replace(tzinfo=UTC)
_HOW = {Reads.NEW: "what is new", Reads.WHOLE: "everything", Reads.BOTH: "both what is new and everything"}


def next_version(inputs: Sequence[Input], state: DatasetState, connections: Connections) -> Checkpoint | None:
    """Return what a stage would make its next version from; `None` if none is ready.

    :param state: the stage's own.
    :raises ConfigurationError: an input doesn't grow, and has no versions; or its versions were made from other inputs.
    :raises GobblinError: an upstream can't be read.
    """
    _check_same(inputs, state)
    each = each_once(inputs)
    upstreams, most = [one.upstream for one in each], _SEALS
    while True:
        found = {one.id: available(one, state, connections, most) for one in each}
        version = next_ready(upstreams, found, state)
        if version is not None and all(has.knows(version) for has in found.values()):
            return checkpoint(version, found, state, _reads(inputs))
        if not any(has.more for has in found.values()):
            return None
        most *= _SEALS


def to_restore(
    inputs: Sequence[Input], state: DatasetState, connections: Connections, *, stateful: bool
) -> Restore | None:
    """Return what a stage has to take back, if a parent of one of its versions is gone.

    :raises ConfigurationError: its versions were made from other inputs.
    :raises StateGivenUpError: as `restore.from_version`.
    :raises GobblinError: an upstream can't be read.
    """
    _check_same(inputs, state)
    found = _look(inputs, [*state.checkpoints.values()], state, connections)
    version = oldest_to_restore(state, found.retired)
    if version is None:
        return None
    why = f"{_taken_back(found)}, from which version {version.isoformat()} was made"
    return Restore(from_version(state, version, stateful=stateful), found.looked, why)


def check_parents(
    inputs: Sequence[Input], made: Checkpoint, state: DatasetState, connections: Connections
) -> Mapping[str, int]:
    """Check that everything that a version to be decided, and all live ones, were made from is still there.

    :return: how far the look went, by upstream.
    :raises LostRaceError: something isn't.
    :raises GobblinError: an upstream can't be read.
    """
    found = _look(inputs, [*state.checkpoints.values(), made], state, connections)
    if found.retired:
        raise LostRaceError(
            operation="commit",
            subject=f"version {made.version.isoformat()} of {state.urn!r}",
            cause=f"{_taken_back(found)} since it was planned",
            hint="Nothing of this plan was published.",
            remedy=Remedy.PLAN,
        )
    return found.looked


def published(one: Input, made: Checkpoint, state: DatasetState, connections: Connections) -> PublishedDataset:
    """Return what a version reads of an input: its files, in the order of their slots, and the schema to read them with.

    :param state: the stage's own, from which the version was planned.
    :raises GobblinError: it can't be read.
    """
    slots = slots_to_read(one.id, made, state, whole=one.whole)
    with opened(one, connections) as journal:
        history = journal.history(one.urn)
        units = [ref for ref in history.state.units_of(one.channel) if ref.slot in slots]
        files = journal.published_files(history, units)
        return PublishedDataset(one.urn, max(slots, default=0), None, history.state.schema_of(one.channel), files)


def published_state(own: Input, unit: UnitRef, form: StateForm, connections: Connections) -> PublishedDataset:
    """Return the state of a version: its files, and the schema to read them with.

    :param own: the stage itself.
    :raises GobblinError: it can't be read.
    """
    with opened(own, connections) as journal:
        files = journal.published_files(journal.history(own.urn), [unit])
        return PublishedDataset(own.urn, unit.slot, None, form.schema, files)


def _check_same(inputs: Sequence[Input], state: DatasetState) -> None:
    """Refuse inputs other than those of the existing versions, or one that is read differently: nobody would check whether the
    former ones are still there, and rows could be in two versions, or in none.

    :raises ConfigurationError: there are some, or some are gone.
    """
    reads = _reads(inputs)
    former = next((made for made in state.checkpoints.values() if made.reads != reads), None)
    if former is None:
        return
    both = [one for one in sorted(reads.keys() & former.reads.keys()) if reads[one] is not former.reads[one]]
    gone = [f"{one!r} no longer" for one in sorted(former.reads.keys() - reads.keys())]
    new = [f"{one!r} now" for one in sorted(reads.keys() - former.reads.keys())]
    other = [f"{_HOW[reads[one]]} of {one!r} instead of {_HOW[former.reads[one]]}" for one in both]
    changes = [*gone, *new, *other]
    raise ConfigurationError(
        operation="plan",
        subject=f"stage {state.urn!r}",
        cause=f"it reads {' and '.join(changes)}, and version {former.version.isoformat()} was made from others",
        hint="Give it the inputs that it had; or another name; or let it make all versions again: "
        f"`airflow gobblin pipeline rewind {state.urn} --start --reason …`.",
    )


def _reads(inputs: Iterable[Input]) -> Mapping[str, Reads]:
    """Return what a stage reads of each output, by its id."""
    found: dict[str, Reads] = {}
    for one in inputs:
        reads = Reads.WHOLE if one.whole else Reads.NEW
        found[one.label] = reads if found.get(one.label, reads) is reads else Reads.BOTH
    return found


def _look(
    inputs: Sequence[Input], checkpoints: Sequence[Checkpoint], state: DatasetState, connections: Connections
) -> Look:
    histories = {}
    for one in each_once(inputs):
        with opened(one, connections) as journal:
            histories[one.id] = journal.history(one.urn)
    alive = {name for made in state.checkpoints.values() for name, slots in made.parents.items() if slots}
    # An upstream that no live version was made from may not be the one from before: how far that was looked at proves nothing.
    return look(checkpoints, histories, {name: slot for name, slot in state.looked.items() if name in alive})


def each_once(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return an input for each upstream: one look at it shows what it has for all inputs that are channels of it."""
    return tuple({one.id: one for one in inputs}.values())


def available(one: Input, state: DatasetState, connections: Connections, most: int | None = None) -> Available:
    """Return what an input has sealed after the version up to which a stage already has what it published.

    :param state: the stage's own.
    :param most: the most seals of a source that are read.
    :raises ConfigurationError: it doesn't grow, and has no versions.
    :raises GobblinError: it can't be read.
    """
    with opened(one, connections) as journal:
        if one.reach:
            return of_stage(_of_versions(one, journal.history(one.urn)))
        seals = Seals(journal)
        number = seals.newest()  # before the datasets, which then have all that it names
        history, states = History(one.urn), dict[str, DatasetState]()
        for _, found in journal.histories():
            if isinstance(found, GobblinError):
                raise found  # nobody knows whether it lost something that a seal has
            states[found.urn] = replace(found.state, live={}, retired={}, previous_units=())
            if found.urn == one.urn:
                history = found
        if number and one.urn not in states:
            _check_sealed(one, next(seals.before(number)))
        later = seals.after(reached(one.id, state) or _FIRST, number)
        return of_dataset(one.id, _of_versions(one, history), later, states, most)


@contextmanager
def opened(one: Input, connections: Connections) -> Iterator[Journal]:
    """Open the journal of an input's job for a while.

    A task of a run keeps it open: it looks at its inputs again and again, and a journal reads each record once.
    """
    location = one.journal if is_place(one.journal) else connections.uri(one.journal)
    if isinstance(connections, GuardedConnections):
        yield connections.kept((location, one.ingestion), lambda: Journal.open(location, one.ingestion, connections))
        return
    journal = Journal.open(location, one.ingestion, connections)
    try:
        yield journal
    finally:
        journal.store.close()


def _check_sealed(one: Input, newest: Seal) -> None:
    """Check that a dataset without records belongs to its job at all.

    :raises ConfigurationError: the newest seal, which names all of the job's, doesn't have it.
    """
    if one.urn not in newest.datasets:
        raise ConfigurationError(
            operation="read",
            subject=f"dataset {one.urn!r} of {one.ingestion!r} in a stage",
            cause=f"{one.ingestion!r} has no such dataset",
            hint=meant([*newest.datasets], one.urn, otherwise="Give its URN, as the source of the ingestion has it."),
        )


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


def _taken_back(found: Look) -> str:
    named = " and ".join(f"{many(len(slots), 'slot')} of {name!r}" for name, slots in found.retired.items())
    return f"{named} {'was' if sum(map(len, found.retired.values())) == 1 else 'were'} taken back"
