"""Datasets in tables in memory, for the proofs: a source, a sink, tables whose calls can go wrong, and what must hold of them.

A table is compared with the journal and with a model: a list of rows, or a dictionary where rows are merged by key. Changes
by somebody else count, too.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.commit.preconditions import can_win
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Decision
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.model.table import Mark, Owner
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind, UnitState, UnitSummary, WorkUnit
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.tables.layout import DATA_FOLDER
from airflow_gobblin.testing import memory_table
from airflow_gobblin.testing.memory_files import MemoryFiles
from airflow_gobblin.testing.memory_table import MemoryTable, MemoryTableSink
from airflow_gobblin.testing.tables import MERGE, SCHEMA
from tests.faults import Caller, FaultyFiles, FaultyStore
from tests.protocol.rows import RowReader, RowSource, Table

T = TypeVar("T")
NAME = "warehouse"
FLIGHTS, PLANES, ORDERS = "flights", "planes", "orders"
"""Datasets whose rows are added, whose content is swapped, and whose rows are merged."""
KINDS = {
    FLIGHTS: ExtractKind.APPEND_ONLY,
    PLANES: ExtractKind.SNAPSHOT_ONLY,
    ORDERS: ExtractKind.SNAPSHOT_APPEND,
}
PLANES_ROWS = 3
THEIRS = 1_000_000
"""The first id of rows that somebody else adds."""

Row = tuple[int, str, int, int]


@lru_cache(maxsize=100_000)
def row_of(urn: str, version: int, position: int) -> Row:
    """Return the row of a position, as a version of the source has it. Of orders many have one key, and some come late."""
    text = f"{urn} {position}"
    if KINDS[urn] is ExtractKind.SNAPSHOT_APPEND:
        chance = random.Random(text)
        return chance.randrange(5), text, chance.randrange(4), position
    return position, text, version, position


def as_dict(row: Row) -> dict[str, object]:
    """Return a row as tables have it."""
    return dict(zip(SCHEMA.names, row, strict=True))


@record("test.column_rows")
@dataclass(frozen=True)
class ColumnRows(RowSource):
    """Tables whose rows have a key, a version and a position. The id of a unit names the version that it is read from."""

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        found, version = super().plan(dataset, states, request, connections), self.table(dataset.urn).version
        units = tuple(replace(unit, id=f"v{version}_{unit.id}") for unit in found.units)
        return replace(found, units=units, schema=SCHEMA)

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> Reader:
        return ColumnReader(self.table(unit.urn), unit, request)


class ColumnReader(RowReader):
    """One unit, in batches of two rows."""

    def __init__(self, table: Table, unit: WorkUnit, request: ReadRequest) -> None:
        super().__init__(table, unit, request.limits)
        self._table = table

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for _ in super().__iter__():
            positions = range(self._low + self._begin, self._low + self._end)
            rows = [row_of(self._table.urn, self._table.version, position) for position in positions]
            yield pa.RecordBatch.from_pylist([*map(as_dict, rows)], SCHEMA)


def source(urns: Iterable[str], rows: int, version: int = 0) -> ColumnRows:
    """Return the source at one moment."""
    sizes = {PLANES: PLANES_ROWS}
    tables = (Table(urn, KINDS[urn], sizes.get(urn, rows), version, unit_rows=2) for urn in urns)
    return ColumnRows(tuple(tables))


@dataclass(frozen=True)
class Inherited:
    """The content of a table when a dataset took it over, or got it.

    :param live: the units of that dataset that were live then: if they leave, or are there, is in `rows`.
    :param marks: the marks of all others.
    """

    owner: Owner
    rows: Counter[Row]
    live: Mapping[UnitRef, UnitSummary]
    marks: Mapping[str, tuple[Mark, int]]


@dataclass
class TableWorld:
    """A journal, a workspace and tables, and what somebody else did to these.

    :param name: the beginning of the names of its tables, which no other world has.
    :param location: a folder for data files; empty: tables take rows at the commit.
    :param urns: its datasets.
    :param deleted: rows that somebody else deleted, by dataset.
    :param theirs: rows that somebody else added, each with the slot whose mark the table had then.
    :param inherited: of the datasets whose table was taken over, what it had then.
    """

    name: str
    location: str = ""
    urns: tuple[str, ...] = (FLIGHTS, PLANES, ORDERS)
    store: MemoryStore = field(default_factory=MemoryStore)
    files: MemoryFiles = field(default_factory=MemoryFiles)
    deleted: dict[str, Counter[Row]] = field(default_factory=lambda: {urn: Counter() for urn in KINDS})
    theirs: dict[str, dict[Row, int]] = field(default_factory=lambda: {urn: {} for urn in KINDS})
    inherited: dict[str, Inherited] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.location:  # a table of files in memory can't be merged into
            self.urns = tuple(urn for urn in self.urns if urn != ORDERS)

    @property
    def sink(self) -> MemoryTableSink:
        location = f"{self.location}/{{dataset}}" if self.location else ""
        return MemoryTableSink(self.files.root, f"{self.name}.{{dataset}}", location, MERGE)

    def table(self, urn: str) -> MemoryTable:
        """The table of a dataset."""
        return self.sink.table_of(Dataset(urn, Extract(KINDS[urn], "test", urn)))

    def state(self, urn: str) -> memory_table._State | None:
        """The state of its table; `None` if there is none."""
        return memory_table._tables.get(self.table(urn).table)

    def opened(self, of: ColumnRows, faults: Caller | None = None, **options: object) -> OpenJob:
        """A process of the product."""
        settings: dict[str, object] = {"max_packs": 2, "retention": timedelta(0), "attempts": 100, **options}
        ingestion = Ingestion(NAME, of, self.sink, "unused", **settings)  # type: ignore[arg-type]
        if faults is None:
            return OpenJob(ingestion, self.journal(), NoConnections(), self.files)
        store, files = FaultyStore(self.store, faults), FaultyFiles(self.files, faults)
        return OpenJob(ingestion, Journal.create(store, NAME), NoConnections(), files)

    def person(self, faults: Caller | None = None) -> Administration:
        """A person at work."""
        if faults is None:
            return Administration(self.journal(), self.files, "ann")
        journal = Journal.create(FaultyStore(self.store, faults), NAME)
        return Administration(journal, FaultyFiles(self.files, faults), "ann")

    def journal(self) -> Journal:
        return Journal.create(self.store, NAME)

    def owner(self, urn: str) -> Owner:
        return Owner(self.journal().id, NAME, urn)

    def mark(self, urn: str) -> Mark | None:
        """The mark that a dataset left in its table."""
        state = self.state(urn)
        return None if state is None else state.marks.get(self.owner(urn).key, (None, 0))[0]

    # Another one

    def heir(self) -> TableWorld:
        """Another ingestion of the same datasets into the same tables: each belongs to one of the two."""
        return TableWorld(
            self.name,
            self.location,
            self.urns,
            deleted=self.deleted,
            theirs=self.theirs,
            inherited=self.inherited,
        )

    def owns(self, urn: str) -> bool:
        """Whether it has the table of a dataset; if there is none yet, it hasn't."""
        state = self.state(urn)
        return state is not None and state.owner == self.owner(urn)

    def inherit(self, urn: str) -> None:
        """Take note that it has taken over the table of a dataset just now."""
        state, owner, mark = self.state(urn), self.owner(urn), self.mark(urn)
        assert state is not None
        assert state.owner == owner, f"{urn}: it was taken over, and belongs to {state.owner}"
        assert mark is not None, f"{urn}: it was taken over without a mark"
        assert mark.done, f"{urn}: it was taken over by an abandoned slot, {mark}"
        live = units_in_table(self.journal().history(urn), mark, state.id)
        marks = {key: mark for key, mark in state.marks.items() if key != owner.key}
        self.inherited[urn] = Inherited(owner, self.rows(urn), live, marks)
        self.deleted[urn], self.theirs[urn] = Counter(), {}

    def copied(self) -> TableWorld:
        """Another world with the same journal and workspace, which shares the tables."""
        store = MemoryStore()
        for key in self.store.list(""):
            store.put_if_absent(key, self.store.get(key) or b"")
        deleted = {urn: Counter(rows) for urn, rows in self.deleted.items()}
        theirs = {urn: {**rows} for urn, rows in self.theirs.items()}
        return TableWorld(
            self.name, self.location, self.urns, store, self.files.copy(), deleted, theirs, {**self.inherited}
        )

    def tables_as_they_are(self) -> Callable[[], None]:
        """Return a function that puts all tables back as they are now, with their data files."""
        states = {self.table(urn).table: self.state(urn) for urn in self.urns}
        kept = Path(f"{self.location}.kept")
        if self.location:
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.location, kept)

        def put_back() -> None:
            for name, state in states.items():
                memory_table._tables.pop(name, None)
                if state is not None:
                    memory_table._tables[name] = state
            if self.location:
                shutil.rmtree(self.location)
                shutil.copytree(kept, self.location)

        return put_back

    def forget_tables(self) -> None:
        for urn in self.urns:
            self.table(urn).drop()

    # Changes by somebody else

    def add_theirs(self, urn: str, number: int) -> None:
        """Add a row of somebody else's."""
        row, mark = (THEIRS + number, "theirs", 0, -number), self.mark(urn)
        self.table(urn).append([as_dict(row)])
        self.theirs[urn][row] = 0 if mark is None else mark.slot

    def delete(self, urn: str, row: Row) -> None:
        """Delete a row of ours."""
        self.deleted[urn][row] += self.rows(urn)[row]  # two ingestions may have published it
        self.table(urn).delete(lambda other: as_row(other) == row)

    def rows(self, urn: str) -> Counter[Row]:
        """The rows of a table, as a reader gets them."""
        return Counter(map(as_row, self.table(urn).rows()))

    # Checks

    def check(self) -> None:
        """Check what holds at any moment: each table has just what it must have by the journal, as do its marks.

        :raises AssertionError: it doesn't.
        """
        journal = self.journal()
        for urn in self.urns:
            self._check(urn, journal.history(urn))

    def _check(self, urn: str, history: History) -> None:
        state = self.state(urn)
        if state is None:
            assert history.table is None, f"{urn}: its table is gone"
            return
        found = self.inherited.get(urn)
        if found is not None:
            assert state.owner == found.owner, f"{urn}: it belongs to {found.owner}, and nobody took it over"
            for key in {*state.marks} - {found.owner.key}:  # a fence does no harm
                now, then = state.marks[key], found.marks.get(key)
                assert now == then or not now[0].done, f"{urn}: {key} has lost it, and left {now}, after {then}"
        if not self.owns(urn):
            return
        live = units_in_table(history, self.mark(urn), state.id)
        swapped = max((ref.slot for ref in live), default=0) if KINDS[urn] is ExtractKind.SNAPSHOT_ONLY else 0
        theirs = Counter(row for row, slot in self.theirs[urn].items() if slot >= swapped)
        expect_rows(urn, self.rows(urn), rows_since(urn, self.inherited.get(urn), live) - self.deleted[urn] + theirs)

    def check_complete(self, of: ColumnRows, killed: Collection[str] = ()) -> None:
        """Check what holds at rest: everything in the source is published, once, and nothing is left over.

        :param killed: tokens of which an attempt was killed or failed: after its plan was swept, nobody knows of its data files.

        :raises AssertionError: it doesn't.
        """
        self.check()
        journal = self.journal()
        for table in of.tables:
            history = journal.history(table.urn)
            assert history.pending is None, f"{table.urn}: {history.pending} is pending"
            if not self.owns(table.urn):
                continue
            found = [*positions_of(history.state.live.values())]
            assert Counter(p for _, p in found) == Counter(range(table.rows)), f"{table.urn}: it has {sorted(found)}"
            if table.snapshot:
                assert {v for v, _ in found} == {table.version}, f"{table.urn}: it shows {found}"
        self._check_staging(self.opened(of), killed)

    def _check_staging(self, opened: OpenJob, killed: Collection[str]) -> None:
        """Only plans that can still be decided are staged; of data files at a table's location also those that a commit named."""
        plans = [plan for _, plan in opened.staging.plans() if isinstance(plan, Plan)]
        needed = {plan.token for plan in plans if can_win(plan, opened.journal.history(plan.urn))}
        left = {plan.token for plan in plans} - needed
        assert not left, f"the staging of {left} is left over"
        for urn in self.urns if self.location else ():
            history, folder = opened.journal.history(urn), Path(self.table(urn).location, DATA_FOLDER)
            # A late attempt of a plan that was swept undecided may leave some: its last word isn't swept yet.
            given_up = {slot.decision.token for slot in history.newest_first if slot.abandoned}
            files = {path for path in folder.rglob("*") if path.is_file()} if folder.exists() else set()
            left = ({path.relative_to(folder).parts[0] for path in files} & given_up) - needed - {*killed}
            assert not left, f"data files of {left} are left over"


def units_in_table(history: History, mark: Mark | None, table: str) -> dict[UnitRef, UnitSummary]:
    """Return the units that a table must have, by the journal and its mark.

    :param table: its id.
    :raises AssertionError: the journal expects another mark.
    """
    live, pending = {**history.state.live}, history.pending
    if pending is not None and pending.decision.table is not None:
        slot = pending.decision.slot, pending.decision.token
        if mark == Mark(*slot, done=True):
            return _after(pending.decision, live)
        if mark == Mark(*slot, done=False):
            return live
    expected = history.mark_before(history.state.head + 1, table)
    assert mark == expected, f"{history.urn}: its table has the mark of {mark}, and the journal expects {expected}"
    return live


def _after(decision: Decision, live: Mapping[UnitRef, UnitSummary]) -> dict[UnitRef, UnitSummary]:
    """Return the units that are live once a decided slot is done."""
    new = {UnitRef(decision.slot, unit.unit): unit for unit in decision.units if unit.state is UnitState.SUCCESSFUL}
    whole = decision.holds is not None and decision.holds.replaces_all and bool(decision.units)
    kept = {} if whole else {ref: unit for ref, unit in live.items() if ref not in decision.replaces}
    return {**kept, **new}


def rows_of(
    urn: str, units: Iterable[UnitSummary], version: Callable[[Row], Any] = lambda row: row[2:]
) -> Counter[Row]:
    """Return the rows of some units; where they are merged, of each key the newest one.

    :param version: how new a row is.
    """
    rows = [row_of(urn, number, position) for number, position in positions_of(units)]
    return newest_of_keys(rows, version) if KINDS[urn] is ExtractKind.SNAPSHOT_APPEND else Counter(rows)


def rows_since(
    urn: str,
    found: Inherited | None,
    live: Mapping[UnitRef, UnitSummary],
    version: Callable[[Row], Any] = lambda row: row[2:],
) -> Counter[Row]:
    """Return the rows of live units, and those that the table had when it was taken over.

    :param found: that; `None`: it never was.
    :param version: how new a row is.
    """
    if found is None:
        return rows_of(urn, live.values(), version)
    new = [unit for ref, unit in live.items() if ref not in found.live]
    if KINDS[urn] is ExtractKind.SNAPSHOT_ONLY:
        return rows_of(urn, new, version) if new else found.rows
    gone = rows_of(urn, (unit for ref, unit in found.live.items() if ref not in live), version)
    rows = found.rows - gone + rows_of(urn, new, version)
    return newest_of_keys(rows, version) if KINDS[urn] is ExtractKind.SNAPSHOT_APPEND else rows


def newest_of_keys(rows: Iterable[Row], version: Callable[[Row], Any]) -> Counter[Row]:
    """Return of each key the newest row.

    :param version: how new a row is.
    """
    newest: dict[int, Row] = {}
    for row in sorted(rows, key=version):
        newest[row[0]] = row
    return Counter(newest.values())


def positions_of(units: Iterable[UnitSummary]) -> Iterator[tuple[int, int]]:
    """Yield the positions of units, each after the version of the source that it was read from."""
    for unit in units:
        assert isinstance(unit.low, LongWatermark)
        assert isinstance(unit.actual_high, LongWatermark)
        version = int(unit.unit.partition("_")[0].removeprefix("v"))
        yield from ((version, position) for position in range(unit.low.value, unit.actual_high.value))


def expect_rows(subject: str, found: Counter[Row], expected: Counter[Row]) -> None:
    """:raises AssertionError: two multisets differ."""
    missing, many = sorted((expected - found).elements()), sorted((found - expected).elements())
    assert not missing, f"{subject}: {missing} are missing; {many} are too many"
    assert not many, f"{subject}: {many} are too many"


def as_row(row: Mapping[str, object]) -> Row:
    """Return a row of a table."""
    return tuple(row[name] for name in SCHEMA.names)  # type: ignore[return-value]
