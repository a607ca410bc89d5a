"""Partition transforms, by the examples of Iceberg's specification and by values that pyiceberg 0.12 gave."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.tables.arrow.transforms import _hashes, result_type, transform
from airflow_gobblin.tables.partition import parse_partition
from airflow_gobblin.tables.port import PartitionField

AT = datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)
ANCIENT = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int32(), 34, 2017239379),
        (pa.int64(), 34, 2017239379),
        (pa.int64(), -1, 1651860712),
        (pa.uint32(), 34, 2017239379),
        (pa.decimal128(9, 2), Decimal("14.20"), -500754589),
        (pa.date32(), date(2017, 11, 16), -653330422),
        (pa.time64("us"), time(22, 31, 8), -662762989),
        (pa.time64("ns"), time(22, 31, 8), -662762989),
        (pa.timestamp("us"), AT, -2047944441),
        (pa.timestamp("s", "UTC"), AT, -2047944441),
        (pa.timestamp("ns", "UTC"), AT, -2047944441),
        (pa.string(), "iceberg", 1210000089),
        (pa.large_string(), "iceberg", 1210000089),
        (pa.binary(16), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
        (pa.binary(), b"\0\1\2\3", -188683207),
    ],
    ids=str,
)
def test_hashes_are_those_of_the_specification(kind: pa.DataType, value: object, expected: int) -> None:
    values = pa.array([None, value, value, None], kind)
    assert _hashes(values).to_pylist() == [None, *[expected % 2**32] * 2, None]
    buckets = transform(values, PartitionField("c", "bucket", 16)).to_pylist()
    assert buckets == [None, *[(expected & 0x7FFFFFFF) % 16] * 2, None]


@pytest.mark.parametrize(
    ("name", "kind", "value", "expected"),
    [
        ("year", pa.date32(), date(1969, 12, 31), -1),
        ("year", pa.timestamp("us", "UTC"), AT, 47),
        ("month", pa.date32(), date(1969, 12, 31), -1),
        ("month", pa.timestamp("ms"), AT, 574),
        ("month", pa.timestamp("us", "UTC"), ANCIENT, -1),
        ("day", pa.timestamp("us", "UTC"), ANCIENT, date(1969, 12, 31)),
        ("day", pa.timestamp("ns"), AT, date(2017, 11, 16)),
        ("day", pa.date32(), date(1, 1, 1), date(1, 1, 1)),
        ("hour", pa.timestamp("us", "UTC"), ANCIENT, -1),
        ("hour", pa.timestamp("s"), AT, 419686),
        ("identity", pa.string(), "x", "x"),
    ],
)
def test_periods_are_counted_from_1970_also_before_it(
    name: str, kind: pa.DataType, value: object, expected: Any
) -> None:
    naive = value.replace(tzinfo=None) if isinstance(value, datetime) and kind.tz is None else value
    found = transform(pa.array([None, naive], kind), PartitionField("c", name))
    assert found.to_pylist() == [None, expected]
    assert found.type == result_type(PartitionField("c", name), kind)


@pytest.mark.parametrize(
    ("kind", "width", "value", "expected"),
    [
        (pa.int32(), 10, 1, 0),
        (pa.int32(), 10, -1, -10),
        (pa.int64(), 10, 12, 10),
        (pa.decimal128(9, 2), 50, Decimal("10.65"), Decimal("10.50")),
        (pa.decimal128(9, 2), 50, Decimal("-0.05"), Decimal("-0.50")),
        (pa.decimal128(38, 0), 10, Decimal(10**37 + 7), Decimal(10**37)),
        (pa.string(), 3, "iceberg", "ice"),
        (pa.string(), 2, "ä😀b", "ä😀"),
        (pa.binary(), 3, b"\1\2\3\4\5", b"\1\2\3"),
    ],
    ids=str,
)
def test_truncated_values_are_those_of_the_specification(
    kind: pa.DataType, width: int, value: object, expected: object
) -> None:
    found = transform(pa.array([value, None, value], kind), PartitionField("c", "truncate", width))
    assert found.type == kind
    assert found.to_pylist() == [expected, None, expected]


@pytest.mark.parametrize("field", ["hour(c)", "year(c)", "bucket(4, c)", "truncate(4, c)"])
def test_a_transform_that_a_type_lacks_is_refused_by_name(field: str) -> None:
    (parsed,) = parse_partition([field])
    with pytest.raises(ConfigurationError, match=r"column 'c' is double, of which there is no"):
        result_type(parsed, pa.float64())


def test_a_partition_is_parsed() -> None:
    texts = ("country", "day(updated_at)", "bucket(16, id)", " truncate( 4 , code ) ", "a b")
    assert parse_partition(texts) == (
        PartitionField("country"),
        PartitionField("updated_at", "day"),
        PartitionField("id", "bucket", 16),
        PartitionField("code", "truncate", 4),
        PartitionField("a b"),
    )
    assert parse_partition(map(str, parse_partition(texts))) == parse_partition(texts)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("weekday(a)", "there is no transform 'weekday'"),
        ("bucket(a)", "needs a width"),
        ("bucket(0, a)", "needs a width"),
        ("day(3, a)", "has no width"),
        ("day(a", "neither a column nor"),
        ("", "neither"),
        ("(a)", "neither"),
    ],
)
def test_what_is_no_partition_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_partition([text])
    with pytest.raises(ConfigurationError, match="it is listed twice"):
        parse_partition(["day(a)", "b", "day(a)"])
