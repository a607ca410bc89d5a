"""The attributes of files and folders on a disk: reading them, and giving them, as far as the system lets us."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, AnyStr

from airflow_gobblin.storage.files import acls
from airflow_gobblin.storage.files.base import Attributes, Keeps

_NO_SUCH = (errno.ENOTSUP, errno.ENOSYS)
"""The errors of a file system without lists or extended attributes."""
_OF_USERS = "user."

OF_THIS_OWNER = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
"""Bits of a permission that mean something else for a file of another owner."""
_TIME_STEPS = (1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000)
"""Steps, in ns, in which file systems keep times: NTFS's is the second, exFAT's the fifth, FAT's the last."""
_TRIED_TIME = 1_111_111_111_111_111_111
_TRIED_MODES = (0o640, 0o604)
Refused = dict[str, OSError]
"""Why attributes weren't given, by their names."""


def attributes_of(found: os.stat_result) -> Attributes:
    """Return the attributes that a look at a file shows."""
    return Attributes(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns)


def all_attributes(at: int | AnyStr, found: os.stat_result, *, acl: bool, extended: bool) -> Attributes:
    """Return the attributes that a look at a file shows, and others that are asked for. Links have none of these.

    :param at: its descriptor or its path.
    """
    shown = attributes_of(found)
    if stat.S_ISLNK(found.st_mode) or not (acl or extended):
        return shown
    return replace(
        shown,
        acl=_acl_of(at, folder=stat.S_ISDIR(found.st_mode)) if acl else None,
        extended=_extended_of(at) if extended else None,
    )


def _acl_of(at: int | AnyStr, *, folder: bool) -> acls.Acl | None:
    """Return the access control list of a file; `None` if its file system has none."""
    try:
        return acls.decoded(_value(at, acls.ACCESS), _value(at, acls.DEFAULT) if folder else b"")
    except OSError as error:
        if error.errno in _NO_SUCH:
            return None
        raise


def _value(at: int | AnyStr, name: str) -> bytes:
    """Return an extended attribute; empty if there is none."""
    try:
        return os.getxattr(at, name)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return b""
        raise


def _extended_of(at: int | AnyStr) -> tuple[tuple[str, str], ...] | None:
    """Return the extended attributes of a file that this process could also set; `None` if it may not see them."""
    begins = _names_to_set()
    try:
        names = sorted(name for name in os.listxattr(at) if name.startswith(begins))
        return tuple((name, os.getxattr(at, name).hex()) for name in names)
    except OSError as error:
        if error.errno in (*_NO_SUCH, errno.EACCES, errno.EPERM, errno.ENODATA):
            return None
        raise


def _names_to_set() -> tuple[str, ...]:
    """Return the prefixes of the names of extended attributes that this process may set. Labels are the host's own."""
    return (_OF_USERS, "trusted.", "security.capability") if os.geteuid() == 0 else (_OF_USERS,)


def supported(path: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether the file system at a path, which needn't exist yet, keeps lists, and which extended attributes."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    lists, extended = (_has_names(path, name) for name in (acls.ACCESS, f"{_OF_USERS}none"))
    return lists, _names_to_set() if extended else ()


def _has_names(path: str, name: str) -> bool:
    try:
        os.getxattr(path, name)
    except OSError as error:
        return error.errno not in _NO_SUCH
    return True


def tried(folder: str, keeps: Keeps) -> Keeps:
    """Return what a file system keeps of permissions, owners and times, as a new file in a folder of our own shows.

    Some accept any and keep their own (FAT, SMB, many of FUSE); NFS with `root_squash`, and many containers, let root give files
    to nobody else.

    :param keeps: the expected result, which is returned where no file can be made.
    """
    path = f"{folder}/.tried-{uuid.uuid4().hex}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return keeps
    try:
        return _as_kept_of(path, keeps)
    finally:
        with suppress(OSError):
            os.unlink(path)


def _as_kept_of(path: str, keeps: Keeps) -> Keeps:
    """Return what is kept of a new file of ours."""
    made = os.stat(path)
    permission = all(_takes(path, Attributes(mode=mode)) for mode in _TRIED_MODES)
    others = [group for group in keeps.groups if group != made.st_gid]
    owners = keeps.sets_owners and _takes(path, Attributes(owner=made.st_uid + 1, group=made.st_gid + 1))
    any_group = owners or not others or _takes(path, Attributes(group=others[0]))
    return replace(
        keeps,
        time=_step_of_times(path, keeps.time),
        permission=keeps.permission if permission else 0,
        sets_owners=owners,
        user=made.st_uid,
        groups=keeps.groups if any_group else (made.st_gid,),
    )


def _takes(path: str, wanted: Attributes) -> bool:
    """Return whether a file has the attributes that it is given."""
    return not give_attributes(path, wanted) and not wanted.differing(attributes_of(os.stat(path)))


def _step_of_times(path: str, expected: int) -> int:
    """Return the step, in ns, in which the times of a file are kept; 0 if it keeps none that it is given."""
    give_attributes(path, Attributes(modified=_TRIED_TIME))
    found = os.stat(path).st_mtime_ns
    if abs(found - _TRIED_TIME) > _TIME_STEPS[-1]:
        return 0
    return next((step for step in _TIME_STEPS if found == _TRIED_TIME - _TRIED_TIME % step), expected)


def give_attributes(target: int | str, wanted: Attributes, **place: Any) -> Refused:
    """Give a file, a folder or a link those attributes that aren't `None`.

    :param target: its descriptor; or its name, in the folder that `place` gives to the functions of `os`.
    :return: the reasons why it doesn't get some.
    """
    refused: Refused = {}
    if wanted.owner is not None or wanted.group is not None:
        _own(target, wanted.owner, wanted.group, refused, place)
    mode = wanted.mode
    if mode is not None and refused:
        mode &= ~OF_THIS_OWNER
    if wanted.extended is not None:
        with noting("extended", refused):
            _give_extended(target, dict(wanted.extended))
    if wanted.acl is not None:
        with noting("acl", refused):
            _give_acl(target, wanted.acl, stat.S_IMODE(os.stat(target).st_mode) if mode is None else mode)
        if "acl" in refused and mode is not None:
            mode = acls.permission_without(wanted.acl, mode)
    if mode is not None:  # after its owner: changing that clears special bits
        with noting("mode", refused):
            os.chmod(target, stat.S_IMODE(mode))
    if wanted.modified is not None:
        with noting("modified", refused):
            os.utime(target, ns=(os.stat(target, **place).st_atime_ns, wanted.modified), **place)
    return refused


def _own(target: int | str, owner: Any, group: Any, refused: Refused, place: dict[str, Any]) -> None:
    """Give a file to an owner and a group; to the group alone, if only the owner is refused."""
    with noting("owner" if owner is not None else "group", refused):
        os.chown(target, -1 if owner is None else owner, -1 if group is None else group, **place)
    if "owner" in refused and group is not None:
        with noting("group", refused):
            os.chown(target, -1, group, **place)


def raise_first(refused: Refused) -> None:
    """Raise the first of some reasons, if there are any."""
    for error in refused.values():
        raise error


@contextmanager
def noting(name: str, refused: Refused) -> Iterator[None]:
    """Note the reason why an attribute can't be given."""
    try:
        yield
    except OSError as error:
        refused[name] = error


def _give_acl(target: int | str, acl: acls.Acl, mode: int) -> None:
    for name, data in zip((acls.ACCESS, acls.DEFAULT), acls.encoded(acl, mode), strict=True):
        if data:
            os.setxattr(target, name, data)
        else:
            _remove(target, name)


def _give_extended(target: int | str, wanted: dict[str, str]) -> None:
    has = dict(_extended_of(target) or ())
    if has == wanted:
        return
    with _writable(target):
        for name in has.keys() - wanted.keys():
            _remove(target, name)
        for name, value in wanted.items():
            os.setxattr(target, name, bytes.fromhex(value))


@contextmanager
def _writable(target: int | str) -> Iterator[None]:
    """Let its owner write to a file for a while, since its extended attributes can't be set otherwise."""
    mode = stat.S_IMODE(os.stat(target).st_mode)
    if mode & stat.S_IWUSR or os.geteuid() == 0:
        yield
        return
    os.chmod(target, mode | stat.S_IWUSR)
    try:
        yield
    finally:
        os.chmod(target, mode)


def _remove(target: int | str, name: str) -> None:
    try:
        os.removexattr(target, name)
    except OSError as error:
        if error.errno not in (errno.ENODATA, *_NO_SUCH):
            raise


@contextmanager
def held(path: str, *, folder: bool = False) -> Iterator[tuple[os.stat_result, str]]:
    """Hold a file or a folder open, whatever becomes of its name, without needing the right to read it.

    :return: its status, and another name of it.
    :raises NotADirectoryError: it should be a folder, and isn't.
    """
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if folder else 0))
    try:
        yield os.fstat(handle), f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
