"""The part of a dataset's folder that a mirror keeps because it could not be put back, for people: only they take it away."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from airflow_gobblin.journal.history import History
from airflow_gobblin.steps.trash import KEPT, kept_files
from airflow_gobblin.storage.files.base import Files

_MOST = 10_000
"""The most kept files that are looked at, of all datasets together."""
_SHOWN = 100


@dataclass(frozen=True)
class KeptFile:
    """A kept file.

    :param path: below the target root.
    :param place: where it was taken from, likewise.
    """

    path: str
    place: str
    bytes: int


@dataclass(frozen=True)
class KeptFiles:
    """The kept files of a dataset.

    :param folder: where the files of all datasets are.
    :param first: some of them.
    :param whole: whether all were counted: there may be too many to look at.
    """

    folder: str
    files: int
    bytes: int
    first: tuple[KeptFile, ...]
    whole: bool


def list_kept(files: Files, history: History) -> KeptFiles:
    """Count the kept files of a dataset. Objects aren't kept.

    :raises OSError: they can't be listed.
    """
    found = [*islice(kept_files(files), _MOST + 1)]
    mine = [(path, place) for path, place in found[:_MOST] if history.has(place)]
    looked = ((path, place, files.identity(path)) for path, place in mine)
    kept = [KeptFile(path, place, identity.size) for path, place, identity in looked if identity is not None]
    size = sum(one.bytes for one in kept)
    return KeptFiles(f"{files.root}/{KEPT}", len(kept), size, tuple(kept[:_SHOWN]), len(found) <= _MOST)
