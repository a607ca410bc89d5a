"""Shorter ways into S3 than block by block: copies that the store makes by itself, and parts that are read and sent at once."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.failures import writing
from airflow_gobblin.copy.transfer.objects import ObjectOrigin
from airflow_gobblin.copy.transfer.streams import SMALL, Origin
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.objects import ObjectFiles


class StoreCopies:
    """Copies from a source in the store that the target is in, too: no byte moves through us.

    :param files: the files below the target's root.
    """

    def __init__(self, files: ObjectFiles, origin: ObjectOrigin, kept: KeptAttributes) -> None:
        self._files = files
        self._origin = origin
        self._kept = kept

    @staticmethod
    def between(origin: object, files: object, kept: KeptAttributes) -> StoreCopies | None:
        """Return the copies within one store: both name the same connection. Otherwise `None`."""
        if isinstance(origin, ObjectOrigin) and isinstance(files, ObjectFiles) and files.shares_store(origin.location):
            return StoreCopies(files, origin, kept)
        return None

    def takes(self, entry: Entry) -> bool:
        """Return whether the store can copy a file: as it is, and if it isn't empty."""
        return entry.made_from is None and entry.size > 0

    def stage(self, entry: Entry, target: str) -> StagedFile:
        """Have a file copied.

        :param target: the path that the copy will have.
        :raises SourceChangedError: it isn't as it was planned.
        """
        try:
            with writing(self._files.root, target):
                modified = self._kept.time_in_metadata(entry)
                staged = self._files.stage_copy(self._origin.key(entry), entry.stamp, entry.size, target, modified)
        except GobblinError:
            self._origin.expect(entry)
            raise
        try:
            self._origin.expect(entry)  # there are stores that ignore the condition
        except BaseException:
            assert staged.upload is not None
            assert self._files.uploads is not None
            with suppress(OSError):
                self._files.uploads.abort(target, staged.upload.id)
            raise
        return staged


class PartUploads:
    """Copies of which several parts are read and sent at once.

    :param files: the files below the target's root.
    """

    def __init__(self, files: ObjectFiles, origin: Origin, kept: KeptAttributes) -> None:
        self._files = files
        self._origin = origin
        self._kept = kept

    @staticmethod
    def between(origin: Origin, files: object, kept: KeptAttributes) -> PartUploads | None:
        """Return the copies into a store that keeps uploads open; otherwise `None`."""
        if isinstance(files, ObjectFiles) and files.uploads is not None:
            return PartUploads(files, origin, kept)
        return None

    def takes(self, entry: Entry) -> bool:
        """Return whether parts of a file can be read by themselves, and it isn't small."""
        return entry.made_from is None and entry.size > SMALL

    def stage(self, entry: Entry, target: str) -> StagedFile:
        """Have a file uploaded.

        :param target: the path that the copy will have.
        """
        with writing(self._files.root, target):
            modified = self._kept.time_in_metadata(entry)
            return self._files.stage_parts(entry.size, target, partial(self._origin.part, entry), modified)
