"""The attributes of files and folders on a disk: reading them, and giving them, as far as the system lets us."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_gobblin.storage.files.base import Attributes

OF_THIS_OWNER = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
"""Bits of a permission that mean something else for a file of another owner."""
Refused = dict[str, OSError]
"""Why attributes weren't given, by their names."""


def attributes_of(found: os.stat_result) -> Attributes:
    """Return the attributes that a look at a file shows."""
    return Attributes(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns)


def give_attributes(target: int | str, wanted: Attributes, **place: Any) -> Refused:
    """Give a file, a folder or a link those attributes that aren't `None`.

    :param target: its descriptor; or its name, in the folder that `place` tells to the functions of `os`.
    :return: the reasons why it doesn't get some.
    """
    refused: Refused = {}
    if wanted.owner is not None or wanted.group is not None:
        _own(target, wanted.owner, wanted.group, refused, place)
    if wanted.mode is not None:  # after its owner, whose change takes special bits away
        mode = wanted.mode & ~OF_THIS_OWNER if refused else wanted.mode
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


@contextmanager
def held(path: str, *, folder: bool = False) -> Iterator[tuple[os.stat_result, str]]:
    """Hold a file or a folder, whatever becomes of its name, and without a right to read it.

    :return: what it is, and another name of it.
    :raises NotADirectoryError: it is to be a folder, and isn't.
    """
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if folder else 0))
    try:
        yield os.fstat(handle), f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
