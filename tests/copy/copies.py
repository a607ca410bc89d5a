"""Copies of whole trees by one unit, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.copy.bundles import Bundle, BundleKind, CopyFile
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.finders import WholeTree
from airflow_gobblin.copy.options import Keep, Links
from airflow_gobblin.copy.transfer.copying import copy_bundle
from airflow_gobblin.copy.trees import Tree, open_tree
from airflow_gobblin.copy.work import CopyBinding, CopyWork
from airflow_gobblin.job import Attempt
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitResult, WorkUnit
from airflow_gobblin.storage.files import Files, open_files

STAGING = "_gobblin/photos-0123/s/0123"


@dataclass
class Copying:
    """A source and a target, and what a mirror of them needs for its units.

    :param files: those of the target; real ones by default.
    """

    source: str
    target: str
    keep: Keep = field(default_factory=Keep)
    links: Links = Links.COPY
    checksums: bool = False
    bandwidth: int | None = None
    share: float = 1.0
    source_folder: str = "."
    folder: str = "."
    connections: Connections = field(default_factory=NoConnections)
    files: Files | None = None

    @property
    def tree(self) -> Tree:
        """The source."""
        return open_tree(self.source, self.connections, self.links, self.keep)

    def entries(self) -> list[Entry]:
        """The files and links of the source, as a plan has them."""
        tree = self.tree
        skip = 0 if self.source_folder == "." else len(self.source_folder) + 1
        found = [replace(entry, path=entry.path[skip:]) for entry in tree.walk(self.source_folder)]
        return [entry for entry in found if entry.kind in (EntryKind.FILE, EntryKind.LINK)]

    def unit(self, entries: Iterable[Entry] | None = None) -> WorkUnit:
        """A unit that copies everything, or these."""
        files = tuple(CopyFile(entry) for entry in (self.entries() if entries is None else entries))
        return Bundle(BundleKind.COPY, files=files).unit("copy_000001", "photos#files")

    def run(self, unit: WorkUnit | None = None, attempt: str = "a0") -> UnitResult:
        """Run a unit."""
        unit = self.unit() if unit is None else unit
        files = self.files or open_files(self.target, self.connections)
        return copy_bundle(
            self.work, unit, self.plan, Attempt(attempt, files, STAGING, self.connections, share=self.share)
        )

    @property
    def work(self) -> CopyWork:
        """Its work."""
        return CopyWork(
            mirror="photos",
            source=self.source,
            target=self.target,
            workspace=self.target,
            finder=WholeTree(),
            keep=self.keep,
            links=self.links,
            checksums=self.checksums,
            bandwidth=self.bandwidth,
        )

    @property
    def plan(self) -> Plan:
        """A plan of it."""
        return Plan(
            token="0123",
            ingestion="photos",
            run_key="r",
            generation=0,
            urn="photos#files",
            holds=Holds.DIFFERENCE,
            folder=self.folder,
            units=(),
            binding=CopyBinding(source_folder=self.source_folder),
        )

    def staged(self, result: UnitResult) -> Path:
        """The folder of a result's files on disk: as it is published."""
        first = result.files[0].path
        return Path(self.target, *Path(first).parts[: len(Path(STAGING).parts) + 2])
