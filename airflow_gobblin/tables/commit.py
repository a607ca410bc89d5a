"""The one step that publishes to a table: a single atomic commit, which also moves the dataset's mark.

Whatever a format's library answers, the mark shows what happened. It is compared with only two values, the slot's own mark and
the one that must precede it, and never by order. A mark that is neither means that something is wrong: the error names it.
"""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from airflow_gobblin.errors import (
    ClaimError,
    ConfigurationError,
    GobblinError,
    StepDamagedError,
    StepFencedError,
    StepLostError,
    TableError,
    TableMovedError,
)
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.table import DataFile, SlotOfStep, TableTarget, TableUnit
from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.lists import ListFile, read_lists
from airflow_gobblin.tables.port import Change, Look, Merge, OpenTable, table_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TableCommitStep", "looks", "slot_of", "try_commit", "version_left"]

log = logging.getLogger(__name__)

_TRIES = 20
"""How many times a commit is tried while others also commit to the table."""
_PAUSE = 0.05
_NAMED = 20
"""The most data files that an error names."""


@record("table_commit_step")
@dataclass(frozen=True)
class TableCommitStep:
    """The step that commits a slot to its table. It is the last act of the slot, and the whole of it.

    :param target: the table, as planned.
    :param folder: the folder of the lists of data files, in the workspace.
    :param lists: these lists.
    :param removes: the units that leave in the same commit, and `removes_all` that everything does.
    :param merge: how its rows replace others; `None`: they are added.
    :param schema: the columns that the table has from then on, encoded; `None`: it keeps those it has.
    """

    target: TableTarget
    folder: str = ""
    lists: tuple[ListFile, ...] = ()
    removes: tuple[TableUnit, ...] = ()
    removes_all: bool = False
    merge: Merge | None = None
    schema: str | None = None
    phase = Phase.SETTLE
    site = Site.TASK
    opens_table = True

    conflict = "the table isn't as it was planned"

    @property
    def subject(self) -> str:
        return f"the commit to {self.target.table.name}"

    @property
    def lost(self) -> str:
        return "a data file staged for it, or a list of these, is gone: the table's own clean-up may have removed it"

    def files(self) -> tuple[TargetFile, ...]:
        """Return none: data that leaves a table is removed by the table's own clean-up."""
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()

    def verify(self, context: StepContext) -> StepStatus:
        slot = slot_of(context)
        look = self._open(context).look(slot.owner)
        status = self._status(look, slot)
        if status is StepStatus.TODO:
            self._check_form(look)
            if self._is_lost(context):
                return StepStatus.LOST
        return status

    def execute(self, context: StepContext) -> None:
        """Commit, unless that is done already.

        :raises StepFencedError: it is shut out.
        :raises StepLostError: a staged file is gone.
        :raises TableError: the table isn't as expected.
        :raises StepDamagedError: it is done, but a data file disappeared during the commit.
        """
        slot, table = slot_of(context), self._open(context)
        for look in looks(table, slot, self.target):
            status = self._status(look, slot)
            if status is StepStatus.DONE:
                return
            if status is StepStatus.FENCED:
                raise StepFencedError(operation="publish", subject=self.subject, cause="it is shut out")
            self._check_form(look)
            if self._is_lost(context):
                raise StepLostError(operation="publish", subject=self.subject, cause=self.lost)
            change = self._change(context.files)
            if try_commit(self.subject, partial(table.commit, look, change, slot.owner, slot.done)):
                self._check_files_stay(context)
                return

    def fence(self, context: StepContext) -> FenceResult:
        """Shut the slot out of the table for good, by a commit that does nothing but move the mark.

        :raises TableError: the table isn't as expected, and no person asked to abandon the slot.
        """
        slot, table = slot_of(context), self._open(context)
        for look in looks(table, slot, self.target):
            if slot.asked and look.id != self.target.id:
                return FenceResult.HOLDS  # the catalog answers, and the table is gone
            if look.id == self.target.id and look.owner not in (None, slot.owner) and look.mark != slot.done:
                return FenceResult.HOLDS  # taking it over shut out all slots of this owner
            if not (slot.asked and self._may_be_overruled(look, slot)):
                status = self._status(look, slot)
                if status is StepStatus.DONE:
                    return FenceResult.WHOLE
                if status is StepStatus.FENCED:
                    return FenceResult.HOLDS
            if try_commit(
                self.subject, partial(table.commit, look, Change(form=look.form), slot.owner, slot.abandoned)
            ):
                return FenceResult.HOLDS
        raise AssertionError("unreachable")

    def undo(self, context: StepContext) -> None:
        """Do nothing: the act can't be taken back, and its fence leaves nothing."""

    def _open(self, context: StepContext) -> OpenTable:
        return table_of(self.target.table).open(context.connections, context.files)

    def _status(self, look: Look, slot: SlotOfStep) -> StepStatus:
        """Return the status that a look at the table shows.

        :raises TableError: the table isn't as expected.
        :raises ClaimError: it belongs to another dataset.
        """
        if look.id != self.target.id:
            raise self._wrong("it was made anew" if look.id else "it is gone")
        if look.mark == slot.abandoned:
            return StepStatus.FENCED
        if look.mark == slot.done:
            if not look.in_history:
                raise self._wrong(f"it was set back to before {look.mark}, which is committed")
            return StepStatus.DONE
        if look.owner not in (None, slot.owner):
            raise ClaimError(
                operation="commit to",
                subject=self.target.table.name,
                cause=f"it belongs to {look.owner}",
                hint="Publish to another table; or take this one over: `airflow gobblin take-over`.",
            )
        if look.mark != slot.previous:
            raise self._wrong(_difference(look, slot))
        if not look.in_history:
            raise self._wrong(f"it was set back to before {look.mark}")
        return StepStatus.TODO

    def _check_form(self, look: Look) -> None:
        """Check that the table has the form that the files were written for. A fence needs no check.

        :raises TableError: it doesn't.
        """
        if look.form != self.target.form:
            raise self._wrong("its columns or its partition were changed since it was planned")

    def _may_be_overruled(self, look: Look, slot: SlotOfStep) -> bool:
        """Return whether a slot can be shut out, if a person asks for it, although the table isn't as expected: neither a later
        slot nor another one in its place has marked the table, and the slot's commit isn't in its history.
        """
        if look.mark == slot.done:
            return not look.in_history
        return look.mark != slot.abandoned and (look.mark is None or look.mark.slot < slot.slot)

    def _wrong(self, cause: str) -> TableError:
        return TableError(
            operation="commit to",
            subject=self.target.table.name,
            cause=cause,
            hint="Fix it, or abandon the slot and plan anew.",
        )

    def data_files(self, files: Files) -> Iterator[DataFile]:
        """Yield the data files that it commits.

        :param files: the file system of the workspace.
        :raises StepLostError: a list of them is gone.
        """
        return read_lists(files, self.folder, self.lists)

    def gone(self, context: StepContext) -> Iterator[str]:
        """Yield the staged data files that are gone or have another size. Each folder is looked at once.

        :raises StepLostError: a list of them is gone.
        """
        where = self.target.location
        files = open_files(where, context.connections) if where else context.files
        for folder, staged in groupby(self.data_files(context.files), lambda file: posixpath.dirname(file.path)):
            found = files.identities(folder)
            for file in staged:
                identity = found.get(posixpath.basename(file.path))
                if identity is None or identity.size != file.size:
                    yield file.path

    def _check_files_stay(self, context: StepContext) -> None:
        """Check that no data file disappeared between the last look at them and the commit that put them into the table. The slot
        is done all the same: a loss is reported once here, and by `audit` from then on.

        :raises StepDamagedError: one did.
        """
        if not self.target.location or self.merge is not None:
            return  # the table has copies of their rows
        if gone := [*self.gone(context)]:
            raise StepDamagedError(
                operation="publish",
                subject=self.subject,
                cause=f"{many(len(gone), 'data file')} went while they were committed, so that the table lacks their rows: "
                + ", ".join(gone[:_NAMED]),
                hint="Restore them from a copy, or rewind the dataset to before this slot. Let the table's clean-up keep all "
                "files that are younger than a run.",
            )

    def _is_lost(self, context: StepContext) -> bool:
        """Return whether a staged data file, or a list of these, is gone."""
        try:
            return next(self.gone(context), None) is not None
        except StepLostError:
            return True

    def _change(self, files: Files) -> Change:
        return Change(
            files=lambda: self.data_files(files),
            count=sum(one.files for one in self.lists),
            rows=sum(one.rows for one in self.lists),
            removes=self.removes,
            removes_all=self.removes_all,
            merge=self.merge,
            schema=None if self.schema is None else _decoded(self.schema),
            form=self.target.form,
        )


def _difference(look: Look, slot: SlotOfStep) -> str:
    """Describe how the mark of a table differs from the one that it must have."""
    if look.mark is None:
        return f"it has no mark of this dataset, and must have that of {slot.previous}"
    if look.mark.slot == slot.slot:
        return f"it has the mark of another {look.mark}: two copies of this journal are written to"
    if look.mark.slot > slot.slot:
        return f"it has the mark of a later {look.mark}: this slot has ended, or this is an old copy of the journal"
    return f"it has the mark of {look.mark}, and must have that of {slot.previous or 'no slot'}: it was restored"


def _decoded(text: str) -> pa.Schema:
    from airflow_gobblin.model.schema import decode  # loads Arrow, which a reader of the journal needn't have

    return decode(text)


def looks(table: OpenTable, slot: SlotOfStep, target: TableTarget) -> Iterator[Look]:
    """Yield a look at a table for every try to commit to it.

    :raises TableMovedError: there were too many.
    """
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE * min(number, 10))
        yield table.look(slot.owner)
    raise TableMovedError(
        operation="commit to",
        subject=target.table.name,
        cause=f"others committed to it during each of {_TRIES} tries",
        hint="Nothing is lost: it is tried again.",
    )


def try_commit(subject: str, commit: Callable[[], None]) -> bool:
    """Commit to a table, and return whether it took hold. It doesn't if somebody else has committed since the last look.

    :param subject: the step, for the log.
    """
    try:
        commit()
    except TableMovedError:
        log.info("%s: somebody else committed meanwhile; looking again", subject)
        return False
    return True


def slot_of(context: StepContext) -> SlotOfStep:
    """Return the slot that a step is carried out for.

    :raises ConfigurationError: it isn't known.
    """
    if context.slot is None:
        raise ConfigurationError(
            operation="commit to", subject="a table", cause="the slot isn't known where its step is carried out"
        )
    return context.slot


def version_left(target: TableTarget, context: StepContext) -> str:
    """Return people's name for the version of a table that a slot's commit left; empty if it is no longer known."""
    slot = slot_of(context)
    try:
        with context.connections.redactor.guarding("look at", target.table.name, TableError):
            look = table_of(target.table).open(context.connections, context.files).look(slot.owner)
    except (GobblinError, OSError) as error:  # the slot is done all the same
        log.warning("the version that slot %d left of %s isn't known: %s", slot.slot, target.table.name, error)
        return ""
    return look.left if look.mark == slot.done else ""
