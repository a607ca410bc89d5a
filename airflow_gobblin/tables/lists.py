"""List files: the data files of a slot in pieces, in the workspace, so that a commit of any size stays out of the decision.

They are written before the decision, under the digest of their content, and removed with the token's staging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from airflow_gobblin.errors import RecordError, StepLostError
from airflow_gobblin.model import wire
from airflow_gobblin.model.table import DataFile
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.stores.base import put_or_read

__all__ = ["FILES_PER_LIST", "ListFile", "read_lists", "write_lists"]

FILES_PER_LIST = 1000


@dataclass(frozen=True, slots=True)
class ListFile:
    """A list of data files.

    :param digest: the digest of its content, which is also its name.
    :param files: how many data files it names, and `rows` how many rows these have.
    """

    digest: str
    files: int
    rows: int


@record("data_files")
@dataclass(frozen=True)
class _DataFiles:
    """The content of a list file."""

    files: tuple[DataFile, ...]


def write_lists(files: Files, folder: str, named: Iterable[DataFile]) -> Iterator[ListFile]:
    """Write the lists of data files, one at a time in memory. Writing the same again is harmless.

    :param files: the file system of the workspace.
    :param folder: where the lists are, in the token's staging.
    :param named: the data files; read once.
    """
    store, waiting = files.records(folder), iter(named)
    while some := tuple(islice(waiting, FILES_PER_LIST)):
        data = wire.dumps(_DataFiles(some))
        digest = wire.digest(data)
        put_or_read(store, digest, data)
        yield ListFile(digest, len(some), sum(file.rows for file in some))


def read_lists(files: Files, folder: str, lists: Iterable[ListFile]) -> Iterator[DataFile]:
    """Yield the data files of some lists, one list at a time in memory. The parameters are as for `write_lists`.

    :raises StepLostError: a list is gone.
    :raises RecordError: a list isn't as it was written.
    """
    store = files.records(folder)
    for one in lists:
        subject = f"list {one.digest} of data files in {folder}"
        data = store.get(one.digest)
        if data is None:
            raise StepLostError(operation="read", subject=subject, cause="it is gone")
        if wire.digest(data) != one.digest:
            raise RecordError(operation="read", subject=subject, cause="it isn't as it was written")
        yield from wire.loads(data, _DataFiles, subject).files
