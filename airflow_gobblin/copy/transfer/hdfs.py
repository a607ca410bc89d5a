"""Copies into an HDFS, with the attributes that it can keep."""

from __future__ import annotations

from dataclasses import replace

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.transfer.streams import FilesDestination
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import StagedOutput
from airflow_gobblin.storage.files.hdfs import HdfsFiles, all_attributes, give_attributes


class HdfsDestination(FilesDestination):
    """Staged files in an HDFS. A `Destination`.

    :param files: the files below the target's root.
    :param folder: the folder of the unit's staged files.
    :param target: the file set's folder.
    """

    def __init__(
        self,
        files: HdfsFiles,
        folder: str,
        target: str,
        kept: KeptAttributes,
        *,
        checksums: bool,
        shared: bool = False,
    ) -> None:
        super().__init__(files, folder, target, kept, checksums=checksums, shared=shared)
        self._hdfs = files

    def _begin(self, entry: Entry, path: str, target: str) -> StagedOutput:
        asked = self._kept.keep.of(entry.attributes)
        of_blocks = {"replication": asked.replication, "blocksize": asked.block_size}
        given = {name: str(value) for name, value in of_blocks.items() if value is not None}
        return self._hdfs.stage_with(path, permission=f"{self._kept.mode & 0o644:o}", **given)

    def _keep(self, entry: Entry, staged: StagedFile) -> StagedFile:
        """Give a staged file its attributes, before its identity counts."""
        at, keeps = self._hdfs.at(staged.path), self._hdfs.keeps
        asked, wanted = self._kept.wanted(entry, keeps)
        refused = give_attributes(self._hdfs.client, at, wanted)
        status = self._hdfs.client.status(at)
        if status is None:
            raise FileNotFoundError(f"staged file {staged.path!r} is gone")
        acl, extended = asked.acl is not None, asked.extended is not None
        found = all_attributes(self._hdfs.client, at, status, acl=acl, extended=extended)
        self._kept.compare(entry, asked, found, refused)
        return replace(staged, stamp=str(status["modificationTime"] * keeps.time))
