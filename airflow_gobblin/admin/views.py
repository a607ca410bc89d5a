"""Views of datasets for people, as shown by `airflow gobblin` and by the page in Airflow's UI.

Everything is read from the journal and from the target root, and neither is changed. Listing datasets takes one listing of
the journal, and reads only the records of the datasets shown; a close look at one dataset takes more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any

from airflow_gobblin.admin.findings import AuditFinding, AuditLevel, FileCheck, Findings
from airflow_gobblin.admin.tables import audit_table, check_units
from airflow_gobblin.commit.homes import Homes
from airflow_gobblin.connections import Connections, GuardedConnections, NoConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, TableError, TargetError
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import unknown_dataset, unknown_ingestion
from airflow_gobblin.journal.records import Action, Decision, Note
from airflow_gobblin.model import wire
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.coverage import Coverage, Range, padded
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import dataset_key, many
from airflow_gobblin.model.plan import HeldDatasets
from airflow_gobblin.model.progress import Progress
from airflow_gobblin.model.state import Pause, UnitRef
from airflow_gobblin.model.status import SlotState, Status
from airflow_gobblin.model.verification import FileState
from airflow_gobblin.model.watermark import MultiLongWatermark, TimestampWatermark, Watermark, decode, encode, split
from airflow_gobblin.model.wire import parse_json
from airflow_gobblin.model.work import UnitState, UnitSummary
from airflow_gobblin.steps.base import CommitStep, StepContext, StepStatus, TargetFile, opens_table
from airflow_gobblin.storage.files.base import Files, each
from airflow_gobblin.workspace.claims import Claims
from airflow_gobblin.workspace.manifests import check_no_slot_is_lost
from airflow_gobblin.workspace.staging import Staging, staging_folder

__all__ = [
    "AuditFinding",
    "AuditLevel",
    "DatasetDetail",
    "DatasetView",
    "FileCheck",
    "FileState",
    "Page",
    "PendingSteps",
    "PositionCoverage",
    "SlotView",
    "StepView",
    "UnderWay",
    "audit",
    "check_ingestion_is_there",
    "dataset_detail",
    "held",
    "known_history",
    "list_datasets",
    "list_pending",
    "list_slots",
    "parse_position",
    "under_way",
    "verify",
    "view",
]

_COMMITS = frozenset({Action.COMMIT, Action.NOOP, Action.IMPORT})
_SKIPPING = frozenset({Action.SET, Action.IMPORT})
"""Actions that cover ranges without publishing them."""
_NAMED = 5
"""The most items that a sentence names."""
_COUNTS = ("rows_read", "rows_dropped", "dead_letters")


# Datasets in a list


@dataclass(frozen=True)
class SlotView:
    """A slot, in short.

    :param state: `pending`, `quarantined` (pending, and left alone), `done`, `abandoned`, or `aborted`: a plan that can no
        longer win a slot.
    :param ended: when its outcome was written, if it needs one and has one.
    :param ranges: the ranges that it covers; unknown for a trimmed slot.
    :param removed: the ranges that it uncovers; unknown for a trimmed slot.
    :param units: the number of its plan's units in each state; empty if it was trimmed.
    :param rows_read: by the units that it publishes; `None` if it was trimmed.
    :param retires: the number of units that it retires.
    :param run: the DAG run that it was planned in, `dag_id/run_id`; empty if there was none or it isn't known.
    :param actor: the person who asked for it, if any.
    :param reason: that person's reason.
    :param abandoned_by: the person who abandoned it.
    :param abandon_reason: that person's reason.
    :param failures: notes of the runs that failed to finish it.
    :param releases: notes of people who released it, or the claim on the dataset's folder.
    :param replaced: how many of its files took the place of others, in a mirror.
    :param deleted: how many files it deleted, in a mirror.
    :param dead_letters: how many refused rows its files hold, which aren't among its rows.
    :param table: the table that it commits to, if it does.
    :param version: what people call the version of that table that its commit made, if that is known.
    """

    slot: int
    action: Action
    state: SlotState
    decided: datetime
    ended: datetime | None
    ranges: tuple[Range, ...]
    removed: tuple[Range, ...]
    units: Mapping[UnitState, int]
    files: int
    rows: int
    rows_read: int | None
    retires: int
    steps: int
    run_key: str
    run: str
    actor: str
    reason: str
    abandoned_by: str
    abandon_reason: str
    failures: tuple[str, ...]
    releases: tuple[Note, ...]
    trimmed: bool
    bytes: int = 0
    replaced: int = 0
    deleted: int = 0
    dead_letters: int = 0
    table: str = ""
    version: str = ""


@dataclass(frozen=True)
class DatasetView:
    """A dataset in a list.

    :param key: its name in the journal.
    :param urn: its URN, or its key if it can't be read.
    :param lag: how far its watermark is behind, if the watermark is a time.
    :param head: its newest slot.
    :param attempts: the number of runs that failed to finish the pending slot since it was last released.
    :param files: the number of published files.
    :param rows: the number of rows in them.
    :param bytes: their size.
    :param holes: the number of open ranges below the highest covered position.
    :param failure: for a dataset that was never published, why the last failed run failed.
    :param error: why it can't be read; all else is empty then.
    :param of_files: whether it is a mirror's file set, for which the journal keeps what each slot did, not what is there.
    :param table: the table that its rows are in, if they are in one.
    """

    key: str
    urn: str
    watermark: Watermark | None = None
    lag: timedelta | None = None
    head: int = 0
    generation: int = 0
    last_commit: SlotView | None = None
    pending: SlotView | None = None
    quarantined: bool = False
    paused: Pause | None = None
    attempts: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    holes: int = 0
    published: bool = False
    failure: str = ""
    error: str = ""
    of_files: bool = False
    table: str = ""

    @property
    def status(self) -> Status:
        """Its status at rest."""
        if self.error:
            return Status.UNREADABLE
        if self.quarantined:
            return Status.QUARANTINED
        if self.pending is not None:
            return Status.PENDING
        if self.paused is not None:
            return Status.PAUSED
        return Status.OK if self.published else Status.UNPUBLISHED

    @property
    def stuck(self) -> bool:
        """Whether something is unfinished or failed, and needs a look."""
        return self.status.open and (self.status is not Status.UNPUBLISHED or bool(self.failure))


@dataclass(frozen=True)
class Page:
    """Some of an ingestion's datasets, by key.

    :param total: the number of all datasets.
    :param start: the number of datasets before these.
    """

    views: tuple[DatasetView, ...]
    total: int
    start: int


def list_datasets(
    journal: Journal,
    at: datetime,
    *,
    search: str = "",
    start: int = 0,
    count: int | None = None,
    names: MutableMapping[str, str] | None = None,
) -> Page:
    """Return some of an ingestion's datasets, by one listing; only their records are read.

    :param at: the time, for the lag.
    :param search: only datasets with this in their URN, ignoring case.
    :param count: the most datasets to return.
    :param names: URNs by key, where the key isn't the URN. A search reads the records of missing ones and adds them; a URN
        never changes, so the mapping can be passed again.
    """
    names = {} if names is None else names
    if search:
        _learn(journal, names)
    wanted = _Slice(search.lower(), start, count, names)
    found = []
    for key, history in journal.histories(worth=lambda keys: wanted.takes(keys.dataset)):
        if isinstance(history, History) or key in wanted.taken or wanted.takes(key):
            found.append(view(history, at, key))
    return Page(tuple(sorted(found, key=_by_key)), wanted.seen, start)


def _learn(journal: Journal, names: MutableMapping[str, str]) -> None:
    """Add the URNs of the datasets whose keys don't show them."""
    for key, history in journal.histories(worth=lambda keys: keys.dataset not in names and not _is_plain(keys.dataset)):
        if isinstance(history, History):
            names[key] = history.urn


def list_pending(journal: Journal, at: datetime) -> tuple[DatasetView, ...]:
    """Return the datasets with an unfinished slot, those that failed before they were ever published, and unreadable ones.

    Only datasets that may be one of these are read.
    """
    histories = journal.histories(worth=lambda keys: keys.may_be_pending or keys.may_be_unpublished)
    found = (view(history, at, key) for key, history in histories)
    return tuple(sorted((one for one in found if one.stuck), key=_by_key))


class _Slice:
    """The keys of a listing that are to be read."""

    def __init__(self, search: str, start: int, count: int | None, names: Mapping[str, str]) -> None:
        self._search = search
        self._start = start
        self._end = None if count is None else start + count
        self._names = names
        self.seen = 0
        self.taken: set[str] = set()

    def takes(self, key: str) -> bool:
        """Return whether the next key of the listing is to be read."""
        if self._search not in self._names.get(key, key).lower():
            return False
        number, self.seen = self.seen, self.seen + 1
        taken = number >= self._start and (self._end is None or number < self._end)
        if taken:
            self.taken.add(key)
        return taken


def _is_plain(key: str) -> bool:
    """Return whether a dataset's key is its URN."""
    return dataset_key(key) == key


def _by_key(one: DatasetView) -> str:
    return one.key


def view(history: History | GobblinError, at: datetime, key: str = "") -> DatasetView:
    """Return the view of a dataset in a list.

    :param at: the time, for the lag.
    :param key: its key, for a dataset that can't be read.
    """
    if isinstance(history, GobblinError):
        return DatasetView(key, key, error=str(history))
    state = history.state
    live = [state.live[ref] for ref in state.units_of(ROWS)]
    return DatasetView(
        key=dataset_key(history.urn),
        urn=history.urn,
        watermark=state.watermark,
        lag=_lag(state.watermark, at),
        head=state.head,
        generation=state.generation,
        last_commit=next(
            (_slot_view(s) for s in history.newest_first if s.done and s.decision.action in _COMMITS), None
        ),
        pending=None if history.pending is None else _slot_view(history.pending, quarantined=state.quarantined),
        quarantined=state.quarantined,
        paused=state.paused,
        attempts=len(state.failures),
        files=sum(unit.files for unit in live),
        rows=sum(unit.rows_written for unit in live),
        bytes=sum(unit.bytes for unit in live),
        holes=sum(len(position.gaps) for position in _positions(state.coverage)),
        published=history.published,
        failure="" if history.published else history.failure,
        of_files=history.of_files,
        table="" if history.table is None else history.table.table.name,
    )


def _lag(watermark: Watermark | None, at: datetime) -> timedelta | None:
    return max(timedelta(0), at - watermark.value) if isinstance(watermark, TimestampWatermark) else None


def list_slots(history: History, *, start: int = 0, count: int | None = None) -> tuple[SlotView, ...]:
    """Return some of a dataset's slots, the newest first."""
    some = islice(history.newest_first, start, None if count is None else start + count)
    return tuple(_slot_view(slot, quarantined=not slot.finished and history.state.quarantined) for slot in some)


def _slot_view(slot: Slot, *, quarantined: bool = False) -> SlotView:
    decision, outcome = slot.decision, slot.outcome
    return SlotView(
        slot=decision.slot,
        action=decision.action,
        state=SlotState.QUARANTINED if quarantined else _slot_state(slot),
        decided=decision.at,
        ended=None if outcome is None else outcome.at,
        ranges=decision.ranges,
        removed=decision.removed,
        units=slot.unit_states,
        files=slot.files,
        rows=slot.rows,
        rows_read=None if slot.trimmed else sum(unit.rows_read for unit in _published_units(decision)),
        retires=len(decision.replaces),
        steps=decision.steps,
        run_key=decision.run_key,
        run=decision.run,
        actor=decision.actor,
        reason=decision.reason,
        abandoned_by=slot.abandoned_by,
        abandon_reason=slot.abandon_reason,
        failures=slot.failures,
        releases=slot.releases,
        trimmed=slot.trimmed is not None,
        bytes=slot.bytes,
        replaced=slot.replaced,
        deleted=slot.deleted,
        dead_letters=slot.dead_letters,
        table="" if decision.table is None else decision.table.table.name,
        version=slot.table_version,
    )


def _slot_state(slot: Slot) -> SlotState:
    if not slot.finished:
        return SlotState.PENDING
    if slot.abandoned:
        return SlotState.ABANDONED
    return SlotState.ABORTED if slot.decision.action is Action.ABORT else SlotState.DONE


def _published_units(decision: Decision) -> Iterator[UnitSummary]:
    return (unit for unit in decision.units if unit.state is UnitState.SUCCESSFUL)


# One dataset in detail


@dataclass(frozen=True)
class PositionCoverage:
    """The coverage of one position of a dataset; most datasets have one position, a topic has one for each partition.

    :param gaps: the open ranges between its origin and the highest covered position.
    """

    position: int
    origin: Watermark
    edge: Watermark
    ranges: tuple[Range, ...]
    gaps: tuple[Range, ...]


@dataclass(frozen=True)
class StepView:
    """A commit step, as it was found.

    :param step: its kind.
    :param name: what it publishes; of the last step, the watermark.
    """

    step: str
    name: str
    status: StepStatus
    detail: str = ""


@dataclass(frozen=True)
class PendingSteps:
    """The commit sequence of the pending slot.

    :param states: the number of verified steps found in each state.
    :param steps: some of them, unfinished ones first.
    :param error: why no more of them can be read.
    """

    slot: int
    total: int
    states: Mapping[StepStatus, int]
    steps: tuple[StepView, ...]
    error: str = ""


@dataclass(frozen=True)
class DatasetDetail:
    """One dataset in detail.

    :param unpublished: units of the newest run that were not published, with their errors.
    :param retired: the number of retired units that wait for clean-up.
    :param notes: all notes on its pending slot, or else its newest one, for people.
    """

    view: DatasetView
    coverage: tuple[PositionCoverage, ...]
    steps: PendingSteps | None
    unpublished: tuple[UnitSummary, ...]
    retired: int
    notes: tuple[Note, ...]


def dataset_detail(
    journal: Journal,
    files: Files,
    urn: str,
    at: datetime,
    *,
    steps: int = 20,
    verified: int | None = None,
    connections: Connections | None = None,
    tables: bool = True,
) -> DatasetDetail:
    """Return one dataset in detail; the steps of its pending slot are verified.

    :param steps: the number of steps to show.
    :param verified: verify only this many, from the first; `None` for all.
    :param connections: the source of secrets that steps may need; the status of a step that lacks one is unknown.
    :param tables: whether tables may be opened, which loads libraries; otherwise the status of a step on one is unknown.
    :raises ConfigurationError: the journal has no such dataset.
    """
    history = known_history(journal, urn)
    pending = history.pending
    slot = None
    if pending is not None:
        slot = history.slot_of_step(pending.decision, journal.id, journal.ingestion)
    context = StepContext(files, GuardedConnections(connections or NoConnections()), slot=slot)
    return DatasetDetail(
        view=view(history, at),
        coverage=_positions(history.state.coverage),
        steps=None if pending is None else _pending_steps(journal, context, pending.decision, steps, verified, tables),
        unpublished=tuple(u for u in history.state.previous_units if u.state is UnitState.FAILED or u.cut),
        retired=len(history.state.retired),
        notes=journal.notes(urn, history.state.head if pending is None else pending.decision.slot),
    )


def known_history(journal: Journal, urn: str) -> History:
    """Return the history of a dataset that has one.

    :raises NotFoundError: it has none; names similar ones.
    """
    history = journal.history(urn)
    if not history.known:
        raise unknown_dataset(journal, urn)
    return history


def check_ingestion_is_there(journal: Journal) -> None:
    """Check that an ingestion has a record in its journal.

    :raises NotFoundError: it has none; names similar ones.
    """
    if next(iter(journal.store.list(f"{journal.ingestion}/")), None) is None:
        raise unknown_ingestion(journal)


def parse_position(text: str, kind: str | Watermark) -> Watermark:
    """Parse a watermark as people write it: `42`, `2026-01-31T12:00:00+00:00`, `[5, 7]`, or the JSON of an author's own type.

    :param kind: its type; or a watermark of that type, whose positions replace those left out, as in `[5, null]`.
    :raises ConfigurationError: it can't be read.
    """
    value = _parsed_position(text)
    if not isinstance(kind, str):
        known, kind = kind, kind.kind
        if isinstance(known, MultiLongWatermark) and isinstance(value, list) and len(value) == len(known.values):
            value = [old if new is None else new for new, old in zip(value, known.values, strict=True)]
    try:
        return decode({"kind": kind, "value": text if kind == TimestampWatermark.kind else value})
    except Exception as error:  # an author's own type may raise anything
        why, hint = (error.why, error.hint) if isinstance(error, GobblinError) else (error, None)
        raise ConfigurationError(
            operation="read",
            subject=f"position {text!r}",
            cause=f"it is not a watermark of kind {kind!r}: {why}",
            hint=_EXAMPLES.get(kind) or hint or "Write it as the JSON that this type of watermark has.",
        ) from error


def _parsed_position(text: str) -> Any:
    """Return what the JSON of a position holds; the text itself, if it isn't JSON."""
    try:
        return parse_json(text)
    except (json.JSONDecodeError, RecursionError):
        return text
    except ValueError as error:
        raise ConfigurationError(
            operation="read",
            subject=f"position {text!r}",
            cause=str(error),
            hint="Write each key once, and each number short.",
        ) from error


_EXAMPLES = {
    "long": "Write an integer: 42.",
    "multi_long": "Write a list of integers, one for each position: '[5, 7]'.",
    "timestamp": "Write a time with its zone: 2026-01-31T12:00:00+00:00.",
}


def _positions(coverage: Coverage) -> tuple[PositionCoverage, ...]:
    if coverage.origin is None:
        return ()
    edges = split(coverage.edge or coverage.origin)
    found = []
    for number, (have, origin, edge) in enumerate(zip(coverage.intervals, split(coverage.origin), edges, strict=True)):
        ranges = tuple(Range(low, high) for low, high in have)
        starts = (origin, *(high for _, high in have))
        gaps = (Range(start, low) for start, (low, _) in zip(starts, have, strict=False) if start < low)
        found.append(PositionCoverage(number, origin, edge, ranges, tuple(gaps)))
    return tuple(found)


def _pending_steps(
    journal: Journal, context: StepContext, decision: Decision, shown: int, verified: int | None, tables: bool
) -> PendingSteps:
    files = context.files
    states: Counter[StepStatus] = Counter()
    done: list[StepView] = []
    open_: list[StepView] = []
    error = ""
    try:
        Homes(journal, files).check_mark()  # otherwise each staged file would seem to be lost
        verified_steps = each(
            files, lambda step: _step_view(step, context, tables), islice(journal.steps(decision), verified)
        )
        for found in islice(chain(verified_steps, _last(decision)), verified):
            states[found.status] += 1
            some = done if found.status is StepStatus.DONE else open_
            if len(some) < shown:
                some.append(found)
    except GobblinError as unreadable:
        error = str(unreadable)
    return PendingSteps(decision.slot, decision.steps, dict(states), tuple((*open_, *done)[:shown]), error)


def _last(decision: Decision) -> Iterator[StepView]:
    """Yield the last step, as still to do: once it is done, the slot isn't pending."""
    if decision.hand_over is not None:
        to = decision.hand_over.watermark
        position = "" if to is None else json.dumps(encode(to)["value"])
        kind = "outcome" if decision.holds is Holds.DIFFERENCE else wire.kind_of(decision.hand_over)
        yield StepView(kind, position, StepStatus.TODO)


def _step_view(step: CommitStep, context: StepContext, tables: bool) -> StepView:
    kind = wire.kind_of(step)
    if not tables and opens_table(step):
        return StepView(kind, step.subject, StepStatus.UNKNOWN, "`airflow gobblin show` looks at the table")
    try:
        return StepView(kind, step.subject, step.verify(context))
    except Exception as error:  # an author's step may raise anything, and so may a disk
        text = context.connections.redactor.brief(f"{type(error).__name__}: {error}")
        return StepView(kind, step.subject, StepStatus.UNKNOWN, text)


# Work under way


@dataclass(frozen=True)
class UnderWay:
    """A pack of a mirror's run that hasn't ended, and how far its copies have come.

    :param label: of the pack.
    """

    label: str
    progress: Progress


def under_way(journal: Journal, files: Files) -> tuple[UnderWay, ...]:
    """Return how far the copies of runs that haven't ended have come, the newest first.

    :param files: the files below the workspace root.
    """
    staging = Staging(files, staging_folder(journal.ingestion, journal.id))
    found: list[UnderWay] = []
    for name in staging.runs():
        run = None if staging.finished_run(name) is not None else staging.run(name)
        for pack in () if run is None else run.packs:
            progress = staging.progress(name, pack.index)
            if progress is not None:
                found.append(UnderWay(pack.label, progress))
    return tuple(sorted(found, key=lambda one: one.progress.at, reverse=True))


def held(journal: Journal, files: Files) -> HeldDatasets | None:
    """Return the datasets that are held until more waits for them; `None` if none ever was.

    :param files: the files below the workspace root.
    """
    return Staging(files, staging_folder(journal.ingestion, journal.id)).held()


# The published files


def verify(
    journal: Journal, files: Files, urn: str, *, content: bool = True, connections: Connections | None = None
) -> Iterator[FileCheck]:
    """Compare every published file of a dataset with its record in the journal: its existence, size and content. For a dataset in
    a table, each unit's files and rows there are counted.

    :param files: the files below a target root. Files that are published to another one are looked up there.
    :param content: read each file, for its checksum; otherwise files with the recorded identity are trusted.
    :param connections: the source of secrets, to open a table.
    :raises ConfigurationError: the journal has no such dataset.
    :raises RecordError: the steps that published it are lost.
    :raises TargetError: the target doesn't exist.
    :raises TableError: the table can't be looked at.
    """
    history = known_history(journal, urn)
    files = Homes(journal, files).files()
    Homes(journal, files).check_mark()  # otherwise each file would seem to be missing
    published = journal.files(history, history.state.live)
    checked = each(files, lambda found: _check(files, found[0].slot, found[1], content), published)
    if history.table is None:
        return checked
    guarded = GuardedConnections(connections or NoConnections())
    return chain(check_units(journal, files, history, guarded), checked)


def _check(files: Files, slot: int, file: TargetFile, content: bool) -> FileCheck:
    try:
        state, detail = _compared(files, file, content)
    except OSError as error:
        state, detail = FileState.UNREADABLE, f"{type(error).__name__}: {error}"
    return FileCheck(file.path, slot, file.unit, file.rows, file.size, state, detail)


def _compared(files: Files, file: TargetFile, content: bool) -> tuple[FileState, str]:
    found = files.identity(file.path)
    if found is None:
        return FileState.MISSING, ""
    if found.size != file.size:
        return FileState.CHANGED, f"it has {found.size} bytes, and {file.size} were published"
    same = found == file.identity
    if same and not content:
        return FileState.OK, ""
    if files.checksum(file.path) != file.checksum:
        return FileState.CHANGED, "its content is not what was published"
    return FileState.OK, "" if same else "it was copied, or touched, since"


# The audit


def audit(
    journal: Journal, files: Files, urn: str | None = None, connections: Connections | None = None
) -> Iterator[AuditFinding]:
    """Check that a dataset's ranges, rows and files add up; without a URN, those of all datasets, one after the other.

    :param files: the files below a target root. Files that are published to another one are looked up there; if that doesn't
        exist, this is the only finding.
    :param connections: the source of secrets, to open tables.
    :raises ConfigurationError: the journal has no such dataset.
    """
    homes = Homes(journal, files)
    try:
        homes.check()
    except (ConfigurationError, TargetError) as error:
        yield AuditFinding("", "target", AuditLevel.PROBLEM, str(error))
        if isinstance(error, TargetError):
            return
    files = homes.files()
    folders, guarded = _folders(journal, files), GuardedConnections(connections or NoConnections())
    if urn is not None:
        yield from _audit(journal, files, known_history(journal, urn), folders, guarded)
        return
    yield from _audit_store(journal)
    for key, history in journal.histories():
        if isinstance(history, History):
            yield from _audit(journal, files, history, folders, guarded)
        else:
            yield AuditFinding(key, "journal", AuditLevel.PROBLEM, str(history))


def _audit_store(journal: Journal) -> Iterator[AuditFinding]:
    """Find records that belong to no ingestion and are of no known kind: a newer airflow-gobblin may rely on them."""
    unknown = journal.unknown_keys()
    if unknown:
        some = ", ".join(map(repr, unknown[:_NAMED]))
        what = f"{many(len(unknown), 'record')} that the airflow-gobblin installed here doesn't know: {some}"
        yield AuditFinding("", "journal", AuditLevel.PROBLEM, what)


def _folders(journal: Journal, files: Files) -> dict[str, list[str]]:
    """Return the folders that each dataset of a journal claims below a target root."""
    found: dict[str, list[str]] = {}
    for folder, claim in Claims(files).valid().items():
        if claim.owner[:2] == (journal.id, journal.ingestion):
            found.setdefault(claim.urn, []).append(folder)
    return found


def _audit(
    journal: Journal,
    files: Files,
    history: History,
    folders: Mapping[str, Iterable[str]],
    connections: GuardedConnections,
) -> Iterator[AuditFinding]:
    found = Findings(history.urn)
    checks: tuple[Callable[[], Iterator[AuditFinding]], ...] = (
        lambda: _audit_state(found, history),
        lambda: _audit_journal(found, journal, files, history),
        lambda: _audit_coverage(found, history),
        lambda: _audit_rows(found, journal, history),
        lambda: _audit_files(found, journal, files, history, folders.get(history.urn, ())),
        lambda: audit_table(found, journal, files, history, connections),
    )
    for check in checks:
        try:
            yield from check()
        except (GobblinError, OSError) as error:  # the other checks may still find something
            yield found.problem("table" if isinstance(error, TableError) else "journal", str(error))


def _audit_state(found: Findings, history: History) -> Iterator[AuditFinding]:
    pending, state = history.pending, history.state
    if pending is None:
        return
    slot, failures = pending.decision.slot, len(state.failures)
    if state.quarantined:
        yield found.problem("state", f"quarantined after {many(failures, 'failed run')}: release or abandon it", slot)
    else:
        yield found.note("state", f"pending, after {many(failures, 'failed run')}: the next run finishes it", slot)


def _audit_journal(found: Findings, journal: Journal, files: Files, history: History) -> Iterator[AuditFinding]:
    check_no_slot_is_lost(files, journal, history)
    yield from ()


def _audit_coverage(found: Findings, history: History) -> Iterator[AuditFinding]:
    """Check that the published units match the committed ranges: no overlap, none outside, and no range without a unit."""
    coverage, units = history.state.coverage, history.state.live
    if coverage.origin is None:
        return
    for position in _positions(coverage):
        for gap in position.gaps:
            yield found.note("coverage", f"{gap}{_at(position, coverage)} is open: the next run plans it")
    accounted = Coverage().starting_at(coverage.origin)
    for ref, narrow in _ranges(units):
        part = padded(narrow, coverage.origin)
        if accounted.overlaps(part):
            yield found.problem(
                "coverage", f"unit {ref.unit} holds a part of {part} that another one holds, too", ref.slot
            )
        if not coverage.covers(part):
            yield found.problem("coverage", f"unit {ref.unit} holds {part}, which is not all committed", ref.slot)
        accounted = accounted.filled(part)
    yield from _without_unit(found, history, accounted)


def _ranges(units: Mapping[UnitRef, UnitSummary]) -> Iterator[tuple[UnitRef, Range]]:
    return ((ref, unit.range) for ref, unit in units.items() if unit.range is not None and not unit.range.empty)


def _without_unit(found: Findings, history: History, accounted: Coverage) -> Iterator[AuditFinding]:
    """Find the committed ranges that no unit holds, which is right if somebody set the watermark past them."""
    coverage = history.state.coverage
    skipping = [s.decision.slot for s in history.newest_first if s.done and s.decision.action in _SKIPPING]
    for position, held in zip(_positions(coverage), accounted.intervals, strict=False):
        part = Coverage(position.origin, (held,))
        for covered in position.ranges:
            for bare in part.uncovered(covered):
                text = f"{bare}{_at(position, coverage)} is committed, and no unit holds it"
                if skipping:
                    yield found.note("coverage", f"{text}: it was set or imported", skipping[0])
                else:
                    yield found.problem("coverage", text)


def _at(position: PositionCoverage, coverage: Coverage) -> str:
    return f" of position {position.position}" if len(coverage.intervals) > 1 else ""


def _audit_rows(found: Findings, journal: Journal, history: History) -> Iterator[AuditFinding]:
    """Check that each slot published as many rows as it read, except rows dropped or added on purpose."""
    for slot in history.slots:
        if not slot.done or slot.decision.action is not Action.COMMIT or slot.holds is Holds.VERSIONS:
            continue  # a stage's function does what it likes with its rows
        number, units = slot.decision.slot, [*_published_units(slot.decision)]
        read, dropped, dead = (sum(getattr(u, name) for u in units) for name in _COUNTS)
        text = f"{many(read, 'row')} read, {slot.rows:,} published and {dropped:,} dropped"
        text += f", {dead:,} dead letters" if dead else ""
        if slot.rows + dropped + dead < read:
            yield found.problem("rows", text, number)
        elif slot.rows + dropped + dead > read:
            yield found.note("rows", f"{text}: converters added some", number)
        elif dropped or dead:
            yield found.note("rows", text, number)
    yield from _audit_rows_of_files(found, journal, history)


def _audit_rows_of_files(found: Findings, journal: Journal, history: History) -> Iterator[AuditFinding]:
    """Check that the files of the published units hold as many rows as the units wrote, except for those in a table."""
    in_files: Counter[tuple[int, str]] = Counter()
    for decision, file in journal.files(history, history.state.live):
        in_files[decision.slot, "dead letter" if file.holds_dead_letters else "row"] += file.rows
    written: Counter[tuple[int, str]] = Counter()
    for ref, unit in history.state.live.items():
        if not history.is_in_table(ref):
            written[ref.slot, "row"] += unit.rows_written
        written[ref.slot, "dead letter"] += unit.dead_letters
    for number, what in sorted({*written, *in_files}):
        count, held = written[number, what], in_files[number, what]
        if count != held:
            yield found.problem("rows", f"{many(count, what)} written, and its files hold {held:,}", number)


def _audit_files(
    found: Findings, journal: Journal, files: Files, history: History, folders: Iterable[str]
) -> Iterator[AuditFinding]:
    """Find published files that are missing, retired ones that still exist, and files that belong to no slot."""
    if not history.keeps_units:
        yield found.note("files", "its slots hold differences of files: a plan compares what is there with the source")
        return
    live = {file.path: decision.slot for decision, file in journal.files(history, history.state.live)}
    known = set(live)
    for path, identity in zip(live, each(files, files.identity, live), strict=True):
        if identity is None:
            yield found.problem("files", f"{path} is missing", live[path])
    for number, units in sorted(_retired(history).items()):
        old = [file.path for _, file in journal.files(history, units)]
        known.update(old)
        left = sum(identity is not None for identity in each(files, files.identity, old))
        if left:
            yield found.note("files", f"{many(left, 'file')} that it retired still there, until clean-up", number)
    if history.pending is not None:
        steps = journal.steps(history.pending.decision)
        known.update(file.path for step in steps for file in step.files())
    stray = sorted(path for folder in folders for path in files.walk(folder) if path not in known)
    if stray:
        some = ", ".join(stray[:_NAMED])
        yield found.note("files", f"{many(len(stray), 'file')} below its folder and in no slot: {some}")


def _retired(history: History) -> dict[int, list[UnitRef]]:
    """Return the retired units that are not cleaned up, by the slot that retired them."""
    by_slot: dict[int, list[UnitRef]] = {}
    for ref, slot in history.state.retired.items():
        by_slot.setdefault(slot, []).append(ref)
    return by_slot
