"""Whether a file of the target is still like the source's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from airflow_gobblin.copy.blocks import Block
from airflow_gobblin.copy.entries import Entry, EntryKind, shown
from airflow_gobblin.copy.options import Compare
from airflow_gobblin.copy.transfer.bandwidth import Pace
from airflow_gobblin.copy.trees import Tree, joined
from airflow_gobblin.errors import SourceError, TargetError

_BLOCK = 4 << 20
_STEPS = (1_000, 1_000_000, 1_000_000_000)
"""Steps, in ns, in which times may be kept where that can't be tried out."""


@dataclass(frozen=True)
class Comparison:
    """How the files of two trees are compared.

    :param times: whether the target's files have the times of the source's.
    :param in_metadata: whether they have them in metadata, which a listing doesn't show.
    :param blocks: reads a converted file of the source, as it would be copied.
    :param source_folder: the folder in the source tree that the entries' paths are relative to.
    :param target_folder: the same in the target tree.
    :param step: the step, in ns, in which the target keeps times; 0: it keeps none that it is given, and must not be older.
    :param pace: the pace at which both trees' contents together are read; `None`: as fast as possible. `blocks` has its own.
    """

    compare: Compare
    times: bool
    in_metadata: bool
    source: Tree
    target: Tree
    blocks: Callable[[Entry], Iterator[Block]]
    source_folder: str = "."
    target_folder: str = "."
    step: int = 1
    pace: Pace | None = None

    def same(self, source: Entry, target: Entry) -> bool:
        """Return whether the target's file or link is like the source's."""
        if source.kind is not target.kind:
            return False
        if source.kind is EntryKind.LINK:
            return source.link == target.link and (not self.times or self._same_time(source, target))
        if source.known_size not in (None, target.size):
            return False
        if self.compare is Compare.CHECKSUM:
            return self._same_content(source, target)
        if source.made_from is not None and target.inode:
            return self._same_time(source, target)
        if not self.times:
            return _not_older(target, source)
        if self.in_metadata:
            found = self.target.entry(joined(self.target_folder, target.path))
            return found is not None and found.modified == source.modified
        return self._same_time(source, target)

    def _same_time(self, source: Entry, target: Entry) -> bool:
        return same_time(source, target, self.step) if self.step else _not_older(target, source)

    @property
    def takes_calls(self) -> bool:
        """Whether comparing two files takes more than their entries."""
        return self.compare is Compare.CHECKSUM or self.in_metadata

    def _same_content(self, source: Entry, target: Entry) -> bool:
        if source.made_from is not None and source.made_from.member:
            return bytes.fromhex(source.made_from.checksum) == self._content_of(target)
        if source.made_from is not None:
            one = hashlib.sha256()
            for block in self.blocks(source):
                one.update(block)
            return one.digest() == self._content_of(target)
        if not source.inode and not target.inode and source.stamp and source.stamp == target.stamp:
            return True  # one ETag in two object stores
        at = joined(self.source_folder, source.path)
        return _sha256(self.source, at, SourceError, self.pace) == self._content_of(target)

    def _content_of(self, target: Entry) -> bytes:
        return _sha256(self.target, joined(self.target_folder, target.path), TargetError, self.pace)


def same_time(source: Entry, target: Entry, step: int = 1) -> bool:
    """Return whether the target's time is the source's, as exactly as the target keeps times.

    :param step: the step, in ns, in which it is known to keep them.
    """
    return any(target.modified == source.modified - source.modified % grain for grain in (step, *_STEPS))


def _not_older(target: Entry, source: Entry) -> bool:
    return target.modified >= source.modified


def _sha256(tree: Tree, path: str, error: type[SourceError | TargetError], pace: Pace | None) -> bytes:
    digest = hashlib.sha256()
    try:
        with tree.open(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                if pace is not None:
                    pace.wait(len(block))
    except OSError as cause:
        raise error(
            operation="compare",
            subject=f"{shown(path)!r} of {tree.root}",
            cause=cause,
            hint="To compare checksums, both files have to be readable. Nothing was changed.",
        ) from cause
    return digest.digest()
