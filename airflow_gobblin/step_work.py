"""Work on long commit sequences that is done elsewhere: what is given away, and what comes back.

It lies in a folder of the token's staging, and goes with it:

    s/<token>/<attempt>/in/<n>        what one Spark task is given: a step shard as the journal has it, or results to publish
    s/<token>/<attempt>/out/<n>-<k>   the step shards that it wrote for these results
    s/<token>/<attempt>/answers       how each task did, written by the driver once all have ended

Who works on it sees no journal: shards are handed out, and put into the journal, by who waits for the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from airflow_gobblin import wire
from airflow_gobblin.errors import GobblinError, StepConflictError, StepError, StepLostError
from airflow_gobblin.files.base import Files
from airflow_gobblin.plan import Plan
from airflow_gobblin.records import Shard
from airflow_gobblin.sinks.base import Sink
from airflow_gobblin.steps import CommitStep, batches
from airflow_gobblin.stores.base import settle
from airflow_gobblin.wire import record
from airflow_gobblin.work import UnitResult

__all__ = [
    "FILES_PER_PIECE",
    "ResultsToPublish",
    "StepAnswer",
    "StepAnswers",
    "StepFailure",
    "StepFolder",
    "StepRunner",
    "pieces_of",
    "shards_of",
]

FILES_PER_PIECE = 1000
"""How many files' steps one task writes, if no unit has more: about one shard."""


class StepRunner(Protocol):
    """Writes and carries out the steps of long sequences elsewhere, many at once. Safe at any time, as the steps are."""

    @property
    def above(self) -> int:
        """Sequences of more steps than these are its business."""

    def write(self, plan: Plan, results: Iterable[UnitResult], staging: str) -> Iterator[tuple[bytes, int]]:
        """The steps that publish these results, as shards, and how many are in each.

        :param results: gone through once. :param staging: the folder of the plan's token.
        :raises StepError: they can't be written.
        """

    def carry_out(self, urn: str, slot: int, staging: str, shards: Iterable[bytes]) -> int:
        """Carry out the steps of some shards, and make what they did durable.

        :return: how many were done there. :raises StepError: a step can't be done: the first.
        """


class FailureKind(StrEnum):
    """What went wrong with a step."""

    FAILED = "failed"
    CONFLICT = "conflict"
    LOST = "lost"


_ERRORS: dict[FailureKind, type[StepError]] = {
    FailureKind.FAILED: StepError,
    FailureKind.CONFLICT: StepConflictError,
    FailureKind.LOST: StepLostError,
}


@dataclass(frozen=True)
class StepFailure:
    """An error of a step, on its way between processes."""

    kind: FailureKind
    operation: str
    subject: str
    cause: str
    hint: str | None

    @classmethod
    def of(cls, error: Exception, subject: str) -> StepFailure:
        """Take an error along. :param subject: of an error that names none."""
        if not isinstance(error, GobblinError):
            return cls(FailureKind.FAILED, "work on", subject, f"{type(error).__name__}: {error}", None)
        kind = next((k for k, known in _ERRORS.items() if type(error) is known), FailureKind.FAILED)
        cause = error.cause
        told = f"{type(cause).__name__}: {cause}" if isinstance(cause, BaseException) else str(cause or "")
        return cls(kind, error.operation, error.subject, told, error.hint)

    def error(self) -> StepError:
        """The error again."""
        known = _ERRORS[self.kind]
        return known(operation=self.operation, subject=self.subject, cause=self.cause, hint=self.hint)


@dataclass(frozen=True)
class StepAnswer:
    """How one task did.

    :param piece: which. :param steps: how many it wrote, or carried out, until it failed.
    """

    piece: int
    steps: int
    failure: StepFailure | None = None


@record("step_answers")
@dataclass(frozen=True)
class StepAnswers:
    """How all tasks did, in the order of their pieces."""

    answers: tuple[StepAnswer, ...]

    @property
    def failure(self) -> StepFailure | None:
        """The first failure."""
        return next((answer.failure for answer in self.answers if answer.failure), None)


@record("results_to_publish")
@dataclass(frozen=True)
class ResultsToPublish:
    """Results whose steps one task writes."""

    sink: Sink
    results: tuple[UnitResult, ...]


class StepFolder:
    """One piece of work of many parts, in staging.

    :param files: under the target root. :param folder: as the module says, below that root.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder
        self._store = files.records(folder)

    def put(self, data: Iterable[bytes]) -> int:
        """Write what tasks are given, a task at a time in memory. :return: how many tasks there are."""
        count = 0
        for count, piece in enumerate(data, start=1):
            settle(self._store, f"in/{count - 1:06d}", piece)
        return count

    def piece(self, number: int) -> bytes:
        """What a task is given. :raises StepLostError: it was swept, as its slot has ended."""
        data = self._store.get(f"in/{number:06d}")
        if data is None:
            raise StepLostError(operation="read", subject=f"piece {number} of {self.folder}", cause="it is gone")
        return data

    def put_shards(self, number: int, shards: Iterable[tuple[bytes, int]]) -> int:
        """Keep the shards that a task wrote; those of its first attempt stand. :return: how many steps are in them."""
        steps = 0
        for part, (shard, count) in enumerate(shards):
            settle(self._store, f"out/{number:06d}-{part:06d}.{count}", shard)
            steps += count
        return steps

    def shards(self) -> Iterator[tuple[bytes, int]]:
        """All shards that were written, in order, and how many steps are in each, a shard at a time in memory."""
        for key, data in self._store.get_many(sorted(self._store.list("out/"))):
            if data is not None:
                yield data, int(key.rpartition(".")[2])

    def put_answers(self, answers: StepAnswers) -> None:
        """Say how all tasks did."""
        settle(self._store, "answers", wire.dumps(answers))

    def answers(self) -> StepAnswers | None:
        """How all tasks did; `None` if nobody came to say so."""
        data = self._store.get("answers")
        return None if data is None else wire.loads(data, StepAnswers, "answers")

    def remove(self) -> None:
        """Remove it all; otherwise it goes with the token's staging."""
        self.files.remove_tree(self.folder)


def pieces_of(sink: Sink, results: Iterable[UnitResult]) -> Iterator[bytes]:
    """Results, in pieces of about as many files."""
    some: list[UnitResult] = []
    files = 0
    for result in results:
        some.append(result)
        files += len(result.files)
        if files >= FILES_PER_PIECE:
            yield wire.dumps(ResultsToPublish(sink, tuple(some)))
            some, files = [], 0
    if some:
        yield wire.dumps(ResultsToPublish(sink, tuple(some)))


def shards_of(token: str, steps: Iterable[CommitStep]) -> Iterator[tuple[bytes, int]]:
    """Steps as shards of a token, and how many are in each."""
    for some in batches(steps, FILES_PER_PIECE):
        yield wire.dumps(Shard(some, token)), len(some)
