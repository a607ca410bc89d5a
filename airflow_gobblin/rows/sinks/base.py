"""The interface of sinks: a sink writes staged files in a Spark task, and names the commit steps that publish them.

A sink is a frozen dataclass, registered with `wire.record`. It only ever writes to staging; the steps publish.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import is_hidden, many
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.work import Dataset, StagedFile, UnitResult
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.publishing import publish_file, publish_folder
from airflow_gobblin.storage.files.base import Files, each

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.table import DataFile, TableRecord
    from airflow_gobblin.tables.port import Merge, PartitionField, SchemaRule

FILES_PER_FOLDER = 10_000
"""The most files of a folder that is published whole: one step must fit in memory, and in a record. Larger ones are published
file by file.
"""


class Layout(StrEnum):
    """The layout of a dataset's files in its folder."""

    FLAT = "flat"
    """All side by side. Every reader of a folder finds them, Spark too, and may see one of a unit's files before the others."""
    FOLDER_PER_UNIT = "folder_per_unit"
    """Those of each work unit in a folder of their own, which is published by one rename: a reader of the folder sees all of a
    unit, or nothing of it, and units of many files are published faster. For readers that look into folders: Arrow does, Spark
    only with the option `recursiveFileLookup`; readers of the journal or of manifests need nothing. An object store has no
    folders to rename: there each file is published by itself, under the same name.
    """

    def path(self, stem: str, index: int, suffix: str) -> str:
        """Return the path of a unit's file.

        :param stem: as passed to `Sink.open`.
        """
        return f"{stem}{'-' if self is Layout.FLAT else '/'}{index}.{suffix}"


class Writer(Protocol):
    """The files of one unit being written."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch in the published schema."""

    def close(self) -> tuple[StagedFile, ...]:
        """Finish every file: whole, synced to disk, with its checksum. Without rows there is no file."""

    @property
    def properties(self) -> Mapping[str, Json]:
        """After `close`: properties for the next run's plan, in addition to the reader's. A name that the reader leaves, too,
        fails the unit.
        """

    def abort(self) -> None:
        """Close and remove the written files; safe to repeat."""


@runtime_checkable
class Sink(Protocol):
    """The destination of rows."""

    @property
    def target(self) -> str:
        """The target root: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`, used as is (Airflow doesn't
        render it).
        """

    def folder(self, dataset: Dataset) -> str:
        """Return a dataset's folder, relative to the target root; never outside it (see `naming.dataset_key`)."""

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """Return the schema to publish with.

        :raises SchemaConflictError: it doesn't fit the published one.
        """

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Writer:
        """Start the staged files of a unit, with `files.stage`.

        :param staged: the stem of their paths, in a folder of this task attempt alone: `Layout.path` makes
            `<staged>-<index>.<suffix>` or `<staged>/<index>.<suffix>` of it.
        :param published: the stem of the paths that `publish` gives them, in the same way.
        """

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """Yield the steps that publish these results, to names made only from the plan's token, the unit and the index: the names
        that the files were staged for. `publish_units` makes them.

        Each file of each result is published once: `files` of its step has its unit and its checksum. The results can be gone
        through once only. Readers ignore names starting with `_` or `.`, so no published name of rows does.

        :raises StepLostError: a staged file is gone, or no longer matches its result.
        """


@runtime_checkable
class TableSink(Protocol):
    """A sink whose destination is a table: also a `Sink`, whose target is the workspace, and whose `publish` isn't called.

    Its `schema` is called only for a first schema: the columns as the format holds them. How a table's columns may change is
    decided by `rule_of` and `widens`. Its `open` gets the files of the table's location, the folder of this unit's data files
    alone as `staged`, and the unit's id as `published`. Its writer is a `TableWriter`.
    """

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections needed to open its tables, or to write to them."""

    @property
    def merge(self) -> Merge | bool:
        """Whether rows are merged by key: by the source's keys, or by those given here. It is for loads by snapshot-append."""

    @property
    def merged_bytes(self) -> int | None:
        """The most bytes that one slot merges into a table that has rows; `None`: there is no bound."""

    def table_of(self, dataset: Dataset) -> TableRecord:
        """Return the record that names the dataset's table."""

    def partition_of(self, dataset: Dataset) -> tuple[PartitionField, ...]:
        """Return the partition that the table is created with."""

    def rule_of(self, dataset: Dataset) -> SchemaRule:
        """Return what may change in the table's columns."""

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return whether the format can change a column of a table so that it has a wider type, or takes nulls."""


class TableWriter(Writer, Protocol):
    """The writer of a `TableSink`."""

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """After `close`: its files, with what their format needs at the commit."""


@runtime_checkable
class SizedSink(Protocol):
    """A sink that aims at a certain file size."""

    @property
    def file_bytes(self) -> int:
        """The file size that it aims at, in bytes."""


def publish_units(
    plan: Plan, results: Iterable[UnitResult], files: Files, layout: Layout, suffix: str
) -> Iterator[CommitStep]:
    """Yield the steps that publish units whose files are named by a layout, from `<plan.folder>/<token>-<unit>` on.

    :raises StepLostError: a staged file is gone, or no longer matches its result.
    """

    def pieces() -> Iterator[tuple[str, int, tuple[StagedFile, ...]]]:
        """Yield the files of each step: those of a unit, or one of them, from an index on."""
        for result in results:
            if layout is Layout.FOLDER_PER_UNIT and files.moves_folders and 1 < len(result.files) <= FILES_PER_FOLDER:
                yield result.unit, 0, result.files
            else:
                yield from ((result.unit, index, (file,)) for index, file in enumerate(result.files))

    def steps(piece: tuple[str, int, tuple[StagedFile, ...]]) -> tuple[CommitStep, ...]:
        unit, index, some = piece
        stem = f"{plan.folder}/{plan.token}-{unit}"
        if len(some) > 1:
            return publish_folder(some, stem, unit, files)
        return (publish_file(some[0], layout.path(stem, index, suffix), unit, files),)

    for some in each(files, steps, pieces()):
        yield from some


def checked_steps(sink: Sink, plan: Plan, results: Iterator[UnitResult], files: Files) -> Iterator[CommitStep]:
    """Yield the steps of a sink, and see that they publish each file once: its rows count as published, once.

    :raises ConfigurationError: they leave out a file, or publish one twice, or one that no result has, or rows that readers don't
        see.
    """
    left: Counter[tuple[str, str]] = Counter()

    def counted() -> Iterator[UnitResult]:
        for result in results:
            left.update((result.unit, file.checksum) for file in result.files)
            yield result

    for step in sink.publish(plan, counted(), files):
        for file in step.files():
            content, hidden = (file.unit, file.checksum), is_hidden(file.path)
            if hidden and file.rows:
                raise _wrong_steps(sink, plan, f"publish rows as {file.path!r}, which readers of its folder ignore")
            if left[content]:
                left[content] -= 1
            elif not hidden:
                cause = f"publish {file.path!r}, and unit {file.unit!r} has no file of its checksum that isn't published yet"
                raise _wrong_steps(sink, plan, cause)
            if not left[content]:
                del left[content]
        yield step
    # Results that it didn't ask for are left out, too; so are those that it never saw, since it closed the iterator that it was
    # given.
    deque(counted(), maxlen=0)
    if left:
        unit, _ = next(iter(left))
        raise _wrong_steps(sink, plan, f"leave out {many(left.total(), 'file')}, such as one of unit {unit!r}")


def _wrong_steps(sink: Sink, plan: Plan, cause: str) -> ConfigurationError:
    return ConfigurationError(
        operation="publish",
        subject=f"dataset {plan.urn!r}",
        cause=f"the steps of the sink {type(sink).__name__} {cause}",
        hint="Let its `publish` yield a step for each file of each result, whose `files()` has the file's unit and checksum. It "
        "can go through the results once only.",
    )
