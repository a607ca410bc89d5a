"""The journal: the append-only, write-once record of a dataset. It is both commit step store and state store.

A dataset's records are a chain of slots, each with one decision and at most one outcome::

    <ingestion>/<dataset>/c/<digest>           shards of steps, by content, put before the decision that names them
    <ingestion>/<dataset>/d/<slot>             decision: the slot's binding content
    <ingestion>/<dataset>/n/<slot>/<i>-<event>  notes: an attempt failed, quarantined, released, announced, cleaned, …
    <ingestion>/<dataset>/o/<slot>             outcome: DONE or ABANDONED. Writing DONE publishes, and hands over the watermark
    <ingestion>/<dataset>/snap/<slot>          snapshot: the fold up to a slot; voids the records of that slot and those before
    _homes/<ingestion>/<number>                where the ingestion's slots are published (`commit/homes.py`)
    _inputs/<stage>/<number>                   what a stage reads (`stages/record.py`)
    _seals/<ingestion>/<number>                the versions that its runs sealed (`seals.py`)
    _journal, _probe/…, _probe_passed/…        the journal's id, and what trying out the store leaves

Everything else is derived: the state of a dataset is the fold of its chain (`history.py`). A decision names the digest of the
slot before it, so a lost or changed record in a chain is detected. `commit/` makes decisions and carries them out, and
`trimming.py` trims; the rules that comments cite by number are in `docs/design.md`. Readers rely on snapshots being listed last:
a reader that misses a trimmed record sees the snapshot that replaced it.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from airflow_gobblin.errors import ConfigurationError, GobblinError, NotFoundError, RecordError, Remedy, StoreError
from airflow_gobblin.journal.history import History, Slot, Snapshot, TrimmedSlot, fold, unfinished
from airflow_gobblin.journal.published import PublishedDataset, PublishedFile, never_published, unknown_dataset
from airflow_gobblin.journal.records import (
    Action,
    Decision,
    Home,
    Note,
    NoteKind,
    Outcome,
    OutcomeState,
    Shard,
    ShardRef,
    now,
    shards,
)
from airflow_gobblin.model import wire
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.dead_letters import dead_letter_schema
from airflow_gobblin.model.naming import check_ingestion_name, dataset_key, meant
from airflow_gobblin.model.registry import import_steps
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.steps.base import CommitStep, Phase, TargetFile
from airflow_gobblin.storage.stores.base import Store, no_journal, put_or_read

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections

__all__ = [
    "Action",
    "Decision",
    "History",
    "Home",
    "Journal",
    "Keys",
    "Note",
    "NoteKind",
    "Outcome",
    "OutcomeState",
    "Shard",
    "ShardRef",
    "Slot",
    "Snapshot",
    "TrimmedSlot",
    "ingestions",
    "now",
    "read_id",
    "slot_name",
]

STEPS_PER_SHARD = 5000
"""The most steps in a shard; a step that publishes many files counts once per file."""
_ID = "_journal"
"""The record that makes a store a journal: a random id, which claims name."""
_HOMES = "_homes"
"""The prefix of each ingestion's homes: see `commit/homes.py`."""
_SHARED = re.compile(r"_journal|_(homes|inputs|seals)/[^/]+/[0-9]{10}|_probe/.*|_probe_passed/.*|_gobblin/.*")
"""The known keys outside any ingestion; a journal in the root of a target has its workspace beside it."""
_UNREAD = frozenset({NoteKind.ANNOUNCED, NoteKind.CLEANED})
"""Notes whose keys contain all that the fold needs."""
_BYTES_KEPT = 16 << 20
_READ_TOGETHER = 1000
_FOLDED = 10_000
"""The most slots and live units in the histories that are kept; the last one is kept, however many it has."""
_TRIES = 5
_PAUSE = 0.05
_LISTINGS = 22
"""How many times a listing that lags behind is made, with growing pauses: 80 seconds in all."""
_GAPS = 20
"""The most gaps of a listing that are checked."""

R = TypeVar("R")


@dataclass(frozen=True)
class Keys:
    """The contents of the keys of a dataset's records, before any record is read.

    :param dataset: the dataset's key, as returned by `naming.dataset_key`.
    :param snapshot: the slot of its newest snapshot, or 0.
    :param head: the last slot; every slot after the snapshot up to it is decided.
    :param outcomes: the slots that have an outcome.
    :param notes: the keys and kinds of each slot's notes, in order.
    :param void: keys of records that the snapshot replaces.
    """

    dataset: str
    snapshot: int
    head: int
    outcomes: frozenset[int]
    notes: Mapping[int, tuple[tuple[str, NoteKind], ...]]
    void: tuple[str, ...]

    @property
    def slots(self) -> range:
        """The slots after the snapshot."""
        return range(self.snapshot + 1, self.head + 1)

    @property
    def may_be_pending(self) -> bool:
        """Whether the newest slot has no outcome; it may need none."""
        return bool(self.slots) and self.head not in self.outcomes

    @property
    def may_be_unpublished(self) -> bool:
        """Whether a run noted that it published nothing, and no slot with an outcome has come since."""
        last = max(self.outcomes, default=0)
        since = (kind for slot, notes in self.notes.items() if slot >= last for _, kind in notes)
        return NoteKind.UNPUBLISHED in since

    @property
    def may_be_unannounced(self) -> bool:
        """Whether a finished slot was not announced; it may not need to be."""
        return any(all(k is not NoteKind.ANNOUNCED for _, k in self.notes.get(s, ())) for s in self.outcomes)

    @property
    def read(self) -> Iterator[str]:
        """The keys, within the dataset, of the records that its fold needs."""
        if self.snapshot:
            yield _snapshot(self.snapshot)
        for slot in self.slots:
            yield _decision(slot)
            if slot in self.outcomes:
                yield _outcome(slot)
        for notes in self.notes.values():
            yield from (key for key, kind in notes if kind not in _UNREAD)


class Journal:
    """The journal of an ingestion in a store.

    Open it with `Journal.open`; reading needs nothing else. `Committer` and `Administration` write to a journal that was opened
    with `write`, or with `Journal.create`.
    """

    def __init__(self, store: Store, ingestion: str, journal_id: str) -> None:
        self.store = store
        import_steps()  # decisions name tables, and a reader has imported none
        self.ingestion = ingestion
        self.id = journal_id
        self._read_before: dict[str, tuple[object, str]] = {}
        self._bytes_kept = 0
        self._folded: dict[str, tuple[Keys, History]] = {}
        """The histories that were folded last, by the datasets' keys: records never change (I5)."""
        self._folded_size = 0
        self._lock = threading.Lock()
        self._seen: tuple[str, set[str]] = ("", set())
        """Decisions and outcomes known to exist, of the dataset that was listed last."""
        self._homes: tuple[Home, ...] = ()

    @classmethod
    def open(
        cls, store: Store | str, ingestion: str, connections: Connections | None = None, *, write: bool = False
    ) -> Journal:
        """Open the existing journal of an ingestion. Nothing is created, and without `write` nothing can be written.

        :param store: a store, or the URL of one, as for `stores.open_store`.
        :param connections: where to find the connection that the URL names, if it names one.
        :param write: allow actions on its datasets, too.
        :raises NotFoundError: there is no journal.
        :raises ConfigurationError: the ingestion's name is not valid.
        :raises StoreError: the store can't be reached.
        :raises RecordError: the record of its id is torn or changed.
        """
        from airflow_gobblin.storage.stores import ReadOnlyStore, open_store, open_store_to_read

        check_ingestion_name(ingestion)
        to_read = open_store_to_read(store, connections) if isinstance(store, str) else ReadOnlyStore(store)
        try:
            journal_id = read_id(to_read)
        except GobblinError:
            if isinstance(store, str):  # otherwise the caller owns it and goes on using it
                to_read.close()
            raise
        if not write:
            return cls(to_read, ingestion, journal_id)
        if isinstance(store, str):
            to_read.close()
            store = open_store(store, connections)
        return cls(store, ingestion, journal_id)

    @classmethod
    def create(cls, store: Store | str, ingestion: str, connections: Connections | None = None) -> Journal:
        """Open the journal of an ingestion to write, creating it if there is none.

        Parameters and errors are those of `open`.
        """
        check_ingestion_name(ingestion)
        if isinstance(store, str):
            from airflow_gobblin.storage.stores import open_store

            store = open_store(store, connections)
        stored, _ = put_or_read(store, _ID, uuid.uuid4().hex.encode())
        return cls(store, ingestion, _checked_id(store, stored))

    def key(self, urn: str, *parts: str) -> str:
        """Return the key of a dataset's record."""
        return "/".join((self.ingestion, dataset_key(urn), *parts))

    # Reading

    def datasets(self) -> tuple[str, ...]:
        """List the URNs of all datasets that have a record, sorted; a dataset whose first record can't be read is left out.

        This takes one listing, and one read per dataset.
        """
        first: dict[str, type[Decision] | type[Snapshot] | type[Note]] = {}
        for dataset, keys in self._listed():
            try:
                found = self._keys(dataset, keys)
            except RecordError:
                continue
            if found.slots:
                first[f"{self.ingestion}/{dataset}/{_decision(found.slots[0])}"] = Decision
            elif found.snapshot:
                first[f"{self.ingestion}/{dataset}/{_snapshot(found.snapshot)}"] = Snapshot
            elif found.notes:
                first[f"{self.ingestion}/{dataset}/{found.notes[0][0][0]}"] = Note
        urns = []
        for key, data in self.store.get_many([*first]):
            try:
                urns.append(wire.loads(data or b"", first[key], key).urn)
            except GobblinError:
                continue
        return tuple(sorted(urns))

    def ingestions(self) -> tuple[str, ...]:
        """List the names of all ingestions in the store, by one listing of the whole store."""
        return ingestions(self.store)

    def unknown_keys(self) -> tuple[str, ...]:
        """List the keys of the store that are outside any ingestion, and of no known kind, by one listing of the whole store."""
        return tuple(key for key in self.store.list("_") if not _SHARED.fullmatch(key))

    def history(self, urn: str) -> History:
        """Fold a dataset's chain.

        :raises RecordError: a record is unreadable, torn, newer, or doesn't fit the chain; nothing more is published then (I14).
        """
        return self._history(dataset_key(urn), urn)

    def histories(
        self, names: Mapping[str, str] = MappingProxyType({}), worth: Callable[[Keys], bool] = lambda keys: True
    ) -> Iterator[tuple[str, History | GobblinError]]:
        """Yield the key of each dataset with its history, by one listing, and with few of them in memory at once.

        A dataset that can't be read yields its error instead.

        :param names: the URNs that are known already, by key.
        :param worth: decides by the keys of a dataset's records whether to read them at all.
        """
        some: list[Keys] = []
        reads = 0
        for dataset, keys in self._listed():
            try:
                found = self._keys(dataset, keys)
            except RecordError:
                yield dataset, self._read_again(dataset, names)
                continue
            if (found.slots or found.snapshot or found.notes or dataset in names) and worth(found):
                some.append(found)
                reads += sum(1 for _ in found.read)
            if reads >= _READ_TOGETHER:
                yield from self._read_together(some, names)
                some, reads = [], 0
        yield from self._read_together(some, names)

    def newest_history(self, urn: str) -> History:
        """Fold a dataset's chain up to its very end: a slot that isn't listed yet is looked for by its key.

        :raises RecordError: as `history`.
        """
        while True:
            history = self.history(urn)
            after = self.key(urn, _decision(history.state.head + 1))
            if self.store.get(after) is None:
                return history
            self._saw(after)

    def state(self, urn: str) -> DatasetState:
        """Return the state of a dataset.

        :raises RecordError: as `history`.
        """
        return self.history(urn).state

    def homes(self) -> tuple[Home, ...]:
        """Return where the ingestion's slots were published, oldest first; the last home counts. Each record is read once.

        :raises RecordError: a record is torn or newer.
        """
        homes = [*self._homes]
        while (data := self.store.get(key := self._home(len(homes) + 1))) is not None:
            homes.append(wire.loads(data, Home, key))
        found = self._homes = tuple(homes)  # at once, since threads may share the journal
        return found

    def _moved_to(self) -> str | None:
        """Return the present root of everything published, whatever path its tasks recorded; `None` if it never moved."""
        homes = self.homes()
        return homes[-1].target if len({home.target for home in homes}) > 1 else None

    def read_dataset(
        self, urn: str, root: str | None = None, *, version: datetime | None = None, channel: str = ROWS
    ) -> PublishedDataset:
        """Return the published files of a dataset, exactly once: as a list, an Arrow dataset or a Spark DataFrame.

        :param root: the target root, if its path here differs from the one that the tasks used.
        :param version: only what it has up to this version, which the stage made or the ingestion sealed.
        :param channel: a channel of a stage, by its name, instead of its rows.
        :raises NotFoundError: the journal has no such dataset, or the dataset no such version, or no such channel.
        :raises NeverPublishedError: no run has published it yet.
        :raises ConfigurationError: as `versions.units_up_to`; or it is a mirror's.
        :raises RecordError: as `history`.
        """
        return _patient(lambda: self._read_dataset(urn, root, version, channel, dead_letters=False))

    def read_dead_letters(self, urn: str, root: str | None = None) -> PublishedDataset:
        """Return the dead letters of a dataset: the rows of its live units that were refused, with the reasons, as `read_dataset`
        returns the others.
        """
        return _patient(lambda: self._read_dataset(urn, root, None, ROWS, dead_letters=True))

    def read_state(self, urn: str, root: str | None = None, *, version: datetime | None = None) -> PublishedDataset:
        """Return what a stage keeps from version to version, as `read_dataset` returns its rows: a row for each key.

        :param version: as it was after this version; by default after the newest.
        :raises StateGivenUpError: the state of that version is given up.
        :raises NotFoundError: the journal has no such stage, or the stage no state, or no such version.
        :raises NeverPublishedError: no run has published it yet.
        :raises ConfigurationError: the version has no time zone.
        :raises RecordError: as `history`.
        """
        return _patient(lambda: self._read_state(urn, root, version))

    def _read_state(self, urn: str, root: str | None, version: datetime | None) -> PublishedDataset:
        from airflow_gobblin.journal.versions import state_after

        history = self._published(urn)
        unit, form = state_after(version, history)
        return PublishedDataset(urn, unit.slot, None, form.schema, self.published_files(history, [unit], root))

    def _published(self, urn: str) -> History:
        """Return the history of a dataset that has been published."""
        history = self.history(urn)
        if not history.known:
            raise unknown_dataset(self, urn)
        if not history.published:
            raise never_published(history)
        return history

    def _read_dataset(
        self, urn: str, root: str | None, version: datetime | None, channel: str, *, dead_letters: bool
    ) -> PublishedDataset:
        from airflow_gobblin.journal.seals import Seals  # which are read from a journal
        from airflow_gobblin.journal.versions import table_slot, units_up_to

        seals = Seals(self)
        newest = 0 if version is None else seals.newest()  # before the dataset, which then has all that it names
        history = self._published(urn)
        if not history.keeps_units:
            raise ConfigurationError(
                operation="read",
                subject=f"dataset {urn!r}",
                cause="its slots hold differences of files: the journal doesn't know what is there",
                hint="Read the folder itself; `airflow gobblin verify` compares it with its source.",
            )
        schema = _dead_letter_schema() if dead_letters else history.state.schema_of(channel)
        if channel != ROWS and schema is None:
            raise _without_channel(urn, channel, history)
        in_table = history.reads_table and channel == ROWS and not dead_letters
        if version is not None:
            if in_table:
                return self._read_table(history, schema, table_slot(version, history, seals, newest))
            units = units_up_to(version, history, seals, newest, channel)
            files = self.published_files(history, units, root)
            return PublishedDataset(urn, max((ref.slot for ref in units), default=0), None, schema, files)
        shown = history.state.head if history.pending is None else history.pending.decision.slot - 1
        if in_table:
            return replace(self._read_table(history, schema), slot=shown, watermark=history.state.watermark)
        files = self.published_files(history, history.state.units_of(channel), root, dead_letters=dead_letters)
        return PublishedDataset(urn, shown, history.state.watermark, schema, files)

    def _read_table(self, history: History, schema: str | None, slot: Slot | None = None) -> PublishedDataset:
        """Return a dataset whose rows are in a table, as a slot left it; by default as it is now."""
        assert history.table is not None
        number, version = (0, "") if slot is None else (slot.decision.slot, slot.table_version)
        workspace = next(s.decision.target for s in history.newest_first if s.decision.table is not None)
        return PublishedDataset(history.urn, number, None, schema, (), history.table.table, version, workspace)

    def published_files(
        self, history: History, units: Iterable[UnitRef], root: str | None = None, *, dead_letters: bool = False
    ) -> tuple[PublishedFile, ...]:
        """Return the published files of some units, slot by slot, or those of their dead letters.

        :param root: as for `read_dataset`.
        :raises RecordError: as `steps`.
        """
        root = root or self._moved_to()
        return tuple(
            PublishedFile(
                f"{(root or decision.target).rstrip('/')}/{file.path}",
                decision.slot,
                file.unit,
                file.rows,
                file.size,
                file.checksum,
            )
            for decision, file in self.files(history, units)
            if file.holds_dead_letters is dead_letters
        )

    def steps(self, decision: Decision, shards: Iterable[ShardRef] | None = None) -> Iterator[CommitStep]:
        """Yield the stored steps of a decision, all but the last, in order, with one shard at a time in memory.

        :param shards: those of its shards whose steps are wanted; all by default.
        :raises RecordError: as `shards`.
        """
        wanted = decision.shards if shards is None else tuple(shards)
        for shard, data in zip(wanted, self.shards(decision, wanted), strict=True):
            yield from wire.loads(data, Shard, self.key(decision.urn, "c", shard.digest)).steps

    def shards(self, decision: Decision, shards: Iterable[ShardRef]) -> Iterator[bytes]:
        """Yield stored step shards of a decision.

        :raises RecordError: a shard is missing, or differs from the digest in the decision.
        """
        for shard in shards:
            key = self.key(decision.urn, "c", shard.digest)
            data = self.store.get(key)
            if data is None or wire.digest(data) != shard.digest:
                raise RecordError(
                    operation="read",
                    subject=f"steps {key!r} of dataset {decision.urn!r}",
                    cause="they are missing" if data is None else "their digest doesn't fit",
                    hint="Restore them from a copy of the journal, or abandon the slot.",
                )
            yield data

    def files(self, history: History, units: Iterable[UnitRef]) -> Iterator[tuple[Decision, TargetFile]]:
        """Yield the published files of some units, slot by slot, each with the decision of its slot.

        :raises RecordError: as `steps`.
        """
        by_slot: dict[int, set[str]] = {}
        for ref in units:
            by_slot.setdefault(ref.slot, set()).add(ref.unit)
        for number, names in sorted(by_slot.items()):
            decision = history.slot(number).decision
            for step in self.steps(decision):
                for file in step.files():
                    if file.unit in names:
                        yield decision, file

    def outcome(self, urn: str, slot: int) -> Outcome | None:
        """Read the outcome of a slot now."""
        key = self.key(urn, _outcome(slot))
        data = self.store.get(key)
        if data is not None:
            self._saw(key)
        trimmed = self._trimmed(urn, slot)
        if trimmed is not None:
            return trimmed.outcome
        return None if data is None else wire.loads(data, Outcome, key)

    def notes(self, urn: str, slot: int) -> tuple[Note, ...]:
        """Return all notes of a slot, in order, for people to read."""
        keys = [*self.store.list(self.key(urn, "n", slot_name(slot)) + "/")]
        return tuple(wire.loads(data, Note, key) for key, data in self.store.get_many(keys) if data is not None)

    # Writing

    def put_steps(self, urn: str, token: str, steps: Iterable[CommitStep]) -> tuple[ShardRef, ...]:
        """Store the steps of a sequence, as `put_shards` does.

        :raises ConfigurationError: a step's class isn't registered.
        """
        return self.put_shards(urn, shards(token, steps, STEPS_PER_SHARD))

    def put_shards(self, urn: str, written: Iterable[tuple[ShardRef, bytes]]) -> tuple[ShardRef, ...]:
        """Store the shards of a sequence, as `shards` writes them, before its decision.

        :return: how the decision names them: in the order of their phases.
        """
        refs = []
        for ref, data in written:
            put_or_read(self.store, self.key(urn, "c", ref.digest), data)
            refs.append(ref)
        return tuple(sorted(refs, key=lambda ref: [*Phase].index(ref.phase)))

    def put_decision(self, decision: Decision) -> Decision | None:
        """Try to take a slot: the first decision stored there wins (rules 4 and 5).

        :return: the decision stored there, which may be another one; `None` if the slot was taken and trimmed long ago.
        """
        key = self.key(decision.urn, _decision(decision.slot))
        stored, _ = put_or_read(self.store, key, wire.dumps(decision))
        self._saw(key)
        if self._newest_snapshot(decision.urn) >= decision.slot:
            return None
        return wire.loads(stored, Decision, key)

    def put_outcome(
        self, slot: Slot, state: OutcomeState, run_key: str, actor: str = "", reason: str = "", version: str = ""
    ) -> Outcome:
        """End a slot.

        :param version: of the table that it committed to.
        :return: the stored outcome, which may be another one.
        """
        decision = slot.decision
        mine = Outcome(decision.slot, state, slot.decision_digest, run_key, now(), actor, reason, version)
        key = self.key(decision.urn, _outcome(decision.slot))
        stored, _ = put_or_read(self.store, key, wire.dumps(mine))
        self._saw(key)
        trimmed = self._trimmed(decision.urn, decision.slot)
        if trimmed is not None and trimmed.outcome is not None:
            return trimmed.outcome
        return wire.loads(stored, Outcome, key)

    def put_note(self, urn: str, slot: int, note: Note) -> None:
        """Add a note to a slot (slot 0 is before the first). A note on a trimmed slot is void: no rule needs it there."""
        data = wire.dumps(replace(note, urn=urn))
        taken = sum(1 for _ in self.store.list(self.key(urn, "n", slot_name(slot)) + "/"))
        while True:
            key = self.key(urn, "n", slot_name(slot), f"{taken:06d}-{note.event}")
            stored, _ = put_or_read(self.store, key, data)
            if stored == data:
                return
            taken += 1

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot: from now on the records of its slots are void. It is durable on return."""
        put_or_read(self.store, self.key(snapshot.urn, _snapshot(snapshot.slot)), wire.dumps(snapshot))

    def put_home(self, home: Home, number: int) -> Home:
        """Add a home, after those seen so far.

        :param number: its own, from 1.
        :return: the home stored there, which may be another writer's.
        """
        key = self._home(number)
        stored, _ = put_or_read(self.store, key, wire.dumps(home))
        return wire.loads(stored, Home, key)

    def _home(self, number: int) -> str:
        return f"{_HOMES}/{self.ingestion}/{slot_name(number)}"

    # How it is read

    def _listed(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield the key of each dataset, with the keys of its records within it."""
        start = len(self.ingestion) + 1
        for dataset, keys in groupby(self.store.list(f"{self.ingestion}/"), lambda key: key[start:].partition("/")[0]):
            yield dataset, (key[start + len(dataset) + 1 :] for key in keys)

    def _history(self, dataset: str, urn: str | None) -> History:
        prefix = f"{self.ingestion}/{dataset}/"
        return _patient(lambda: self._listed_history(prefix, urn))

    def _saw(self, key: str) -> None:
        """Remember that a decision or an outcome exists, even if no listing shows it yet."""
        prefix = key.rsplit("/", 2)[0] + "/"
        if self._seen[0] != prefix:
            self._seen = (prefix, set())
        self._seen[1].add(key)

    def _listing(self, prefix: str) -> list[str]:
        """List the keys of a dataset's records, including all that are known to exist, or a snapshot that replaces them.

        On a mounted file system with attribute caches (NFS) a listing may show an earlier state of a folder. Trusting it would
        mean trying the same slot again and again, or taking the journal for broken.

        :raises StoreError: a known record is missing for longer than such caches are kept.
        """
        missing: list[str] = []
        for number in range(_LISTINGS):
            listed = [*self.store.list(prefix)]
            missing = self._not_listed(prefix, listed)
            if not missing:
                self._seen = (prefix, {key for key in listed if key[len(prefix) :].startswith(("d/", "o/"))})
                return listed
            time.sleep(min(_PAUSE * 2**number, 100 * _PAUSE))
        raise StoreError(
            operation="list",
            subject=f"the records {prefix} in {self.store.name}",
            cause=f"{missing[0]!r} was there and is not listed",
            hint="If it stays so, the record was lost, or the file system caches folders for more than a minute: mount it so "
            "that it doesn't (NFS: acdirmax).",
            remedy=Remedy.REPEAT,
        )

    def _not_listed(self, prefix: str, listed: list[str]) -> list[str]:
        """Return the keys of records that are known to exist, or exist in a gap of the listing, and aren't listed."""
        numbers: dict[str, set[int]] = {"d": set(), "o": set(), "snap": {0}}
        for kind, number in (_parsed(key[len(prefix) :]) for key in listed):
            if kind in numbers and number is not None:
                numbers[kind].add(number)
        snapshot = max(numbers["snap"])
        known = self._seen[1] - {*listed} if self._seen[0] == prefix else set()
        missing = [key for key in known if int(key.rpartition("/")[2]) > snapshot]
        highest = max(numbers["d"] | numbers["o"], default=0)
        gaps = (n for n in range(snapshot + 1, highest + 1) if n not in numbers["d"])
        missing += [key for n in islice(gaps, _GAPS) if self.store.get(key := prefix + _decision(n)) is not None]
        return sorted(missing)

    def _listed_history(self, prefix: str, urn: str | None) -> History:
        listed = self._listing(prefix)
        keys = self._keys(prefix.split("/")[1], (key[len(prefix) :] for key in listed))
        known = self._as_folded(keys, urn)
        if known is not None:
            return known
        unknown = [key for rest in keys.read if (key := prefix + rest) not in self._read_before]
        history = self._fold(keys, urn, dict(self.store.get_many(unknown)) if unknown else {}, keep=True)
        self._keep_folded(keys, history)
        return history

    def _as_folded(self, keys: Keys, urn: str | None) -> History | None:
        """Return the history of a dataset, if it was folded and still has the same records."""
        before, history = self._folded.get(keys.dataset, (None, None))
        return history if before == keys and history is not None and urn in (None, history.urn) else None

    def _keep_folded(self, keys: Keys, history: History) -> None:
        """Keep a history, and the newest of those before it, as far as there is room."""
        with self._lock:  # threads may share the journal
            before = self._folded.pop(keys.dataset, None)
            self._folded_size += _size(history) - (0 if before is None else _size(before[1]))
            while self._folded_size > _FOLDED and self._folded:
                _, oldest = self._folded.pop(next(iter(self._folded)))
                self._folded_size -= _size(oldest)
            self._folded[keys.dataset] = keys, history

    def _read_together(
        self, some: Sequence[Keys], names: Mapping[str, str]
    ) -> Iterator[tuple[str, History | GobblinError]]:
        folded = {keys.dataset: self._as_folded(keys, names.get(keys.dataset)) for keys in some}
        unknown = [keys for keys in some if folded[keys.dataset] is None]
        wanted = [f"{self.ingestion}/{keys.dataset}/{key}" for keys in unknown for key in keys.read]
        records = dict(self.store.get_many(wanted)) if wanted else {}
        for keys in some:
            known = folded[keys.dataset]
            if known is not None:
                yield keys.dataset, known
                continue
            try:
                history = self._fold(keys, names.get(keys.dataset), records)
                self._keep_folded(keys, history)
                yield keys.dataset, history
            except RecordError:
                yield keys.dataset, self._read_again(keys.dataset, names)
            except GobblinError as error:
                yield keys.dataset, error

    def _read_again(self, dataset: str, names: Mapping[str, str]) -> History | GobblinError:
        try:
            return self._history(dataset, names.get(dataset))
        except GobblinError as error:
            return error

    def _newest_snapshot(self, urn: str) -> int:
        newest = 0
        for key in self.store.list(self.key(urn, "snap/")):
            kind, number = _parsed(key.split("/", 2)[2])
            if not kind or number is None:
                raise self._unknown(urn, key.split("/", 2)[2])
            newest = max(newest, number)
        return newest

    def _trimmed(self, urn: str, slot: int) -> Slot | None:
        """Return a slot, if a snapshot replaces it."""
        if self._newest_snapshot(urn) < slot:
            return None
        return self.history(urn).slot(slot)

    def _read(
        self, key: str, expected: type[R], records: Mapping[str, bytes | None], *, keep: bool = False
    ) -> tuple[R, str]:
        """Read a record and its digest. Records never change (I5), so a kept record is read once."""
        known = self._read_before.get(key)
        if known is not None and isinstance(known[0], expected):
            return known[0], known[1]
        data = records[key] if key in records else self.store.get(key)
        if data is None:
            raise RecordError(
                operation="read",
                subject=f"record {key!r} in {self.store.name}",
                cause="it was listed and is missing",
                hint="Nobody but the journal may delete its records; restore it from a copy.",
            )
        found = wire.loads(data, expected, key), wire.digest(data)
        if keep:
            self._keep(key, found, len(data))
        return found

    def _keep(self, key: str, found: tuple[object, str], size: int) -> None:
        if self._bytes_kept + size > _BYTES_KEPT:
            self._read_before.clear()
            self._bytes_kept = 0
        self._read_before[key] = found
        self._bytes_kept += size

    def _fold(self, keys: Keys, urn: str | None, records: Mapping[str, bytes | None], *, keep: bool = False) -> History:
        prefix = f"{self.ingestion}/{keys.dataset}/"
        snapshot: Snapshot | None = None
        if keys.snapshot:
            snapshot = self._read(prefix + _snapshot(keys.snapshot), Snapshot, records, keep=keep)[0]
            self._check_name(snapshot, keys, urn)
        notes = {
            number: tuple(
                self._read(prefix + key, Note, records, keep=keep)[0] for key, kind in found if kind not in _UNREAD
            )
            for number, found in keys.notes.items()
        }
        # Acts of people before the first slot are shown, and kept, with that slot.
        early = (note for note in notes.get(0, ()) if note.event is NoteKind.CLAIM_RELEASED)
        notes[1] = (*early, *notes.get(1, ()))
        slots: list[Slot] = []
        for number in keys.slots:
            decision, name = self._read(prefix + _decision(number), Decision, records, keep=keep)
            outcome, outcome_name = None, ""
            if number in keys.outcomes:
                outcome, outcome_name = self._read(prefix + _outcome(number), Outcome, records, keep=keep)
            kinds = frozenset(kind for _, kind in keys.notes.get(number, ()))
            slot = Slot(decision, outcome, name, outcome_name, notes.get(number, ()), kinds)
            self._check_name(decision, keys, urn)
            self._check_follows(slot, number, slots, snapshot)
            slots.append(slot)
        named = snapshot or (slots[0].decision if slots else notes[0][0] if notes.get(0) else None)
        name_of_it = urn or (named.urn if named is not None else keys.dataset)
        return fold(name_of_it, tuple(slots), notes.get(0, ()), snapshot, keys.void)

    def _check_name(self, found: Decision | Snapshot, keys: Keys, urn: str | None) -> None:
        if (found.urn != urn) if urn is not None else (dataset_key(found.urn) != keys.dataset):
            what = "snapshot" if isinstance(found, Snapshot) else "decision"
            raise self._broken(
                urn or keys.dataset, f"slot {found.slot} holds a {what} of dataset {found.urn!r}, slot {found.slot}"
            )

    def _check_follows(self, slot: Slot, number: int, before: Sequence[Slot], snapshot: Snapshot | None) -> None:
        """Check that a slot follows from those before it, and from what replaces the ones before these."""
        decision = slot.decision
        first = snapshot.digest if snapshot is not None else ""
        if decision.slot != number:
            finding = f"slot {number} holds a decision of dataset {decision.urn!r}, slot {decision.slot}"
        elif decision.previous != (before[-1].named_by(decision.action) if before else first):
            finding = f"the decision of slot {number} doesn't follow from slot {number - 1} as it is recorded"
        elif not decision.action.pauses and (pending := unfinished(before)) is not None:
            finding = f"slot {number} was decided before slot {pending.decision.slot} was finished"
        elif slot.outcome is not None and slot.outcome.decision != slot.decision_digest:
            finding = f"the outcome of slot {number} belongs to another decision"
        else:
            return
        raise self._broken(decision.urn, finding)

    def _keys(self, dataset: str, keys: Iterable[str]) -> Keys:
        """Parse the keys of a dataset's records.

        :raises RecordError: a key is no record's, or there are gaps between them.
        """
        by_kind: dict[str, list[tuple[int, str]]] = {"d": [], "n": [], "o": [], "snap": []}
        for key in keys:
            kind, number = _parsed(key)
            if not kind:
                raise self._unknown(dataset, key)
            if number is not None:
                by_kind[kind].append((number, key))
        snapshot = max((number for number, _ in by_kind["snap"]), default=0)
        void = [key for kind in ("d", "n", "o") for number, key in by_kind[kind] if number <= snapshot and snapshot]
        void += [key for number, key in by_kind["snap"] if number < snapshot]
        numbers = [number for number, _ in by_kind["d"] if number > snapshot]
        if numbers and (numbers[0] != snapshot + 1 or numbers[-1] - snapshot != len(numbers)):
            raise self._broken(
                dataset,
                f"slots {numbers[0]} to {numbers[-1]} have a gap: they must follow one another from {snapshot + 1} on",
            )
        head = numbers[-1] if numbers else snapshot
        outcomes = frozenset(number for number, _ in by_kind["o"] if number > snapshot)
        notes: dict[int, list[tuple[str, NoteKind]]] = {}
        for number, key in by_kind["n"]:
            if number > snapshot or not snapshot:
                notes.setdefault(number, []).append((key, self._note_kind(dataset, key)))
        undecided = sorted(number for number in outcomes | notes.keys() if number > head)
        if undecided:
            raise self._broken(dataset, f"slots {undecided} have an outcome or notes, and no decision")
        return Keys(dataset, snapshot, head, outcomes, {n: tuple(sorted(k)) for n, k in notes.items()}, tuple(void))

    def _note_kind(self, dataset: str, key: str) -> NoteKind:
        try:
            return NoteKind(key.partition("-")[2])
        except ValueError as error:
            raise self._unknown(dataset, key) from error

    def _unknown(self, dataset: str, key: str) -> RecordError:
        return self._broken(dataset, f"{key!r} is not a record of it that the airflow-gobblin installed here knows")

    def _broken(self, dataset: str, finding: str) -> RecordError:
        return RecordError(
            operation="read",
            subject=f"the journal of dataset {dataset!r} in {self.store.name}",
            cause=finding,
            hint="A record was lost or changed. Restore the journal from a copy; the dataset stays as it is until then.",
        )


def _without_channel(urn: str, channel: str, history: History) -> NotFoundError:
    made = [*history.state.checkpoints.values()]
    known = sorted(made[-1].channels) if made else []
    return NotFoundError(
        operation="read",
        subject=f"channel {channel!r} of {urn!r}",
        cause="it has no such channel" if made else "it has no version",
        hint=meant(known, channel, otherwise="The stage names its channels: `Stage(channels=(…))`."),
    )


def _dead_letter_schema() -> str:
    from airflow_gobblin.model import schema  # which loads Arrow

    return schema.encode(dead_letter_schema())


def ingestions(store: Store) -> tuple[str, ...]:
    """List the names of the ingestions that have a record in a store."""
    # Keys are <ingestion>/<dataset>/…; our own keys outside any ingestion begin with an underscore.
    return tuple(sorted({key.partition("/")[0] for key in store.list("") if not key.startswith("_")}))


def read_id(store: Store) -> str:
    """Read the id of the journal in a store.

    :raises NotFoundError: there is no journal.
    :raises RecordError: the record of its id is torn or changed.
    """
    stored = store.get(_ID)
    if stored is None:
        raise no_journal(store.name)
    return _checked_id(store, stored)


def _checked_id(store: Store, stored: bytes) -> str:
    if not re.fullmatch(rb"[0-9a-f]{32}", stored):
        raise RecordError(
            operation="read",
            subject=f"record {_ID!r} in {store.name}",
            cause=f"it is torn or was changed: {stored[:40]!r} is not a journal's id",
            hint="Restore it from a copy of the journal: targets are claimed by this id.",
        )
    return stored.decode()


def slot_name(slot: int) -> str:
    """Format a slot for a key, zero-padded so that keys sort by number."""
    return f"{slot:010d}"


_KEY = re.compile(r"(?:d|o|snap)/(?P<slot>[0-9]{10})|n/(?P<noted>[0-9]{10})/[0-9]{6,}-.*|c/[0-9a-f]{64}")


@lru_cache(maxsize=10_000)
def _parsed(key: str) -> tuple[str, int | None]:
    """Return the kind of record that a dataset's key names ("" if no record's), and its slot (`None` for a shard)."""
    found = _KEY.fullmatch(key)
    if found is None:
        return "", None
    slot = found["slot"] or found["noted"]
    return key.partition("/")[0], None if slot is None else int(slot)


def _decision(slot: int) -> str:
    return f"d/{slot:010d}"


def _outcome(slot: int) -> str:
    return f"o/{slot:010d}"


def _snapshot(slot: int) -> str:
    return f"snap/{slot:010d}"


def _patient(read: Callable[[], R]) -> R:
    """Retry a read that may look broken for a moment: a listing isn't atomic, and a listed record may just have been trimmed."""
    for left in reversed(range(_TRIES)):
        try:
            return read()
        except RecordError:
            if left == 0:
                raise
            time.sleep(_PAUSE)
    raise AssertionError("unreachable")


def _size(history: History) -> int:
    return 1 + len(history.slots) + len(history.trimmed) + len(history.state.live)
