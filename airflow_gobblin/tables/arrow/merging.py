"""Merging by key: of each key the newest version stays. Pure functions over Arrow, for formats that merge what they are given.

Versions are compared by the delta column, where null is older than all else and NaN newer. Those that are equal there are
compared by the positions, the same way. Rows equal in all of them are one version: a table keeps the one that it has. Two rows of
a batch that are one version of a key are refused, since nothing decides between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.errors import TableError
from airflow_gobblin.model.naming import many
from airflow_gobblin.tables.port import Merge

COMPARED_ROWS = 10_000_000
"""The most rows whose keys are compared in memory."""
_SHOWN = 3


def check_keys(rows: pa.Table | pa.RecordBatch, merge: Merge, subject: str) -> None:
    """Check that there are keys, and that none has a null, not even in a struct's fields.

    :param subject: whose rows they are, for the error.
    :raises TableError: a key has a null, or a column that merging needs is missing.
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
    """Return the newest version of each key, in the order of the rows.

    :param subject: whose rows they are, for errors.
    :raises TableError: a key is null; or two rows are the newest version of a key.
    """
    check_keys(rows, merge, subject)
    if rows.num_rows == 0:
        return rows
    keys, versions = _codes([rows[name] for name in merge.keys]), _versions(rows, merge)
    kept = _newest(keys, versions)
    _check_ties(rows, keys, versions, kept, merge, subject)
    return rows.take(kept)


def merged(table: pa.Table, rows: pa.Table, merge: Merge, subject: str) -> pa.Table:
    """Return the rows of a table after others are merged into it: a row is replaced only by a newer one with its key.

    Rows that are merged twice, or late, change nothing.

    :param table: the rows that it has, one per key.
    :param rows: the rows to merge, with the same columns.
    :raises TableError: as `newest`.
    """
    new = newest(rows, merge, subject)
    both = pa.concat_tables([table, new.select(table.column_names).cast(table.schema)])
    if both.num_rows == 0:
        return both
    kept = _newest(_codes([both[name] for name in merge.keys]), _versions(both, merge))
    return both.take(kept)


def _newest(keys: pa.Array, versions: pa.Array) -> pa.Array:
    """Return the first row of the newest version of each key, in the order of rows."""
    rows = pa.table({"key": keys, "version": versions, "row": pa.array(range(len(keys)), pa.int64())})
    by = pc.sort_indices(rows, [("key", "ascending"), ("version", "descending"), ("row", "ascending")])
    ordered = keys.take(by)
    differs = pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
    kept = by.filter(pa.concat_arrays([pa.array([True]), differs]))
    return kept.take(pc.sort_indices(kept))


def _check_columns(schema: pa.Schema, merge: Merge, subject: str) -> None:
    if not merge.keys:
        raise _refused(subject, "it is to be merged, and has no key", "Give the dataset primary keys.")
    missing = [name for name in merge.columns if schema.get_field_index(name) < 0]
    if missing:
        raise _refused(subject, f"it has no column {missing[0]!r}, by which it is to be merged", "Keep that column.")


def _codes(columns: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return a number for each row, from 0 on, which is the same for the same values; NaN is one value, as are 0.0 and -0.0."""
    codes = _zeros(len(columns[0]))
    for column in columns:
        encoded = pc.dictionary_encode(_plain(column).combine_chunks(), null_encoding="encode")
        codes = pc.add(pc.multiply(codes, max(1, len(encoded.dictionary))), encoded.indices.cast(pa.int64()))
        codes = pc.dictionary_encode(codes).indices.cast(pa.int64())
    return codes


def _versions(rows: pa.Table, merge: Merge) -> pa.Array:
    """Return a number for each row, which rises with its version and is the same for versions that are equal."""
    ranks = _zeros(rows.num_rows)
    for name in merge.versions:
        column = rows[name].combine_chunks()
        found = _ranks(_plain(column))
        highest = pc.max(found).as_py() + 1
        if pa.types.is_floating(column.type):
            found = pc.if_else(pc.fill_null(pc.is_nan(column), False), highest, found)
        found = pc.if_else(column.is_null(), 0, found)
        ranks = _ranks(pc.add(pc.multiply(ranks, highest + 1), found))
    return ranks


def _ranks(values: pa.Array) -> pa.Array:
    return pc.rank(values, tiebreaker="dense").cast(pa.int64())


def _zeros(rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int64()), rows)


def _plain(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column in which equal values have one form: 0.0 is also -0.0."""
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))
    return column


def _check_ties(rows: pa.Table, keys: pa.Array, versions: pa.Array, kept: pa.Array, merge: Merge, subject: str) -> None:
    """Check that the newest version of each key is one row."""
    highest = versions.take(kept).take(pc.sort_indices(keys.take(kept)))  # by the number of the key
    newest_rows = pc.indices_nonzero(pc.equal(versions, highest.take(keys)))
    if len(newest_rows) == len(kept):
        return
    others = newest_rows.filter(pc.invert(pc.is_in(newest_rows, value_set=kept)))
    some = rows.select(list(merge.keys)).take(others.slice(0, _SHOWN)).to_pylist()
    raise _refused(
        subject,
        f"{many(len(others), 'row')} too many are the newest of their key by "
        f"{' and '.join(map(repr, merge.versions)) or 'no column'}: {', '.join(map(str, some))}",
        "Give the dataset a delta column that distinguishes versions, or remove the duplicates in the source.",
    )


def _refused(subject: str, cause: str, hint: str) -> TableError:
    return TableError(operation="merge", subject=subject, cause=cause, hint=hint)
