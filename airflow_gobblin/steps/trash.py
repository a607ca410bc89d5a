"""The trash: where a mirror's step takes a file that is to be deleted, or kept in a backup folder, and looks at it again.

Between a look at a file and an `unlink`, or a rename over it, somebody may have replaced it. So it is renamed into a trash of its
own, looked at there, and put back if it is another one. It is the trash that makes this possible only once (rule 14): it is made
before the decision, and no step makes it again. A later phase closes it, and so does a fence: only its removal keeps things from
coming into it, even from a process that has it open.
"""

from __future__ import annotations

import errno
import logging
import posixpath
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

from airflow_gobblin.storage.files.base import FileIdentity, Files

__all__ = [
    "CLOSING",
    "FENCED",
    "KEPT",
    "close_trash",
    "discard",
    "kept_files",
    "make_trashes",
    "put_back",
    "put_new",
    "take_away",
]

log = logging.getLogger(__name__)

KEPT = "_gobblin/kept"
"""The folder, below the target root, of files that could not be put back."""
CLOSING, FENCED = ".closing", ".fenced"
"""The suffixes of the names of a trash that is being closed."""
_ROUNDS = 1000


def make_trashes(count: int, staging: str, files: Files) -> list[str]:
    """Make some trashes, durably and under names that are never made twice.

    :param staging: the folder of the plan's token.
    """
    folder = f"{staging}/trash-{uuid.uuid4().hex}"
    trashes = [f"{folder}/{number}" for number in range(count)]
    for trash in trashes:
        files.make_folder(trash)
    if trashes:
        files.sync_folder(folder)
    return trashes


def take_away(files: Files, path: str, trash: str, identity: FileIdentity) -> bool:
    """Take a file away, into its trash.

    :return: whether it is the file that was to be taken. Another one is put back.
    :raises FileNotFoundError: it is gone, or its trash is.
    """
    taken = f"{trash}/{uuid.uuid4().hex}"  # no other process uses this name
    files.replace(path, taken)
    if files.identity(taken) in (identity, None):
        return True
    put_back(files, taken, path)
    return False


def close_trash(
    files: Files, trash: str, closing: str, path: str, identity: FileIdentity, end: Callable[[str], object]
) -> None:
    """Rename a trash, so that nobody finds it again, and empty it until it can be removed.

    :param closing: its new name. Another process may have given it the other one.
    :param path: the place of what was taken there. Everything but the file that was to be taken is put back.
    :param identity: that file's.
    :param end: the function that deals with that file, called with its path there.
    """
    with suppress(FileNotFoundError, FileExistsError):
        files.move_folder(trash, closing)
    for folder in (trash + CLOSING, trash + FENCED):
        for _ in range(_ROUNDS):
            if files.identity(folder) is None:
                break
            found = files.identities(folder)
            for name in sorted(found, key=lambda name: found[name] == identity):  # those to put back come first
                if found[name] == identity:
                    end(f"{folder}/{name}")
                else:
                    put_back(files, f"{folder}/{name}", path)
            files.remove_folder(folder)
        else:
            raise OSError(errno.ENOTEMPTY, "something comes into it again and again", folder)


def discard(files: Files, taken: str, backup: str) -> None:
    """Remove a file, or keep it in a backup folder. Harmless if it is gone.

    :param backup: its path there; empty for none.
    """
    if not backup:
        with suppress(FileNotFoundError):  # another process is at it, too
            files.unlink(taken)
    elif not put_new(files, taken, backup) and not put_new(files, taken, f"{backup}.{uuid.uuid4().hex}"):
        raise NotADirectoryError(errno.ENOTDIR, "something that is not a folder is in its way", backup)


def kept_files(files: Files) -> Iterator[tuple[str, str]]:
    """Yield the files that could not be put back and that nobody has taken since, each with the path that it was taken from."""
    if files.moves_folders:  # objects aren't taken away
        yield from ((path, path[len(KEPT) + 1 :].partition("/")[2]) for path in files.walk(KEPT))


def put_back(files: Files, taken: str, path: str) -> None:
    """Put a file, or whatever it is, back in its place, or keep it elsewhere if its place is taken. Harmless if it is gone."""
    if put_new(files, taken, path):
        return
    own = f"{KEPT}/{uuid.uuid4().hex}"
    kept = f"{own}/{path}"
    files.make_private(own)  # it may come from a folder that others can't look into
    _make_folder_of(files, kept)
    with suppress(FileNotFoundError):
        files.replace(taken, kept)
        log.warning("%r was replaced twice while it was to be deleted: one of the two files is kept as %r", path, kept)


def put_new(files: Files, taken: str, path: str) -> bool:
    """Put a file, or whatever it is, in a place, unless that is taken. Harmless if it is gone.

    :return: whether it is no longer where it was.
    """
    while (found := files.identity(taken)) is not None:  # else another process did it
        try:
            _rename_new(files, taken, path)
        except FileNotFoundError:
            try:
                _make_folder_of(files, path)
            except (FileExistsError, NotADirectoryError):  # such as a link to nowhere
                return False
        except (FileExistsError, NotADirectoryError):
            if files.identity(path) != found:
                return False
            with suppress(FileNotFoundError):  # it was put there by a link, and has two names
                files.unlink(taken)
    return True


def _make_folder_of(files: Files, path: str) -> None:
    """Make the folder of a path, durably: it will hold the only name of a file whose former folder may be synced first."""
    folder = posixpath.dirname(path) or "."
    files.make_folder(folder)
    with suppress(FileNotFoundError):  # somebody has removed it again
        files.sync_folder(folder)


def _rename_new(files: Files, taken: str, path: str) -> None:
    """Rename a file without overwriting; by a link, durable before its other name goes, where the storage has no such rename."""
    try:
        files.rename_new(taken, path)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        if files.folder(taken) is not None:
            files.move_folder(taken, path)
            return
        files.link(taken, path)
        files.sync_folder(posixpath.dirname(path) or ".")
        files.unlink(taken)
