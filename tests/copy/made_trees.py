"""Trees of files with any names and attributes, made on a disk, and what is seen of one."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from airflow_gobblin.storage.files import acls
from tests.protocol.processes import Send, in_fresh_process

NOBODY = 65534


@dataclass(frozen=True)
class Made:
    """A file to make.

    :param hole: the number of zeros before its content, as a hole.
    :param link: the text of a link instead.
    """

    content: bytes = b""
    mode: int = 0o644
    modified: int = 10**18
    hole: int = 0
    link: bytes = b""
    owner: int = 0
    acl: acls.Acl = ()
    extended: tuple[tuple[str, bytes], ...] = ()


Folder = Mapping[bytes, Any]
"""Files and folders by name."""


@dataclass(frozen=True)
class MadeFolder:
    """A folder to make, with its attributes."""

    inside: Folder
    mode: int = 0o755
    modified: int = 10**18
    owner: int = 0
    acl: acls.Acl = ()
    extended: tuple[tuple[str, bytes], ...] = ()


class Seen(NamedTuple):
    """A file or a link as it is on the disk."""

    kind: int
    mode: int
    owner: int
    group: int
    modified: int
    content: bytes
    acl: acls.Acl = ()
    extended: tuple[tuple[str, bytes], ...] = ()


_names = st.one_of(
    st.sampled_from([b"a", b"b", b"a.jpg", "é".encode(), "é".encode(), b"\xff\xfe", b" ", b"...", b"-rf", b"x\ny"]),
    st.text(min_size=1, max_size=8).map(lambda text: text.encode(errors="ignore")),
    st.binary(min_size=1, max_size=8),
).filter(lambda name: name not in (b"", b".", b"..", b"_gobblin") and not {*name} & {*b"/\0"})
_acls = st.sampled_from(
    [(), (), ("group::r--", "user:7:rw-"), ("group::rwx",), ("group:1234:r-x", "group::---", "user:0:---")]
)
_of_new = st.sampled_from(
    [
        (),
        (),
        ("default:group::r-x", "default:other::---", "default:user::rwx"),
        ("default:group::rwx", "default:mask::r--", "default:other::---", "default:user:7:rw-", "default:user::rwx"),
    ]
)
_extended = st.dictionaries(st.sampled_from(["user.a", "user.b", "user.é"]), st.binary(max_size=20), max_size=2).map(
    lambda found: tuple(sorted(found.items()))
)
_files = st.builds(
    Made,
    acl=_acls,
    extended=_extended,
    content=st.binary(max_size=40),
    mode=st.integers(0, 0o7777).map(lambda mode: mode | 0o400),
    modified=st.integers(0, 2 * 10**18),
    hole=st.sampled_from([0, 0, 0, 1 << 16]),
    owner=st.sampled_from([0, 0, 7]),
)
_links = st.builds(
    Made, link=st.sampled_from([b"a", b"../..", b"/etc/passwd", b"\xff"]), modified=st.integers(1, 2 * 10**18)
)


def trees() -> st.SearchStrategy[Folder]:
    """Trees of a few files, links and folders."""
    leaves = st.one_of(_files, _files, _links)
    inner = st.recursive(leaves, lambda below: st.dictionaries(_names, below, max_size=4), max_leaves=12)
    return st.dictionaries(_names, inner, min_size=1, max_size=4)


_folder_modes = st.sampled_from([0o755, 0o700, 0o2775, 0o1777, 0o555])
_entries = st.recursive(
    st.one_of(_files, _files, _links),
    lambda below: st.builds(
        MadeFolder,
        acl=st.builds(lambda *both: tuple(sorted(sum(both, ()))), _acls, _of_new),
        extended=_extended,
        inside=st.dictionaries(_names, below, max_size=4),
        mode=_folder_modes,
        modified=st.integers(1, 2 * 10**18),
        owner=st.sampled_from([0, 7]),
    ),
    max_leaves=12,
)


@st.composite
def histories(draw: st.DrawFn, length: int = 3) -> list[Folder]:
    """A tree, and what becomes of it: of each entry one of the same or another kind, or none, and others come."""
    found: list[Folder] = [draw(st.dictionaries(_names, _entries, min_size=1, max_size=4))]
    while len(found) < length:
        found.append(_changed(draw, found[-1]))
    return found


def _changed(draw: st.DrawFn, tree: Folder) -> Folder:
    found = dict(draw(st.dictionaries(_names, _entries, max_size=2)))
    for name, made in tree.items():
        fate = draw(st.sampled_from(["stays", "stays", "stays", "changes", "is set", "goes", "becomes another"]))
        if fate == "is set" and isinstance(made, Made):
            found[name] = _set(draw, made)
        elif fate == "becomes another":
            found[name] = _newer(draw(_entries), made)
        elif fate != "goes":
            found[name] = made if fate == "stays" else _edited(draw, made)
    return found


def _set(draw: st.DrawFn, made: Made) -> Made:
    """Give a file other attributes: its content and its time stay."""
    other = draw(_files)
    return replace(made, mode=other.mode, owner=other.owner, acl=other.acl, extended=other.extended)


def _edited(draw: st.DrawFn, made: Made | MadeFolder) -> Made | MadeFolder:
    if isinstance(made, MadeFolder):
        inside = _changed(draw, made.inside)
        return replace(made, inside=inside, mode=draw(_folder_modes), modified=draw(st.integers(1, 2 * 10**18)))
    return _newer(draw(_links if made.link else _files), made)


def _newer(made: Made | MadeFolder, before: Made | MadeFolder) -> Made | MadeFolder:
    """Give what takes the place of something else another time, by which it is seen to have changed."""
    return replace(made, modified=max(made.modified, before.modified) + 2 * 10**9)


def make_tree(root: Path, tree: Folder) -> None:
    """Make a tree in an existing folder."""
    _make(os.fsencode(root), tree)


def _make(root: bytes, tree: Folder) -> None:
    for name, made in tree.items():
        at = root + b"/" + name
        if isinstance(made, MadeFolder):
            os.mkdir(at)
            _make(at, made.inside)
            _give(at, made)
            os.utime(at, ns=(made.modified, made.modified))
            continue
        if not isinstance(made, Made):
            os.mkdir(at)
            _make(at, made)
            continue
        if made.link:
            os.symlink(made.link, at)
        else:
            with open(at, "wb") as file:
                file.seek(made.hole)
                file.write(made.content)
                file.truncate(made.hole + len(made.content))
            _give(at, made)
        os.utime(at, ns=(made.modified, made.modified), follow_symlinks=False)


def _give(at: bytes, made: Made | MadeFolder) -> None:
    if os.geteuid() == 0:
        os.chown(at, made.owner, made.owner)
    for name, data in zip((acls.ACCESS, acls.DEFAULT), acls.encoded(made.acl, made.mode), strict=True):
        if data:
            os.setxattr(at, name, data)
    os.chmod(at, made.mode)
    for name, value in made.extended:
        os.setxattr(at, name, value)


def seen(root: Path) -> dict[bytes, Seen]:
    """All files and links below a folder, by their path."""
    top = os.fsencode(root)
    return {at[len(top) + 1 :]: _look(at) for at in _all(top)}


def seen_whole(root: Path) -> dict[bytes, Seen]:
    """All that is below a folder, folders too, by path; without our own."""
    top = os.fsencode(root)
    found = {at[len(top) + 1 :]: _look(at) for at in _all(top, folders=True)}
    return {path: one for path, one in found.items() if path.split(b"/")[0] != b"_gobblin"}


def _all(folder: bytes, *, folders: bool = False) -> Iterator[bytes]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if folders:
                yield entry.path
            yield from _all(entry.path, folders=folders)
        else:
            yield entry.path


def _look(at: bytes) -> Seen:
    found = os.lstat(at)
    link = stat.S_ISLNK(found.st_mode)
    content = b""
    if not stat.S_ISDIR(found.st_mode):
        content = os.readlink(at) if link else Path(os.fsdecode(at)).read_bytes()
    mode = 0 if link else stat.S_IMODE(found.st_mode)
    named = {} if link else {name: os.getxattr(at, name) for name in os.listxattr(at)}
    acl = acls.decoded(*(named.pop(name, b"") for name in (acls.ACCESS, acls.DEFAULT)))
    extended = tuple(sorted((name, value) for name, value in named.items() if name.startswith("user.")))
    return Seen(stat.S_IFMT(found.st_mode), mode, found.st_uid, found.st_gid, found.st_mtime_ns, content, acl, extended)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Let this process be a user without rights for a while; it is already one if it isn't root."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def process_of_nobody(work: Callable[[], None]) -> None:
    """Do some work in a process of a user without rights, who isn't root in any way."""

    def other(send: Send) -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        work()

    in_fresh_process(other)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may write to, in memory where that can be: a mirror waits for disks often."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as made:
        Path(made).chmod(0o777)
        yield Path(made)
