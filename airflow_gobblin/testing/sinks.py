"""The contract of sinks whose rows become files: what the rest of the package relies on."""

from __future__ import annotations

import hashlib
import posixpath
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gobblin.errors import SchemaConflictError, StepLostError
from airflow_gobblin.model import wire
from airflow_gobblin.model.naming import is_hidden
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import MIB, Dataset, Extract, ExtractKind, UnitResult, UnitState
from airflow_gobblin.rows.sinks.base import Sink, Writer, checked_steps
from airflow_gobblin.rows.work import RowsBinding
from airflow_gobblin.steps.base import CommitStep, StepContext, StepStatus
from airflow_gobblin.storage.files import Files, contained, open_files
from airflow_gobblin.storage.files.base import StagedOutput
from airflow_gobblin.testing.arrow_memory import arrow_memory
from airflow_gobblin.testing.failing_files import FailingFiles
from airflow_gobblin.testing.memory_files import MemoryObjects
from airflow_gobblin.testing.sources import rows_of

__all__ = ["SinkContract"]

DATASET = Dataset("main.orders", Extract(ExtractKind.APPEND_ONLY, "main", "orders"))
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
MEMORY = 128 * MIB
"""The most memory that a writer may take, whatever its unit has."""

Row = Mapping[str, Any]


class SinkContract:
    """The suite of sinks of files. Override the fixtures `sink` and `read`, and others to try another storage or other types."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        """Return an empty target root: a folder of the test's own."""
        return str(tmp_path / "target")

    @pytest.fixture
    def files(self, target: str) -> Files:
        """Return the files below the target root."""
        return open_files(target)

    @pytest.fixture
    def sink(self, target: str) -> Sink:
        """Return the sink, with a target root."""
        raise NotImplementedError("override the fixture `sink`")

    @pytest.fixture
    def read(self) -> Callable[[bytes], Iterable[Row]]:
        """Return a function that reads the rows of a published file from its content, as dictionaries."""
        raise NotImplementedError("override the fixture `read`")

    @pytest.fixture
    def batches(self) -> Sequence[pa.RecordBatch]:
        """Return the batches of a unit, of one schema."""
        some = [{"id": n, "name": None if n % 7 == 0 else f'"näme",\n{n}'} for n in range(20)]
        return [pa.RecordBatch.from_pylist(rows, SCHEMA) for rows in (some[:10], [], some[10:])]

    @pytest.fixture
    def needed(self) -> Sequence[pa.Field]:
        """Return the columns that the sink needs in every schema, such as those that it partitions by; they can be null."""
        return ()

    # its record, folder and schema

    def test_it_crosses_processes(self, sink: Sink) -> None:
        again = wire.loads(wire.dumps(sink), type(sink), "the sink")
        assert again == sink
        assert again.target == sink.target

    @pytest.mark.parametrize("urn", ["main.orders", "_hidden", ".dot", "_gobblin", "a/../b", "Ärger", "x" * 300])
    def test_a_folder_stays_below_the_target_and_is_seen_by_readers(self, sink: Sink, urn: str) -> None:
        folder = sink.folder(Dataset(urn, DATASET.extract))
        assert contained(folder) == folder, f"of dataset {urn!r}; make it with `dataset_key`"
        assert not is_hidden(folder)

    def test_each_dataset_has_a_folder_of_its_own(self, sink: Sink) -> None:
        urns = ("a", "A", "a/b", "a.b", "a b", "ä")
        folders = [f"{sink.folder(Dataset(urn, DATASET.extract))}/" for urn in urns]
        assert len({folder.lower() for folder in folders}) == len(urns), "file systems may ignore case"
        assert not [(one, other) for one in folders for other in folders if one != other and one.startswith(other)]

    def test_a_first_schema_has_every_column(self, sink: Sink, batches: Sequence[pa.RecordBatch]) -> None:
        planned = batches[0].schema
        published = sink.schema(planned, None, DATASET.urn)
        assert {*planned.names} <= {*published.names}
        assert sink.schema(planned, published, DATASET.urn).equals(published)

    def test_a_published_column_stays(self, sink: Sink, batches: Sequence[pa.RecordBatch]) -> None:
        planned = batches[0].schema
        published = sink.schema(planned.append(pa.field("more", pa.int64())), None, DATASET.urn)
        try:
            evolved = sink.schema(planned, published, DATASET.urn)
        except SchemaConflictError:
            return  # a sink may refuse this
        assert [field for field in published if evolved.field(field.name).type != field.type] == []

    def test_a_column_of_another_type_is_a_conflict(self, sink: Sink, needed: Sequence[pa.Field]) -> None:
        published = sink.schema(pa.schema([pa.field("a", pa.int64()), *needed]), None, DATASET.urn)
        with pytest.raises(SchemaConflictError):
            sink.schema(pa.schema([pa.field("a", pa.string()), *needed]), published, DATASET.urn)

    # writing

    def test_what_is_published_is_what_was_written(
        self,
        sink: Sink,
        files: Files,
        batches: Sequence[pa.RecordBatch],
        read: Callable[[bytes], Iterable[Row]],
    ) -> None:
        publish(sink, files, written(sink, files, batches))
        rows = [dict(row) for path in visible(files) for row in read(files.read(path))]
        assert rows_of(rows) == rows_of(row for batch in batches for row in batch.to_pylist())

    def test_nothing_is_visible_until_it_is_published(
        self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]
    ) -> None:
        writer = sink.open(batches[0].schema, files, *stems(sink))
        for batch in batches:
            writer.write(batch)
            assert visible(files) == []
        result = UnitResult("u0", "a0", UnitState.SUCCESSFUL, files=writer.close())
        assert visible(files) == []
        assert list(sink.publish(plan_of(sink), [result], files)), "a unit's files are published by steps"
        assert visible(files) == [], "to name the steps publishes nothing"

    def test_rows_sizes_and_checksums_are_those_of_the_files(
        self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]
    ) -> None:
        result = written(sink, files, batches)
        rows = sum(batch.num_rows for batch in batches)
        assert sum(file.rows for file in result.files) == rows, "`finish` takes the rows of its file"
        publish(sink, files, result)
        content = [files.read(path) for path in visible(files)]
        assert Counter((len(data), hashlib.sha256(data).hexdigest()) for data in content) == Counter(
            (file.size, file.checksum) for file in result.files
        )

    def test_without_rows_there_is_no_file(self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]) -> None:
        for none in ([], [batches[0].slice(0, 0)]):
            writer = sink.open(batches[0].schema, files, *stems(sink))
            for batch in none:
                writer.write(batch)
            assert writer.close() == ()
        assert [*files.walk(".")] == []

    def test_an_aborted_unit_leaves_nothing(self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]) -> None:
        writer = sink.open(batches[0].schema, files, *stems(sink))
        for batch in batches:
            writer.write(batch)
        writer.abort()
        writer.abort()
        assert [*files.walk(".")] == [], "`abort` leaves these files"

    def test_every_error_passes_and_leaves_nothing(
        self, sink: Sink, tmp_path: Path, batches: Sequence[pa.RecordBatch]
    ) -> None:
        """Let each call of the file system fail in turn: the writer raises that error, and `abort` leaves no file."""
        healthy = FailingFiles(tmp_path / "healthy", at=-1)
        written(sink, healthy, batches)
        assert healthy.calls, "it should stage its files by `files.stage`, on the files that `open` gets"
        for at, call in enumerate(healthy.calls):
            files = FailingFiles(tmp_path / f"{at}", at, forever=at % 2 == 0)
            with pytest.raises(OSError, match="No space left"):
                written_or_aborted(sink, files, batches)
            assert [*files.walk(".")] == [], call

    def test_content_is_durable_before_its_name_is(
        self, sink: Sink, tmp_path: Path, batches: Sequence[pa.RecordBatch]
    ) -> None:
        files = FailingFiles(tmp_path / "disk", at=-1)
        result = written(sink, files, batches)
        synced = {call: number for number, call in enumerate(files.calls)}  # the last of each
        for file in result.files:
            content, name = f"sync_file {file.path}", f"sync_folder {posixpath.dirname(file.path)}"
            assert content in synced, "`close` finishes each file of `files.stage`"
            assert name in synced, "`close` syncs the folder of its files by `files.sync_folder`"
            assert synced[content] < synced[name]

    def test_memory_does_not_grow_with_the_unit(self, sink: Sink, files: Files, needed: Sequence[pa.Field]) -> None:
        value = "x" * (64 << 10)
        schema = pa.schema([pa.field("text", pa.string()), *needed])
        nulls = [pa.nulls(64, field.type) for field in needed]
        writer = sink.open(sink.schema(schema, None, DATASET.urn), files, *stems(sink))
        tracemalloc.start()
        try:
            with arrow_memory() as pool:
                for _ in range(2 * MEMORY // (4 * MIB)):
                    writer.write(pa.record_batch([pa.array([value] * 64), *nulls], schema=schema))
                staged = writer.close()
                used = pool.max_memory() + tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert sum(file.rows for file in staged) == 64 * 2 * MEMORY // (4 * MIB)
        assert used < MEMORY, f"{used / MIB:.0f} MiB for {2 * MEMORY / MIB:.0f} MiB of rows"

    def test_what_it_leaves_for_the_next_run_can_be_stored(
        self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]
    ) -> None:
        writer = sink.open(batches[0].schema, files, *stems(sink))
        finished(writer, batches)
        assert wire.canonical(wire.to_json(dict(writer.properties)))

    # publishing

    def test_names_are_made_from_token_and_unit_in_the_folder_of_the_dataset(
        self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]
    ) -> None:
        for token, units in (("t0", ("u0", "u1")), ("t1", ("u0",))):
            before = {*visible(files)}
            publish(sink, files, *(written(sink, files, batches, token, unit) for unit in units), token=token)
            new = {_without_partition(path) for path in {*visible(files)} - before}
            stems = [f"{sink.folder(DATASET)}/{token}-{unit}" for unit in units]
            assert {stem for stem in stems for path in new if path.startswith(stem)} == {*stems}
            assert [path for path in new if not path.startswith(tuple(stems))] == []

    def test_every_accepted_file_is_published_and_no_other(
        self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]
    ) -> None:
        """Let a late attempt stage the same unit, and not be accepted."""
        accepted = written(sink, files, batches, attempt="a0")
        other = written(sink, files, [*batches, *batches], attempt="a1")
        steps = publish(sink, files, accepted)
        assert Counter(files.checksum(path) for path in visible(files)) == Counter(f.checksum for f in accepted.files)
        assert {step.verify(StepContext(files)) for step in steps} == {StepStatus.DONE}
        assert all(files.identity(file.path) is not None for file in other.files), "it stays in staging"

    def test_steps_are_the_same_each_time_and_cross_processes(
        self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]
    ) -> None:
        result = written(sink, files, batches)
        steps = list(sink.publish(plan_of(sink), [result], files))
        assert list(sink.publish(plan_of(sink), [result], files)) == steps
        assert [wire.loads(wire.dumps(step), type(step), "a step") for step in steps] == steps

    def test_a_staged_file_that_is_gone_is_lost_by_name(
        self, sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]
    ) -> None:
        result = written(sink, files, batches)
        remove(files, result)
        with pytest.raises(StepLostError):
            list(sink.publish(plan_of(sink), [result], files))

    def test_no_results_are_published_by_no_file(self, sink: Sink, files: Files) -> None:
        publish(sink, files, UnitResult("u0", "a0", UnitState.SUCCESSFUL))
        assert visible(files) == []

    def test_in_an_object_store_staged_files_are_uploads(
        self, sink: Sink, batches: Sequence[pa.RecordBatch], read: Callable[[bytes], Iterable[Row]]
    ) -> None:
        objects = _Recording()
        result = written(sink, objects, batches)
        assert all(file.upload is not None for file in result.files), "it should stage its files by `files.stage`"
        assert visible(objects) == []
        publish(sink, objects, result)
        assert visible(objects) == sorted(objects.targets), "it publishes under other names than `files.stage` got"
        assert sum(len([*read(objects.read(path))]) for path in visible(objects)) == sum(b.num_rows for b in batches)


class _Recording(MemoryObjects):
    """An object store that remembers what its files were staged for."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def stage(self, path: str, target: str) -> StagedOutput:
        self.targets.append(target)
        return super().stage(path, target)


def plan_of(sink: Sink, token: str = "t0") -> Plan:
    """Return a plan of the suite's dataset."""
    return Plan(token, "suite", "key", 0, DATASET.urn, DATASET.holds, sink.folder(DATASET), (), RowsBinding(""))


def stems(sink: Sink, token: str = "t0", unit: str = "u0", attempt: str = "a0") -> tuple[str, str]:
    """Return the staged and the published stem of a unit, as `Sink.open` takes them."""
    return f"_gobblin/s/{token}/{attempt}/{unit}-ff/{unit}", f"{sink.folder(DATASET)}/{token}-{unit}"


def written(
    sink: Sink,
    files: Files,
    batches: Sequence[pa.RecordBatch],
    token: str = "t0",
    unit: str = "u0",
    attempt: str = "a0",
) -> UnitResult:
    """Write a unit; return its result."""
    writer = sink.open(batches[0].schema, files, *stems(sink, token, unit, attempt))
    return finished(writer, batches, unit, attempt)


def written_or_aborted(sink: Sink, files: Files, batches: Sequence[pa.RecordBatch]) -> None:
    """Write a unit, and abort it if that fails."""
    writer = sink.open(batches[0].schema, files, *stems(sink))
    try:
        finished(writer, batches)
    except OSError:
        writer.abort()
        raise


def finished(writer: Writer, batches: Sequence[pa.RecordBatch], unit: str = "u0", attempt: str = "a0") -> UnitResult:
    """Write all batches, and close the writer."""
    for batch in batches:
        writer.write(batch)
    return UnitResult(unit, attempt, UnitState.SUCCESSFUL, files=writer.close())


def publish(sink: Sink, files: Files, *results: UnitResult, token: str = "t0") -> list[CommitStep]:
    """Carry out the steps of results."""
    steps = list(checked_steps(sink, plan_of(sink, token), iter(results), files))  # as in a run
    context = StepContext(files)
    for step in steps:
        found = step.verify(context)
        assert found is StepStatus.TODO, (
            f"{step.subject}: done or in conflict before this slot's steps ran; is its name the slot's own?"
        )
        step.execute(context)
        found = step.verify(context)
        assert found is StepStatus.DONE, f"{step.subject}: {found} after it ran"
    return steps


def remove(files: Files, result: UnitResult) -> None:
    """Remove the staged files of a result."""
    for file in result.files:
        if file.upload is None:
            files.unlink(file.path)
        elif files.uploads is not None:
            files.uploads.abort(file.path, file.upload.id)


def _without_partition(path: str) -> str:
    """Return a path without partition folders in Hive's style: they lie between the dataset's folder and the names."""
    return "/".join(part for part in path.split("/") if "=" not in part)


def visible(files: Files) -> list[str]:
    """Return the files that readers of the target see: not those below a name that begins with `_` or `.`."""
    return sorted(p for p in files.walk(".") if not is_hidden(p))
