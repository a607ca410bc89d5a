"""The interfaces for processing rows on their way: converters change batches, row checks judge their rows.

Both are frozen dataclasses, registered with `wire.record`, and run in Spark tasks, a batch at a time. So are a user's own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.declarations import check_tuples

if TYPE_CHECKING:
    import pyarrow as pa


class Converter(Protocol):
    """A converter of batches. It returns batches of `schema(…)` and may drop or add rows."""

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        """Return the outgoing schema for an incoming one; called at planning.

        :raises ConfigurationError: it can't convert this.
        """

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert one batch to the schema that `schema` returned."""


class OnBadRow(StrEnum):
    """The response of a row check, a converter or a source to a bad row."""

    FAIL = "fail"
    """The unit fails."""
    DROP = "drop"
    """The row is left out and counted."""
    DEAD_LETTER = "dead_letter"
    """The row is left out, counted, and kept in a file beside the dataset, which the same slot publishes, with the reason."""


def check_refuser(who: object, on_bad: OnBadRow, at_most: int | float | None) -> None:
    """Check that a declaration that may refuse rows is valid: its response, its bound on the rows that are left out, its tuples.

    :param at_most: an integer is a number of rows, a fraction a share of the unit's rows.
    :raises ConfigurationError: there is no such response or bound, the check leaves none out, or a tuple is a single value.
    """
    check_tuples(who)
    if not isinstance(on_bad, OnBadRow):
        raise ConfigurationError(
            operation="use",
            subject=f"on_bad={on_bad!r} of check {who!r}",
            cause="there is no such response",
            hint=f"Give one of {', '.join(f'OnBadRow.{one.name}' for one in OnBadRow)}.",
        )
    if at_most is None:
        return
    is_rows = isinstance(at_most, int) and not isinstance(at_most, bool) and at_most >= 0
    is_share = isinstance(at_most, float) and 0 < at_most < 1
    if on_bad is OnBadRow.FAIL or not (is_rows or is_share):
        raise ConfigurationError(
            operation="use",
            subject=f"at_most={at_most!r} of check {who!r}",
            cause="it leaves out no rows: it fails at the first bad one"
            if is_rows or is_share
            else "it is not a bound",
            hint="Let it drop them, on_bad=OnBadRow.DROP, or keep them apart, on_bad=OnBadRow.DEAD_LETTER."
            if is_rows or is_share
            else "Give a number of rows, as an integer, or a share of the rows between 0 and 1, such as 0.01.",
        )


class Refuser(Protocol):
    """A record that refuses rows, and decides what becomes of them."""

    @property
    def on_bad(self) -> OnBadRow:
        """The response to bad rows."""


class RowCheck(Protocol):
    """A check for good rows.

    A check that leaves out rows may have a bound, `at_most`: an integer is a number of rows of a unit, a fraction a share of
    them. A unit with more bad rows fails.
    """

    @property
    def on_bad(self) -> OnBadRow:
        """The response to bad rows."""

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true for every good row; without nulls."""


@runtime_checkable
class RefusingConverter(Converter, RowCheck, Protocol):
    """A converter that can't convert every row: like a row check, it is first asked which rows are good, and gets only these."""
