"""Copies into an HDFS, with the attributes that it can keep."""

from __future__ import annotations

from dataclasses import replace

from airflow_gobblin.copy.attributes import KeptAttributes, noting
from airflow_gobblin.copy.entries import Attributes, Entry
from airflow_gobblin.copy.owners import in_form
from airflow_gobblin.copy.transfer.streams import FilesDestination
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import FolderAttributes, StagedOutput
from airflow_gobblin.storage.files.hdfs import HdfsFiles, set_attributes


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
        letters, why = self._kept.letters(entry), dict[str, str]()
        wanted = in_form(entry.attributes.kept(self._kept.keep), keeps)
        for letter, one in (
            ("u", FolderAttributes(owner=wanted.owner)),
            ("g", FolderAttributes(group=wanted.group)),
            ("p", FolderAttributes(mode=wanted.mode)),
            ("t", FolderAttributes(modified=self._kept.time(entry))),
        ):
            with noting(letter, why):
                set_attributes(self._hdfs.client, at, one)
        status = self._hdfs.client.status(at)
        if status is None:
            raise FileNotFoundError(f"staged file {staged.path!r} is gone")
        found = Attributes(int(status["permission"], 8), status["owner"], status["group"])
        for letter, asked, has in (
            ("u", wanted.owner or f"user {entry.attributes.owner}", found.owner),
            ("g", wanted.group or f"group {entry.attributes.group}", found.group),
            ("p", entry.attributes.mode, found.mode),
            ("t", entry.modified // keeps.time, status["modificationTime"]),
        ):
            if letter in letters and asked != has:
                self._kept.miss(letter, entry, why.get(letter, f"it has {has} there, in place of {asked}"))
        return replace(staged, stamp=str(status["modificationTime"] * keeps.time))
