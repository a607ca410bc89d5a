"""The rows of a unit that its reader, a converter or a check refuses: they fail it, are dropped, or become dead letters."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.errors import CheckFailedError, ConfigurationError
from airflow_gobblin.model import wire
from airflow_gobblin.model.dead_letters import dead_letter_schema
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.rows.converters.base import OnBadRow, Refuser, RowCheck
from airflow_gobblin.rows.sinks.base import Writer
from airflow_gobblin.rows.sources.base import RefusedRows

_HINT = (
    "Correct the rows at the source; or let them be dropped and counted, on_bad=OnBadRow.DROP, or kept beside the dataset, "
    "on_bad=OnBadRow.DEAD_LETTER."
)


@dataclass
class _Count:
    """The rows that one refuser has judged."""

    refuser: Refuser
    bad: int = 0
    judged: int = 0


class Refusals:
    """The refused rows of a unit.

    :param unit: its id.
    :param subject: its name in errors.
    :param open_letters: starts the files of dead letters, at the first one.
    """

    def __init__(self, unit: str, subject: str, open_letters: Callable[[], Writer]) -> None:
        self.dropped = 0
        self.dead = 0
        self.metrics: dict[str, float] = {}
        self._unit = unit
        self._subject = subject
        self._open = open_letters
        self._letters: Writer | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._counts: dict[int, _Count] = {}

    def judge(self, checks: Sequence[RowCheck], batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """Return the batch without the rows that a check refuses. Every check sees all rows, and a refused row is counted once.

        :param before: the number of the unit's rows that were judged before.
        :raises CheckFailedError: a check that is set to fail refuses one.
        """
        kept: pa.BooleanArray | None = None
        for check in checks:
            good = good_rows(check, batch)
            self._count(check, batch.num_rows - good.true_count, batch.num_rows)
            bad = pc.invert(good) if kept is None else pc.and_not(kept, good)
            if not bad.true_count:
                continue
            if check.on_bad is OnBadRow.FAIL:
                first = before + bad.index(True).as_py()
                raise self._failed(
                    f"{bad.true_count} of the {batch.num_rows} rows of a batch fail the check {check!r}, the first is row "
                    f"{first} of the unit, counted from 0"
                )
            self._put_away(check, bad.true_count, lambda bad=bad, check=check: _of_check(check, batch, bad, before))  # type: ignore[misc]
            kept = good if kept is None else pc.and_(kept, good)
        return batch if kept is None else batch.filter(kept)

    def refuse(self, refused: RefusedRows, given: int) -> None:
        """Put away what a reader refused.

        :param given: how many rows it yielded with them.
        :raises CheckFailedError: it is set to fail.
        """
        count = len(refused.reasons)
        self._count(refused.refuser, count, count + given)
        if not count:
            return
        if refused.refuser.on_bad is OnBadRow.FAIL:
            raise self._failed(
                f"{count} of the {count + given} rows of a batch are not as {type(refused.refuser).__name__} requires, the first "
                f"is at {json.dumps(refused.positions[0])}: {refused.reasons[0]}"
            )
        self._put_away(refused.refuser, count, lambda: refused)

    def keep(self) -> None:
        """Write the dead letters of the rows that were judged since this was last called."""
        for letters in self._waiting:
            if self._letters is None:
                self._letters = self._open()
            self._letters.write(letters)
        self._waiting.clear()

    def remember(self) -> Callable[[], None]:
        """Return a function that takes back everything that is refused from now on, as long as it isn't kept."""
        dropped, dead, metrics = self.dropped, self.dead, dict(self.metrics)
        counts = [(key, count.refuser, count.bad, count.judged) for key, count in self._counts.items()]

        def take_back() -> None:
            self.dropped, self.dead, self.metrics = dropped, dead, dict(metrics)
            self._counts = {key: _Count(refuser, bad, judged) for key, refuser, bad, judged in counts}
            self._waiting.clear()

        return take_back

    def check_bounds(self) -> None:
        """Check that nothing refused more rows than it may: the rows of a broken source must not disappear silently.

        :raises CheckFailedError: it did.
        """
        for count in self._counts.values():
            most, bad, rows = getattr(count.refuser, "at_most", None), count.bad, count.judged
            if most is None or bad <= (most * rows if isinstance(most, float) else most):
                continue
            raise CheckFailedError(
                operation="extract",
                subject=self._subject,
                cause=f"{bad} of its {many(rows, 'row')} fail the check {count.refuser!r}, and at most "
                f"{f'{100 * most:g} %' if isinstance(most, float) else most} may be "
                f"{'dropped' if count.refuser.on_bad is OnBadRow.DROP else 'dead letters'}",
                hint="See what went wrong at the source. If that many are as they should be, raise at_most.",
            )

    def close(self) -> tuple[StagedFile, ...]:
        """Finish the files of dead letters. Without any, there is no file."""
        self.keep()
        return () if self._letters is None else self._letters.close()

    def abort(self) -> None:
        """Remove the files of dead letters; safe to repeat."""
        if self._letters is not None:
            self._letters.abort()

    def converted(self, converter: object, fewer: int) -> None:
        """Count rows that a converter left out."""
        self._drop(converter, fewer)

    def _count(self, refuser: Refuser, bad: int, judged: int) -> None:
        count = self._counts.setdefault(id(refuser), _Count(refuser))
        count.bad += bad
        count.judged += judged

    def _put_away(self, refuser: Refuser, count: int, letters: Callable[[], RefusedRows]) -> None:
        if refuser.on_bad is OnBadRow.DROP:
            self._drop(refuser, count)
            return
        self._waiting.append(_letters(self._unit, letters()))
        self.dead += count
        self._add(f"dead_letters_by_{wire.kind_of(refuser)}", count)

    def _drop(self, refuser: object, count: int) -> None:
        self.dropped += count
        self._add(f"rows_dropped_by_{wire.kind_of(refuser)}", count)

    def _add(self, metric: str, count: int) -> None:
        self.metrics[metric] = self.metrics.get(metric, 0) + count

    def _failed(self, cause: str) -> CheckFailedError:
        return CheckFailedError(operation="extract", subject=self._subject, cause=cause, hint=_HINT)


def good_rows(check: RowCheck, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return the answers of a check.

    :raises ConfigurationError: it doesn't answer for every row.
    """
    good = check.good(batch)
    if not pa.types.is_boolean(good.type) or len(good) != batch.num_rows or good.null_count:
        raise ConfigurationError(
            operation="apply",
            subject=f"check {check!r}",
            cause=f"it gave {len(good)} answers of type {good.type} with {good.null_count} nulls for {batch.num_rows} rows",
            hint="good() gives true or false for every row.",
        )
    return good


def _of_check(check: RowCheck, batch: pa.RecordBatch, bad: pa.BooleanArray, before: int) -> RefusedRows:
    """Return the rows that a check refused."""
    numbers = pc.indices_nonzero(bad).to_pylist()
    rows = batch.filter(bad)
    positions: list[Mapping[str, Any]] = [{"row": before + number} for number in numbers]
    return RefusedRows(check, rows, [f"{check!r}"] * len(numbers), positions)


def _letters(unit: str, refused: RefusedRows) -> pa.RecordBatch:
    """Return refused rows as dead letters."""
    count = len(refused.reasons)
    columns = [
        [unit] * count,
        [wire.kind_of(refused.refuser)] * count,
        [*refused.reasons],
        [json.dumps(position) for position in refused.positions],
        [json.dumps(_plain(row), ensure_ascii=False) for row in refused.rows.to_pylist()],
        [None] * count if refused.raw is None else [*refused.raw],
    ]
    schema = dead_letter_schema()
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _plain(value: Any) -> Any:
    """Return a value of a row as JSON has it: bytes in base64, values that JSON doesn't have as text."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):  # a datetime, too
        return value.isoformat()
    if isinstance(value, Decimal | timedelta) or (isinstance(value, float) and value - value != 0):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
