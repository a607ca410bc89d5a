"""Tables of PostgreSQL and SQLite as a source: planned by ranges of a delta column, read through ADBC straight into Arrow.

    SqlSource(
        conn_id="shop",
        tables=(
            SqlTable("orders", kind=ExtractKind.APPEND_ONLY, delta="updated_at", primary_keys=("id",)),
            SqlTable("countries", kind=ExtractKind.SNAPSHOT_ONLY),
        ),
    )

A unit reads its range in one transaction that sees one state of the database, in batches, whatever the size of the table. Rows
that are committed at the source later than the lag, with a delta value below what was read, are not seen.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

__all__ = ["Predicate", "SqlSource", "SqlTable"]

DEFAULT_LAG = timedelta(minutes=5)
MIB = 1 << 20

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]
