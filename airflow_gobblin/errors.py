"""The tree of errors.

Every error names the *operation* that failed, its *subject* (a dataset, a file, a table …), the *cause*, and a *hint*: the way
out. Each error answers two questions that decide how a caller may react:

* may a retry succeed? (`retryable`; otherwise a task fails at once, without retries), and
* is it certain that nothing happened? (not after an `UnknownOutcomeError`: read back before anything else, promise I12).

    GobblinError
    ├── ConfigurationError            the DAG author's configuration can't work
    │   ├── MissingExtraError         an optional dependency is not installed
    │   ├── EnvironmentMismatchError  installed parts are incompatible
    │   ├── NotFoundError             there is no such journal, ingestion or dataset
    │   │   └── NeverPublishedError   … the dataset was never published
    │   ├── NoSuchRangeError          a dataset lacks the range that a backfill asks for
    │   ├── OverlapError              a backfill overlaps a covered range without replacing it
    │   └── UnknownKindError          a record has a kind that isn't registered
    ├── SourceError                   the source can't be planned or read as asked
    │   ├── SourceDataError           … because of its data, which must be corrected there
    │   └── SourceChangedError        … because a part of it is no longer as it was planned
    ├── SchemaConflictError           the source's schema conflicts with the published one
    ├── CheckFailedError              a check of rows, or of a file set, failed
    ├── StoreError                    a store operation failed; nothing was written
    │   └── UnknownOutcomeError       a store's answer was lost; the operation may have happened
    ├── UnreliableStoreError          a store lacks a guarantee that the journal relies on
    ├── RecordError                   a record is unreadable, torn, or newer than this version
    ├── ClaimError                    a target belongs to another journal, ingestion or dataset
    ├── TargetError                   a target isn't the one that the journal's slots are published to
    ├── TableError                    a table isn't as it must be, or can't be reached
    │   └── TableMovedError           … somebody else committed to it meanwhile; nothing of ours happened
    ├── DifferenceError               the difference of two trees can't be carried out as asked
    ├── StepError                     a commit step can't be carried out
    │   ├── StepConflictError         something else exists where the step publishes
    │   ├── StepFencedError           the step is shut out, since its slot is being abandoned
    │   ├── StepDamagedError          a step is done, but lacks something that went missing
    │   └── StepLostError             neither the staged file nor the published one exists
    ├── LostRaceError                 another run decided first
    │   └── AlreadyCoveredError       … and committed the range that this plan wanted
    ├── QuarantinedError              the dataset is skipped until it is released
    ├── PausedError                   the dataset is skipped until it is resumed
    ├── StateGivenUpError             a stage can't be restored to a version whose state is gone
    └── IncompleteRunError            a run ended without every dataset as the policy requires
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = [
    "AlreadyCoveredError",
    "CheckFailedError",
    "ClaimError",
    "ConfigurationError",
    "DifferenceError",
    "EnvironmentMismatchError",
    "GobblinError",
    "IncompleteRunError",
    "LostRaceError",
    "MissingExtraError",
    "NeverPublishedError",
    "NoSuchRangeError",
    "NotFoundError",
    "OverlapError",
    "PausedError",
    "QuarantinedError",
    "RecordError",
    "Remedy",
    "SchemaConflictError",
    "SourceChangedError",
    "SourceDataError",
    "SourceError",
    "StateGivenUpError",
    "StepConflictError",
    "StepDamagedError",
    "StepError",
    "StepFencedError",
    "StepLostError",
    "StoreError",
    "TableError",
    "TableMovedError",
    "TargetError",
    "UnknownKindError",
    "UnknownOutcomeError",
    "UnreliableStoreError",
]


class Remedy(StrEnum):
    """The work to be done again, once the cause of an error is fixed. For Airflow, `hooks/wording.py` names the task to clear."""

    PLAN = "plan"
    EXTRACT = "extract"
    WRITE_STEPS = "write_steps"
    CARRY_OUT = "carry_out"
    REPEAT = "repeat"
    """The same thing."""


IN_PLAIN_WORDS = {
    Remedy.PLAN: "Plan it anew.",
    Remedy.EXTRACT: "Then extract it again.",
    Remedy.WRITE_STEPS: "Then write its commit steps again.",
    Remedy.CARRY_OUT: "Then carry out its commit steps again.",
    Remedy.REPEAT: "Then try again.",
}
"""Remedies as they are worded where nobody knows of tasks."""


def with_remedy(text: str, remedy: Remedy | None, words: Mapping[Remedy, str] = IN_PLAIN_WORDS) -> str:
    """Return a text that ends with a remedy, if there is one.

    :param words: the sentence for each remedy.
    """
    return text if remedy is None else _continued(text, words[remedy])


class GobblinError(Exception):
    """Base class of all errors of this package.

    :param operation: the operation that failed, as a verb phrase ("plan", "publish").
    :param subject: its object ("dataset 'main.flights'").
    :param cause: a sentence, or the underlying exception.
    :param hint: the recommended action.
    :param remedy: what is to be done again after that.
    """

    retryable = False

    def __init__(
        self,
        *,
        operation: str,
        subject: str,
        cause: str | BaseException | None = None,
        hint: str | None = None,
        remedy: Remedy | None = None,
    ) -> None:
        self.operation = operation
        self.subject = subject
        self.cause = cause
        self.hint = hint
        self.remedy = remedy
        super().__init__(operation, subject, cause, hint)

    def __str__(self) -> str:
        return with_remedy(self.text, self.remedy)

    @property
    def text(self) -> str:
        """The error's text without the remedy."""
        return _continued(self.finding, self.hint) if self.hint else self.finding

    @property
    def finding(self) -> str:
        """The error's text without the hint and the remedy."""
        text = f"can't {self.operation} {self.subject}"
        return f"{text}: {self.why}" if self.why else text

    @property
    def with_notes(self) -> str:
        """The error's text with its notes."""
        return " ".join([str(self), *getattr(self, "__notes__", ())])

    @property
    def why(self) -> str | None:
        """The cause as text, the only form that survives in another process; without its hint, if that is this error's, too."""
        if isinstance(self.cause, GobblinError) and self.hint and self.cause.hint == self.hint:
            return f"{type(self.cause).__name__}: {with_remedy(self.cause.finding, self.cause.remedy)}"
        if isinstance(self.cause, BaseException):
            return f"{type(self.cause).__name__}: {self.cause}"
        return self.cause

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild,
            (type(self), self.operation, self.subject, self.why, self.hint, self.remedy),
        )


def without_stop(text: str) -> str:
    """Return a sentence without its full stop, so that it can be continued."""
    return text if text.endswith("..") else text.removesuffix(".")


def _continued(text: str, sentence: str) -> str:
    """Return a text and the sentence after it, with one mark between them."""
    return f"{text} {sentence}" if text.endswith(("?", "!")) else f"{without_stop(text)}. {sentence}"


def _rebuild(
    error: type[GobblinError],
    operation: str,
    subject: str,
    cause: str | None,
    hint: str | None,
    remedy: Remedy | None,
) -> GobblinError:
    return error(operation=operation, subject=subject, cause=cause, hint=hint, remedy=remedy)


class ConfigurationError(GobblinError):
    """The DAG author's configuration can't work; no retry helps."""


class MissingExtraError(ConfigurationError):
    """An optional dependency is not installed; the hint names the extra."""


class EnvironmentMismatchError(ConfigurationError):
    """Installed parts are incompatible (for example `pyspark` and `pyspark-client`)."""


class NotFoundError(ConfigurationError):
    """There is no such journal, ingestion or dataset; similar existing names are listed. The lookup created nothing."""


class NeverPublishedError(NotFoundError):
    """No run has published the dataset, not even without rows; the cause is the last failure, if one is known."""


class NoSuchRangeError(ConfigurationError):
    """A dataset lacks the range that a backfill asks for: it is outside its data, or can't be expressed in its positions."""


class OverlapError(ConfigurationError):
    """A backfill asks for a range that is partly covered, without replacing that part."""


class UnknownKindError(ConfigurationError):
    """A record names a kind that no imported module registered."""


class SourceError(GobblinError):
    """The source can't be planned or read as asked."""

    retryable = True


class SourceDataError(SourceError):
    """Data in the source can't be ingested as asked: a row has no position, or a value doesn't fit its type."""

    retryable = False


class SourceChangedError(SourceError):
    """A part of the source is no longer as it was planned: only a new plan helps."""

    retryable = False


class SchemaConflictError(GobblinError):
    """The source's schema conflicts with the published schema."""


class CheckFailedError(GobblinError):
    """A row check that is set to fail found an invalid row, or a check of a file set doesn't let it be published."""


class StoreError(GobblinError):
    """A store reported that the operation failed: nothing was written."""

    retryable = True


class UnknownOutcomeError(StoreError):
    """A store's answer was lost: the write may have happened. Read back before anything else (I12)."""


class UnreliableStoreError(GobblinError):
    """A store lacks a guarantee that the journal relies on: create once, read what was written, list it."""


class RecordError(GobblinError):
    """A record is unreadable, torn, inconsistent with its chain, or was written by a newer version (I14)."""


class ClaimError(GobblinError):
    """A target belongs to another journal, ingestion or dataset."""


class TargetError(GobblinError):
    """A target isn't the one that the journal's slots are published to: it is empty, not mounted, not shared, or another one."""

    retryable = True


class TableError(GobblinError):
    """A table isn't as it must be, or can't be reached."""

    retryable = True


class TableMovedError(TableError):
    """A table isn't as it was when looked at: somebody committed to it, or marked it. Nothing of ours happened: look again."""


class DifferenceError(GobblinError):
    """The difference of two trees can't be carried out as asked: something is in the way, or too much would be deleted."""


class StepError(GobblinError):
    """A commit step can't be carried out."""

    retryable = True


class StepConflictError(StepError):
    """Something else exists where the step publishes; it is left unchanged (I10)."""

    retryable = False


class StepDamagedError(StepError):
    """A step is done, but lacks something that went missing while it was carried out: a person must know."""

    retryable = False


class StepLostError(StepError):
    """Neither the staged file nor the published one exists."""

    retryable = False


class StepFencedError(StepError):
    """Somebody is abandoning the slot of a step, so the step can no longer be done."""

    retryable = False


class LostRaceError(GobblinError):
    """Another run decided first, so this plan is no longer valid. Plan again."""


class AlreadyCoveredError(LostRaceError):
    """Another run committed the range that this plan wanted: nothing is missing."""


class QuarantinedError(GobblinError):
    """The dataset failed to recover too often and is skipped until somebody releases it."""


class PausedError(GobblinError):
    """A dataset is paused: nothing new is planned or decided for it until somebody resumes it."""


class StateGivenUpError(GobblinError):
    """A stage can't be restored to a version whose state is given up."""


class IncompleteRunError(GobblinError):
    """A run ended without every dataset in the state that the commit policy requires."""
