"""Tables of every partition, with values that are no path and times before 1900, as readers outside have them. Spark's time zone
isn't the writer's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_gobblin.model.work import ExtractKind
from tests.duckdb_reader import duckdb_with
from tests.proofs import one_in
from tests.protocol.rows import Table
from tests.rows.sinks.test_iceberg_sink import TypedRows
from tests.tables.formats import Delta, Iceberg, format_of
from tests.tables.labs import TableLab

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("text", pa.string()), ("number", pa.float64()), ("price", pa.decimal128(9, 2))),
        *(
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("instant", pa.timestamp("us", "UTC")),
            ("flag", pa.bool_()),
        ),
        *(("raw", pa.binary()), ("tags", pa.list_(pa.string()))),
        ("place", pa.struct([("x", pa.float32()), ("names", pa.list_(pa.string()))])),
    ]
)
TEXTS = ("/", None, "x" * 1000, "..", "a=b%2F", "it's", "ä b", "__HIVE_DEFAULT_PARTITION__")
NUMBERS = (math.nan, math.inf, -math.inf, None, 0.0, 1.5, 0.1, 1e300)
DAYS = ("1582-10-03", "1850-02-03", None, "2026-03-29", "1969-12-31", "0001-01-01", "9999-12-31", "1900-01-01")
TIMES = (
    *("1850-01-01T01:02:03.456789", "1969-12-31T23:59:59.999999", None, "2026-03-29T02:30:00"),
    *("2026-10-25T02:30:00", "1900-01-01T00:00:00", "9999-12-31T00:00:00", "1582-10-03T12:00:00"),
)


def row(n: int) -> Mapping[str, Any]:
    day, time = DAYS[n], TIMES[n]
    at = None if time is None else datetime.fromisoformat(time)
    return {
        "id": n,
        "text": TEXTS[n],
        "number": NUMBERS[n],
        "price": None if n == 3 else Decimal(n - 4) / 100,
        "day": None if day is None else date.fromisoformat(day),
        "at": at,
        "instant": at and at.replace(tzinfo=UTC),
        "flag": (True, False, None)[n % 3],
        "raw": None if n == 6 else bytes([n, 255]),
        "tags": [TEXTS[n], None],
        "place": None if n == 5 else {"x": n / 2, "names": [TEXTS[n]]},
    }


ROWS = pa.Table.from_pylist([row(n) for n in range(len(TEXTS))], SCHEMA)
PARTITIONS = {
    "delta": ("text", "number", "day", "at", "instant", "flag"),
    "iceberg": (
        *("text", "number", "price", "day", "at", "instant", "flag", "raw", "truncate(3, text)", "truncate(10, price)"),
        *("bucket(4, text)", "bucket(4, price)", "bucket(4, day)", "bucket(4, instant)", "year(day)", "month(day)"),
        *("day(day)", "hour(at)", "year(at)", "month(instant)", "day(instant)", "hour(instant)"),
    ),
}


def plain(found: pa.Table) -> list[str]:
    """Return rows as text, by their ids: NaN is itself there."""
    return [repr(one) for one in found.select(SCHEMA.names).cast(SCHEMA).sort_by("id").to_pylist()]


@pytest.mark.slow
@one_in(6, "partition")
@pytest.mark.parametrize(("form", "partition"), [(form, one) for form, some in PARTITIONS.items() for one in some])
def test_every_reader_has_values_as_they_were(
    request: pytest.FixtureRequest, tmp_path: Path, spark_of_tables: SparkSession, form: str, partition: str
) -> None:
    lab = TableLab(tmp_path / "work", format_of(form, tmp_path / "tables", request.getfixturevalue))
    lab.declare(partition=(partition,))
    TypedRows.rows = ROWS
    table = Table("typed", ExtractKind.SNAPSHOT_ONLY, ROWS.num_rows, unit_rows=100)
    lab.ingestion = replace(lab.ingestion, source=TypedRows((table,)))
    report = lab.run()["typed"]
    assert report.status == "committed", report

    if isinstance(lab.format, Delta):
        place, scan, duck = f"{tmp_path}/tables/typed", "delta_scan", duckdb_with("delta")
    else:
        assert isinstance(lab.format, Iceberg)
        place, scan = lab.format.table("typed").metadata_location, "iceberg_scan"
        duck = duckdb_with("avro", "iceberg")
    columns = [f'epoch_us("{name}")' if name in ("at", "instant") else f'"{name}"' for name in SCHEMA.names]
    duck.execute("SET TimeZone = 'America/New_York'")
    by_duckdb = zip(*duck.execute(f"SELECT {', '.join(columns)} FROM {scan}('{place}')").fetchall(), strict=True)
    arrays = [
        pa.array(values, pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(values, field.type)
        for values, field in zip(by_duckdb, SCHEMA, strict=True)
    ]
    spark_of_tables.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        by_spark = spark_of_tables.read.format(form).load(place).toArrow()
    finally:
        spark_of_tables.conf.unset("spark.sql.session.timeZone")
    expected = plain(ROWS)
    assert plain(lab.open("typed").read().to_table()) == expected
    assert plain(pa.Table.from_arrays(arrays, schema=SCHEMA)) == expected
    assert plain(by_spark) == expected
