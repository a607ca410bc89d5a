"""Datasets in tables: their journal's records are compared with what their table has."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from airflow_gobblin.admin.findings import AuditFinding, FileCheck, Findings
from airflow_gobblin.commit.taking_out import is_merged, table_commits
from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import StepLostError, TableError
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.table import Owner, TableTarget
from airflow_gobblin.model.verification import FileState
from airflow_gobblin.steps.base import StepContext
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.layout import DATA_FOLDER
from airflow_gobblin.tables.port import Count, Look, OpenTable, table_of
from airflow_gobblin.workspace.staging import Staging, staging_folder

__all__ = ["audit_table", "check_units"]

_NAMED = 5
"""The most items that a sentence names."""


@dataclass(frozen=True)
class _Known:
    """A dataset whose rows are in a table, as its journal knows it.

    :param files: those of the workspace.
    """

    journal: Journal
    files: Files
    history: History
    connections: GuardedConnections

    @property
    def target(self) -> TableTarget:
        """Its table."""
        assert self.history.table is not None
        return self.history.table

    @property
    def name(self) -> str:
        """The table in the words of errors."""
        return self.target.table.name

    @property
    def owner(self) -> Owner:
        """The dataset as the table knows it."""
        return Owner(self.journal.id, self.journal.ingestion, self.history.urn)

    @cached_property
    def units(self) -> tuple[UnitRef, ...]:
        """Its live units that have rows there."""
        live = self.history.state.live
        return tuple(ref for ref, unit in live.items() if unit.files and self.history.is_in_table(ref))

    @cached_property
    def merged(self) -> frozenset[int]:
        """The slots whose rows were merged."""
        slots = {ref.slot for ref in self.units}
        return frozenset(n for n in slots if is_merged(self.journal, self.history.slot(n).decision))

    @contextmanager
    def opened(self, operation: str) -> Iterator[OpenTable]:
        """Open the table. No error shows a secret."""
        with self.connections.redactor.guarding(operation, f"dataset {self.history.urn!r}", TableError):
            yield table_of(self.target.table).open(self.connections, self.files)

    def counts(self, table: OpenTable) -> dict[UnitRef, Count | None]:
        """Return what the table has of each unit; `None` if nothing there is known to be of it."""
        names = {ref: (self.history.token(ref.slot), ref.unit) for ref in self.units if ref.slot not in self.merged}
        found = table.count(names.values())
        return {ref: found.get(name) for ref, name in names.items()}


def check_units(
    journal: Journal, files: Files, history: History, connections: GuardedConnections
) -> Iterator[FileCheck]:
    """Compare the live units of a dataset with what its table has of each. Merged rows can't be distinguished.

    :param files: those of the workspace.
    :raises TableError: the table can't be looked at, or is another one.
    """
    known = _Known(journal, files, history, connections)
    if not known.units:
        return
    with known.opened("verify") as table:
        if table.look(known.owner).id != known.target.id:
            raise TableError(
                operation="verify",
                subject=known.name,
                cause="it is gone, or was made anew",
                hint="Restore it; or drop the dataset without its files.",
            )
        counts = known.counts(table)
    for ref in known.units:
        unit, found = history.state.live[ref], counts.get(ref)
        state, detail = FileState.OK, ""
        if ref.slot in known.merged:
            detail = "its rows were merged, and can't be distinguished"
        elif found is None:
            state, detail = FileState.MISSING, "nothing there is known to be of it: somebody compacted or deleted it"
        elif found.rows != unit.rows_written:
            state, detail = FileState.CHANGED, f"it has {found.rows} rows there, and {unit.rows_written} were published"
        yield FileCheck(
            f"{known.name}, unit {ref.unit!r}", ref.slot, ref.unit, unit.rows_written, unit.bytes, state, detail
        )


def audit_table(
    found: Findings, journal: Journal, files: Files, history: History, connections: GuardedConnections
) -> Iterator[AuditFinding]:
    """Check that a dataset's table is its own, has its newest mark, its rows and its files, and nothing that was staged in vain.

    :param files: those of the workspace.
    :raises TableError: the table can't be looked at.
    """
    if history.table is None:
        return
    known = _Known(journal, files, history, connections)
    with known.opened("audit") as table:
        look = table.look(known.owner)
        if look.id != known.target.id:
            what = "was made anew" if look.id else "is gone"
            if known.units:
                yield found.problem("table", f"{known.name} {what}: restore it, or drop the dataset without its files")
            return
        if look.owner not in (None, known.owner):
            yield found.problem("table", f"{known.name} belongs to {look.owner}: it was taken over")
        yield from _audit_mark(found, known, look)
        yield from _audit_files(found, known, look, table)  # before rows are counted, for which files may be read
        yield from _audit_rows(found, known, table)


def _audit_mark(found: Findings, known: _Known, look: Look) -> Iterator[AuditFinding]:
    """Find a mark that isn't that of the newest slot: the table or the journal was restored, or a pending slot has committed."""
    history, pending = known.history, known.history.pending
    expected = history.mark_before(history.state.head + 1, look.id)
    if not look.in_history:
        yield found.problem("table", f"{known.name} was set back to before {look.mark}")
    if look.mark == expected:
        return
    slot = (
        None if pending is None else history.slot_of_step(pending.decision, known.journal.id, known.journal.ingestion)
    )
    if slot is not None and look.mark in (slot.done, slot.abandoned):
        yield found.note("table", f"{known.name} has the mark of {look.mark}: only its outcome is missing", slot.slot)
        return
    newest = f"the newest of its journal is {expected}" if expected is not None else "its journal has none"
    which = f"the mark of {look.mark}" if look.mark is not None else "no mark of this dataset"
    yield found.problem("table", f"{known.name} has {which}, and {newest}: one of the two was restored")


def _audit_rows(found: Findings, known: _Known, table: OpenTable) -> Iterator[AuditFinding]:
    """Compare the rows of units with those that the table has."""
    live, total = known.history.state.live, table.total().rows
    written = sum(live[ref].rows_written for ref in known.units)
    if known.merged:
        if total > written:
            yield found.note(
                "rows", f"{known.name} has {total:,} rows, and {written:,} were merged: others add some, too"
            )
        return
    counts = known.counts(table)
    for ref, count in counts.items():
        if count is not None and count.rows != live[ref].rows_written:
            what = f"unit {ref.unit} has {count.rows:,} rows in {known.name}, and {live[ref].rows_written:,} were published"
            yield found.problem("rows", what, ref.slot)
    mixed = [ref for ref, count in counts.items() if count is None]
    if mixed:
        what = f"{many(len(mixed), 'unit')} can't be distinguished in {known.name} any more: somebody compacted or deleted rows"
        if total < written:
            yield found.problem("rows", f"{what}; it has {total:,} rows, and {written:,} were published")
        else:
            yield found.note("rows", f"{what}, so that they can't be taken back or replaced")
    others = total - sum(count.rows for count in counts.values() if count is not None)
    others -= sum(live[ref].rows_written for ref in mixed)
    if others > 0:
        yield found.note("rows", f"{known.name} has {many(others, 'row')} of others")


def _audit_files(found: Findings, known: _Known, look: Look, table: OpenTable) -> Iterator[AuditFinding]:
    """Find files that are gone, of the table or of the pending slot, and files that were staged for no slot."""
    pending = known.history.pending
    if pending is not None:
        yield from _audit_staged(found, known, pending)
    if not look.location:
        return
    place = open_files(look.location, known.connections)
    has = {path for path in table.files() if "://" not in path and not path.startswith("/")}
    gone = [*_gone(place, has)]
    if gone:
        what = f"{many(len(gone), 'file')} of {known.name} are gone, with their rows: {', '.join(gone[:_NAMED])}"
        yield found.problem("files", f"{what}; a clean-up of the table, such as VACUUM, may have removed them")
    staging = Staging(known.files, staging_folder(known.journal.ingestion, known.journal.id))
    needed = frozenset(staging.tokens())
    left = [path for path in place.walk(DATA_FOLDER) if path not in has and _in_vain(known, path, needed)]
    if left:
        what = f"{many(len(left), 'file')} staged for {known.name} and named by no slot: {', '.join(left[:_NAMED])}"
        yield found.note("files", f"{what}; its own clean-up may remove them")


def _audit_staged(found: Findings, known: _Known, pending: Slot) -> Iterator[AuditFinding]:
    context = StepContext(known.files, known.connections)
    for step in table_commits(known.journal, pending.decision):
        try:
            gone = [*step.gone(context)]
        except StepLostError as error:
            yield found.problem("files", f"{error}: abandon the slot", pending.decision.slot)
            continue
        if gone:
            what = f"{many(len(gone), 'file')} staged for it are gone: {', '.join(gone[:_NAMED])}"
            yield found.problem("files", f"{what}; restore them, or abandon the slot", pending.decision.slot)


def _gone(place: Files, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths of files that aren't there, folder by folder."""
    for folder, some in groupby(sorted(paths), posixpath.dirname):
        there: Mapping[str, object] = place.identities(folder or ".")
        yield from (path for path in some if posixpath.basename(path) not in there)


def _in_vain(known: _Known, path: str, needed: frozenset[str]) -> bool:
    """Return whether a file was staged by a token that no done slot has, nor any plan that is still there.

    :param needed: the tokens of these plans.
    """
    token = path.removeprefix(f"{DATA_FOLDER}/").partition("/")[0]
    slot = known.history.by_token(token)
    return token not in needed and (slot is None or slot.abandoned)
