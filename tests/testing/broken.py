"""Implementations with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import StagedFile, UnitResult, Upload
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.storage.files import FileIdentity, Files, LocalFiles, StagedOutput
from airflow_gobblin.storage.files.local import stage_file
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import FoldersContract, MemoryObjects, SinkContract, StoreContract, UploadsContract
from airflow_gobblin.testing.sinks import Row


class BrokenStore(StoreContract):
    broken: ClassVar[type[MemoryStore]]

    @pytest.fixture
    def open_store(self) -> Callable[[], Store]:
        store = self.broken()
        return lambda: store


class TestAStoreWhosePutOverwrites(BrokenStore):
    caught_by = "test_a_record_is_created_once_and_never_changes"

    class broken(MemoryStore):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            self._records[key] = data
            return True


class TestAStoreWhosePutLooksFirst(BrokenStore):
    caught_by = "test_of_racing_threads_one_wins_each_record"

    class broken(MemoryStore):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            if self.get(key) is not None:
                return False
            import time

            time.sleep(0.002)
            self._records[key] = data
            return True


class TestAStoreThatTakesNothingForAbsent(BrokenStore):
    caught_by = "test_any_bytes_are_kept"

    class broken(MemoryStore):
        def get(self, key: str) -> bytes | None:
            return super().get(key) or None


class TestAStoreWithAListingInNoOrder(BrokenStore):
    caught_by = "test_a_prefix_lists_the_keys_that_begin_with_it_sorted"

    class broken(MemoryStore):
        def list(self, prefix: str) -> Iterator[str]:
            return iter(sorted(super().list(prefix), key=lambda key: key.split("/")))


class TestAStoreThatListsLate(BrokenStore):
    caught_by = "test_a_record_is_listed_at_once_by_others"

    class broken(MemoryStore):
        def list(self, prefix: str) -> Iterator[str]:
            return iter([*super().list(prefix)][:-1])


class TestAStoreWhoseBulkReadSkipsTheAbsent(BrokenStore):
    caught_by = "test_many_records_come_in_the_order_of_their_keys"

    class broken(MemoryStore):
        def get_many(self, keys: Any) -> Iterator[tuple[str, bytes | None]]:
            return ((key, found) for key, found in super().get_many(keys) if found is not None)


class BrokenFiles(FoldersContract):
    broken: ClassVar[type[LocalFiles]]

    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return self.broken(tmp_path / "root")


class TestFilesWhoseLinkOverwrites(BrokenFiles):
    caught_by = "test_publishing_never_overwrites"

    class broken(LocalFiles):
        def link(self, source: str, target: str) -> None:
            with suppress(FileNotFoundError):
                self.unlink(target)
            super().link(source, target)


class TestFilesWhoseLinkCopies(BrokenFiles):
    caught_by = "test_a_second_name_keeps_the_identity_and_outlives_the_first"

    class broken(LocalFiles):
        def link(self, source: str, target: str) -> None:
            content = self.read(source)
            with self.create(target) as out:
                out.write(content)


class TestFilesWhoseMoveReplacesAnEmptyFolder(BrokenFiles):
    caught_by = "test_a_folder_is_moved_over_nothing"

    class broken(LocalFiles):
        def move_folder(self, source: str, target: str) -> None:
            self.remove_folder(target)
            super().move_folder(source, target)


class TestFilesWhoseIdentityIsTheName(BrokenFiles):
    caught_by = "test_an_identity_is_that_of_one_content"

    class broken(LocalFiles):
        def identity(self, path: str) -> FileIdentity | None:
            found = super().identity(path)
            return None if found is None else FileIdentity(0, found.size, posixpath.basename(path))


class TestFilesThatAreStagedAtTheirTarget(BrokenFiles):
    caught_by = "test_a_staged_file_is_seen_by_nobody_until_it_is_published"

    class broken(LocalFiles):
        def stage(self, path: str, target: str) -> StagedOutput:
            return stage_file(self, target)


class TestFilesThatLeaveTheRoot(BrokenFiles):
    caught_by = "test_no_path_leaves_the_root"

    class broken(LocalFiles):
        def _at(self, path: str) -> str:
            return posixpath.join(self._root, path)


class TestFilesWhoseSyncIgnoresMissingFolders(BrokenFiles):
    caught_by = "test_a_missing_name_can_not_be_synced"

    class broken(LocalFiles):
        def sync_folder(self, path: str) -> None:
            with suppress(FileNotFoundError):
                super().sync_folder(path)


class BrokenUploads(UploadsContract):
    broken: ClassVar[type[MemoryObjects]]

    @pytest.fixture
    def files(self) -> Files:
        return self.broken()


class TestObjectsThatAreReplaced(BrokenUploads):
    caught_by = "test_publishing_never_overwrites"

    class broken(MemoryObjects):
        def put(self, path: str, data: bytes, etag: str = "") -> bool:
            self.remove(path)
            return super().put(path, data, etag)


class TestUploadsThatAreKnownByTheirId(BrokenUploads):
    caught_by = "test_an_upload_with_other_parts_is_not_the_one"

    class broken(MemoryObjects):
        def __init__(self, root: str = "s3://bucket/memory") -> None:
            super().__init__(root)
            uploads = self._uploads
            stands = uploads.stands

            def loosely(target: str, upload: Upload) -> bool:
                return stands(target, upload) or upload.id in uploads._open

            uploads.stands = loosely  # type: ignore[method-assign]


class TestObjectsThatAreFiles(BrokenUploads):
    """The suite of another kind is used."""

    caught_by = "test_the_suite_is_that_of_its_kind"

    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return LocalFiles(tmp_path)


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
