"""The backup folder of a mirror, where the files that it replaces or deletes are kept.

They are renamed into it after the files that replace them are in place. By then nothing may prevent that: their slot could be
neither finished nor abandoned. So it is tried before the slot is decided.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass, field

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.storage.files.base import Files

_LONGEST_PATH = 4096 - len(f".{uuid.UUID(int=0).hex}")
"""Linux's `PATH_MAX`, without the suffix that a name gets if it is taken."""


def check_backup(files: Files, folder: str) -> None:
    """Make sure that a backup folder is where it seems to be: a link could lead into one of the trees, or to another disk.

    :param folder: its path below the root of the files.
    :raises ConfigurationError: it is one, or in one.
    """
    where = files.leads_to(folder)
    if where is not None:
        hint = "Put a folder in its place, or give the place that it leads to."
        raise _refused(files, folder, f"it is a link or another disk, or is in one, and leads to {where}", hint)


@dataclass
class Backup:
    """The part of a backup folder that one plan keeps files in.

    :param folder: the backup folder, below the root of the files.
    :param token: the plan's token, so that no file is ever kept in place of another.
    :param target: the target tree, below the root of the files.
    :param staging: the folder of the plan's token.
    """

    folder: str
    token: str
    target: str
    files: Files
    staging: str
    _is_made: bool = field(default=False, init=False)

    def of(self, path: str) -> str:
        """Return where a file is kept, below the root of the files. The first call makes the folder of them all.

        :param path: the file, below the root of the files.
        :raises ConfigurationError: files can't be renamed to the backup folder, or this one's name would be too long there.
        """
        if not self._is_made:
            self._make()
            self._is_made = True
        below = path if self.target == "." else path.removeprefix(f"{self.target}/")
        kept = f"{self.folder}/{self.token}/{below}"
        if len(os.fsencode(f"{self.files.root}/{kept}")) >= _LONGEST_PATH:
            cause = f"{path!r} would have too long a name in it: {os.strerror(errno.ENAMETOOLONG)}"
            raise _refused(self.files, self.folder, cause, "Give it a shorter path.")
        return kept

    def _make(self) -> None:
        """Make the plan's folder in staging and rename it to its place, as will be done with the files.

        Only users who can write to the workspace can look into it: a file may come from a folder that others can't look into.
        """
        made = f"{self.staging}/backup-{uuid.uuid4().hex}"
        try:
            self.files.make_folder(self.folder)
            self.files.make_private(made)
            kept = f"{self.folder}/{self.token}"
            with suppress(FileExistsError):  # by an earlier try to decide
                self.files.move_folder(made, kept)
            self.files.sync_folder(kept)  # if a step made it anew, others could look into it
        except OSError as error:
            hint = "Give a folder on the disk of the workspace, in which this user may make folders."
            raise _refused(self.files, self.folder, error, hint) from error


def _refused(files: Files, folder: str, cause: str | OSError, hint: str) -> ConfigurationError:
    return ConfigurationError(
        operation="keep what is replaced or deleted",
        subject=f"in backup {files.root}/{folder}",
        cause=cause,
        hint=f"{hint} Nothing was changed.",
    )
