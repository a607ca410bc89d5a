from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from airflow_gobblin.storage.files import FileIdentity, Files, LocalFiles, with_listing_cache


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return LocalFiles(tmp_path / "root")


def _write(files: Files, path: str, data: bytes = b"data") -> FileIdentity:
    with files.create(path) as out:
        out.write(data)
    found = files.identity(path)
    assert found is not None
    return found


def test_a_folder_is_not_moved_over_a_link(files: Files) -> None:
    _write(files, "staging/u0/0", b"mine")
    files.make_folder("target")
    at = Path(files.root) / "target/u0"
    at.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        files.move_folder("staging/u0", "target/u0")
    assert at.is_symlink()
    assert files.read("staging/u0/0") == b"mine"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_comes_to_the_target_in_the_last_moment_stays(
    files: Files, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the check, and before the rename."""
    _write(files, "staging/u0/0", b"mine")
    files.make_folder("target")
    rename = os.rename

    def late(source: str, target: str) -> None:
        _write(files, "target/u0" if what == "file" else "target/u0/theirs", b"theirs")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(FileExistsError):
        files.move_folder("staging/u0", "target/u0")
    assert [files.read(path) for path in files.walk("target")] == [b"theirs"]
    assert files.read("staging/u0/0") == b"mine"


def test_a_link_is_not_followed(files: Files) -> None:
    _write(files, "real", b"12345678")
    (Path(files.root) / "link").symlink_to("real")
    (Path(files.root) / "dangling").symlink_to("nowhere")
    link, real = files.identity("link"), files.identity("real")
    assert link is not None
    assert real is not None
    assert link.inode != real.inode
    assert files.identity("dangling") is not None


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (0o755, 0o700),
        (0o700, 0o700),
        (0o775, 0o770),
        (0o2775, 0o2770),
        (0o777, 0o777),
        (0o1777, 0o1777),
        (0o711, 0o700),
    ],
)
def test_a_private_folder_is_open_to_those_who_may_write_to_the_root(files: Files, root: int, expected: int) -> None:
    top = Path(files.root)
    top.mkdir()
    top.chmod(root)
    files.make_private("_gobblin/mine")
    assert rights(top / "_gobblin" / "mine") == expected
    assert rights(top / "_gobblin") & 0o777 == 0o777 & ~_umask()
    (top / "_gobblin" / "mine").chmod(0o750)
    files.make_private("_gobblin/mine")
    assert rights(top / "_gobblin" / "mine") == 0o750, "somebody wants it so"


@pytest.mark.parametrize("call", ["chmod", "rename"])
def test_a_private_folder_whose_maker_was_killed_is_open_to_the_others_all_the_same(
    files: Files, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    top = Path(files.root)
    top.mkdir()
    top.chmod(0o775)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(os, call, die)
        with pytest.raises(KeyboardInterrupt):
            files.make_private("mine")
    files.make_private("mine")
    assert rights(top / "mine") == 0o770
    assert os.listdir(top) == ["mine"]


def test_of_two_who_make_a_private_folder_at_once_each_has_it(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    chmod = os.chmod

    def chmod_late(path: str, mode: int) -> None:
        monkeypatch.undo()
        files.make_private("mine")
        chmod(path, mode)

    monkeypatch.setattr(os, "chmod", chmod_late)
    files.make_private("mine")
    assert os.listdir(files.root) == ["mine"]


def test_a_file_in_the_place_of_a_private_folder_is_left(files: Files) -> None:
    _write(files, "mine")
    files.make_private("mine")
    assert files.read("mine") == b"data"
    assert os.listdir(files.root) == ["mine"]


def test_a_private_folder_of_another_group_than_the_root_is_not_open_to_it(files: Files) -> None:
    top = Path(files.root)
    top.mkdir()
    try:
        os.chown(top, -1, 12345)
    except PermissionError:
        pytest.skip("only root gives a folder to a group that it isn't in")
    top.chmod(0o775)
    files.make_private("mine")
    assert rights(top / "mine") == 0o700


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def test_a_folder_that_is_a_link_leads_somewhere(files: Files, tmp_path: Path) -> None:
    top = tmp_path / "root"
    (tmp_path / "elsewhere" / "below").mkdir(parents=True)
    _write(files, "own/x")
    (top / "out").symlink_to(tmp_path / "elsewhere")
    (top / "inside").symlink_to("own")
    (top / "dangling").symlink_to(tmp_path / "nothing")
    assert files.leads_to("out") == str(tmp_path / "elsewhere")
    assert files.leads_to("out/below") == str(tmp_path / "elsewhere" / "below")
    assert files.leads_to("inside") == str(top / "own")
    assert files.leads_to("dangling") == str(tmp_path / "nothing")
    assert [files.leads_to(path) for path in ("own", "own/x", "none/at/all", ".")] == [None] * 4
    linked = tmp_path / "linked"
    linked.symlink_to(top)
    assert LocalFiles(linked).leads_to("own") is None, "the root itself may be one"


def test_a_folder_where_another_disk_is_mounted_leads_there() -> None:
    """Nothing can be renamed or linked to it."""
    files = LocalFiles("/")
    assert [files.leads_to(path) for path in ("proc", "proc/none/at/all")] == ["/proc", "/proc/none/at/all"]
    assert LocalFiles("/proc").leads_to("none") is None, "the root itself may be another disk's"


def test_many_files_are_looked_at_by_one_listing(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {path: _write(files, path) for path in ("a/b/1", "a/b/2", "a/1", "top")}
    seen = with_listing_cache(files, "nothing")
    assert {path: seen.identity(path) for path in found} == found
    assert seen.identity("a/b/3") is None
    later = _write(files, "a/b/3")
    assert seen.identity("a/b/3") == later
    monkeypatch.setattr(LocalFiles, "identity", lambda self, path: pytest.fail(f"{path} is looked at alone"))
    monkeypatch.setattr(LocalFiles, "identities", lambda self, path: pytest.fail(f"{path} is listed again"))
    assert {path: seen.identity(path) for path in found} == found
    assert seen.identities("a/b") == {"1": found["a/b/1"], "2": found["a/b/2"]}
    assert seen.read("a/b/1") == b"data"
