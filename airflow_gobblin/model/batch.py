"""Batches across runs: how much must wait in a source before it is worth publishing.

A dataset below all bounds is *held*: nothing is read, staged or decided, so there is no open state that could be lost. The
source is the buffer, and the coverage shows from where. Source: the design's section on batches across runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import many, size


@dataclass(frozen=True)
class Backlog:
    """The rows that wait in a source for a dataset: all that a run would read now.

    :param now: the time by the source's clock.
    :param rows: their number.
    :param bytes: an estimate of their size once published; `None` if there is nothing to learn it from.
    :param oldest: the time of the oldest; `None` if nothing waits, or if their positions show no times.
    :param keeps: how long the source keeps rows; `None` if it keeps them for good, or doesn't report it.
    :param used: the share of what the source keeps, by time or by size, that has passed since the oldest came, in the position
        where this share is largest. At 1 the oldest may be removed.
    """

    now: datetime
    rows: int
    bytes: int | None = None
    oldest: datetime | None = None
    keeps: timedelta | None = None
    used: float = 0.0

    @property
    def age(self) -> timedelta | None:
        """How long the oldest has waited."""
        return None if self.oldest is None else max(timedelta(0), self.now - self.oldest)

    def __str__(self) -> str:
        amount = many(self.rows, "row")
        amount = amount if self.bytes is None else f"{amount}, about {size(self.bytes)},"
        return amount if self.age is None else f"{amount.rstrip(',')}, the oldest for {_duration(self.age)},"


@dataclass(frozen=True)
class Batch:
    """The bounds from which waiting rows are worth publishing. Reaching one of them is enough.

    :param bytes: their size once published, as learned from the last files.
    :param rows: their number.
    :param age: how long the oldest may wait.
    :param kept: the share of what the source keeps that may pass, whatever the other bounds are.
    :raises ConfigurationError: there is no bound, or one lets nothing through.
    """

    bytes: int | None = None
    rows: int | None = None
    age: timedelta | None = None
    kept: float = 0.5

    def __post_init__(self) -> None:
        given = [(name, value) for name, value in self._bounds() if value is not None]
        if not given:
            raise _refused("Batch()", "it has no bound", "Give bytes, rows or age.")
        for name, value in given:
            if (value.total_seconds() if isinstance(value, timedelta) else value) <= 0:
                raise _refused(f"Batch({name}={value!r})", "it is not above zero", "Leave it out for no such bound.")
        if not 0 < self.kept <= 1:
            raise _refused(f"Batch(kept={self.kept!r})", "it is not a share", "Give a number above 0, at most 1.")

    def _bounds(self) -> Iterator[tuple[str, int | timedelta | None]]:
        yield from (("bytes", self.bytes), ("rows", self.rows), ("age", self.age))

    def holds(self, backlog: Backlog) -> bool:
        """Return whether rows wait, and are below all bounds."""
        return bool(backlog.rows) and not self._is_due(backlog)

    def _is_due(self, backlog: Backlog) -> bool:
        return (
            (self.rows is not None and backlog.rows >= self.rows)
            or (self.bytes is not None and backlog.bytes is not None and backlog.bytes >= self.bytes)
            or (self.age is not None and backlog.age is not None and backlog.age >= self.age)
            or backlog.used >= self.kept
        )

    def check(self, backlog: Backlog, urn: str) -> None:
        """Check that a source can report when a batch is due, and keeps its rows until then.

        :raises ConfigurationError: it can't, or doesn't.
        """
        subject = f"{self} for dataset {urn!r}"
        if self.age is not None and backlog.rows and backlog.oldest is None:
            raise _refused(subject, "the positions of its rows show no times", "Give bytes or rows instead of an age.")
        if self.age is not None and backlog.keeps is not None and backlog.keeps <= self.age:
            raise _refused(
                subject,
                f"its source keeps rows for {_duration(backlog.keeps)} only",
                f"Give an age below {_duration(backlog.keeps)}, or let the source keep them for longer.",
            )

    def __str__(self) -> str:
        return f"Batch({', '.join(f'{name}={value!r}' for name, value in self._bounds() if value is not None)})"

    def until(self, backlog: Backlog) -> str:
        """Return what a held dataset waits for, for people."""
        parts: list[str] = []
        if self.bytes is not None:
            parts.append(size(self.bytes))
        if self.rows is not None:
            parts.append(many(self.rows, "row"))
        if self.age is not None and backlog.oldest is not None:
            parts.append(f"{(backlog.oldest + self.age):%Y-%m-%d %H:%M:%S} UTC")
        return " or ".join(parts)


@dataclass(frozen=True)
class HeldBatch:
    """A dataset from which a run reads nothing, because its backlog is below its batch's bounds."""

    batch: Batch
    backlog: Backlog

    def __str__(self) -> str:
        return f"{self.backlog} wait{'s' if self.backlog.rows == 1 else ''} until {self.batch.until(self.backlog)}"


def _duration(time: timedelta) -> str:
    return str(timedelta(seconds=round(time.total_seconds())))


def _refused(subject: str, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="use", subject=subject, cause=cause, hint=hint)
