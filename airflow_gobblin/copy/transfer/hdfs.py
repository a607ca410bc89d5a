"""Copies into HDFS, with the attributes that it can keep. Large files are copied in parts, which the namenode joins."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.blocks import Block
from airflow_gobblin.copy.entries import Entry
from airflow_gobblin.copy.failures import writing
from airflow_gobblin.copy.transfer.streams import Copies, FilesDestination, taken_over
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import StagedOutput
from airflow_gobblin.storage.files.hdfs import HdfsFiles, all_attributes, give_attributes


class HdfsDestination(FilesDestination):
    """Staged files in HDFS. A `Destination`.

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
        copies: Sequence[Copies] = (),
        *,
        checksums: bool,
        shared: bool = False,
    ) -> None:
        super().__init__(files, folder, target, kept, copies=copies, checksums=checksums, shared=shared)
        self._hdfs = files

    def _begin(self, entry: Entry, path: str, target: str) -> StagedOutput:
        return _new_file(self._hdfs, path, entry, self._kept)

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


def _new_file(files: HdfsFiles, path: str, entry: Entry, kept: KeptAttributes) -> StagedOutput:
    """Open a new staged file, with what must be kept from its first byte on."""
    asked = kept.keep.of(entry.attributes)
    of_blocks = {"replication": asked.replication, "blocksize": asked.block_size}
    given = {name: str(value) for name, value in of_blocks.items() if value is not None}
    return files.stage_with(path, permission=f"{kept.mode & 0o644:o}", **given)


def stage_part(files: HdfsFiles, path: str, entry: Entry, kept: KeptAttributes, blocks: Iterable[Block]) -> StagedFile:
    """Write a part of a file to a file of its own, like the whole but for its length."""
    with writing(files.root, entry.path):
        out = _new_file(files, path, entry, kept)
    try:
        out.skip_checksum()
        for block in blocks:
            with writing(files.root, entry.path):
                out.write(block)
        with writing(files.root, entry.path):
            return out.finish(0)
    except BaseException:
        out.abort()
        raise


class Concatenation:
    """The parts of a file, joined by the namenode: no byte moves. `Copies` of one file.

    Each part is first renamed into the folder of this try, which only one try can do, so the joined parts are nobody else's.

    :param folder: the folder of this try, in which the whole is staged.
    :param parts: in order.
    """

    def __init__(self, files: HdfsFiles, folder: str, parts: Sequence[StagedFile]) -> None:
        self._files = files
        self._folder = folder
        self._parts = parts

    def takes(self, entry: Entry) -> bool:
        return True

    def stage(self, entry: Entry, path: str, target: str) -> StagedFile:
        with writing(self._files.root, entry.path):
            first, *others = [self._taken(number, part) for number, part in enumerate(self._parts)]
            self._files.client.concat(self._files.at(first), [*map(self._files.at, others)])
            self._files.make_folder(posixpath.dirname(path))
            self._files.rename_new(first, path)
            made = self._files.identity(path)
            if made is None or made.size != entry.size:
                raise OSError(errno.EIO, "its joined parts aren't as long as it is", path)
            return StagedFile(path, made.size, "", 0, made.stamp)

    def _taken(self, number: int, part: StagedFile) -> str:
        """Return the new path of a part, which only this try knows."""
        taken = taken_over(self._files, part, f"{self._folder}-parts/{number:06d}")
        if taken is None:
            raise OSError(
                errno.ESTALE, "a staged part isn't as it was written, or another try has joined it", part.path
            )
        return taken.path
