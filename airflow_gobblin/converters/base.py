"""What happens to rows on their way: converters change batches, row checks look at them.

Both are frozen dataclasses, registered with `wire.record`, and run in Spark tasks, a batch at a time. A user's own are the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Converter(Protocol):
    """Changes batches. Gives batches of `schema(…)` and may drop or add rows."""

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        """What comes out for what comes in; called at planning. :raises ConfigurationError: it can't convert this."""

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One batch, of the schema that `schema` said."""


class OnBadRow(StrEnum):
    """What a row check does about a bad row."""

    FAIL = "fail"
    """The unit fails."""
    DROP = "drop"
    """The row is left out and counted."""


class RowCheck(Protocol):
    """Says which rows are good."""

    @property
    def on_bad(self) -> OnBadRow:
        """What to do about the others."""

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for every good row; without nulls."""
