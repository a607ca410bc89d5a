"""What a sink is: it writes staged files in a Spark task, and names the commit steps that publish them.

A sink is a frozen dataclass, registered with `wire.record`. It only ever writes to staging; publishing is done by the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from airflow_gobblin.files.base import Files, each
from airflow_gobblin.steps import PublishStep, publish_file, publish_folder
from airflow_gobblin.watermark import Json
from airflow_gobblin.work import Dataset, StagedFile, UnitResult

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.plan import Plan
    from airflow_gobblin.steps import CommitStep

FILES_PER_FOLDER = 10_000
"""A folder of more files than these is published file by file: one step must fit in memory, and in a record."""


class Layout(StrEnum):
    """How the files of a dataset lie in its folder."""

    FLAT = "flat"
    """All of them side by side. Every reader of a folder finds them, Spark too, and may see one of a unit's before the others."""
    FOLDER_PER_UNIT = "folder_per_unit"
    """Those of each work unit in a folder of their own, which is published by one rename: a reader of the folder sees all of a
    unit, or nothing of it, and units of many files are published faster. For readers that look into folders: Arrow does, Spark
    only with the option `recursiveFileLookup`; who reads by the journal or by manifests needs nothing. An object store has no
    folders to rename: there each file is published by itself, under the same name."""

    def path(self, stem: str, index: int, suffix: str) -> str:
        """Where a file of a unit is. :param stem: as `Sink.open` gets it."""
        return f"{stem}{'-' if self is Layout.FLAT else '/'}{index}.{suffix}"


class Writer(Protocol):
    """The files of one unit being written."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of the published schema."""

    def close(self) -> tuple[StagedFile, ...]:
        """Finish: every file whole, synced to disk, with its checksum. No rows, no file."""

    @property
    def properties(self) -> Mapping[str, Json]:
        """After `close`: what the next run's plan should know, beside what the reader leaves. Its names are its own: one
        that the reader leaves too fails the unit."""

    def abort(self) -> None:
        """Close and remove what was written; harmless twice."""


class Sink(Protocol):
    """Where rows go."""

    @property
    def target(self) -> str:
        """The target root: an absolute path, a `file://` URL or `s3://[connection@]bucket/prefix`, used as it stands (Airflow
        doesn't render it)."""

    def folder(self, dataset: Dataset) -> str:
        """A dataset's folder below the target root, relative; never leaves it (see `naming.dataset_key`)."""

    def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
        """The schema to publish by. :raises SchemaConflictError: it doesn't fit what was published."""

    def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Writer:
        """Start the staged files of a unit, by `files.stage`.

        :param staged: how their paths begin, in a folder of this task attempt's own and of nothing else: those that
            `Layout.path` gives, `<staged>-<index>.<suffix>` or `<staged>/<index>.<suffix>`.
        :param published: how the paths begin that `publish` gives them, in the same way.
        """

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """The steps that publish these results, to names made from the plan's token, the unit and the index alone: those
        that the files were staged for. `publish_units` makes them.

        Names starting with `_` or `.` are ignored by readers, so no published name does.

        :raises StepLostError: a staged file is gone, or is no longer what its result says.
        """


def publish_units(
    plan: Plan, results: Iterable[UnitResult], files: Files, layout: Layout, suffix: str
) -> Iterator[PublishStep]:
    """The steps that publish units whose files are named by a layout, from `<plan.folder>/<token>-<unit>` on.

    :raises StepLostError: a staged file is gone, or is no longer what its result says.
    """

    def pieces() -> Iterator[tuple[str, int, tuple[StagedFile, ...]]]:
        """What there is a step for: the files of a unit, or one of them, from an index on."""
        for result in results:
            if layout is Layout.FOLDER_PER_UNIT and files.moves_folders and 1 < len(result.files) <= FILES_PER_FOLDER:
                yield result.unit, 0, result.files
            else:
                yield from ((result.unit, index, (file,)) for index, file in enumerate(result.files))

    def steps(piece: tuple[str, int, tuple[StagedFile, ...]]) -> tuple[PublishStep, ...]:
        unit, index, some = piece
        stem = f"{plan.folder}/{plan.token}-{unit}"
        if len(some) > 1:
            return publish_folder(some, stem, unit, files)
        return (publish_file(some[0], layout.path(stem, index, suffix), unit, files),)

    for some in each(files, steps, pieces()):
        yield from some
