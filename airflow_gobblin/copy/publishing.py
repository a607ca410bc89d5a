"""The commit steps of a file set: folders are made, files placed, replaced and deleted, and then folders are set or removed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_gobblin.copy.bundles import Bundle, FolderEntry
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.deleting import delete_files
from airflow_gobblin.steps.folders import FolderAttributesStep, MakeFolderStep, remove_folders
from airflow_gobblin.steps.placing import place_file
from airflow_gobblin.storage.files.base import Files, FolderAttributes

_MADE = 10_000
"""How many folders are remembered as made: to name one again does no harm."""


def copy_steps(
    plan: Plan, published: Iterable[tuple[Bundle, UnitResult]], files: Files, staging: str
) -> Iterator[CommitStep]:
    """Yield the steps of a file set, bundle by bundle, and at the end those that remove folders: they depend on one another.

    :param published: each bundle, with the result of its unit: its files are in the bundle's order.
    :param staging: the folder of the plan's token, in which each file to be deleted gets a trash of its own.
    :raises StepLostError: staged files are gone.
    """
    steps = _Steps(plan.folder, files, staging)
    for bundle, result in published:
        yield from steps.of(bundle, result)
    yield from steps.at_the_end()


@dataclass
class _Steps:
    """The steps of one call.

    :param folder: the file set's folder, below the root of the files.
    :param times: the times that folders get, for those that a removal changes again.
    """

    folder: str
    files: Files
    staging: str
    made: set[str] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)

    def of(self, bundle: Bundle, result: UnitResult) -> Iterator[CommitStep]:
        """Yield the steps of a bundle, except for removals of folders, which are kept for the end."""
        for entry in bundle.folders:
            yield from self._folder(entry)
        for file, staged in zip(bundle.files, result.files, strict=True):
            target = self._at(file.entry.path)
            yield from self._made(posixpath.dirname(target))
            yield from place_file(staged, target, result.unit, self.files, file.replaces)
        yield from delete_files(
            ((self._at(one.path), one.identity) for one in bundle.deletes), self.staging, self.files
        )
        self.gone += map(self._at, bundle.gone_folders)

    def at_the_end(self) -> Iterator[CommitStep]:
        """Yield the steps that remove folders."""
        yield from remove_folders(sorted(self.gone), self.times)

    def _at(self, path: str) -> str:
        """Return the path below the root of the files of a path in the file set."""
        return self.folder if path == "." else joined(self.folder, path)

    def _folder(self, entry: FolderEntry) -> Iterator[CommitStep]:
        path, of = self._at(entry.path), entry.attributes
        yield from self._made(path)
        wanted = FolderAttributes(of.mode, of.owner, of.group, entry.modified or None)
        if wanted != FolderAttributes():
            yield FolderAttributesStep(path, wanted)
        if entry.modified:
            self.times[path] = entry.modified

    def _made(self, path: str) -> Iterator[CommitStep]:
        """Yield the step that makes a folder, where there are folders, unless that is done."""
        if not self.files.moves_folders or path in ("", "."):
            return
        if len(self.made) >= _MADE:
            self.made.clear()
        if path not in self.made:
            self.made.add(path)
            yield MakeFolderStep(path)
