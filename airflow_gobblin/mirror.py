"""A mirror, as defined by a DAG author. Light to import: it is created whenever a DAG file is parsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from airflow_gobblin.copy.finders import DatasetFinder, WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import check_numbers
from airflow_gobblin.model import wire
from airflow_gobblin.model.naming import check_ingestion_name
from airflow_gobblin.model.policy import DEFAULT_ATTEMPTS, DEFAULT_RETENTION, CommitPolicy
from airflow_gobblin.storage.locations import local_path, object_location, path_below

_STORES = ("s3",)
"""The object stores that a mirror can read and write."""


@dataclass(frozen=True)
class Mirror:
    """One named job that makes a target tree equal to a source tree, one file set at a time, as far as its options say.

    :param name: the name of its journal: mandatory, permanent, never derived from the id of a DAG or group.
    :param source: the tree to copy: an absolute path, `file:///…`, or `s3://[connection@]bucket/prefix`.
    :param target: the tree to make equal to it, likewise.
    :param journal: the location of the journal: `file:///…`, `sqlite:////…`, `s3://[connection@]bucket/prefix`, or the id of an
        Airflow connection to PostgreSQL.
    :param datasets: finds the datasets of the source; by default the whole tree is one. A file set is published whole or not at
        all, whatever becomes of the others.
    :param include: patterns as rclone's, of which a file has to match one; `**/*.jpg`.
    :param exclude: patterns of files and folders that are left out.
    :param filter_file: the path of a file of rules as rclone's, tried after those two.
    :param compare: when a file of the target counts as unchanged.
    :param existing: the treatment of a target's file that differs from the source's.
    :param delete: delete from the target what the source no longer has; `None`: nothing is deleted.
    :param keep: what a copy keeps of its file: times, permission, owner, group.
    :param links: the treatment of symbolic links.
    :param empty_folders: whether folders without files are copied, too.
    :param workspace: the root of its own files, which are in `_gobblin/`: the target, or a folder above it in the same file
        system or bucket. By default the target.
    :param checksums: whether the SHA-256 of each file is taken when it is copied.
    :param max_packs: the maximum number of Spark applications in a run.
    :param max_pack_weight: the maximum weight of a pack, in bytes, 64 KiB added for each file; a heavier file set has a pack
        alone, and those that don't fit wait for the next run. `None`: everything planned fits.
    :param attempts: the number of runs that fail to finish a slot before its file set is quarantined.
    :param code: modules with the author's own finders.
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
    max_packs: int = 4
    max_pack_weight: int | None = None
    attempts: int = DEFAULT_ATTEMPTS
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ingestion_name(self.name)
        wire.kind_of(self.datasets)
        for name, kind in (("compare", Compare), ("existing", Existing), ("links", Links)):
            self._take_option(name, kind)
        for name in ("include", "exclude"):
            self._check_patterns(name)
        self._check_trees()
        check_numbers(self, f"mirror {self.name!r}")

    def _take_option(self, name: str, kind: type[Compare | Existing | Links]) -> None:
        """Take an option by its name, too."""
        try:
            object.__setattr__(self, name, kind(getattr(self, name)))
        except ValueError as error:
            hint = f"Use one of {', '.join(repr(option.value) for option in kind)}."
            raise self._refused(f"{name}={getattr(self, name)!r}", "there is no such option", hint) from error

    def _check_patterns(self, name: str) -> None:
        patterns = getattr(self, name)
        if not isinstance(patterns, tuple) or not all(isinstance(one, str) for one in patterns):
            raise self._refused(f"{name}={patterns!r}", "it is no tuple of patterns", f"Write {name}=('**/*.jpg',).")

    def _check_trees(self) -> None:
        """Check the locations of both trees and of the workspace, without contacting anything."""
        for name, location in (("source", self.source), ("target", self.target), ("workspace", self._root)):
            place = object_location(location)
            if place is None:
                local_path(location, operation="use", subject=f"{name} {location!r} of mirror {self.name!r}")
            elif place.scheme not in _STORES:
                cause = f"mirrors don't read or write {place.scheme}:// yet"
                raise self._refused(
                    f"{name} {location!r}", cause, "Give a path on a disk, or s3://connection@bucket/prefix."
                )
        if path_below(self._root, self.target) is None:
            cause = "it is neither the target nor a folder above it, in the same file system or bucket"
            raise self._refused(f"workspace {self._root!r}", cause, "Leave it out, or give a folder above the target.")
        apart = "Give trees that are apart: a copy would be copied again and again."
        if _within(self.source, self.target):
            raise self._refused(f"target {self.target!r}", f"it is the source {self.source!r} or lies in it", apart)
        if _within(self.target, self.source):
            raise self._refused(f"source {self.source!r}", f"it lies in the target {self.target!r}", apart)

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
            code=self.code,
        )


def _within(root: str, location: str) -> bool:
    """Return whether a location is a root or lies below it, whatever connections they name."""
    above, here = object_location(root), object_location(location)
    if above is None or here is None:
        return path_below(root, location) is not None
    return path_below(above.url, here.url) is not None
