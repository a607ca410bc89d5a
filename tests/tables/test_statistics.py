"""Statistics of data files, as the writer of Parquet gathered them, against the values themselves."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.model import wire
from airflow_gobblin.model.table import ColumnStatistics
from airflow_gobblin.tables.arrow.statistics import MOST_CHARACTERS, column_statistics, from_json, to_json

COLUMNS: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False]),
    "int8": pa.array([-128, None, 127], pa.int8()),
    "uint8": pa.array([0, None, 255], pa.uint8()),
    "uint32": pa.array([1, None, 2**32 - 1], pa.uint32()),
    "uint64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "int64": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "float32": pa.array([-1.5, None, 0.25], pa.float32()),
    "float64": pa.array([math.nan, -2.5, math.inf], pa.float64()),
    "decimal9": pa.array([Decimal("-1.50"), None, Decimal("2.25")], pa.decimal128(9, 2)),
    "decimal38": pa.array([Decimal(-(10**36)), None, Decimal(10**36)], pa.decimal128(38, 1)),
    "date32": pa.array([-100_000, None, 5], pa.date32()),
    "date64": pa.array([-86_400_000, None, 86_400_000], pa.date64()),
    "time32s": pa.array([0, None, 86_399], pa.time32("s")),
    "time64": pa.array([0, None, 10**12], pa.time64("ns")),
    "seconds": pa.array([-5, None, 5], pa.timestamp("s")),
    "ns": pa.array([-5, None, 5], pa.timestamp("ns", "UTC")),
    "text": pa.array(["ä", None, "b"]),
    "large": pa.array(["ä", None, "b"], pa.large_string()),
    "binary": pa.array([b"\xff", None, b"\0"]),
    "fixed": pa.array([b"\xff\0", None, b"\0\0"], pa.binary(2)),
}


def statistics(*tables: pa.Table, nans: dict[str, int] | None = None) -> dict[str, ColumnStatistics]:
    """Of a file with a row group for each table."""
    collected: list[pq.FileMetaData] = []
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, tables[0].schema, store_decimal_as_integer=True, metadata_collector=collected) as writer:
        for table in tables:
            writer.write_table(table)
    return column_statistics(collected[0], tables[0].schema, nans or {})


@pytest.mark.parametrize("name", COLUMNS)
def test_bounds_are_the_lowest_and_the_highest_value(name: str) -> None:
    column = COLUMNS[name]
    found = statistics(
        pa.table({"c": column}), pa.table({"c": column.slice(2)}), pa.table({"c": pa.nulls(2, column.type)})
    )["c"]
    assert found.values == 6
    assert found.nulls == column.null_count + 2
    assert found.bytes is not None
    assert found.bytes > 0
    numbers = [to_json(value) for value in column if value.is_valid]
    comparable = (
        [value for value in column.to_pylist() if value is not None]
        if not pa.types.is_temporal(column.type)
        else numbers
    )
    finite = [one for one in comparable if str(one) != "nan"]
    low, high = from_json(found.low, column.type), from_json(found.high, column.type)
    assert [to_json(low), to_json(high)] == [found.low, found.high]
    assert found.low == numbers[comparable.index(min(finite, key=_order))]
    assert found.high == numbers[comparable.index(max(finite, key=_order))]
    assert wire.canonical([found.low, found.high])


def _order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("name", COLUMNS)
def test_each_value_is_kept_by_its_record(name: str) -> None:
    column = COLUMNS[name]
    again = [from_json(to_json(value), column.type) for value in column]
    assert [value.type for value in again] == [column.type] * 3
    assert list(map(repr, again)) == list(map(repr, column))


def test_long_bounds_are_cut_and_still_bounds() -> None:
    low, high = "a" * 100 + "x", "z" * (MOST_CHARACTERS - 1) + "\U0010ffff" + "y"
    found = statistics(pa.table({"c": [low, high], "b": [b"\1" * 100, b"\xff" * 100]}))
    assert found["c"].low == "a" * MOST_CHARACTERS
    assert found["c"].high == "z" * (MOST_CHARACTERS - 2) + "{"
    assert from_json(found["b"].low, pa.binary()).as_py() == b"\1" * MOST_CHARACTERS
    assert found["b"].high is None, "nothing short is above it"


def test_nested_columns_have_paths_and_those_of_lists_no_bounds() -> None:
    rows = [{"s": {"a": 1, "b": "x"}, "l": [3, 4], "m": [("k", 1)]}, {"s": None, "l": [], "m": None}]
    schema = pa.schema(
        [
            ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    found = statistics(pa.Table.from_pylist(rows, schema))
    assert [*found] == ["s.a", "s.b", "l.list.element", "m.key_value.key", "m.key_value.value"]
    assert (found["s.a"].low, found["s.a"].nulls) == (1, 1)
    assert (found["l.list.element"].values, found["l.list.element"].low) == (3, None)


def test_of_two_columns_of_one_path_nothing_is_known() -> None:
    table = pa.table({"a.b": [1], "a": [{"b": 2}], "c": [3]})
    assert [*statistics(table)] == ["c"]


def test_what_has_values_without_bounds_has_none() -> None:
    found = statistics(pa.table({"c": [1.0]}), pa.table({"c": [math.nan]}), nans={"c": 1})["c"]
    assert (found.low, found.high, found.nans) == (None, None, 1)


@pytest.mark.parametrize(
    ("value", "kind"), [("x", pa.int64()), ("x", pa.decimal128(3)), (1, pa.binary()), ("no", pa.date32())]
)
def test_what_is_no_value_of_a_type_is_refused(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="is no"):
        from_json(value, kind)
