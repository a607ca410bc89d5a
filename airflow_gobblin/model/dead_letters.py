"""Dead letters: rows that were refused, in files of their own beside the dataset's, which the same slot publishes.

    <dataset's folder>/_dead_letters/<token>-<unit>-<index>.parquet

Readers of folders pass over names that begin with `_`; a reader of the journal asks for them, `Journal.read_dead_letters`.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "_dead_letters"
"""The name of their folder in the dataset's folder. No sink publishes a name that begins with `_`."""


def is_dead_letters(path: str) -> bool:
    """Return whether a published file of rows holds dead letters, by its path."""
    return posixpath.basename(posixpath.dirname(path)) == FOLDER


def dead_letter_schema() -> pa.Schema:
    """Return the columns of dead letters.

    `unit` is the work unit; `refused_by` the kind of the format, converter or check that refused the row, and `reason` why;
    `position` its place, as JSON; `row` its columns as they were then, as a JSON object; `raw` the bytes that can't be decoded.
    """
    import pyarrow as pa

    texts = [pa.field(name, pa.string(), nullable=False) for name in ("unit", "refused_by", "reason", "position")]
    return pa.schema([*texts, pa.field("row", pa.string(), nullable=False), pa.field("raw", pa.binary())])
