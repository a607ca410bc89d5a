"""The step by which a dataset takes over another one's table: one commit that changes the owner and moves the mark.

From then on no commit of the former owner takes hold, however late, since each requires the owner that was looked at. If the
former owner takes the table back, it does so by a slot of its own, whose mark shuts out all of its earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from airflow_gobblin.errors import ClaimError, StepFencedError, TableError
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.table import Owner, SlotOfStep, TableTarget
from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.tables.commit import looks, slot_of, try_commit
from airflow_gobblin.tables.port import Change, Look, OpenTable, table_of

__all__ = ["TableTakeOverStep"]


@record("table_take_over_step")
@dataclass(frozen=True)
class TableTakeOverStep:
    """The step that takes a table over: the whole of its slot.

    :param target: the table, as it was found when this was decided.
    :param former: whose it was then.
    """

    target: TableTarget
    former: Owner
    phase = Phase.SETTLE
    site = Site.TASK
    opens_table = True

    conflict = "the table isn't as it was when this was decided"
    lost = "it needs no staged file"

    @property
    def subject(self) -> str:
        return f"the take-over of {self.target.table.name}"

    def files(self) -> tuple[TargetFile, ...]:
        """Return none."""
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()

    def verify(self, context: StepContext) -> StepStatus:
        slot = slot_of(context)
        return self._status(self._open(context).look(slot.owner), slot)

    def execute(self, context: StepContext) -> None:
        """Take the table over, unless that is done already.

        :raises StepFencedError: it is shut out.
        :raises ClaimError: the table is a third dataset's by now.
        :raises TableError: the table isn't as expected.
        """
        slot, table = slot_of(context), self._open(context)
        for look in looks(table, slot, self.target):
            status = self._status(look, slot)
            if status is StepStatus.DONE:
                return
            if status is StepStatus.FENCED:
                raise StepFencedError(operation="publish", subject=self.subject, cause="it is shut out")
            if try_commit(self.subject, partial(table.take_over, look, slot.owner, slot.done)):
                return

    def fence(self, context: StepContext) -> FenceResult:
        """Shut the slot out of the table for good, by a commit that moves the dataset's mark there and keeps the owner.

        :raises TableError: the table isn't as expected, and no person asked to abandon the slot.
        """
        slot, table = slot_of(context), self._open(context)
        for look in looks(table, slot, self.target):
            if slot.asked and look.id != self.target.id:
                return FenceResult.HOLDS  # the catalog answers, and the table is gone
            status = self._marked(look, slot)
            if status is not StepStatus.TODO:
                return FenceResult.WHOLE if status is StepStatus.DONE else FenceResult.HOLDS
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
        status = self._marked(look, slot)
        if status is StepStatus.TODO and look.owner != self.former:
            raise ClaimError(
                operation="take over",
                subject=self.target.table.name,
                cause=f"it belonged to {self.former}, and belongs to {look.owner or 'nobody'} by now",
                hint="Abandon this slot, and look at the table again.",
            )
        return status

    def _marked(self, look: Look, slot: SlotOfStep) -> StepStatus:
        """Return the status that the dataset's mark shows. Its older marks are from a time when it had the table.

        :raises TableError: the table is another one, or has a mark of a later slot.
        """
        if look.id != self.target.id:
            raise self._wrong("it was made anew" if look.id else "it is gone")
        if look.mark == slot.done:
            return StepStatus.DONE
        if look.mark == slot.abandoned:
            return StepStatus.FENCED
        if look.mark is not None and look.mark.slot >= slot.slot:
            raise self._wrong(
                f"it has the mark of {look.mark}: this slot has ended, or this is an old copy of the journal"
            )
        return StepStatus.TODO

    def _wrong(self, cause: str) -> TableError:
        return TableError(
            operation="take over", subject=self.target.table.name, cause=cause, hint="Abandon the slot, and look again."
        )
