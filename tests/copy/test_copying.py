"""Copies onto a disk of trees as they come, compared with what `cp -a` makes of them; and of sources and disks that go wrong."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from io import FileIO
from pathlib import Path
from threading import Condition
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import HealthCheck, given, settings

from airflow_gobblin.copy import blocks
from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.blocks import BLOCK
from airflow_gobblin.copy.bundles import Bundle, BundleKind, CopyFile, Doomed
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.options import Keep, Links
from airflow_gobblin.copy.transfer import durability, local
from airflow_gobblin.copy.transfer.local import DiskDestination
from airflow_gobblin.copy.transfer.streams import SMALL, TreeOrigin
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.model.failure import ErrorKind
from airflow_gobblin.model.work import UnitResult, UnitState
from airflow_gobblin.steps.base import StepContext
from airflow_gobblin.steps.placing import place_file
from airflow_gobblin.storage.files import FileIdentity, LocalFiles, writeback
from airflow_gobblin.testing.memory_files import MemoryFiles, MemoryObjects
from tests.copy.copies import STAGING, Copying
from tests.copy.made_trees import Folder, Made, as_nobody, make_tree, seen, trees
from tests.faults import Fault, Faults, FaultyFiles
from tests.protocol.processes import Send, die, in_fresh_process
from tests.syscalls import traced

MARK = f"{STAGING}/a0/whole-copy_000001"
"""It marks a try of the unit that stages its files in the folder of the whole file set."""


def pair(root: Path, tree: Folder, keep: str = "tpug") -> Copying:
    source, target = root / "source", root / "target"
    source.mkdir()
    target.mkdir()
    make_tree(source, tree)
    return Copying(str(source), str(target), Keep(keep))


@pytest.fixture
def copying(tmp_path: Path) -> Copying:
    return pair(tmp_path, {b"a": Made(b"one"), b"b": {b"c": Made(b"two" * 1000, 0o600), b"d": Made(b"")}})


def copied(copying: Copying, **options: Any) -> UnitResult:
    result = copying.run(**options)
    assert result.state is UnitState.SUCCESSFUL, result.failure
    return result


def failed(copying: Copying, **options: Any) -> str:
    """The failure of a copy, which leaves only the files that it names, and these are whole."""
    result = copying.run(**options)
    assert result.state is UnitState.FAILED
    left = {file.path for file in result.files}
    staged = {path for path in Path(copying.target, STAGING).rglob("*") if path.is_symlink() or not path.is_dir()}
    staged.discard(Path(copying.target, MARK))
    assert {str(path.relative_to(copying.target)) for path in staged} == left
    for path in staged:
        source = Path(copying.source, *path.relative_to(Path(copying.target, STAGING)).parts[2:])
        assert path.read_bytes() == source.read_bytes()
    return result.why


@pytest.mark.slow
@pytest.mark.parametrize("user", [nullcontext, as_nobody], ids=["root", "another user"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees())
def test_copies_are_as_those_of_cp(user: Callable[[], Any], tree: Folder) -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        root.chmod(0o777)
        (root / "source").mkdir()
        make_tree(root / "source", tree)
        if user is as_nobody:
            subprocess.run(["chmod", "-R", "a+rX", root / "source"], check=True)
        copying = Copying(f"{root}/source", f"{root}/target", Keep("tpugax"))
        with user():
            (root / "target").mkdir()
            subprocess.run(["cp", "-a", "source", "peer"], cwd=root, check=True, user=os.geteuid(), group=os.getegid())
            result = copied(copying)
        if result.files:
            assert seen(copying.staged(result)) == seen(root / "peer")
        files = LocalFiles(root / "target")
        for file in result.files:
            found = files.identity(file.path)
            assert found is not None
            assert (found.size, found.stamp) == (file.size, file.stamp)


def test_only_what_is_asked_for_is_kept(tmp_path: Path) -> None:
    copying = pair(tmp_path, {b"a": Made(b"one", 0o4701, 5)}, keep="")
    found = seen(copying.staged(copied(copying)))[b"a"]
    assert (found.mode & 0o4001, found.content) == (0, b"one")
    assert found.modified > 10**18


def test_files_are_in_the_order_of_their_bundle_under_their_own_paths(copying: Copying) -> None:
    entries = copying.entries()[::-1]
    result = copied(copying, unit=copying.unit(entries))
    prefix = copying.staged(result)
    paths = [f"{copying.target}/{file.path}" for file in result.files]
    assert paths == [f"{prefix}/{entry.path}" for entry in entries]
    assert prefix.parent == Path(copying.target, STAGING, "a0")


def test_a_file_set_of_a_tree_is_copied_from_its_folder(copying: Copying) -> None:
    copying.source_folder = "b"
    assert {*seen(copying.staged(copied(copying)))} == {b"c", b"d"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_what_cant_be_kept_is_reported_once(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        copying = pair(Path(made), {name: Made(b"x", 0o4755, owner=7) for name in (b"a", b"b")})
        Path(copying.target).chmod(0o777)
        with as_nobody():
            result = copied(copying)
            shutil.rmtree(Path(copying.target, STAGING))
            copying.keep = Keep("u", strict=True)
            why = failed(copying)
        assert (result.metrics["not_kept_user"], result.metrics["not_kept_permission"]) == (2, 2)
        not_kept = result.properties["not_kept"]
        assert isinstance(not_kept, dict)
        assert not_kept["user"] == {"files": 2, "first": "'a' (Operation not permitted)"}
        assert "can't keep the user of file 'a': Operation not permitted" in why


@pytest.mark.parametrize("size", [0, 1000, 9 << 20])
@pytest.mark.parametrize("hole", [0, 5 << 20])
def test_a_checksum_is_that_of_the_content(tmp_path: Path, size: int, hole: int) -> None:
    content = os.urandom(size)
    copying = pair(tmp_path, {b"a": Made(content, hole=hole)})
    assert copied(copying).files[0].checksum == ""
    copying.checksums = True
    result = copied(copying)
    assert result.files[0].checksum == hashlib.sha256(bytes(hole) + content).hexdigest()
    assert seen(copying.staged(result)) == seen(Path(copying.source))


@pytest.mark.parametrize("checksums", [False, True])
def test_holes_stay_holes(tmp_path: Path, checksums: bool) -> None:
    copying = pair(tmp_path, {b"a": Made(b"end", hole=64 << 20), b"b": Made(b"", hole=64 << 20)})
    copying.checksums = checksums
    for file in copied(copying).files:
        assert os.stat(f"{copying.target}/{file.path}").st_blocks * 512 < 1 << 20


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no second file system")
def test_a_file_comes_from_another_file_system(copying: Copying) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        shutil.copytree(copying.source, f"{other}/tree")
        copying.source = f"{other}/tree"
        assert seen(copying.staged(copied(copying))) == seen(Path(other, "tree"))


@pytest.mark.parametrize("links", [Links.SKIP, Links.FOLLOW])
def test_a_link_is_followed_only_if_asked_for(copying: Copying, links: Links) -> None:
    copying.links = links
    os.symlink("a", f"{copying.source}/link")
    if links is Links.FOLLOW:
        found = seen(copying.staged(copied(copying)))
        assert found[b"link"] == found[b"a"]
        return
    entry = next(e for e in copying.entries() if e.path == "a")
    why = failed(copying, unit=copying.unit([Entry("link", EntryKind.FILE, entry.size, entry.modified, entry.stamp)]))
    assert "SourceChangedError" in why


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def cut(path: Path) -> None:
    os.truncate(path, 1000)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")


def remove(path: Path) -> None:
    path.unlink()


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_link(path: Path) -> None:
    path.rename(f"{path}.moved")
    path.symlink_to(f"{path}.moved")


@pytest.mark.parametrize("change", [append, cut, overwrite, remove, to_folder, to_pipe, to_link])
def test_a_source_that_changed_since_it_was_planned_fails_by_name(copying: Copying, change: Any) -> None:
    unit = copying.unit()
    change(Path(copying.source, "b/c"))
    result_why = failed(copying, unit=unit)
    assert f"SourceChangedError: can't copy file '{copying.source}/b/c'" in result_why
    assert "The next run plans anew" in result_why


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("change", [append, cut, overwrite])
def test_a_source_that_changes_while_it_is_copied_fails_by_name(
    tmp_path: Path, change: Any, checksums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = pair(tmp_path, {b"a": Made(b"1"), b"b": Made(os.urandom(9 << 20))})
    copying.checksums = checksums
    big = Path(copying.source, "b")
    for name in ("copy_file_range", "pread"):
        monkeypatch.setattr(os, name, before(getattr(os, name), lambda: change(big), nth=2))
    assert f"can't copy file '{big}': it changed since it was planned" in failed(copying)


def before(real: Callable[..., Any], act: Callable[[], None], nth: int) -> Callable[..., Any]:
    """A call of the system before which something else happens, once."""
    calls = []

    def call(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == nth:
            act()
        return real(*arguments)

    return call


def test_a_file_that_is_removed_while_it_is_copied_is_copied_whole(
    copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = seen(Path(copying.source))
    unit = copying.unit()
    gone = Path(copying.source, "b/c")
    monkeypatch.setattr(os, "copy_file_range", before(os.copy_file_range, gone.unlink, nth=2))
    assert seen(copying.staged(copied(copying, unit=unit))) == expected
    assert not gone.exists()


def test_an_unreadable_file_is_named() -> None:
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        copying = pair(Path(made), {b"a": Made(b"x", 0o600)})
        Path(copying.target).chmod(0o777)
        os.chmod(f"{copying.source}/a", 0)
        with as_nobody():
            why = failed(copying)
        assert f"SourceError: can't read file '{copying.source}/a': PermissionError: Permission denied." in why
        assert "exclude it" in why


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """The kernel lets no file of this process grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("checksums", [False, True])
def test_a_copy_that_has_no_room_is_named(copying: Copying, checksums: bool) -> None:
    copying.checksums = checksums
    with files_end_at(1000):
        why = failed(copying)
    assert f"StoreError: can't write the copy of 'b/c' in {copying.target}: OSError: File too large. Make room" in why


def test_a_name_that_the_target_cant_hold_is_named(copying: Copying) -> None:
    with pytest.raises(GobblinError, match="rename or exclude it"):
        stage(copying, Entry("x" * 300, EntryKind.FILE))


@pytest.mark.parametrize("path", ["../out", "/out", "b/../../out", "", "b//c", "a\0"])
def test_a_path_that_leaves_its_folder_is_refused(copying: Copying, path: str) -> None:
    with pytest.raises(ConfigurationError, match="plain relative path"):
        stage(copying, Entry(path, EntryKind.FILE))
    with pytest.raises(ConfigurationError, match="plain relative path"):
        next(TreeOrigin(copying.tree, ".").blocks(Entry(path, EntryKind.FILE)))


class SeenFile(FileIO):
    """A file that reports each reading."""

    def __init__(self, path: str, report: Callable[[], None]) -> None:
        super().__init__(path)
        self._report = report

    def read(self, size: int | None = -1) -> bytes:
        self._report()
        return super().read(size)


class ReadsSeen(LocalTree):
    """A tree on a disk that counts how often its files are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads, self._changed = 0, Condition()

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, SeenFile(f"{self.root}/{path}", self._count))

    def _count(self) -> None:
        with self._changed:
            self.reads += 1
            self._changed.notify_all()

    def were(self, reads: int) -> bool:
        """Return whether files are read so often before long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.reads >= reads, timeout=20)


def test_the_next_block_is_read_while_one_is_written(tmp_path: Path) -> None:
    content = os.urandom(2 * BLOCK + 1)
    (tmp_path / "large").write_bytes(content)
    tree = ReadsSeen(tmp_path)
    entry, found = tree.entry("large"), bytearray()
    assert entry is not None
    for number, block in enumerate(TreeOrigin(tree, ".").blocks(entry), 1):
        assert tree.were(number + 1)
        found += block
    assert found == content
    assert tree.reads == 4


def test_a_reader_that_stops_midway_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 * BLOCK))
    tree, before = ReadsSeen(tmp_path), threading.active_count()
    entry = tree.entry("large")
    assert entry is not None
    blocks = TreeOrigin(tree, ".").blocks(entry)
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_large_file_does_not_stay_in_memory_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, dropped = {"small": 5, "large": durability._LARGE}, []
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    advise = os.posix_fadvise

    def seen(file: int, start: int, length: int, advice: int) -> None:
        dropped.append((Path(os.readlink(f"/proc/self/fd/{file}")).name, start, length, advice))
        advise(file, start, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", seen)
    durability.sync_files([f"{tmp_path}/{name}" for name in sizes])
    assert dropped == [("large", 0, 0, os.POSIX_FADV_DONTNEED)]


class Anything:
    """An origin with everything that is asked of it. It is empty."""

    parallel = 1

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        yield from ()

    def part(self, entry: Entry, start: int, end: int) -> bytes:
        raise AssertionError("it is empty")

    def copy_to_disk(self, entry: Entry, file: int, checksum: object) -> None:
        pass

    def link(self, entry: Entry) -> str:
        return entry.link

    def close(self) -> None:
        pass


def stage(copying: Copying, *entries: Entry) -> None:
    kept = KeptAttributes(Keep())
    destination = DiskDestination(LocalFiles(copying.target), f"{STAGING}/a0/u", kept, checksums=False)
    try:
        for entry in entries:
            destination.stage(entry, Anything())
        destination.finish()
    finally:
        destination.close()


def test_a_staged_link_leads_no_file_elsewhere(copying: Copying, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = Entry("x", EntryKind.LINK, link=str(outside))
    for path in ("x/y", "x/y/z", "x"):
        with pytest.raises(GobblinError, match="can't write the copy"):
            stage(copying, link, Entry(path, EntryKind.FILE))
        assert [*outside.iterdir()] == []
        shutil.rmtree(Path(copying.target, STAGING))


def test_everything_is_durable_once_for_a_unit(copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[set[bytes]] = []

    def sync(self: durability.FolderSync) -> None:
        synced.append({*seen(Path(copying.target))})

    monkeypatch.setattr(durability.FolderSync, "sync", sync)
    with traced() as trace:
        result = copied(copying)
    if trace.of("fsync") == []:
        assert synced == [{os.fsencode(path) for path in (MARK, *(file.path for file in result.files))}]


@pytest.mark.slow
@pytest.mark.parametrize("checksums", [False, True])
def test_the_disk_begins_to_write_a_large_file_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksums: bool
) -> None:
    begun: list[int] = []
    real = writeback.begin_to_write

    def begin(file: int, at: int, length: int) -> None:
        real(file, at, length)
        begun.append(length)

    for module in (local, blocks):
        monkeypatch.setattr(module, "begin_to_write", begin)
    copying = pair(tmp_path, {b"a": Made(b"x" * (65 << 20)), b"b": Made(b"x" * 1000)})
    copying.checksums = checksums
    result = copied(copying)
    assert sum(begun) == 64 << 20
    assert seen(copying.staged(result)) == seen(Path(copying.source))


def test_a_large_file_alone_waits_for_nothing_else_on_its_disk(
    copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(self: durability.FolderSync) -> None:
        raise AssertionError("everything is synced")

    monkeypatch.setattr(durability.FolderSync, "sync", sync)
    with traced() as trace:
        result = copied(copying, unit=copying.unit(copying.entries()[:1]))
    at = Path(copying.target, result.files[0].path)
    assert {str(at), str(at.parent), str(at.parent.parent)} <= {*trace.of("fsync")}


OVERLAY = 0x794C7630


@pytest.mark.parametrize(
    ("name", "found"),
    [("_has_syncfs", False), ("_kind", OVERLAY)],
    ids=["no syncfs", "overlay, whose syncfs hides errors"],
)
def test_without_syncfs_each_file_and_each_folder_is_synced(
    copying: Copying, monkeypatch: pytest.MonkeyPatch, name: str, found: object
) -> None:
    monkeypatch.setattr(durability, name, lambda *_: found)
    with traced() as trace:
        result = copied(copying)
    for file in result.files:
        at = Path(copying.target, file.path)
        folders = at.relative_to(copying.target).parents
        assert {str(at), *(str(Path(copying.target, folder)) for folder in folders)} <= {*trace.of("fsync")}


def test_syncfs_reports_a_folder_that_is_closed(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    sync = durability.FolderSync(folder)
    sync.sync()
    os.close(folder)
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync.sync()


def test_a_process_killed_in_mid_file_leaves_nothing_that_counts(copying: Copying) -> None:
    unit = copying.unit()

    def work(send: Send) -> None:
        real = os.copy_file_range

        def half(source: int, target: int, count: int, *at: int) -> int:
            if count < 100:
                return real(source, target, count, *at)
            real(source, target, count // 2, *at)
            die()
            raise AssertionError("it is dead")

        os.copy_file_range = half  # type: ignore[assignment]
        copying.run(unit)

    in_fresh_process(work)
    left = seen(Path(copying.target, STAGING))
    assert [len(file.content) for path, file in left.items() if path.endswith(b"b/c")] == [1500]
    result = copied(copying, unit=unit, attempt="a1")
    assert seen(copying.staged(result)) == seen(Path(copying.source))
    assert seen(Path(copying.target, STAGING, "a0")) == {path[3:]: file for path, file in left.items()}


@pytest.mark.parametrize("kind", [BundleKind.DELETE, BundleKind.FOLDERS])
def test_a_unit_without_files_is_done_at_once(copying: Copying, kind: BundleKind) -> None:
    unit = Bundle(kind, deletes=(Doomed("x", FileIdentity(1, 2, "3")),)).unit("u", "photos#files")
    assert copied(copying, unit=unit).files == ()
    assert [*Path(copying.target).iterdir()] == []


@pytest.mark.parametrize("checksums", [False, True])
def test_files_go_to_any_storage(copying: Copying, checksums: bool) -> None:
    copying.checksums = checksums
    copying.folder = "photos"
    for files in (MemoryFiles("/target"), MemoryObjects("s3://bucket/target")):
        copying.files = files
        result = copied(copying)
        entries = copying.entries()
        assert [file.path.endswith(entry.path) for file, entry in zip(result.files, entries, strict=True)] == [True] * 3
        assert result.metrics["not_kept_times"] == 3
        for file, entry in zip(result.files, entries, strict=True):
            content = Path(copying.source, entry.path).read_bytes()
            assert file.size == len(content)
            assert file.checksum == (hashlib.sha256(content).hexdigest() if checksums or file.segment else "")
            if files.uploads is None:
                assert files.read(file.path) == content
            else:
                assert file.path == f"photos/{entry.path}"
                assert file.segment is not None
                for step in place_file(file, file.path, "u0", files):
                    step.execute(StepContext(files))
                assert files.read(file.path) == content


def test_small_new_objects_are_staged_together_and_others_are_uploads(copying: Copying) -> None:
    Path(copying.source, "large").write_bytes(bytes(SMALL + 1))
    files = MemoryObjects("s3://bucket/target")
    copying.files = files
    entries = copying.entries()
    replaced = CopyFile(entries[0], FileIdentity(0, 1, "old"))
    bundle = Bundle(BundleKind.COPY, (replaced, *map(CopyFile, entries[1:])))
    result = copied(copying, unit=bundle.unit("copy_000001", "photos#files"))
    staged = dict(zip((entry.path for entry in entries), result.files, strict=True))
    uploads = {path for path, file in staged.items() if file.upload is not None}
    assert uploads == {entries[0].path, "large"}
    (together,) = {file.segment.path for file in result.files if file.segment is not None}
    assert [*files.walk(".")] == [together]


@pytest.mark.parametrize("make", [lambda: MemoryFiles("/target"), lambda: MemoryObjects("s3://bucket/target")])
def test_a_failed_copy_to_any_storage_leaves_nothing(copying: Copying, make: Callable[[], Any]) -> None:
    copying.keep = Keep()
    faults = Faults()
    copying.files = FaultyFiles(make(), faults)
    copied(copying)
    for at, call in enumerate(faults.calls):
        for fault in {Fault.ERROR, Fault.NO_SPACE} & {*call.faults}:
            files = make()
            copying.files = FaultyFiles(files, Faults(at, fault))
            result = copying.run()
            if result.state is UnitState.SUCCESSFUL:
                continue  # looking again was enough
            assert result.failure is not None
            assert result.failure.kind is ErrorKind.STORE, (call, result.failure)
            assert {*files.walk(".")} <= {MARK}
            assert files.uploads is None or [*files.uploads.open_below(".")] == []
