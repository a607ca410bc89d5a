"""`verify` compares the target of a mirror with its source, more strictly than a plan does. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_gobblin.copy.bundles import CopyFile, Doomed, FolderEntry, NewAttributes
from airflow_gobblin.copy.comparing import Comparison
from airflow_gobblin.copy.conversion.openpgp import gives_other_bytes
from airflow_gobblin.copy.entries import Entry, shown
from airflow_gobblin.copy.options import Compare, Delete, Existing
from airflow_gobblin.copy.owners import settable
from airflow_gobblin.copy.survey import Survey
from airflow_gobblin.copy.trees import joined
from airflow_gobblin.model.verification import Deviation, FileState
from airflow_gobblin.storage.files.base import Attributes

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.copy.bundles import Act
    from airflow_gobblin.copy.finders import FileSet
    from airflow_gobblin.copy.work import CopyWork
    from airflow_gobblin.storage.files.base import Files

_WORDS = {"mode": "permission"}
_TIME = "its time is not the source's"


def verify_copy(
    work: CopyWork, dataset: FileSet, files: Files, connections: Connections, *, content: bool
) -> Iterator[Deviation]:
    """Yield everything in a file set's folder of the target that differs from the source. See `job.VerifiedWork`."""
    by_content = content and not gives_other_bytes(work.convert)
    compare = Compare.CHECKSUM if by_content else Compare.SIZE_AND_TIME
    delete = None if work.delete is None else Delete(1)
    wanted = replace(work, compare=compare, existing=Existing.UPDATE, delete=delete)
    survey = Survey.of(wanted, dataset, files, connections)
    check = _Check.of(survey)
    for act in survey.found(check.same, takes_calls=check.comparison.takes_calls):
        found = check.deviation(act)
        if found is not None:
            yield found


@dataclass(frozen=True)
class _Check:
    """The comparison of a file set's files, with the attributes that are kept.

    :param comparison: the comparison of what a plan compares.
    :param times: the comparison of times that are kept, if `comparison` doesn't compare them.
    """

    survey: Survey
    comparison: Comparison
    times: Comparison | None

    @classmethod
    def of(cls, survey: Survey) -> _Check:
        comparison = survey.comparison
        apart = comparison.compare is Compare.CHECKSUM and survey.work.keep.times
        return cls(survey, comparison, replace(comparison, compare=Compare.SIZE_AND_TIME) if apart else None)

    def same(self, source: Entry, target: Entry) -> bool:
        """Return whether nothing of the target's file differs."""
        return not self._differing(source, target) and self.comparison.same(source, target)

    def _differing(self, source: Entry, target: Entry) -> str:
        """Return what is known to differ without looking at the content; empty if nothing is."""
        if source.kind is not target.kind:
            return f"it is a {target.kind.value}, and a {source.kind.value} in the source"
        if source.known_size not in (None, target.size):
            return f"it has {target.size:,} bytes, and {source.size:,} in the source"
        if self.times is not None and not self.times.same(source, target):
            return _TIME
        wanted = settable(self.survey.wanted_attributes(source), None, self.survey.keeps)
        return _attributes(wanted, target.attributes)

    def deviation(self, act: Act) -> Deviation | None:
        """Return what an act would repair; `None` if it is only there because something else in its folder would change."""
        if isinstance(act, CopyFile):
            if act.replaces is None:
                return self._of(act.entry.path, FileState.MISSING, act.entry.size, "")
            return self._of(act.entry.path, FileState.CHANGED, act.entry.size, self._why(act.entry))
        if isinstance(act, Doomed):
            return self._of(act.path, FileState.EXTRA, act.identity.size, "")
        if isinstance(act, NewAttributes):
            target = self._target(act.path)
            differing = "" if target is None else _attributes(act.attributes, target.attributes)
            return self._of(act.path, FileState.CHANGED, act.identity.size, differing) if differing else None
        if isinstance(act, FolderEntry):
            target = self._target(act.path)
            if target is None:
                return self._of(act.path, FileState.MISSING, 0, "a folder")
            differing = _attributes(act.attributes, target.attributes)
            if not differing and act.modified and act.modified != target.modified:
                differing = _TIME
            return self._of(act.path, FileState.CHANGED, 0, f"a folder: {differing}") if differing else None
        return self._of(act, FileState.EXTRA, 0, "a folder")

    def _why(self, source: Entry) -> str:
        """Return what differs in a file that isn't the same."""
        target = self._target(source.path)
        if target is None:
            return "it has gone meanwhile"
        by_content = self.comparison.compare is Compare.CHECKSUM
        return self._differing(source, target) or f"its {'content' if by_content else 'time'} is not the source's"

    def _target(self, path: str) -> Entry | None:
        return self.survey.sides.target.entry(self._in_target(path))

    def _of(self, path: str, state: FileState, size: int, detail: str) -> Deviation:
        return Deviation(shown(self._in_target(path)), state, size, detail)

    def _in_target(self, path: str) -> str:
        folder = self.survey.dataset.folder
        return folder if path == "." else joined(folder, path)


def _attributes(wanted: Attributes, found: Attributes) -> str:
    """Return which attributes differ, of those that are known on both sides; empty if none do."""
    fields = ((_WORDS.get(name, name), getattr(wanted, name), getattr(found, name)) for name in wanted.differing(found))
    return "; ".join(
        f"its {name} is {_number(name, has)}, and {_number(name, one)} in the source" for name, one, has in fields
    )


def _number(name: str, value: int | str) -> str:
    return f"{value & 0o7777:o}" if isinstance(value, int) and name == "permission" else str(value)
