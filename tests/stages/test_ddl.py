"""Columns in Spark's DDL, read without Spark, against Spark itself where there is one (`tests/spark/test_stages.py`)."""

from __future__ import annotations

import pytest

from airflow_gobblin.stages.ddl import columns_of


def test_columns_have_the_types_that_spark_gives_them_as_far_as_they_are_known() -> None:
    text = "a int, `b ``c``, d` BIGINT NOT NULL, e: decimal(12, 3), f dec, g map<string, decimal(1,0)>, h timestamp, i\tdate"
    assert columns_of(text) == {
        "a": "int32",
        "b `c`, d": "int64",
        "e": "decimal128(12, 3)",
        "f": "decimal128(10, 0)",
        "g": None,
        "h": None,
        "i": "date32[day]",
    }


@pytest.mark.parametrize(
    "text", ["a int COMMENT 'x, y int'", "a", "a int,, b int", "a int, a string", "", "struct<a: int>"]
)
def test_what_is_not_surely_read_is_left_to_spark(text: str) -> None:
    assert columns_of(text) is None
