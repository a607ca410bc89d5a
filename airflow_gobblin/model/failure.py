"""Failures: errors as records, which cross processes and outlive runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from airflow_gobblin import errors
from airflow_gobblin.errors import GobblinError, Remedy


class ErrorKind(StrEnum):
    """The kind of an error: a class of the tree in `errors.py`, by its name."""

    GOBBLIN = "GobblinError"
    """None of the others: the error was not foreseen."""
    CONFIGURATION = "ConfigurationError"
    MISSING_EXTRA = "MissingExtraError"
    ENVIRONMENT_MISMATCH = "EnvironmentMismatchError"
    NOT_FOUND = "NotFoundError"
    NEVER_PUBLISHED = "NeverPublishedError"
    NO_SUCH_RANGE = "NoSuchRangeError"
    OVERLAP = "OverlapError"
    UNKNOWN_KIND = "UnknownKindError"
    SOURCE = "SourceError"
    SOURCE_DATA = "SourceDataError"
    SOURCE_CHANGED = "SourceChangedError"
    SCHEMA_CONFLICT = "SchemaConflictError"
    CHECK_FAILED = "CheckFailedError"
    STORE = "StoreError"
    UNKNOWN_OUTCOME = "UnknownOutcomeError"
    UNRELIABLE_STORE = "UnreliableStoreError"
    RECORD = "RecordError"
    CLAIM = "ClaimError"
    TABLE = "TableError"
    TABLE_MOVED = "TableMovedError"
    TARGET = "TargetError"
    STEP = "StepError"
    STEP_CONFLICT = "StepConflictError"
    STEP_DAMAGED = "StepDamagedError"
    STEP_LOST = "StepLostError"
    STEP_FENCED = "StepFencedError"
    LOST_RACE = "LostRaceError"
    ALREADY_COVERED = "AlreadyCoveredError"
    QUARANTINED = "QuarantinedError"
    DIFFERENCE = "DifferenceError"
    PAUSED = "PausedError"
    STATE_GIVEN_UP = "StateGivenUpError"
    INCOMPLETE_RUN = "IncompleteRunError"

    @property
    def error(self) -> type[GobblinError]:
        """The class."""
        found: type[GobblinError] = getattr(errors, self.value)
        return found

    @classmethod
    def of(cls, error: GobblinError) -> ErrorKind:
        """Return the kind of an error; for an author's own class, the kind of the nearest known base class."""
        names = (base.__name__ for base in type(error).__mro__)
        return cls(next(name for name in names if name in _NAMES))


_NAMES = frozenset(kind.value for kind in ErrorKind)
_VARIES = re.compile(r"\w*\d\w*")
"""A part of a text that may differ each time: a number, a time, an id."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error without its traceback, as text without secrets.

    :param remedy: what to do again once the cause is fixed.
    :param retryable: whether a retry is worth it. It is after an unforeseen error, too.
    """

    kind: ErrorKind
    operation: str
    subject: str
    cause: str | None = None
    hint: str | None = None
    remedy: Remedy | None = None
    retryable: bool = False

    @classmethod
    def of(cls, error: GobblinError, redact: Callable[[str], str] = str) -> Failure:
        """Convert an error.

        :param redact: returns a text without secrets.
        """
        kind = ErrorKind.of(error)
        return cls(
            kind,
            redact(error.operation),
            redact(error.subject),
            None if error.why is None else redact(error.why),
            None if error.hint is None else redact(error.hint),
            error.remedy,
            error.retryable or kind is ErrorKind.GOBBLIN,
        )

    def error(self) -> GobblinError:
        """Return the error, to be raised again."""
        return self.kind.error(
            operation=self.operation, subject=self.subject, cause=self.cause, hint=self.hint, remedy=self.remedy
        )

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"

    @property
    def text(self) -> str:
        """The failure as text, without its kind and remedy."""
        return self.error().text

    @property
    def line(self) -> str:
        """The failure as one line of text."""
        return " ".join(str(self).split())

    @property
    def recurring(self) -> tuple[ErrorKind, str, str]:
        """The common part of two failures for the same reason: kind, subject, and the cause without numbers, times and ids."""
        return self.kind, self.subject, _VARIES.sub("#", self.cause or "")
