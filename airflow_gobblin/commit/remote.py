"""Work on long commit sequences that is done elsewhere: the pieces handed out, and the answers.

They are kept in a folder of the token's staging, and removed with it:

    s/<token>/<attempt>/in/<n>        input of one Spark task: a step shard as stored in the journal, or results to publish
    s/<token>/<attempt>/out/<digest>  a step shard that it wrote for these results
    s/<token>/<attempt>/answers       the result of each task, written by the driver once all have ended

The tasks see no journal: the process that waits for the answers hands out the shards, and puts them into the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from airflow_gobblin.errors import StepLostError
from airflow_gobblin.job import Work
from airflow_gobblin.journal.records import ShardRef
from airflow_gobblin.model import wire
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import UnitResult, WorkUnit
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.stores.base import put_or_read

__all__ = [
    "FILES_PER_PIECE",
    "ResultsToPublish",
    "StepAnswer",
    "StepAnswers",
    "StepFolder",
    "StepRunner",
    "pieces_of",
]

FILES_PER_PIECE = 1000
"""The number of files whose steps one task writes, about one shard, if no unit has more."""


class StepRunner(Protocol):
    """A runner that writes and carries out the steps of long sequences elsewhere, many at once, and all that need Spark's driver.
    Safe at any time, since the steps are.
    """

    @property
    def above(self) -> int | None:
        """The number of steps above which a sequence is handed to it; `None` if only those that need the driver are."""

    def write(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], staging: str
    ) -> Iterator[tuple[ShardRef, bytes]]:
        """Yield the steps that publish the results of units, as shards, each with its reference.

        :param published: the units, each with its result; read once.
        :param staging: the folder of the plan's token.
        :raises StepError: they can't be written.
        :raises TargetError: the target isn't available where the work is done.
        """

    def carry_out(self, urn: str, slot: int, staging: str, groups: Iterable[tuple[Site, Iterable[bytes]]]) -> int:
        """Carry out the steps of some shards, group by group, and make the results of each durable before the next.

        :param groups: for each, where its steps are carried out, and its shards, all of one phase, in order.
        :return: how many were done there.
        :raises StepError: a step can't be done; the first such error.
        :raises TargetError: as `write`.
        """


@dataclass(frozen=True)
class StepAnswer:
    """The result of one task.

    :param piece: the number of its piece.
    :param steps: how many steps it carried out.
    :param shards: the shards that it wrote.
    """

    piece: int
    steps: int = 0
    shards: tuple[ShardRef, ...] = ()
    failure: Failure | None = None


@record("step_answers")
@dataclass(frozen=True)
class StepAnswers:
    """The results of all tasks, in the order of their pieces."""

    answers: tuple[StepAnswer, ...]

    @property
    def failure(self) -> Failure | None:
        """The first failure."""
        return next((answer.failure for answer in self.answers if answer.failure), None)


@record("results_to_publish")
@dataclass(frozen=True)
class ResultsToPublish:
    """Results whose steps one task writes, and their units, in the same order."""

    work: Work
    units: tuple[WorkUnit, ...]
    results: tuple[UnitResult, ...]

    @property
    def published(self) -> Iterator[tuple[WorkUnit, UnitResult]]:
        """The units, each with its result."""
        return zip(self.units, self.results, strict=True)


class StepFolder:
    """The staging folder of work that is split into many tasks.

    :param files: the file system under the target root.
    :param folder: the folder described in this module, below that root.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder
        self._store = files.records(folder)

    def put(self, data: Iterable[bytes], start: int = 0) -> int:
        """Write the inputs of the tasks, one at a time in memory.

        :param start: the number of the first.
        :return: the number of tasks.
        """
        count = 0
        for count, piece in enumerate(data, start=1):
            put_or_read(self._store, f"in/{start + count - 1:06d}", piece)
        return count

    def piece(self, number: int) -> bytes:
        """Return the input of a task.

        :raises StepLostError: it was swept, as its slot has ended.
        """
        data = self._store.get(f"in/{number:06d}")
        if data is None:
            raise StepLostError(operation="read", subject=f"piece {number} of {self.folder}", cause="it is gone")
        return data

    def put_shards(self, shards: Iterable[tuple[ShardRef, bytes]]) -> tuple[ShardRef, ...]:
        """Store the shards that a task wrote, one at a time in memory."""
        refs = []
        for ref, data in shards:
            put_or_read(self._store, f"out/{ref.digest}", data)
            refs.append(ref)
        return tuple(refs)

    def shards(self, answers: StepAnswers) -> Iterator[tuple[ShardRef, bytes]]:
        """Yield all written shards, in the order of the answers, one at a time in memory.

        :raises StepLostError: one was swept.
        """
        for ref in (ref for answer in answers.answers for ref in answer.shards):
            data = self._store.get(f"out/{ref.digest}")
            if data is None:
                raise StepLostError(
                    operation="read", subject=f"shard {ref.digest} of {self.folder}", cause="it is gone"
                )
            yield ref, data

    def put_answers(self, answers: StepAnswers) -> None:
        """Write the results of all tasks."""
        put_or_read(self._store, "answers", wire.dumps(answers))

    def answers(self) -> StepAnswers | None:
        """Return the results of all tasks; `None` if they were never written."""
        data = self._store.get("answers")
        return None if data is None else wire.loads(data, StepAnswers, "answers")

    def remove(self) -> None:
        """Remove the folder; otherwise it is removed with the token's staging."""
        self.files.remove_tree(self.folder)


def pieces_of(work: Work, published: Iterable[tuple[WorkUnit, UnitResult]]) -> Iterator[bytes]:
    """Split units and their results into pieces with about the same number of files."""
    some: list[tuple[WorkUnit, UnitResult]] = []
    files = 0
    for unit, result in published:
        some.append((unit, result))
        files += max(1, len(result.files))
        if files >= FILES_PER_PIECE:
            yield _piece_of(work, some)
            some, files = [], 0
    if some:
        yield _piece_of(work, some)


def _piece_of(work: Work, published: Iterable[tuple[WorkUnit, UnitResult]]) -> bytes:
    units, results = zip(*published, strict=True)
    return wire.dumps(ResultsToPublish(work, units, results))
