"""Shorter ways into object stores than block by block: copies that the store makes by itself, and, in S3, parts that are read and
sent at once.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.blocks import Origin
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.failures import writing
from airflow_gobblin.copy.transfer.objects import ObjectOrigin
from airflow_gobblin.copy.transfer.streams import SMALL, TreeOrigin
from airflow_gobblin.copy.trees.listed_objects import ListedObjects
from airflow_gobblin.copy.trees.objects import ObjectTree
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.files.objects import ObjectFiles

log = logging.getLogger(__name__)


class StoreCopies:
    """Copies from a source that is in the same store as the target: no byte moves through us.

    :param files: the files below the target's root.
    :param root: the root of the source, with its bucket.
    """

    def __init__(self, files: ObjectFiles, root: str, origin: ObjectOrigin | TreeOrigin, kept: KeptAttributes) -> None:
        self._files = files
        self._root = root
        self._origin = origin
        self._kept = kept

    @staticmethod
    def between(origin: Origin, files: Files, kept: KeptAttributes) -> StoreCopies | None:
        """Return the copies within one store, if both sides name the same connection; otherwise `None`."""
        if not isinstance(origin, ObjectOrigin | TreeOrigin) or not isinstance(files, ObjectFiles):
            return None
        tree = origin.tree
        if isinstance(tree, ObjectTree | ListedObjects) and files.shares_store(tree.location):
            return StoreCopies(files, tree.location.path, origin, kept)
        return None

    def takes(self, entry: Entry) -> bool:
        """Return whether the store can copy a file: one that is copied as it is, and isn't empty."""
        return entry.made_from is None and entry.size > 0

    def stage(self, entry: Entry, path: str, target: str) -> StagedFile | None:
        """Have a file copied.

        Where staged files are objects of their own, files that the store doesn't copy go through us: a blob that is no block
        blob, an object whose metadata have no room for the mark.

        :raises SourceChangedError: it isn't as it was planned.
        """
        source = f"{self._root}/{self._origin.path(entry)}"
        try:
            with writing(self._files.root, target):
                modified = self._kept.time_in_metadata(entry)
                staged = self._files.stage_copy(source, entry.stamp, entry.size, path, target, modified)
        except GobblinError as error:
            self._origin.expect(entry)
            if self._files.uploads is not None:
                raise
            log.warning("file %r is copied through us, as the store doesn't: %s", entry.path, error.cause)
            with suppress(OSError):
                self._files.unlink(path)
            return None
        try:
            self._origin.expect(entry)  # some stores ignore the condition
        except BaseException:
            with suppress(OSError):
                if staged.upload is not None and self._files.uploads is not None:
                    self._files.uploads.abort(target, staged.upload.id)
                else:
                    self._files.unlink(path)
            raise
        return staged


class PartUploads:
    """Copies that read and send several parts at once.

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

    def stage(self, entry: Entry, path: str, target: str) -> StagedFile:
        """Have a file uploaded."""
        with writing(self._files.root, target):
            modified = self._kept.time_in_metadata(entry)
            return self._files.stage_parts(entry.size, target, partial(self._origin.part, entry), modified)
