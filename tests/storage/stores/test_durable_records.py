"""The order in which a store on a disk makes its records durable, as the kernel sees it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_gobblin.errors import UnknownOutcomeError, UnreliableStoreError
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores import open_store
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import TEMPORARIES, LocalStore
from tests.storage.stores.test_local import an_hour_later
from tests.syscalls import Trace, traced

KEY = "flights/main.trips/d/0000000001"


class Died(BaseException):
    """The process died here."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One that doesn't exist yet, nor the folders above it."""
    return tmp_path / "data" / "journals" / "mine"


@pytest.fixture
def trace() -> Iterator[Trace]:
    with traced() as found:
        yield found


def opened(root: Path) -> LocalStore:
    """The store, as another process opens it."""
    return LocalStore(LocalFiles(root))


def test_a_record_is_durable_before_its_name_and_its_name_before_the_answer(root: Path, trace: Trace) -> None:
    assert opened(root).put_if_absent(KEY, b"data")
    (temporary,) = trace.of("unlink")
    answered = trace.at("unlink", temporary)
    named = trace.at("link", root / KEY)
    assert trace.at("fsync", temporary) < named < trace.at("fsync", (root / KEY).parent) < answered
    assert answered == len(trace.calls) - 1
    trace.check_made_folders_are_synced(answered)


def test_the_name_of_the_root_and_of_all_above_it_is_synced_once(root: Path, trace: Trace, tmp_path: Path) -> None:
    """Their maker may have died before syncing them."""
    root.mkdir(parents=True)
    store = opened(root)
    store.put_if_absent("a", b"")
    synced = trace.of("fsync")
    assert {str(root), str(root.parent), str(root.parent.parent), str(tmp_path)} <= {*synced}
    trace.calls.clear()
    store.put_if_absent("b", b"")
    assert trace.of("fsync")[1:] == [str(root)]


def test_a_durable_record_shows_nothing_of_the_folders_above_its_copy(root: Path, trace: Trace, tmp_path: Path) -> None:
    """A target moves by `cp -a`, which syncs nothing; then the outcome of what is published there is durable elsewhere."""
    opened(root).put_if_absent(KEY, b"data")
    copy = tmp_path / "other" / "place"
    shutil.copytree(root, copy)
    files = LocalFiles(copy)
    assert files.records("").get(KEY) == b"data"
    trace.calls.clear()
    files.create("published").close()
    files.sync_folder(".")
    assert {str(copy), str(copy.parent), str(tmp_path)} <= {*trace.of("fsync")}


@pytest.mark.parametrize("above", ["flights", ".", "..", "../.."])
def test_an_error_of_the_sync_of_a_folder_above_is_not_forgotten(root: Path, trace: Trace, above: str) -> None:
    """The record exists when it is put again, and is relied on."""
    folder = (root / above).resolve()

    def fail(call: str, path: str) -> None:
        if (call, path) == ("fsync", str(folder)):
            raise OSError(24, "Too many open files", path)

    store = opened(root)
    trace.before = fail
    with pytest.raises(UnknownOutcomeError, match="Too many open files"):
        store.put_if_absent(KEY, b"data")
    trace.before = lambda call, path: None
    assert not store.put_if_absent(KEY, b"data")
    assert str(folder) in trace.of("fsync")


def test_a_folder_is_not_durable_while_another_thread_syncs_those_above_it(root: Path, trace: Trace) -> None:
    store = opened(root)
    relied_on: list[str] = []

    def meanwhile(call: str, path: str) -> None:
        if (call, path) == ("fsync", str(root.parent)) and not relied_on:
            relied_on.append("other")
            store.put_if_absent(f"{KEY}-other", b"data")
            relied_on.extend(trace.of("fsync"))

    trace.before = meanwhile
    store.put_if_absent(KEY, b"data")
    assert {str(folder) for folder in (*(root / KEY).parents[:3], *root.parents[:3])} <= {*relied_on}


def test_a_root_that_somebody_removed_with_the_folder_above_it_is_synced_with_that(root: Path, trace: Trace) -> None:
    store = opened(root)
    store.put_if_absent("a", b"")
    shutil.rmtree(root.parent)
    trace.calls.clear()
    store.put_if_absent("a", b"")
    trace.check_made_folders_are_synced(len(trace.calls) - 1)


def test_a_folder_above_the_root_that_may_not_be_looked_into_is_passed_over(
    root: Path, trace: Trace, tmp_path: Path
) -> None:
    def refuse(call: str, path: str) -> None:
        if call == "fsync" and path == str(tmp_path):
            raise PermissionError(13, "Permission denied", path)

    trace.before = refuse
    assert opened(root).put_if_absent("a", b"")


def die_before_the_folder_is_synced(root: Path, trace: Trace) -> None:
    """A writer dies between the name of its record and the sync of the folder."""

    def die(call: str, path: str) -> None:
        if trace.of("link"):
            raise Died

    trace.before = die
    with pytest.raises(Died):
        opened(root).put_if_absent(KEY, b"data")
    trace.before = lambda call, path: None
    trace.calls.clear()
    assert (root / KEY).exists()


READS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get(KEY),
    "get_many": lambda store: [*store.get_many([KEY, "nothing"])],
    "list": lambda store: [*store.list("flights/")],
    "put_if_absent": lambda store: store.put_if_absent(KEY, b"other"),
}


@pytest.mark.parametrize("read", READS)
def test_a_record_is_made_durable_before_it_is_given_out(root: Path, trace: Trace, read: str) -> None:
    """Anything that is made from it may be durable sooner, and then the power fails."""
    die_before_the_folder_is_synced(root, trace)
    READS[read](opened(root))
    synced = {*trace.of("fsync")}
    below = [folder for folder in (root / KEY).parents if folder.is_relative_to(root)]
    assert {str(folder) for folder in (*below, *root.parents[:2])} <= synced


@pytest.mark.parametrize("read", READS)
def test_what_is_known_to_be_durable_is_read_without_a_sync(root: Path, trace: Trace, read: str) -> None:
    """Ten thousand idle datasets are."""
    opened(root).put_if_absent(KEY, b"data")
    trace.calls.clear()
    READS[read](opened(root))
    assert trace.calls == []


@pytest.mark.parametrize("fails", ["link", "fsync"])
def test_a_record_whose_name_may_not_be_durable_keeps_the_sign_of_it(root: Path, trace: Trace, fails: str) -> None:
    """After an error of the link it may exist, too."""

    def fail(call: str, path: str) -> None:
        if call == fails and (call == "link" or path == str((root / KEY).parent)):
            raise OSError(5, "Input/output error", path)

    trace.before = fail
    with pytest.raises(UnknownOutcomeError, match="Input/output error"):
        opened(root).put_if_absent(KEY, b"data")
    assert len(os.listdir(root / TEMPORARIES)) == 1


def test_an_error_of_the_look_at_its_names_keeps_the_sign_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: LocalFiles, paths: list[str]) -> list[int]:
        if (root / KEY).exists():
            raise OSError(5, "Input/output error")
        return [0] * len(paths)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "names", fail)
        with pytest.raises(UnknownOutcomeError, match="Input/output error"):
            opened(root).put_if_absent(KEY, b"data")
    assert (root / KEY).stat().st_nlink == 2


def test_what_a_killed_writer_left_goes_after_its_record_is_durable(root: Path, trace: Trace) -> None:
    die_before_the_folder_is_synced(root, trace)
    for path in (root / TEMPORARIES).iterdir():
        os.utime(path, (1, 1))
    opened(root).put_if_absent("other", b"")
    assert (root / KEY).stat().st_nlink == 2
    an_hour_later(root)
    opened(root).put_if_absent("another", b"")
    assert (root / KEY).stat().st_nlink == 1
    moved = next(at for at, (call, path) in enumerate(trace.calls) if call == "rename")
    synced = trace.at("fsync", (root / KEY).parent)
    removed = next(at for at, (call, path) in enumerate(trace.calls) if call == "unlink" and not os.path.isabs(path))
    assert moved < synced < removed
    assert [name for name in os.listdir(root) if name.startswith(TEMPORARIES)] == [TEMPORARIES]


def test_opening_a_store_removes_no_sign_that_a_record_may_not_be_durable(root: Path, trace: Trace) -> None:
    """Its probe waits for no disk."""
    open_store(str(root)).close()
    trace.calls.clear()
    die_before_the_folder_is_synced(root, trace)
    (root / TEMPORARIES).rename(root / f"{TEMPORARIES}-1-0")
    open_store(str(root)).close()
    assert (root / KEY).stat().st_nlink == 2


def test_a_link_that_is_under_way_while_its_file_is_moved_away_keeps_the_sign_that_it_is_not_durable(
    root: Path,
) -> None:
    """The kernel found the file before the move; and the writer dies."""
    opened(root).put_if_absent("first", b"")
    (root / TEMPORARIES / "left").write_bytes(b"data")
    os.utime(root / TEMPORARIES / "left", (1, 1))
    record = root / "late"

    def land() -> None:
        (left,) = root.glob(f"{TEMPORARIES}*/left")
        os.link(left, record)

    class Slow(LocalFiles):
        def remove_tree(self, path: str) -> None:
            land()
            super().remove_tree(path)

    LocalStore(Slow(root)).put_if_absent("second", b"")
    if not record.exists():
        land()
    assert record.stat().st_nlink == 2
    assert opened(root).get("late") == b"data"
    an_hour_later(root)
    opened(root).put_if_absent("third", b"")
    assert record.stat().st_nlink == 1


def test_a_file_system_that_does_not_count_names_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalFiles, "names", lambda self, paths: [int(Path(root, p).exists()) for p in paths])
    with pytest.raises(UnreliableStoreError, match="doesn't count the names of a file"):
        opened(root).put_if_absent(KEY, b"data")


def test_a_folder_that_somebody_removed_and_another_process_made_again_is_synced_again(
    root: Path, trace: Trace
) -> None:
    store = opened(root)
    store.put_if_absent("flights/main.trips/d/1", b"")
    shutil.rmtree(root / "flights")
    (root / "flights" / "main.trips" / "d").mkdir(parents=True)  # its maker dies before it syncs their names
    trace.calls.clear()
    store.put_if_absent("flights/main.trips/d/2", b"")
    synced = {*trace.of("fsync")}
    assert {str(root), str(root / "flights"), str(root / "flights" / "main.trips")} <= synced
    trace.calls.clear()
    store.put_if_absent("flights/main.trips/d/3", b"")
    assert str(root / "flights") not in trace.of("fsync")
