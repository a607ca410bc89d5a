"""Large files in parts: each part is copied by a Spark task of its own, and one task joins them in staging.

In S3, the parts are those of one upload, which the driver begins. A part that is sent again, however late, has the bytes of the
planned file, and so the same ETag. On a disk, each try writes a part to a sparse file of its own, at the place that it has in the
whole; one writer copies all of them, and the file system may share their blocks. In HDFS, each try also writes a part to a file
of its own; the namenode joins those that one try renamed into its own folder first. After each part, and after joining them, the
source is looked at.

If some parts fail, the others stay where they are, durable, and the next driver that runs the unit of the same plan copies only
those that are missing. This takes nothing over: parts are the same whichever driver made them, an upload is completed by a
decision that names all its parts, and files of parts are joined into a new one. So it does no harm if the earlier driver is
still at work.
"""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.attributes import KeptAttributes
from airflow_gobblin.copy.blocks import Block, Checksum, Origin, write_all
from airflow_gobblin.copy.bundles import LEAST_PART, Bundle, BundleKind, parts_of
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.failures import writing
from airflow_gobblin.copy.transfer.copying import Staged, StagedFolder, open_origin, unit_result
from airflow_gobblin.copy.transfer.hdfs import Concatenation, HdfsDestination, stage_part
from airflow_gobblin.copy.transfer.in_flight import all_of
from airflow_gobblin.copy.transfer.local import NOT_BY_KERNEL, DiskDestination, copy_range
from airflow_gobblin.copy.transfer.objects import ObjectDestination
from airflow_gobblin.copy.transfer.streams import FilesDestination
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.model.work import StagedFile, UnitResult, UnitState
from airflow_gobblin.steps.publishing import staged_identity
from airflow_gobblin.storage.ahead import read_ahead
from airflow_gobblin.storage.files.hdfs import HdfsFiles
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.storage.files.objects import ObjectFiles
from airflow_gobblin.storage.files.s3_uploads import number_at
from airflow_gobblin.storage.locations import HDFS_SCHEMES, ObjectLocation, ServerLocation, remote_location

if TYPE_CHECKING:
    from airflow_gobblin.copy.work import CopyWork
    from airflow_gobblin.job import Attempt
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.work import WorkUnit
    from airflow_gobblin.storage.files.base import Files

_AT_ONCE = 4
"""The number of pieces of a part that are read and written at once."""


def parts(work: CopyWork, unit: WorkUnit) -> int:
    """Return how many parts a unit is copied in; 1: as a whole, or not at all, since a finished copy is taken."""
    if work.split_above is None or work.takes_checksums or unit.finished:
        return 1
    source, target = remote_location(work.source), remote_location(work.workspace)
    by_store = source is not None and target is not None and (source.scheme, source.conn_id) == ("s3", target.conn_id)
    if by_store or not (target is None or target.scheme == "s3" or _concatenates(target)):
        return 1
    bundle = Bundle.of(unit)
    if bundle.acts is not BundleKind.COPY or len(bundle.files) != 1:
        return 1
    entry = bundle.files[0].entry
    if entry.kind is not EntryKind.FILE or entry.made_from is not None:
        return 1
    return max(1, len(parts_of(entry.size, work.split_above)))


def _concatenates(target: ObjectLocation | ServerLocation) -> bool:
    """Return whether a target can join parts: HDFS gets their names with commas between them."""
    return target.scheme in HDFS_SCHEMES and "," not in target.path


def open_parts(work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> str:
    """Return the id of a new upload, or a new folder."""
    if isinstance(attempt.files, ObjectFiles):
        target = _target(unit, plan)
        with writing(attempt.files.root, target):
            modified = KeptAttributes(work.keep).time_in_metadata(_entry(unit))
            return attempt.files.begin_parts(target, modified)
    return posixpath.join(attempt.folder, attempt.id, f"{unit.id}-parts-{secrets.token_hex(8)}")


def finished_parts(
    work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt, results: Mapping[int, Sequence[UnitResult]]
) -> tuple[str, Mapping[int, UnitResult]]:
    """Return the parts that are still as they were made; in S3, those of the upload that has the most.

    :param results: those of earlier drivers, by the numbers of the parts.
    :return: that upload's id (elsewhere nothing), and the result of each part.
    """
    starts = _starts(work, _entry(unit))
    known = [(number, result) for number, some in results.items() if number < len(starts) for result in some]
    if not isinstance(attempt.files, ObjectFiles):
        with writing(attempt.files.root, _entry(unit).path):
            is_there = partial(staged_identity, files=attempt.files)
            return "", {number: result for number, result in known if is_there(result.files[0]) is not None}
    of_upload: dict[str, dict[int, UnitResult]] = {}
    for number, result in known:
        upload = result.files[0].upload
        assert upload is not None
        of_upload.setdefault(upload.id, {})[number] = result
    largest: tuple[str, Mapping[int, UnitResult]] = "", {}
    for upload_id, some in of_upload.items():
        with writing(attempt.files.root, _entry(unit).path):
            sent = attempt.files.sent_parts(_target(unit, plan), upload_id)
        left = {number: result for number, result in some.items() if _was_sent(result, starts[number], sent)}
        largest = max(largest, (upload_id, left), key=lambda one: len(one[1]))
    return largest


def _was_sent(result: UnitResult, start: int, sent: Mapping[int, str]) -> bool:
    """Return whether an upload has the parts of a result.

    :param sent: the ETags of the parts that it has, by their numbers.
    """
    upload = result.files[0].upload
    assert upload is not None
    first = number_at(start)
    return all(sent.get(number) == etag for number, etag in enumerate(upload.etags, first))


def close_parts(
    unit: WorkUnit, plan: Plan, attempt: Attempt, place: str, parts: Sequence[UnitResult], result: UnitResult
) -> None:
    """Remove what isn't needed any more, as far as possible: the sweep removes the rest. See `job.SplitWork`."""
    staged = [file for part in parts for file in part.files]
    if staged and result.state is not UnitState.SUCCESSFUL:
        return
    with suppress(OSError):
        if not isinstance(attempt.files, ObjectFiles):
            for folder in {place, *(posixpath.dirname(file.path) for file in staged)} - {""}:
                attempt.files.remove_tree(folder)
        elif place and place not in [file.upload.id for file in result.files if file.upload is not None]:
            attempt.files.end_parts(_target(unit, plan), place)


def copy_part(work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
    """Copy the part of a file that an attempt names.

    :return: as `copy_bundle`, with the staged part as its file.
    """

    def stage(connections: GuardedConnections, kept: KeptAttributes) -> Staged:
        part = attempt.part
        assert part is not None
        entry = _entry(unit)
        starts = _starts(work, entry)
        start = starts[part.number]
        end = min(start + starts.step, entry.size)
        with closing(open_origin(work, plan, attempt, connections)) as origin:
            if isinstance(attempt.files, ObjectFiles):
                read = partial(origin.part, entry)
                with writing(attempt.files.root, entry.path):
                    return (attempt.files.stage_part(part.place, _target(unit, plan), start, end, read),), None
            path = f"{part.place}/{part.number:06d}-{secrets.token_hex(8)}"
            if isinstance(attempt.files, HdfsFiles):
                return (_in_hdfs(attempt.files, path, origin, entry, start, end, kept),), None
            return (_on_disk(attempt.files, path, origin, entry, start, end),), None

    return unit_result(work, unit, plan, attempt, stage)


def _on_disk(files: Files, path: str, origin: Origin, entry: Entry, start: int, end: int) -> StagedFile:
    """Write a part to a file of its own, and make its bytes durable: another driver may join it."""
    with writing(files.root, entry.path), files.create(path) as out, ThreadPoolExecutor(_AT_ONCE, "part") as pool:

        def copy(at: int) -> None:
            write_all(out.fileno(), origin.part(entry, at, min(at + LEAST_PART, end)), at)

        try:
            all_of(pool, copy, range(start, end, LEAST_PART))
            os.fsync(out.fileno())
        except BaseException:
            files.unlink(path)
            raise
        made = os.fstat(out.fileno())
    return StagedFile(path, made.st_size, "", 0, str(made.st_mtime_ns))


def _in_hdfs(
    files: HdfsFiles, path: str, origin: Origin, entry: Entry, start: int, end: int, kept: KeptAttributes
) -> StagedFile:
    """Write a part to a file of its own, from its beginning to its end: HDFS has no holes."""

    def read(at: int) -> Block:
        return origin.part(entry, at, min(at + LEAST_PART, end))

    with ThreadPoolExecutor(_AT_ONCE, "part") as pool:
        blocks = read_ahead(pool, read, range(start, end, LEAST_PART), _AT_ONCE)
        return stage_part(files, path, entry, kept, blocks)


def join_parts(
    work: CopyWork, unit: WorkUnit, plan: Plan, attempt: Attempt, copied: Sequence[UnitResult]
) -> UnitResult:
    """Join the parts of a file. Parts on a disk stay: another try may be joining them, too. Those in HDFS are the first try's.

    :param copied: their results, in order.
    :return: as `copy_bundle`.
    """
    staged = [result.files[0] for result in copied]

    def stage(connections: GuardedConnections, kept: KeptAttributes) -> Staged:
        entry = _entry(unit)
        with (
            closing(open_origin(work, plan, attempt, connections)) as source,
            closing(_destination(plan, attempt, unit, kept, staged)) as destination,
        ):
            try:
                whole = destination.stage(entry, _Parts(attempt.files.root, staged, _starts(work, entry), source))
                source.part(entry, 0, 1)  # it is still as it was planned
                destination.finish()
            except BaseException:
                if not isinstance(attempt.files, ObjectFiles):  # an upload isn't this try's alone
                    destination.abort()
                raise
            return (whole,), None

    return unit_result(work, unit, plan, attempt, stage)


def _destination(
    plan: Plan, attempt: Attempt, unit: WorkUnit, kept: KeptAttributes, staged: Sequence[StagedFile]
) -> DiskDestination | FilesDestination:
    folder = StagedFolder.apart(unit, attempt).path
    if isinstance(attempt.files, LocalFiles):
        return DiskDestination(attempt.files, folder, kept, checksums=False)
    if isinstance(attempt.files, HdfsFiles):
        concatenation = Concatenation(attempt.files, folder, staged)
        return HdfsDestination(attempt.files, folder, plan.folder, kept, [concatenation], checksums=False)
    assert isinstance(attempt.files, ObjectFiles)
    ways = [_JoinedUpload(attempt.files, staged)]
    return ObjectDestination(attempt.files, folder, plan.folder, kept, copies=ways, checksums=False)


def _entry(unit: WorkUnit) -> Entry:
    return Bundle.of(unit).files[0].entry


def _starts(work: CopyWork, entry: Entry) -> range:
    assert work.split_above is not None
    return parts_of(entry.size, work.split_above)


def _target(unit: WorkUnit, plan: Plan) -> str:
    return joined(plan.folder, _entry(unit).path)


class _JoinedUpload:
    """The parts of an upload, which need nothing more. `Copies` of one file."""

    def __init__(self, files: ObjectFiles, staged: Sequence[StagedFile]) -> None:
        self._files = files
        self._staged = staged

    def takes(self, entry: Entry) -> bool:
        return True

    def stage(self, entry: Entry, path: str, target: str) -> StagedFile:
        return self._files.join_parts(self._staged)


class _Parts:
    """The parts of a file on a disk. An `Origin` of this file.

    :param root: the target's root.
    :param starts: where they begin, in their own files as in the whole.
    """

    parallel = 1

    def __init__(self, root: str, staged: Sequence[StagedFile], starts: range, source: Origin) -> None:
        self._root = root
        self._staged = staged
        self._starts = starts
        self._source = source

    def blocks(self, entry: Entry) -> Iterator[Block]:
        raise NotImplementedError("parts are joined by the kernel")

    def part(self, entry: Entry, start: int, end: int) -> Block:
        return self._source.part(entry, start, end)

    def copy_to_disk(self, entry: Entry, file: int, checksum: Checksum) -> None:
        for staged, start in zip(self._staged, self._starts, strict=True):
            part = os.open(f"{self._root}/{staged.path}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                found = os.fstat(part)
                if (found.st_size, str(found.st_mtime_ns)) != (staged.size, staged.stamp):
                    raise OSError(errno.ESTALE, "a staged part isn't as it was written", staged.path)
                _copy(part, file, start, staged.size)
            finally:
                os.close(part)

    def link(self, entry: Entry) -> str:
        raise NotImplementedError("a part is none of a link")

    def close(self) -> None:
        """Do nothing: nothing of its own is open."""


def _copy(source: int, file: int, start: int, end: int) -> None:
    """Copy a range to the same place in another file."""
    at = start
    try:
        while at < end and (copied := copy_range(source, file, at, end)):
            at += copied
    except OSError as error:
        if error.errno not in NOT_BY_KERNEL:
            raise
    while at < end:
        block = os.pread(source, min(end - at, LEAST_PART), at)
        if not block:
            raise OSError(errno.EIO, "a staged part is shorter than it was")
        write_all(file, block, at)
        at += len(block)
