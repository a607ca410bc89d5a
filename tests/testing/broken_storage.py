"""Stores and files with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_gobblin.model.work import Upload
from airflow_gobblin.storage.files import FileIdentity, Files, LocalFiles, StagedOutput
from airflow_gobblin.storage.files.local import stage_file
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import (
    FoldersContract,
    MemoryObjects,
    StoreContract,
    UploadsContract,
)


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


class TestFilesThatAreReadFromTheirStart(BrokenFiles):
    caught_by = "test_a_part_of_a_file_is_read"

    class broken(LocalFiles):
        def read_part(self, path: str, start: int, size: int) -> bytes:
            return self.read(path)[:size]


class TestFilesWhoseLinkOverwrites(BrokenFiles):
    caught_by = "test_publishing_never_overwrites"

    class broken(LocalFiles):
        def link(self, source: str, target: str) -> None:
            with suppress(FileNotFoundError):
                self.unlink(target)
            super().link(source, target)


class TestFilesWithoutLinksThatMakeSome(BrokenFiles):
    caught_by = "test_a_file_has_a_second_name_or_the_link_is_refused"
    links = False

    class broken(LocalFiles):
        pass


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


class TestFilesWhoseEmptyFoldersAreFilled(BrokenFiles):
    caught_by = "test_a_folder_is_filled_once_anything_is_in_it"

    class broken(LocalFiles):
        def filled(self, folders: Sequence[str]) -> list[bool | OSError]:
            return [self.identity(folder) is not None for folder in folders]


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


class TestObjectsThatArePutOverOthers(BrokenUploads):
    caught_by = "test_a_small_object_is_put_whole_and_over_no_other"

    class broken(MemoryObjects):
        def __init__(self, root: str = "s3://bucket/memory") -> None:
            super().__init__(root)
            uploads = self._uploads
            put = uploads.put

            def over(target: str, data: bytes, modified: int | None = None) -> None:
                if self.identity(target) is not None:
                    self.remove(target)
                put(target, data, modified)

            uploads.put = over  # type: ignore[method-assign]


class TestUploadsThatAreKnownByTheirId(BrokenUploads):
    caught_by = "test_an_upload_with_other_parts_is_not_the_one"

    class broken(MemoryObjects):
        def __init__(self, root: str = "s3://bucket/memory") -> None:
            super().__init__(root)
            uploads = self._uploads
            can_complete = uploads.can_complete

            def loosely(target: str, upload: Upload) -> bool:
                return can_complete(target, upload) or upload.id in uploads._open

            uploads.can_complete = loosely  # type: ignore[method-assign]


class TestObjectsThatAreFiles(BrokenUploads):
    """The suite of another kind is used."""

    caught_by = "test_the_suite_is_that_of_its_kind"

    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return LocalFiles(tmp_path)
