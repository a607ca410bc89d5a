"""What a sink is: it writes staged files in a Spark task, and names the commit steps that publish them.

A sink is a frozen dataclass, registered with `wire.record`. It only ever writes to staging; publishing is done by the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from airflow_gobblin.files.base import Files
from airflow_gobblin.watermark import Json
from airflow_gobblin.work import Dataset, StagedFile, UnitResult

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_gobblin.plan import Plan
    from airflow_gobblin.steps import CommitStep


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

        :param staged: how their paths begin, in a folder of this task attempt's own: `<staged>-<index>.<suffix>`.
        :param published: how the paths begin that `publish` gives them: `<published>-<index>.<suffix>`.
        """

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        """The steps that publish these results, to names made from the plan's token, the unit and the index alone: those
        that the files were staged for. `steps.publish_file` makes the step of a file.

        Names starting with `_` or `.` are ignored by readers, so no published name does.

        :raises StepLostError: a staged file is gone, or is no longer what its result says.
        """
