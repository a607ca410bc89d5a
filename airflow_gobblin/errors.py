"""The tree of errors.

Every error names the *operation* that failed, its *subject* (a dataset, a file, a table …), the *cause*, and a *hint*: the
way out. Two questions decide what a caller may do, so each error answers them:

* may a retry heal it? (`retryable`; a task fails at once, without retries, where it may not), and
* is it known that nothing happened? (`UnknownOutcomeError` says it is not: read back before anything else, promise I12).

    GobblinError
    ├── ConfigurationError            what the DAG author wrote can't work
    │   ├── MissingExtraError         an optional dependency is not installed
    │   ├── EnvironmentMismatchError  installed parts don't fit together
    │   ├── NotFoundError             there is no such journal, ingestion or dataset
    │   │   └── NeverPublishedError   … of the dataset nothing was ever published
    │   ├── NoSuchRangeError          a dataset has no such range as a backfill asks for
    │   ├── OverlapError              a backfill asks for what is covered, and not to replace it
    │   └── UnknownKindError          a record of a kind that nobody registered
    ├── SourceError                   the source can't be planned or read as asked
    │   └── SourceDataError           … because of what is in it: only mending it there helps
    ├── SchemaConflictError           the source's schema doesn't fit what was published
    ├── CheckFailedError              a row check failed
    ├── StoreError                    a store's answer was "failed"; nothing was written
    │   └── UnknownOutcomeError       a store's answer was lost; it may have happened
    ├── UnreliableStoreError          a store can't do what the journal rests on
    ├── RecordError                   a record is unreadable, torn, or newer than this version
    ├── ClaimError                    a target belongs to another journal, ingestion or dataset
    ├── TargetError                   a target isn't the one that the journal's slots are published to
    ├── StepError                     a commit step can't be carried out
    │   ├── StepConflictError         something else stands where the step publishes
    │   └── StepLostError             neither the staged file nor the published one exists
    ├── LostRaceError                 another run decided first
    │   └── AlreadyCoveredError       … and what it committed covers what this plan wanted
    ├── QuarantinedError              the dataset is skipped until it is released
    ├── PausedError                   the dataset is skipped until it is resumed
    └── IncompleteRunError            a run ended with datasets not as the policy wants them
"""

from __future__ import annotations

__all__ = [
    "AlreadyCoveredError",
    "CheckFailedError",
    "ClaimError",
    "ConfigurationError",
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
    "SchemaConflictError",
    "SourceDataError",
    "SourceError",
    "StepConflictError",
    "StepError",
    "StepLostError",
    "StoreError",
    "TargetError",
    "UnknownKindError",
    "UnknownOutcomeError",
    "UnreliableStoreError",
]


class GobblinError(Exception):
    """Base of all errors of this package.

    :param operation: what was being done, as a verb phrase ("plan", "publish").
    :param subject: the thing it was done to ("dataset 'main.flights'").
    :param cause: what went wrong: a sentence, or the exception underneath.
    :param hint: what to do about it.
    """

    retryable = False

    def __init__(
        self, *, operation: str, subject: str, cause: str | BaseException | None = None, hint: str | None = None
    ) -> None:
        self.operation = operation
        self.subject = subject
        self.cause = cause
        self.hint = hint
        super().__init__(operation, subject, cause, hint)

    def __str__(self) -> str:
        text = f"can't {self.operation} {self.subject}"
        if self.why:
            text += f": {self.why}"
        return f"{without_stop(text)}. {self.hint}" if self.hint else text

    @property
    def with_notes(self) -> str:
        """Its text, and what was added to it on its way."""
        return " ".join([str(self), *getattr(self, "__notes__", ())])

    @property
    def why(self) -> str | None:
        """The cause as text, which is what is left of it in another process."""
        if isinstance(self.cause, BaseException):
            return f"{type(self.cause).__name__}: {self.cause}"
        return self.cause

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild,
            (type(self), self.operation, self.subject, self.why, self.hint),
        )


def without_stop(text: str) -> str:
    """A sentence without its full stop, for one that goes on behind it."""
    return text if text.endswith("..") else text.removesuffix(".")


def _rebuild(
    error: type[GobblinError], operation: str, subject: str, cause: str | None, hint: str | None
) -> GobblinError:
    return error(operation=operation, subject=subject, cause=cause, hint=hint)


class ConfigurationError(GobblinError):
    """What the DAG author wrote can't work; no retry heals it."""


class MissingExtraError(ConfigurationError):
    """An optional dependency is not installed; the hint names the extra."""


class EnvironmentMismatchError(ConfigurationError):
    """Installed parts don't fit together (for example `pyspark` and `pyspark-client`)."""


class NotFoundError(ConfigurationError):
    """There is no such journal, ingestion or dataset; what is there and alike is named. Looking for it made nothing."""


class NeverPublishedError(NotFoundError):
    """No run has published the dataset, not even without rows; the last failure is the cause, where one is known."""


class NoSuchRangeError(ConfigurationError):
    """A dataset has no such range as a backfill asks for: it is outside its data, or can't be said in its positions."""


class OverlapError(ConfigurationError):
    """A backfill asks for a range of which a part is covered, and not to replace that."""


class UnknownKindError(ConfigurationError):
    """A record names a kind that no imported module registered."""


class SourceError(GobblinError):
    """The source can't be planned or read as asked."""

    retryable = True


class SourceDataError(SourceError):
    """What is in the source can't be ingested as asked: a row without a position, a value that doesn't fit its type."""

    retryable = False


class SchemaConflictError(GobblinError):
    """The source's schema doesn't fit the schema of what was published."""


class CheckFailedError(GobblinError):
    """A row check that is set to fail found a bad row."""


class StoreError(GobblinError):
    """A store said that the operation failed: nothing was written."""

    retryable = True


class UnknownOutcomeError(StoreError):
    """A store's answer was lost: the write may stand or not. Read back before anything else (I12)."""


class UnreliableStoreError(GobblinError):
    """A store can't do what the journal rests on: create once, read what was written, list it."""


class RecordError(GobblinError):
    """A record is unreadable, torn, doesn't fit its chain, or was written by a newer version (I14)."""


class ClaimError(GobblinError):
    """A target belongs to another journal, ingestion or dataset."""


class TargetError(GobblinError):
    """A target isn't the one that the journal's slots are published to: empty, not mounted, not shared, or another one."""

    retryable = True


class StepError(GobblinError):
    """A commit step can't be carried out."""

    retryable = True


class StepConflictError(StepError):
    """Something else stands where the step publishes; it is left as it is (I10)."""

    retryable = False


class StepLostError(StepError):
    """Neither the staged file nor the published one exists."""

    retryable = False


class LostRaceError(GobblinError):
    """Another run decided first, and this plan no longer holds. Plan again."""


class AlreadyCoveredError(LostRaceError):
    """Another run committed the range that this plan wanted: nothing is missing."""


class QuarantinedError(GobblinError):
    """The dataset failed to recover too often and is skipped until somebody releases it."""


class PausedError(GobblinError):
    """A dataset is paused: nothing new of it is planned or decided until somebody resumes it."""


class IncompleteRunError(GobblinError):
    """A run ended, and not every dataset is as the commit policy wants it."""
