"""Copies into an HDFS, with the attributes that it can keep."""

from __future__ import annotations

from dataclasses import replace

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.transfer.streams import FilesDestination
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import StagedOutput
from airflow_gobblin.storage.files.hdfs import HdfsFiles, attributes_of, give_attributes


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

    def _begin(self, path: str, target: str) -> StagedOutput:
        return self._hdfs.stage_with(path, permission=f"{self._kept.mode & 0o644:o}")

    def _keep(self, entry: Entry, staged: StagedFile) -> StagedFile:
        """Give a staged file its attributes, before its identity counts."""
        at, keeps = self._hdfs.at(staged.path), self._hdfs.keeps
        asked, wanted = self._kept.wanted(entry, keeps)
        refused = give_attributes(self._hdfs.client, at, wanted)
        status = self._hdfs.client.status(at)
        if status is None:
            raise FileNotFoundError(f"staged file {staged.path!r} is gone")
        self._kept.compare(entry, asked, attributes_of(status), refused)
        return replace(staged, stamp=str(status["modificationTime"] * keeps.time))
