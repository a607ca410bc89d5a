"""The port of commit steps: idempotent publishing actions, each with `verify()` and `execute()`.

`verify` decides by identity and never by mere existence: Gobblin counted a half-copied directory as done. A step is a frozen
dataclass registered with `wire.record`, without secrets; `steps/publishing.py` has those of the built-in sinks. Rules that are
cited by number are in `docs/design.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from airflow_gobblin.connections import GuardedConnections, NoConnections
from airflow_gobblin.model.dead_letters import is_dead_letters
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.table import SlotOfStep
from airflow_gobblin.model.watermark import Watermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.files.base import FileIdentity, Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Phase(StrEnum):
    """The phases of a sequence, in order; after the last one the watermark is handed over.

    A phase is carried out whole, and its folders are durable, before the next one begins (rule 13).
    """

    PREPARE = "prepare"
    PUBLISH = "publish"
    SETTLE = "settle"


class StepStatus(StrEnum):
    """The result of `verify`."""

    TODO = "todo"
    DONE = "done"
    CONFLICT = "conflict"
    """Something else exists where the step publishes, or among the files it would publish."""
    LOST = "lost"
    """Neither source nor result exists."""
    FENCED = "fenced"
    """It was not done and no longer can be: somebody is abandoning its slot."""
    UNKNOWN = "unknown"
    """Nobody looked at it, or it can't be looked at: of a view only, `verify` raises an error."""


class FenceResult(StrEnum):
    """The outcome that a fence found, and ensures from now on (rule 15)."""

    HOLDS = "holds"
    """The act was not done, and never will be."""
    DONE = "done"
    """The act was done, and stays. The rest of its slot may still be abandoned: it is the act on one of many files."""
    WHOLE = "whole"
    """The act was done, and it is the whole slot: the slot can only be finished."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """The resources available to a step, on a worker and in a Spark task alike.

    :param files: the file system under the target root.
    :param connections: access to the secrets of the connections that the ingestion names.
    :param spark: the session of Spark's driver, for steps that are carried out there.
    :param slot: the slot that they belong to, if it publishes to a table.
    """

    files: Files
    connections: GuardedConnections = field(default_factory=lambda: GuardedConnections(NoConnections()))
    spark: SparkSession | None = None
    slot: SlotOfStep | None = None


@dataclass(frozen=True, slots=True)
class TargetFile:
    """A file as a step publishes it.

    :param path: relative to the target root.
    :param unit: the work unit that it belongs to.
    :param identity: its identity when the slot was decided.
    :param checksum: the SHA-256 of its content, in hex; empty if none was taken: then only its identity or its mark proves it.
    :param mark: the mark in its metadata, if that identifies it.
    """

    path: str
    unit: str
    identity: FileIdentity
    checksum: str
    rows: int
    mark: str = ""

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.identity.size

    @property
    def holds_dead_letters(self) -> bool:
        """Whether, as a file of rows, it holds dead letters: readers of the dataset don't get it."""
        return is_dead_letters(self.path)

    def is_same(self, found: FileIdentity, files: Files, path: str | None = None) -> bool:
        """Return whether a file found there is this file: by its identity, else by its mark or checksum.

        :param path: where it was found, if not at its own path.
        """
        if found == self.identity:
            return True
        if found.size != self.size:
            return False
        if self.mark:
            return files.copies is not None and files.copies.mark(path or self.path) == self.mark
        return bool(self.checksum) and files.checksum(path or self.path) == self.checksum


class CommitStep(Protocol):
    """One publishing action. Any process may verify, execute and undo it, any number of times, even concurrently.

    The steps of a phase are carried out in parallel and in no order: a step relies on earlier phases only, and changes nothing
    that `verify` of another one looks at.
    """

    @property
    def phase(self) -> Phase:
        """The phase that it belongs to."""

    @property
    def fence(self) -> Callable[[StepContext], FenceResult] | None:
        """`None` for a step that `undo` takes back, whenever it is done; or that does no harm late: it makes an empty folder, or
        removes one, or sets its attributes, or removes only what another step that has a fence took away.

        A step that takes something over or away can't be taken back, so it is possible only once: it consumes something that only
        its slot has (rule 14). It has a method `fence(context)` that consumes or marks the same, for a slot that is to be
        abandoned, and is called any number of times. It raises an error unless it is certain that the act was done, or
        never will be: the slot then stays pending. A step whose fence may find WHOLE has the only fence of its phase, and no
        later phase has one.
        """

    @property
    def subject(self) -> str:
        """The name of what it publishes, as its errors use it, such as `file 'flights/0.parquet'`."""

    @property
    def conflict(self) -> str:
        """The cause of its error if it is in CONFLICT."""

    @property
    def lost(self) -> str:
        """The cause of its error if it is LOST."""

    def verify(self, context: StepContext) -> StepStatus:
        """Return whether it is done. Changes nothing."""

    def execute(self, context: StepContext) -> None:
        """Carry out the step. An error doesn't determine the outcome: the caller verifies again."""

    def undo(self, context: StepContext) -> None:
        """Undo what it did, and nothing else; harmless if it did nothing. For abandoned sequences, the last phase first.

        It is also called after later slots have published, and must leave what their steps made. So steps of two slots share no
        name: each makes names with its slot's token. `verify` couldn't determine whose a shared name is.

        A step with a fence removes no more than its fence left.
        """

    def files(self) -> tuple[TargetFile, ...]:
        """Return the files that it publishes: readers of the journal find them, and clean-up removes them once their units were
        replaced, or dropped with their files.

        Anything that a step makes and `files` doesn't name is never cleaned up once its slot is done.

        A step that publishes files looks at their source itself, and overwrites nothing but what it expects: it is executed
        without being verified first.
        """

    def folders(self) -> tuple[str, ...]:
        """Return the folders whose names must be durable before the next phase begins, or the outcome is written."""


class SitedStep(Protocol):
    """A step that states where it is carried out; all others may run on a worker and in a Spark task alike.

    On the driver, `StepContext.spark` is a session for `verify` and `execute`; `fence` and `undo` are called on workers.
    """

    @property
    def site(self) -> Site:
        """Where it is carried out."""


class ManyFilesStep(Protocol):
    """A step about many files. It counts as that many in batches, which bounds them in memory."""

    @property
    def entries(self) -> int:
        """The number of files that it is about."""


class PublishingStep(ManyFilesStep, Protocol):
    """A step that states whether it publishes files, so that nobody needs to list thousands to find out."""

    @property
    def publishes(self) -> bool:
        """Whether `files` has any."""


class DeletingStep(Protocol):
    """A step that deletes a file, which a mirror reports by name."""

    @property
    def deleted_file(self) -> tuple[str, FileIdentity]:
        """The file's path, relative to the target root, and its identity when it was planned to be deleted."""


class TableStep(Protocol):
    """A step on a table: `verify` opens the table, which takes libraries and credentials that a web server may not have."""

    @property
    def opens_table(self) -> bool:
        """Whether it does."""


def site_of(step: CommitStep) -> Site:
    """Return where a step is carried out: a `SitedStep` states it."""
    site: Site = getattr(step, "site", Site.TASK)  # checking the protocol takes ten times as long, for each file
    return site


@record("high_watermark_step")
@dataclass(frozen=True)
class HighWatermarkStep:
    """The last step of a sequence: hands over the watermark. Writing the outcome DONE *is* executing it, in one atomic record
    with the ranges that the decision covers, so it needs no code of its own.

    :param watermark: the dataset's watermark once the slot is done; `None` for a dataset without positions.
    """

    watermark: Watermark | None


def publishes_files(step: CommitStep) -> bool:
    """Return whether a step publishes files: a `PublishingStep` states it."""
    publishes: bool | None = getattr(step, "publishes", None)  # see `site_of`
    return bool(step.files()) if publishes is None else publishes


def deleted_by(step: CommitStep) -> tuple[str, FileIdentity] | None:
    """Return the path and the identity of the file that a step deletes; `None` if it deletes none: a `DeletingStep` states it."""
    deleted: tuple[str, FileIdentity] | None = getattr(step, "deleted_file", None)  # see `site_of`
    return deleted


def opens_table(step: CommitStep) -> bool:
    """Return whether looking at a step opens a table: a `TableStep` states it."""
    opens: bool = getattr(step, "opens_table", False)  # see `site_of`
    return opens


def weight_of(step: CommitStep) -> int:
    """Return how many files a step is about: a `ManyFilesStep` states it."""
    entries: int | None = getattr(step, "entries", None)  # see `site_of`
    return max(1, len(step.files())) if entries is None else entries


def batches(steps: Iterable[CommitStep], files: int) -> Iterator[tuple[CommitStep, ...]]:
    """Yield steps in batches, each of one phase and site and of this many files, which bounds their size in memory and in a
    record. Batches of different phases and sites come in no order.
    """
    some: dict[tuple[Phase, Site], list[CommitStep]] = {}
    counts: Counter[tuple[Phase, Site]] = Counter()
    for step in steps:
        kind = Phase(step.phase), site_of(step)
        some.setdefault(kind, []).append(step)
        counts[kind] += weight_of(step)
        if counts[kind] >= files:
            yield tuple(some.pop(kind))
            del counts[kind]
    for rest in some.values():
        yield tuple(rest)
