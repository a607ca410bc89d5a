"""The mirror step that gives files of the target their attributes and leaves their content as it is.

It looks once more at what its slot placed, and sets in place what differs. Like the steps of folders it can't be made safe from a
late process: nothing is taken over or away, so nothing can be consumed. It does no harm late: each plan compares them again.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_gobblin.model.naming import many
from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files.base import Attributes, FileIdentity, Files, each

__all__ = ["NOT_POSSIBLE", "ExpectedFile", "FileAttributesStep"]

log = logging.getLogger(__name__)

NOT_POSSIBLE = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOTSUP, errno.EINVAL, errno.ENOSPC)
"""The errors of an attribute that can't be set, by this process or at all."""


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file of the target, as long as it is the one that was seen or placed.

    :param path: relative to the target root.
    :param identity: the identity that it had at planning, or has since it was placed.
    """

    path: str
    identity: FileIdentity


@record("file_attributes_step")
@dataclass(frozen=True, slots=True)
class FileAttributesStep:
    """The step that sets the attributes of files that don't have them. One that somebody replaced since is left to the next plan.

    :param of: the files, all of which get the same.
    :param attributes: those that they get; `None` for each that stays as it is.
    :param strict: whether it is an error if one of them can't be set; otherwise it is reported.
    """

    of: tuple[ExpectedFile, ...]
    attributes: Attributes
    strict: bool = False
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "they can't be set"

    @property
    def subject(self) -> str:
        first = f"file {self.of[0].path!r}"
        return f"attributes of {first}" + (f" and {len(self.of) - 1:,} more" if len(self.of) > 1 else "")

    @property
    def entries(self) -> int:
        """The number of files that it is about."""
        return len(self.of)

    def _lacking(self, files: Files) -> Iterator[ExpectedFile]:
        looked = each(files, lambda one: (one, files.lacks(one.path, one.identity, self.attributes)), self.of)
        return (one for one, lacks in looked if lacks)

    def verify(self, context: StepContext) -> StepStatus:
        return StepStatus.DONE if next(self._lacking(context.files), None) is None else StepStatus.TODO

    def execute(self, context: StepContext) -> None:
        """Set the attributes, and check that the files have them.

        :raises OSError: a file doesn't get one of them, though it must.
        """
        refused = [(file, why) for file in [*self._lacking(context.files)] if (why := self._set(file, context.files))]
        if refused:
            (first, why), count = refused[0], many(len(refused), "file")
            log.warning("Not all attributes are kept of %s, the first is %r: %s", count, first.path, why)

    def _set(self, file: ExpectedFile, files: Files) -> str:
        """Set the attributes of a file; return why it doesn't have all of them then, or nothing."""
        try:
            files.set_file(file.path, file.identity, self.attributes)
            if not files.lacks(file.path, file.identity, self.attributes):
                return ""
            raise OSError(errno.ENOTSUP, "the target doesn't keep them", file.path)
        except OSError as error:
            if self.strict or error.errno not in NOT_POSSIBLE:
                raise OSError(error.errno, error.strerror, file.path) from error
            return error.strerror or str(error)

    def undo(self, context: StepContext) -> None:
        """Leave them: the next plan compares them."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return ()  # no name changes
