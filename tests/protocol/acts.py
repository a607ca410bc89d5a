"""Steps in all three phases, one of them an act that is possible once only: a slot's ticket is taken, or fenced.

The ticket is a folder that the writer of a unit stages. To take it is to rename it; to fence it is to rename it, too, or to
remove it: one of the two wins, however late the other comes. The step before makes the folder that it is taken to; the one after
removes the staged names of the published files, from which nothing could be published any more.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files import Files

ACTS = "acts"
"""The folder of all acts, below the target root."""


class Fences(StrEnum):
    """How a ticket is fenced. A mark distinguishes it from a ticket that is lost, a removal doesn't."""

    MARK = "mark"
    REMOVAL = "removal"


def stage_ticket(files: Files, staged: str) -> None:
    """Make the ticket of a unit durable.

    :param staged: the folder of its staged files, which no other attempt has.
    """
    ticket = _ticket(staged)
    with files.create(_slip(ticket)) as out:
        out.write(b"once\n")
    files.sync_file(_slip(ticket))
    files.sync_folder(ticket)


def is_ticket(files: Files, path: str) -> bool:
    """Whether there is a ticket, and not something of somebody else's."""
    return files.identity(_slip(path)) is not None


def _slip(ticket: str) -> str:
    return f"{ticket}/slip"


def with_acts(plan: Plan, steps: Iterable[CommitStep], fences: Fences = Fences.MARK) -> Iterator[CommitStep]:
    """Yield steps that publish files, and others in each phase, if there are any; the last phase first."""
    moves = [*steps]
    if not moves:
        return
    sources = [move.source for move in moves]  # type: ignore[attr-defined]
    yield from (ForgetStep(source) for source in sources)
    yield from moves
    folder = f"{ACTS}/{dataset_key(plan.urn)}"
    yield TakeStep(_ticket(posixpath.dirname(sources[0])), f"{folder}/{plan.token}", fences=fences)
    yield PrepareStep(folder)


def _ticket(staged: str) -> str:
    return f"{staged}/ticket"


@record("test.prepare_step")
@dataclass(frozen=True)
class PrepareStep:
    """Makes a folder. It relies on nothing, and `TakeStep` on it."""

    folder: str
    phase = Phase.PREPARE
    fence = None
    conflict = lost = "its folder can't be made"

    @property
    def subject(self) -> str:
        return f"folder {self.folder!r}"

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.TODO if context.files.identity(self.folder) is None else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        context.files.make_folder(self.folder)

    def undo(self, context: StepContext) -> None:
        """It stays: another slot may rely on it."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (ACTS,)


@record("test.take_step")
@dataclass(frozen=True)
class TakeStep:
    """Takes a ticket.

    :param ticket: where it is staged.
    :param taken: where it goes.
    :param whole: it is the whole slot: once it is taken, the slot is done; otherwise, one of many.
    """

    ticket: str
    taken: str
    whole: bool = True
    fences: Fences = Fences.MARK
    phase = Phase.PUBLISH
    conflict = "something else is there"
    lost = "its ticket is nowhere"

    @property
    def subject(self) -> str:
        return f"ticket {self.taken!r}"

    @property
    def fenced(self) -> str:
        return f"{self.taken}.fenced"

    def verify(self, context: StepContext) -> StepStatus:
        ends = {self.taken: StepStatus.DONE, self.fenced: StepStatus.FENCED, self.ticket: StepStatus.TODO}
        for _ in range(2):  # somebody may move it between two looks
            for path, status in ends.items():
                if is_ticket(context.files, path):
                    blocked = status is StepStatus.TODO and context.files.identity(self.taken) is not None
                    return StepStatus.CONFLICT if blocked else status
        return StepStatus.LOST

    def execute(self, context: StepContext) -> None:
        context.files.move_folder(self.ticket, self.taken)

    def fence(self, context: StepContext) -> FenceResult:
        if self.fences is Fences.REMOVAL:
            context.files.remove_tree(self.ticket)
        else:
            context.files.make_folder(posixpath.dirname(self.fenced))
            with suppress(FileNotFoundError, FileExistsError):
                context.files.move_folder(self.ticket, self.fenced)
        found = self.verify(context)
        if found is StepStatus.DONE:
            return FenceResult.WHOLE if self.whole else FenceResult.DONE
        if found is (StepStatus.FENCED if self.fences is Fences.MARK else StepStatus.LOST):
            return FenceResult.HOLDS
        raise OSError(f"the ticket {self.ticket} is {found}")

    def undo(self, context: StepContext) -> None:
        context.files.remove_tree(self.fenced)

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.taken),)


@record("test.forget_step")
@dataclass(frozen=True)
class ForgetStep:
    """Removes a staged name, without which a file that isn't published is lost."""

    source: str
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "it can't be removed"

    @property
    def subject(self) -> str:
        return f"staged name {self.source!r}"

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.DONE if context.files.identity(self.source) is None else StepStatus.TODO

    def execute(self, context: StepContext) -> None:
        context.files.unlink(self.source)

    def undo(self, context: StepContext) -> None:
        """It goes with its staging."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.source),)
