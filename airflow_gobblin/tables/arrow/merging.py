"""Merging by key: of each key the newest version stays. Pure functions over Arrow, for formats that merge what they are given.

Versions are compared by the delta column, where null is older than all else and NaN newer, and those that are equal there by the
positions, the same way. What is equal in all of them is one version: a table keeps the one that it has. Two rows of a batch can't
be one version of a key: nothing decides between them, and they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airflow_gobblin.errors import TableError
from airflow_gobblin.model.naming import many
from airflow_gobblin.tables.port import Merge

_SHOWN = 3


def check_keys(rows: pa.Table | pa.RecordBatch, merge: Merge, subject: str) -> None:
    """Check that no key has a null, also in a struct's fields, and that there are keys.

    :param subject: whose rows they are, for the error.
    :raises TableError: one has, or a column that merging needs isn't there.
    """
    _check_columns(rows.schema, merge, subject)
    for name in merge.keys:
        if nulls := rows[name].null_count:
            raise _refused(
                subject,
                f"{many(nulls, 'row')} of {rows.num_rows:,} have null in column {name!r}, which is of the key",
                "Leave these rows out by a row check, or merge by other columns.",
            )


def newest(rows: pa.Table, merge: Merge, subject: str) -> pa.Table:
    """Return the newest version of each key, in the order in which the rows come.

    :param subject: whose rows they are, for errors.
    :raises TableError: a key is null; or two rows are the newest version of a key.
    """
    check_keys(rows, merge, subject)
    if rows.num_rows == 0:
        return rows
    keys, versions = _codes([rows[name] for name in merge.keys]), _versions(rows, merge)
    kept = _newest(keys, versions)
    _check_ties(rows, keys, versions, kept, merge, subject)
    return rows.take(pa.array(kept))


def merged(table: pa.Table, rows: pa.Table, merge: Merge, subject: str) -> pa.Table:
    """Return what a table has after rows are merged into it: a row of a table's key is replaced only by a newer one.

    Rows that are merged twice, or late, change nothing.

    :param table: what it has: one row a key.
    :param rows: the rows to merge, of the same columns.
    :raises TableError: as `newest`.
    """
    new = newest(rows, merge, subject)
    both = pa.concat_tables([table, new.select(table.column_names).cast(table.schema)])
    if both.num_rows == 0:
        return both
    kept = _newest(_codes([both[name] for name in merge.keys]), _versions(both, merge))
    return both.take(pa.array(kept))


def _newest(keys: NDArray[np.int64], versions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first row of the newest version of each key, in the order of rows."""
    by = np.lexsort((-np.arange(len(keys)), versions, keys))
    last = np.append(keys[by][1:] != keys[by][:-1], True)
    return np.sort(by[last])


def _check_columns(schema: pa.Schema, merge: Merge, subject: str) -> None:
    if not merge.keys:
        raise _refused(subject, "it is to be merged, and has no key", "Give the dataset primary keys.")
    needed = (*merge.keys, *_order_of(merge))
    missing = [name for name in needed if schema.get_field_index(name) < 0]
    if missing:
        raise _refused(subject, f"it has no column {missing[0]!r}, by which it is to be merged", "Keep that column.")


def _codes(columns: Sequence[pa.ChunkedArray]) -> NDArray[np.int64]:
    """Return a number for each row, which is the same for the same values; NaN is one value, as are 0.0 and -0.0."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = pc.dictionary_encode(_plain(column).combine_chunks(), null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return codes


def _versions(rows: pa.Table, merge: Merge) -> NDArray[np.int64]:
    """Return a number for each row, which rises with its version and is the same for versions that are equal."""
    ranks = np.zeros(rows.num_rows, np.int64)
    for name in _order_of(merge):
        column = rows[name]
        found = pc.rank(_plain(column), tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
        if pa.types.is_floating(column.type):
            found = np.where(pc.fill_null(pc.is_nan(column), False).to_numpy(), found.max() + 1, found)
        found = np.where(column.is_null().to_numpy(), 0, found)
        ranks = np.unique(ranks * (found.max() + 1) + found, return_inverse=True)[1].reshape(-1)
    return ranks


def _order_of(merge: Merge) -> tuple[str, ...]:
    return (*(() if merge.delta is None else (merge.delta,)), *merge.positions)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which equal values have one form: 0.0 is also -0.0."""
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))
    return column


def _check_ties(
    rows: pa.Table,
    keys: NDArray[np.int64],
    versions: NDArray[np.int64],
    kept: NDArray[np.int64],
    merge: Merge,
    subject: str,
) -> None:
    """Check that there is one row of the newest version of each key."""
    highest = np.zeros(keys.max() + 1, np.int64)
    highest[keys[kept]] = versions[kept]
    newest_rows = np.flatnonzero(versions == highest[keys])
    if len(newest_rows) == len(kept):
        return
    others = np.setdiff1d(newest_rows, kept)
    some = rows.select(list(merge.keys)).take(pa.array(others[:_SHOWN])).to_pylist()
    raise _refused(
        subject,
        f"{many(len(others), 'row')} too many are the newest of their key by "
        f"{' and '.join(map(repr, _order_of(merge))) or 'no column'}: {', '.join(map(str, some))}",
        "Give the dataset a delta column that tells versions apart, or remove the duplicates in the source.",
    )


def _refused(subject: str, cause: str, hint: str) -> TableError:
    return TableError(operation="merge", subject=subject, cause=cause, hint=hint)
