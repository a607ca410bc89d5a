"""Row checks: columns that must have a value, lie in a range, or match a pattern.

Each has `on_bad`, the response to a bad row, and, if it drops bad rows, `at_most`, the most of them in a unit, above which the
unit fails: an integer, or a fraction between 0 and 1 for a share of its rows.

DAG files import this module, so Arrow is loaded only when rows are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.expressions import compiled
from airflow_gobblin.model.wire import record
from airflow_gobblin.rows.converters.base import OnBadRow, check_refuser
from airflow_gobblin.rows.converters.columns import require

if TYPE_CHECKING:
    import pyarrow as pa


def _null_is_good(who: object, judge: Callable[[], pa.BooleanArray]) -> pa.BooleanArray:
    import pyarrow as pa

    try:
        return judge().fill_null(True)
    except pa.ArrowException as error:
        raise ConfigurationError(
            operation="apply",
            subject=repr(who),
            cause=error,
            hint="Correct it, or choose a check that fits the column's type.",
        ) from error


@record("not_null")
@dataclass(frozen=True)
class NotNull:
    """A check that a row has a value in each of these columns."""

    columns: tuple[str, ...]
    on_bad: OnBadRow = OnBadRow.FAIL
    at_most: int | float | None = None

    def __post_init__(self) -> None:
        check_refuser(self, self.on_bad, self.at_most)

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true for every good row.

        :raises ConfigurationError: a column is missing.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        require(self.columns, batch.schema, self)
        return reduce(pc.and_, (batch[name].is_valid() for name in self.columns), pa.repeat(True, batch.num_rows))


@record("in_range")
@dataclass(frozen=True)
class InRange:
    """A check that a value lies between `low` and `high`, both included; `None` is no bound, and null is good.

    Dates and times are given as ISO 8601 text. NaN lies in no range.
    """

    column: str
    low: int | float | str | None = None
    high: int | float | str | None = None
    on_bad: OnBadRow = OnBadRow.FAIL
    at_most: int | float | None = None

    def __post_init__(self) -> None:
        check_refuser(self, self.on_bad, self.at_most)

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true for every good row.

        :raises ConfigurationError: the column is missing, or can't be compared with the bounds.
        """
        require((self.column,), batch.schema, self)
        return _null_is_good(self, lambda: self._within(batch[self.column]))

    def _within(self, column: pa.Array) -> pa.BooleanArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        good = pa.repeat(True, len(column))
        if self.low is not None:
            good = pc.and_(good, pc.greater_equal(column, _bound(self.low, column.type)))
        if self.high is not None:
            good = pc.and_(good, pc.less_equal(column, _bound(self.high, column.type)))
        return good


def _bound(value: int | float | str, column: pa.DataType) -> pa.Scalar:
    import pyarrow as pa

    scalar = pa.scalar(value)
    return scalar.cast(column) if isinstance(value, str) else scalar


@record("matches")
@dataclass(frozen=True)
class Matches:
    """A check that a text matches the pattern (RE2) from its start to its end; null is good.

    :raises ConfigurationError: the pattern is invalid; if only RE2 finds it so, when the dataset is planned.
    """

    column: str
    pattern: str
    on_bad: OnBadRow = OnBadRow.FAIL
    at_most: int | float | None = None

    def __post_init__(self) -> None:
        check_refuser(self, self.on_bad, self.at_most)
        try:
            compiled(self.pattern)  # RE2 accepts most patterns that Python accepts, and this needs no Arrow
        except ValueError:
            self._try()

    def _try(self) -> None:
        """Let RE2 check the pattern, which it does only if there are rows."""
        import pyarrow as pa

        _null_is_good(self, lambda: self._matching(pa.array([""])))

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true for every good row.

        :raises ConfigurationError: the column is missing, or isn't text.
        """
        require((self.column,), batch.schema, self)
        if not batch.num_rows:
            self._try()
        return _null_is_good(self, lambda: self._matching(batch[self.column]))

    def _matching(self, column: pa.Array) -> pa.BooleanArray:
        import pyarrow.compute as pc

        return pc.match_substring_regex(column, rf"\A(?:{self.pattern})\z")
