"""The step of mirrors that gives a file of the target other attributes, whose content stays as it is.

Like those of a folder, they can't be made safe from a late process: nothing is taken over or away, so nothing can be consumed. It
does no harm late: each plan compares them again.
"""

from __future__ import annotations

import errno
import logging
import posixpath
from dataclasses import dataclass

from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.storage.files.base import Attributes, FileIdentity

__all__ = ["FileAttributesStep"]

log = logging.getLogger(__name__)

_NOT_POSSIBLE = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOTSUP, errno.EINVAL, errno.ENOSPC)


@record("file_attributes_step")
@dataclass(frozen=True, slots=True)
class FileAttributesStep:
    """The step that sets the attributes of a file, if it is still the one that the plan saw.

    :param path: the file, relative to the target root.
    :param identity: the identity that it had at planning.
    :param attributes: those that it gets; `None` for each that stays as it is.
    :param strict: whether it is an error if one of them can't be set; otherwise it is reported.
    """

    path: str
    identity: FileIdentity
    attributes: Attributes
    strict: bool = False
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "they can't be set"

    @property
    def subject(self) -> str:
        return f"attributes of file {self.path!r}"

    def verify(self, context: StepContext) -> StepStatus:
        """A file that somebody replaced since is left to the next plan."""
        files = context.files
        left = files.identity(self.path) != self.identity or files.has(self.path, self.attributes)
        return StepStatus.DONE if left else StepStatus.TODO

    def execute(self, context: StepContext) -> None:
        """Set the attributes.

        :raises OSError: one of them can't be set, and has to.
        """
        try:
            context.files.set_file(self.path, self.identity, self.attributes)
        except OSError as error:
            if self.strict or error.errno not in _NOT_POSSIBLE:
                raise
            log.warning("File %r doesn't get all of its attributes: %s", self.path, error.strerror)

    def undo(self, context: StepContext) -> None:
        """They stay: the next plan compares them."""

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.path) or ".",)
