"""Views of stages for people: which versions they have, what waits for them, and what they wait for.

Everything is read from journals: a stage's own has its inputs on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, GobblinError, StateGivenUpError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.seals import Seals, up_to
from airflow_gobblin.model.naming import many, meant
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.stages.barrier import blocked, next_ready
from airflow_gobblin.stages.inputs import available, each_once, opened, to_restore
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.stages.record import StageInputs, inputs_on_record, stages_on_record
from airflow_gobblin.stages.versions import Available, reached

__all__ = [
    "InputView",
    "RestoreView",
    "SourceView",
    "StageView",
    "VersionView",
    "graph",
    "source_view",
    "stage_view",
    "versions_of",
]


@dataclass(frozen=True)
class InputView:
    """An input of a stage.

    :param id: its id among all outputs.
    :param sealed: the newest version that it has sealed since the one up to which the stage has it; `None`: none.
    :param ahead: how many it has sealed since: they wait where they are published.
    """

    id: str
    sealed: datetime | None
    ahead: int
    required: bool
    whole: bool


@dataclass(frozen=True)
class RestoreView:
    """A restore of a stage, or a rewind of it by a person.

    :param actor: empty: the stage followed an upstream.
    """

    slot: int
    at: datetime
    reason: str
    actor: str


@dataclass(frozen=True)
class StageView:
    """A stage.

    :param newest: its newest version; `None`: it has none.
    :param versions: how many live ones it has.
    :param why: what it waits for, or does next: a sentence.
    :param restores: those that its journal still has records of, the newest first.
    """

    name: str
    newest: datetime | None
    versions: int
    generation: int
    why: str
    inputs: tuple[InputView, ...]
    restores: tuple[RestoreView, ...]

    @property
    def behind(self) -> int:
        """How many versions it is behind what it waits for."""
        return max((one.ahead for one in self.inputs if one.required), default=0)

    @property
    def lag(self) -> timedelta | None:
        """How far its newest version is behind the newest one of what it waits for; `None` if it isn't, or has none."""
        sealed = max((one.sealed for one in self.inputs if one.required and one.sealed is not None), default=None)
        return None if sealed is None or self.newest is None else sealed - self.newest


@dataclass(frozen=True)
class SourceView:
    """An ingestion that stages read.

    :param newest: the newest version that it sealed, of which nothing was taken back; `None`: there is none.
    :param sealed: when it sealed that.
    """

    name: str
    newest: datetime | None
    sealed: datetime | None


@dataclass(frozen=True)
class VersionView:
    """A live version of a stage.

    :param consumed: how many slots it consumed, by input.
    :param late: the optional inputs that hadn't sealed it, each with the version up to which it has what they published.
    :param channels: how many rows each of its channels has.
    """

    version: datetime
    slot: int
    run: str
    decided: datetime
    rows: int
    consumed: Mapping[str, int]
    late: Mapping[str, datetime | None]
    channels: Mapping[str, int] = field(default_factory=dict)


def stage_view(journal: Journal, connections: Connections) -> StageView:
    """Return a stage with what it waits for.

    :param journal: its own.
    :raises ConfigurationError: the journal isn't a stage's, or no run has planned it yet.
    :raises GobblinError: it can't be read.
    """
    known = _inputs(journal)
    history = journal.history(journal.ingestion)
    state = history.state
    newest = max((one.version for one in state.checkpoints.values()), default=None)
    found: dict[str, Available] = {}
    try:
        found = {one.id: available(one, state, connections) for one in each_once(known.inputs)}
        why = _why(history, known.inputs, found, connections)
    except GobblinError as error:
        why = f"it can't go on: {error}"
    return StageView(
        journal.ingestion,
        newest,
        len(state.versions),
        state.generation,
        why,
        tuple(_input(one, found.get(one.id), state) for one in known.inputs),
        _restores(history),
    )


def source_view(journal: Journal) -> SourceView:
    """Return an ingestion with the newest version that it sealed.

    :raises GobblinError: its journal can't be read.
    """
    seals, states = Seals(journal), dict[str, DatasetState]()
    number = seals.newest()  # before the datasets, which then have all that it names
    for _, found in journal.histories():
        if isinstance(found, GobblinError):
            raise found
        states[found.urn] = found.state
    last, _ = up_to(seals.before(number), states)
    return SourceView(journal.ingestion, None if last is None else last.upto, None if last is None else last.at)


def graph(journal: Journal, connections: Connections) -> tuple[StageView, ...]:
    """Return a stage and the stages that it is made from, upstreams first.

    :param journal: its own.
    :raises ConfigurationError: as `stage_view`.
    :raises GobblinError: a journal can't be read.
    """
    found: dict[str, StageView] = {}
    seen = set[str]()  # records of former inputs may form a cycle

    def add(one: Journal) -> None:
        seen.add(one.ingestion)
        known = inputs_on_record(one.store, one.ingestion)
        for upstream in () if known is None else known.inputs:
            if upstream.reach and upstream.ingestion not in seen:
                with opened(upstream, connections) as above:
                    add(above)
        found[one.ingestion] = stage_view(one, connections)

    add(journal)
    return tuple(found.values())


def versions_of(journal: Journal) -> tuple[VersionView, ...]:
    """Return the live versions of a stage, the newest first.

    :param journal: its own.
    :raises ConfigurationError: as `stage_view`.
    """
    _inputs(journal)
    history = journal.history(journal.ingestion)
    return tuple(_version(history, slot) for slot in reversed(history.state.versions))


def _inputs(journal: Journal) -> StageInputs:
    """Return what a stage reads, as its journal has it on record.

    :raises ConfigurationError: it isn't a stage, or no run has planned it yet; similar names are suggested.
    """
    known = inputs_on_record(journal.store, journal.ingestion)
    if known is not None:
        return known
    raise ConfigurationError(
        operation="see",
        subject=f"stage {journal.ingestion!r}",
        cause="its journal has no inputs on record",
        hint=meant(
            stages_on_record(journal.store),
            journal.ingestion,
            otherwise="It is not a stage, or no run of it has planned anything yet.",
        ),
    )


def _version(history: History, number: int) -> VersionView:
    made, slot = history.state.checkpoints[number], history.slot(number)
    consumed = {upstream: len(slots) for upstream, slots in made.parents.items()}
    live = history.state.live.items()
    rows = {ref.channel: unit.rows_written for ref, unit in live if ref.slot == number and ref.channel in made.channels}
    return VersionView(made.version, number, slot.decision.run, slot.decision.at, slot.rows, consumed, made.late, rows)


def _input(one: Input, has: Available | None, state: DatasetState) -> InputView:
    before = reached(one.id, state)
    sealed = [] if has is None else [version for version in has.sealed if before is None or version > before]
    return InputView(one.label, max(sealed, default=None), len(sealed), one.required, one.whole)


def _restores(history: History) -> tuple[RestoreView, ...]:
    return tuple(
        RestoreView(slot.decision.slot, slot.decision.at, slot.decision.reason, slot.decision.actor)
        for slot in reversed(history.slots)
        if slot.decision.action is Action.REWIND
    )


def _why(history: History, inputs: Sequence[Input], found: Mapping[str, Available], connections: Connections) -> str:
    state, upstreams = history.state, [one.upstream for one in each_once(inputs)]
    if state.paused is not None:
        return f"it is {state.paused}"
    if history.pending is not None:
        slot = f"slot {history.pending.decision.slot}"
        if state.quarantined:
            failed = many(len(state.failures), "failed run")
            return f"{slot} is quarantined after {failed}, and no run goes on: release the stage, or abandon that slot"
        return f"{slot} is pending: the next run finishes it"
    try:
        restore = to_restore(inputs, state, connections, stateful=True)
    except StateGivenUpError as error:
        return str(error)
    if restore is not None:
        return f"the next run takes back {many(restore.versions, 'version')}: {restore.why}"
    ready = next_ready(upstreams, found, state)
    if ready is not None:
        unknown = [one.label for one in inputs if not _published(one, connections)]
        if unknown:
            names = " and ".join(map(repr, unknown))
            return f"it waits for {names} to publish anything, to know what columns it is given for version {ready.isoformat()}"
        before = f"; the last run that tried failed: {history.failure}" if history.failure else ""
        return f"version {ready.isoformat()} is ready: the next run makes it{before}"
    why = blocked(upstreams, found, state)
    if why is None:
        return "it has all that its inputs have sealed, and waits for their next version"
    times = [_sealed_at(one, why.version, connections) for one in each_once(inputs) if one.id in why.sealed]
    since = min(filter(None, times), default=None)
    return str(why) if since is None else f"{why}, since {since.isoformat(timespec='seconds')}"


def _published(one: Input, connections: Connections) -> bool:
    """Return whether an input has ever published anything, so that its columns are known."""
    with opened(one, connections) as journal:
        return journal.state(one.urn).schema_of(one.channel) is not None


def _sealed_at(one: Input, version: datetime, connections: Connections) -> datetime | None:
    """Return when an input sealed a version."""
    with opened(one, connections) as journal:
        if one.reach:
            history = journal.history(one.urn)
            made = (slot for slot, found in history.state.checkpoints.items() if found.version == version)
            return next((history.slot(slot).decision.at for slot in made), None)
        seals = Seals(journal)
        found = seals.after(version - timedelta.resolution, seals.newest())
        return next((seal.at for seal in found if seal.upto == version), None)
