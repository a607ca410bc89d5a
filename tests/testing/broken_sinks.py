"""Sinks with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import StagedFile, UnitResult
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.storage.files import Files
from airflow_gobblin.storage.files.local import stage_file
from airflow_gobblin.testing import (
    SinkContract,
)
from airflow_gobblin.testing.sinks import Row


class BrokenSink(SinkContract):
    broken: ClassVar[type[ParquetSink]]

    @pytest.fixture
    def sink(self, target: str) -> Sink:
        return self.broken(target, file_bytes=1 << 20)

    @pytest.fixture
    def read(self) -> Callable[[bytes], Iterable[Row]]:
        return lambda content: pq.read_table(pa.BufferReader(content)).to_pylist()


def changed(close: Callable[[tuple[StagedFile, ...], Files], tuple[StagedFile, ...]]) -> Any:
    """A writer of Parquet whose `close` does something else in the end."""

    def open_changed(self: ParquetSink, schema: pa.Schema, files: Files, staged: str, published: str) -> Any:
        writer = ParquetSink.open(self, schema, files, staged, published)
        real = writer.close
        writer.close = lambda: close(real(), files)  # type: ignore[method-assign]
        return writer

    return open_changed


def linked(staged: tuple[StagedFile, ...], files: Files) -> tuple[StagedFile, ...]:
    for file in staged:
        files.make_folder("main.orders")
        with suppress(OSError):
            files.link(file.path, f"main.orders/t0-u0-{posixpath.basename(file.path)}")
    return staged


class TestASinkThatPublishesEarly(BrokenSink):
    caught_by = "test_nothing_is_visible_until_it_is_published"

    @record("test.early")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        open = changed(linked)


class TestASinkThatCountsWrongly(BrokenSink):
    caught_by = "test_rows_sizes_and_checksums_are_those_of_the_files"

    @record("test.miscounting")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        open = changed(lambda staged, files: tuple(replace(file, rows=file.rows + 1) for file in staged))


class TestASinkThatLosesItsLastFile(BrokenSink):
    caught_by = "test_what_is_published_is_what_was_written"

    @record("test.losing")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        open = changed(lambda staged, files: staged[:-1])


class TestASinkThatNamesFilesByTheUnitAlone(BrokenSink):
    caught_by = "test_names_are_made_from_token_and_unit_in_the_folder_of_the_dataset"

    @record("test.tokenless")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[Any]:
            return super().publish(replace(plan, token="x"), results, files)


@record("test.counting_sink")
@dataclass(frozen=True)
class CountingSink(ParquetSink):
    """Counts its files before it names steps, though it can go through the results once only."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[Any]:
        number = sum(len(result.files) for result in results)
        return super().publish(plan, results, files) if number else iter(())


class TestASinkThatGoesThroughItsResultsTwice(BrokenSink):
    caught_by = "test_every_accepted_file_is_published_and_no_other"
    broken = CountingSink


class TestASinkThatAcceptsAnyType(BrokenSink):
    caught_by = "test_a_column_of_another_type_is_a_conflict"

    @record("test.any_type")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def schema(self, planned: pa.Schema, published: pa.Schema | None, urn: str) -> pa.Schema:
            return planned


class TestASinkThatKeepsItsRows(BrokenSink):
    caught_by = "test_memory_does_not_grow_with_the_unit"

    @record("test.keeping")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Any:
            writer = super().open(schema, files, staged, published)
            kept, real = [], writer.write

            def write(batch: pa.RecordBatch) -> None:
                kept.append(batch)
                real(batch)

            writer.write = write  # type: ignore[method-assign]
            return writer


class TestASinkThatSwallowsErrors(BrokenSink):
    caught_by = "test_every_error_passes_and_leaves_nothing"

    @record("test.swallowing")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Any:
            writer = super().open(schema, files, staged, published)
            real = writer.close

            def close() -> tuple[StagedFile, ...]:
                try:
                    return real()
                except OSError:
                    return ()

            writer.close = close  # type: ignore[method-assign]
            return writer


class TestASinkThatSyncsNoFolder(BrokenSink):
    caught_by = "test_content_is_durable_before_its_name_is"

    @record("test.unsynced")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Any:
            files.sync_folder = lambda path: None  # type: ignore[method-assign]
            return super().open(schema, files, staged, published)


class TestASinkThatTrustsItsResults(BrokenSink):
    caught_by = "test_a_staged_file_that_is_gone_is_lost_by_name"

    @record("test.trusting")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[Any]:
            found = [r for r in results if all(files.identity(f.path) or f.upload for f in r.files)]
            return super().publish(plan, found, files)


class TestASinkThatWritesToTheDiskItself(BrokenSink):
    caught_by = "test_in_an_object_store_staged_files_are_uploads"

    @record("test.local_only")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Any:
            files.stage = lambda path, target: stage_file(files, path)  # type: ignore[method-assign]
            return super().open(schema, files, staged, published)


class TestASinkThatStagesForOtherNames(BrokenSink):
    caught_by = "test_in_an_object_store_staged_files_are_uploads"

    @record("test.other_names")
    @dataclass(frozen=True)
    class broken(ParquetSink):
        def open(self, schema: pa.Schema, files: Files, staged: str, published: str) -> Any:
            return super().open(schema, files, staged, f"{published}-other")
