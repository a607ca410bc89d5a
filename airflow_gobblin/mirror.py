"""A mirror, as defined by a DAG author. Light to import: it is created whenever a DAG file is parsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from airflow_gobblin.copy.bundles import LEAST_PART
from airflow_gobblin.copy.checks import FileSetCheck
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import AnyConverter, ConnectedConverter, FileConverter
from airflow_gobblin.copy.conversion.openpgp import gives_other_bytes
from airflow_gobblin.copy.filters import Rule
from airflow_gobblin.copy.finders import DatasetFinder, Place, WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.registering import Registration
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import check_numbers
from airflow_gobblin.model import wire
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.limits import RunLimits
from airflow_gobblin.model.naming import check_ingestion_name
from airflow_gobblin.model.policy import DEFAULT_ATTEMPTS, DEFAULT_RETENTION, CommitPolicy
from airflow_gobblin.storage.locations import HDFS_SCHEMES, OBJECT_SCHEMES, local_path, path_below, remote_location

_TARGETS = (*OBJECT_SCHEMES, *HDFS_SCHEMES)
"""The schemes that a mirror can write to, besides a disk's. It can read from all."""


@dataclass(frozen=True)
class Mirror:
    """One named job that makes a target tree equal to a source tree, one file set at a time, as far as its options require.

    :param name: the name of its journal: mandatory, permanent, never derived from the id of a DAG or group.
    :param source: the tree to copy: an absolute path, `file:///…`, `s3://[connection@]bucket/prefix` (also `gs://`, `abfs://`),
        or a folder of a server: `sftp://[connection@]host/folder`, `https://[connection@]host/folder`,
        `webhdfs://[connection@]namenode:port/folder`.
    :param target: the tree to make equal to it: a path, `s3://…` (also `gs://`, `abfs://`) or `webhdfs://…`.
    :param journal: the location of the journal: `file:///…`, `sqlite:////…`, `s3://[connection@]bucket/prefix`, or the id of an
        Airflow connection to PostgreSQL.
    :param datasets: finds the datasets of the source; by default the whole tree is one. A file set is published whole or not at
        all, whatever becomes of the others.
    :param include: patterns as in rclone, one of which a file must match; `**/*.jpg`.
    :param exclude: patterns of files and folders that are left out.
    :param filter_file: the path of a file of rules as in rclone, tried after those two.
    :param compare: when a file of the target counts as unchanged.
    :param existing: the treatment of a target's file that differs from the source's.
    :param delete: delete from the target what the source no longer has; `None`: nothing is deleted.
    :param keep: what a copy keeps of its file: times, permission, owner, group.
    :param links: the treatment of symbolic links.
    :param empty_folders: whether folders without files are also copied.
    :param workspace: the root of the mirror's own files, which are in `_gobblin/`: the target (the default), or a folder above
        it in the same file system or bucket.
    :param checksums: whether the SHA-256 of each file is taken when it is copied.
    :param bandwidth: the most bytes per second that a run reads, in planning and in the tasks that may run at once, which share
        it evenly. `None`: no limit. Copies that a store makes by itself aren't counted.
    :param split_above: files with more bytes than this, at least 16 MiB, are copied in equal parts of at most that size, each by
        its own Spark task, and joined in staging. `None`: each file is copied by one task.
    :param convert: the converters that files go through on the way, one after another: `(Gunzip(), Zstd())`. A converted file
        has the time of its source.
    :param unpack: unpack archives, each into a folder with its name, after the converters; `None`: they are copied as they are.
    :param checks: the checks that a file set must pass to be published: `(AtLeastFiles(100),)`.
    :param backup: the folder where replaced and deleted files are kept, as `<token of the plan>/<path in the target>`. It is
        below the workspace and apart from both trees, or it is `_gobblin/backup` in the workspace.
    :param register: registers what is published, such as `HiveTable("lake", "{dataset}", columns=("id bigint",))`.
    :param place: where a file set lies below the target, as a template: `archive/{folder}`. Its parts are `{folder}` (the folder
        that the finder gives it), `{dataset}` (the URN of its dataset), `{set}` (its name in the dataset) and `{name}` (the last
        part of its folder in the source). By default it is `{folder}`.
    :param first: patterns of folders whose file sets get room first in a run with limits, in this order.
    :param limits: how much one run takes; the next one takes the rest.
    :param file_events: whether an event is logged for each file that is copied, replaced or deleted, besides those for file sets.
    :param max_packs: the maximum number of Spark applications in a run.
    :param max_pack_weight: the maximum weight of a pack, in bytes, with 64 KiB added for each file. A heavier file set has a pack
        to itself, and those that don't fit wait for the next run. `None`: everything planned fits.
    :param attempts: the number of runs that fail to finish a slot before its file set is quarantined.
    :param code: modules with the author's own finders, converters, checks and registrations.
    :raises ConfigurationError: the name, a location, an option or a number is invalid, or one tree lies in the other.
    """

    name: str
    source: str
    target: str
    journal: str
    datasets: DatasetFinder = field(default_factory=WholeTree)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    filter_file: str = ""
    compare: Compare = Compare.SIZE_AND_TIME
    existing: Existing = Existing.FAIL
    delete: Delete | None = None
    keep: Keep = field(default_factory=Keep)
    links: Links = Links.SKIP
    empty_folders: bool = False
    workspace: str | None = None
    checksums: bool = False
    bandwidth: int | None = None
    split_above: int | None = None
    convert: tuple[AnyConverter, ...] = ()
    unpack: Unpack | None = None
    checks: tuple[FileSetCheck, ...] = ()
    register: Registration | None = None
    place: str = ""
    first: tuple[str, ...] = ()
    limits: RunLimits = field(default_factory=RunLimits)
    backup: str | None = None
    file_events: bool = False
    max_packs: int = 4
    max_pack_weight: int | None = None
    attempts: int = DEFAULT_ATTEMPTS
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ingestion_name(self.name)
        wire.kind_of(self.datasets)
        for name, kind in (("compare", Compare), ("existing", Existing), ("links", Links)):
            self._take_option(name, kind)
        for name in ("include", "exclude", "first"):
            self._check_patterns(name)
        check_tuples(self)
        self._check_class("keep", Keep, "Keep('t')")
        self._check_class("delete", Delete, "Delete(0.05)")
        self._check_class("limits", RunLimits, "RunLimits(files=1000)")
        self._check_records("convert", (FileConverter, ConnectedConverter), "converters", "(Gunzip(),)")
        self._check_records("checks", (FileSetCheck,), "checks", "(AtLeastFiles(10),)")
        if self.register is not None:
            if not isinstance(self.register, Registration):
                example = "Write register=HiveTable('lake', 'clicks', columns=('id bigint',))."
                raise self._refused(f"register={self.register!r}", "it registers nothing", example)
            wire.kind_of(self.register)
        if self.place:
            Place(self.place)
        if self.compare is Compare.CHECKSUM and gives_other_bytes(self.convert):
            cause = "an encryption has other bytes each time, so every file would be copied in every run"
            raise self._refused("compare=Compare.CHECKSUM", cause, "Compare by size and time.")
        if self.unpack is not None:
            wire.kind_of(self.unpack)
        self._check_trees()
        check_numbers(self, f"mirror {self.name!r}")
        if self.bandwidth is not None and self.bandwidth < 1:
            raise self._refused(f"bandwidth={self.bandwidth!r}", "it lets nothing through", "Give bytes a second.")
        if self.split_above is not None and self.split_above < LEAST_PART:
            cause = f"a part has at least {LEAST_PART} bytes"
            raise self._refused(f"split_above={self.split_above!r}", cause, "Give bytes, such as 1 << 30.")

    def _take_option(self, name: str, kind: type[Compare | Existing | Links]) -> None:
        """Accept an option by its name, too."""
        try:
            object.__setattr__(self, name, kind(getattr(self, name)))
        except ValueError as error:
            hint = f"Use one of {', '.join(repr(option.value) for option in kind)}."
            raise self._refused(f"{name}={getattr(self, name)!r}", "there is no such option", hint) from error

    def _check_patterns(self, name: str) -> None:
        patterns = getattr(self, name)
        if not isinstance(patterns, tuple) or not all(isinstance(one, str) for one in patterns):
            raise self._refused(f"{name}={patterns!r}", "it is not a tuple of patterns", f"Write {name}=('**/*.jpg',).")
        for one in patterns:
            Rule(True, one)  # a malformed one is refused here

    def _check_class(self, name: str, kind: type[Keep | Delete | RunLimits], example: str) -> None:
        """Make sure that an option is of its class."""
        given = getattr(self, name)
        if not isinstance(given, kind) and not (given is None and kind is Delete):
            raise self._refused(f"{name}={given!r}", f"it is no {kind.__name__}", f"Write {name}={example}.")

    def _check_records(self, name: str, ports: tuple[type, ...], what: str, example: str) -> None:
        """Make sure that an option is a tuple of registered records of some ports."""
        given = getattr(self, name)
        if not isinstance(given, tuple) or not all(isinstance(one, ports) for one in given):
            raise self._refused(f"{name}={given!r}", f"it is not a tuple of {what}", f"Write {name}={example}.")
        for one in given:
            wire.kind_of(one)

    def _check_trees(self) -> None:
        """Check the locations of both trees and of the workspace, without contacting anything."""
        for name, location in (("source", self.source), ("target", self.target), ("workspace", self._root)):
            place = remote_location(location)
            if place is None:
                local_path(location, operation="use", subject=f"{name} {location!r} of mirror {self.name!r}")
            elif name != "source" and place.scheme not in _TARGETS:
                raise self._refused(
                    f"{name} {location!r}",
                    f"mirrors read from {place.scheme}://, and don't write there",
                    "Give a path on a disk, s3://connection@bucket/prefix (or gs://, abfs://), or webhdfs://connection@namenode:9870/folder.",
                )
        if path_below(self._root, self.target) is None:
            cause = "it is neither the target nor a folder above it, in the same file system or bucket"
            raise self._refused(f"workspace {self._root!r}", cause, "Leave it out, or give a folder above the target.")
        if self.backup is not None:
            self._check_backup(self.backup)
        apart = "Give trees that are apart: a copy would be copied again and again."
        if _within(self.source, self.target):
            raise self._refused(f"target {self.target!r}", f"it is the source {self.source!r} or lies in it", apart)
        if _within(self.target, self.source):
            raise self._refused(f"source {self.source!r}", f"it lies in the target {self.target!r}", apart)

    def _check_backup(self, backup: str) -> None:
        """Make sure that files can be renamed into the backup folder, and that it is in neither tree."""
        subject, below = f"backup {backup!r}", path_below(self._root, backup)
        hint = f"Give '_gobblin/backup' in the workspace {self._root!r}, or a folder below it and beside the target."
        if remote_location(self._root) is not None:
            cause = "objects are not kept in a folder"
            raise self._refused(subject, cause, "Leave it out, and switch on the versions of the bucket.")
        if below is None or below == "." or ("_gobblin" in below.split("/") and below != "_gobblin/backup"):
            raise self._refused(subject, "it is not a folder of yours below the workspace, on its disk", hint)
        for tree in (self.source, self.target) if below != "_gobblin/backup" else ():
            if _within(tree, backup) or _within(backup, tree):
                raise self._refused(subject, f"it lies in {tree!r}, or that in it", hint)

    @property
    def _root(self) -> str:
        return self.target if self.workspace is None else self.workspace

    def _refused(self, subject: str, cause: str, hint: str) -> ConfigurationError:
        return ConfigurationError(operation="use", subject=f"{subject} of mirror {self.name!r}", cause=cause, hint=hint)

    @property
    def policy(self) -> CommitPolicy:
        """The effect of a failed unit: nothing of its file set is published."""
        return CommitPolicy.FULL

    @property
    def partial_ok(self) -> bool:
        """Whether a run succeeds if it published only a part of a file set: it never does."""
        return False

    @property
    def retention(self) -> timedelta:
        """How long replaced files are kept: a mirror keeps none."""
        return DEFAULT_RETENTION

    @property
    def run_limits(self) -> RunLimits:
        """How much one run takes at most."""
        return self.limits

    @property
    def work(self) -> CopyWork:
        """The work on its units, with everything that Spark needs."""
        return CopyWork(
            mirror=self.name,
            source=self.source,
            target=self.target,
            workspace=self._root,
            finder=self.datasets,
            include=self.include,
            exclude=self.exclude,
            filter_file=self.filter_file,
            compare=self.compare,
            existing=self.existing,
            delete=self.delete,
            keep=self.keep,
            links=self.links,
            empty_folders=self.empty_folders,
            checksums=self.checksums,
            bandwidth=self.bandwidth,
            split_above=self.split_above,
            convert=self.convert,
            unpack=self.unpack,
            checks=self.checks,
            place=self.place,
            first=self.first,
            backup=self.backup or "",
            register=self.register,
            code=self.code,
        )


def _within(root: str, location: str) -> bool:
    """Return whether a location is a root or lies below it, whatever connections they name."""
    above, here = remote_location(root), remote_location(location)
    if above is None or here is None:
        return path_below(root, location) is not None
    return path_below(above.url, here.url) is not None
