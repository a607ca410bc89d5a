"""The mirror steps about folders, which are made before files are placed, and then given their attributes, or removed if empty.

None of them can be made safe from a late process, and none does harm late: each plan compares the folders again, and a folder
that is placed whole takes the place of empty ones.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.attributes import NOT_POSSIBLE
from airflow_gobblin.steps.base import Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files.base import Attributes

__all__ = ["FolderAttributesStep", "MakeFolderStep", "RemoveFolderStep", "remove_folders"]

log = logging.getLogger(__name__)


@record("make_folder_step")
@dataclass(frozen=True, slots=True)
class MakeFolderStep:
    """The step that makes a folder and those above it, before anything is placed there.

    :param path: the folder, relative to the target root.
    """

    path: str
    phase = Phase.PREPARE
    fence = None
    conflict = "something that is not a folder is there"
    lost = "it can't be made"

    @property
    def subject(self) -> str:
        return f"folder {self.path!r}"

    def verify(self, context: StepContext) -> StepStatus:
        for _ in range(2):  # another step may make it, as one above its own, between the two looks
            if context.files.folder(self.path) is not None:
                return StepStatus.DONE
            if context.files.identity(self.path) is None:
                return StepStatus.TODO
        return StepStatus.CONFLICT

    def execute(self, context: StepContext) -> None:
        """Make the folder."""
        context.files.make_folder(self.path)

    def undo(self, context: StepContext) -> None:
        """Leave it: another slot may rely on it."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (self.path,)


@record("folder_attributes_step")
@dataclass(frozen=True, slots=True)
class FolderAttributesStep:
    """The step that sets the attributes of a folder, once everything is placed in it.

    :param path: the folder, relative to the target root.
    :param attributes: those that it gets; `None` for each that stays as it is.
    :param strict: whether it is an error if one of them can't be set; otherwise it is reported.
    """

    path: str
    attributes: Attributes
    strict: bool = False
    phase = Phase.SETTLE
    fence = None
    conflict = "something that is not a folder is there"
    lost = "it was removed"

    @property
    def subject(self) -> str:
        return f"attributes of folder {self.path!r}"

    def verify(self, context: StepContext) -> StepStatus:
        found = context.files.folder(self.path)
        if found is None:
            return StepStatus.LOST if context.files.identity(self.path) is None else StepStatus.CONFLICT
        return StepStatus.DONE if context.files.has(self.path, self.attributes) else StepStatus.TODO

    def execute(self, context: StepContext) -> None:
        """Set the attributes.

        :raises OSError: one of them must be set, and can't be.
        """
        try:
            context.files.set_folder(self.path, self.attributes)
        except OSError as error:
            if self.strict or error.errno not in NOT_POSSIBLE:
                raise
            log.warning("Folder %r doesn't get all of its attributes: %s", self.path, error.strerror)

    def undo(self, context: StepContext) -> None:
        """Leave them: the next plan compares them."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (self.path,)


@record("remove_folder_step")
@dataclass(frozen=True, slots=True)
class RemoveFolderStep:
    """The step that removes a folder if it is empty, once its files are deleted, and then the folders above it that go, too.

    So each of many nested folders is removed by the last step that empties it, in whatever order the steps come.

    :param path: the folder, relative to the target root.
    :param above: how many of the folders above it are to be removed.
    :param modified: the time that the folder above all of them gets again, in ns since 1970; `None`: it stays as it is.
    """

    path: str
    above: int = 0
    modified: int | None = None
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "it can't be removed"

    @property
    def subject(self) -> str:
        return f"removal of folder {self.path!r}"

    def _going(self) -> Iterator[str]:
        path = self.path
        for _ in range(self.above + 1):
            yield path
            path = posixpath.dirname(path)

    def verify(self, context: StepContext) -> StepStatus:
        files = context.files
        empty = (files.folder(path) is not None and not files.identities(path) for path in self._going())
        return StepStatus.TODO if any(empty) else StepStatus.DONE

    def execute(self, context: StepContext) -> None:
        """Remove the folder if it is empty."""
        files = context.files
        for path in self._going():
            files.remove_folder(path)
        outer = posixpath.dirname([*self._going()][-1]) or "."
        if self.modified is not None and files.folder(outer) is not None:
            files.set_folder(outer, Attributes(modified=self.modified))

    def undo(self, context: StepContext) -> None:
        """Leave it removed: the next plan compares the folders."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.path) or ".",)


def remove_folders(gone: Iterable[str], times: Mapping[str, int] | None = None) -> Iterator[RemoveFolderStep]:
    """Yield the steps that remove folders if they are empty by then.

    :param gone: their paths below the target root, each before the folders in it.
    :param times: the time to give back to each folder that stays but loses one, in ns since 1970.
    """
    above: dict[str, int] = {}
    for path in gone:
        above[path] = above.get(posixpath.dirname(path), -1) + 1
        outer = path
        for _ in range(above[path] + 1):
            outer = posixpath.dirname(outer)
        yield RemoveFolderStep(path, above[path], (times or {}).get(outer or "."))
