"""The options of a DAG author for tables, and how they reach Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model import wire
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import Dataset, Extract, ExtractKind
from airflow_gobblin.rows.sources.base import Source
from airflow_gobblin.rows.sources.sql import Predicate, SqlSource, SqlTable
from tests.rows.sources.databases import FixedUri

APPEND = ExtractKind.APPEND_ONLY


def test_it_is_a_source_with_a_dataset_a_table() -> None:
    source: Source = SqlSource(
        "shop",
        (
            SqlTable("orders", APPEND, namespace="sales", delta="at", primary_keys=("id",)),
            SqlTable("countries", ExtractKind.SNAPSHOT_ONLY, urn="shop/countries"),
        ),
    )
    assert source.datasets(FixedUri("")) == (
        Dataset("sales.orders", Extract(APPEND, "sales", "orders")),
        Dataset("shop/countries", Extract(ExtractKind.SNAPSHOT_ONLY, "", "countries")),
    )
    assert [dataset.origin for dataset in source.datasets(FixedUri(""))] == ["sales.orders", "countries"]
    assert source.connection_ids == ("shop",)
    assert source.modules(FixedUri("sqlite:////x")) == ("adbc_driver_sqlite.dbapi",)
    assert source.modules(FixedUri("postgres://x")) == ("adbc_driver_postgresql.dbapi",)


def test_what_a_urn_is_read_from_is_the_table_and_its_conditions_in_any_order() -> None:
    one, two = Predicate("shop", "in", (3, 5)), Predicate("at", "is not null")
    read = [SqlTable("orders", APPEND, delta="at", where=where) for where in ((one, two), (two, one), (two,))]
    (dataset, *others) = (SqlSource("shop", (table,)).datasets(FixedUri(""))[0].origin for table in read)
    assert dataset == "orders where at is not null and shop in (3, 5)"
    assert [other == dataset for other in others] == [True, False]
    long = [SqlTable("orders", APPEND, delta="at", where=(Predicate("id", "in", (*range(n),)),)) for n in (900, 901)]
    assert long[0].read_from != long[1].read_from
    assert len(long[0].read_from) < 500


@pytest.mark.parametrize("start", [None, 5, LongWatermark(5), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)])  # noqa: DTZ001
@pytest.mark.parametrize("lag", [None, 5, timedelta(seconds=1.5), timedelta(0)])
def test_it_crosses_to_spark_as_it_is(start: Any, lag: Any) -> None:
    predicates = (
        Predicate("a", "=", True),
        Predicate("a", "<", 5),
        Predicate("a", ">", 0.5),
        Predicate("a", "!=", "x"),
        Predicate("a", "in", (1, "x", 0.5, False)),
        Predicate("a", "is null"),
        Predicate("a", "<", datetime(2026, 1, 1, tzinfo=UTC)),
    )
    table = SqlTable("t", APPEND, delta="d", casts={"a": "decimal(38,9)"}, where=predicates, start=start, lag=lag)
    source = SqlSource("db", (table,), reconcile=False)
    back = wire.loads(wire.dumps(source), SqlSource, "source")
    assert back == source
    assert [type(p.value) for p in back.tables[0].where] == [type(p.value) for p in predicates]
    assert type(back.tables[0].lag) is type(table.lag)
    assert type(back.tables[0].start) is type(table.start)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (date(2026, 1, 1), "2026-01-01"),
        (datetime(2026, 1, 1, 2, 3), "2026-01-01 02:03:00"),  # noqa: DTZ001
        (Decimal("1.50"), "1.50"),
        ([1, date(2026, 1, 1)], (1, "2026-01-01")),
    ],
)
def test_predicate_values_become_plain(given: Any, kept: Any) -> None:
    assert Predicate("a", "in" if isinstance(kept, tuple) else "=", given).value == kept


@pytest.mark.parametrize(
    ("op", "value"),
    [
        ("like", "x"),
        ("=", None),
        ("=", (1, 2)),
        ("in", 1),
        ("in", ()),
        ("is null", 1),
        ("=", float("nan")),
        ("=", 2**63),
        ("=", "a\0b"),
        ("=", b"x"),
    ],
)
def test_predicates_that_can_not_be(op: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="column='a'") as caught:
        Predicate("a", op, value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "append_only needs a delta column"),
        (
            {"kind": "snapshot"},
            r"'snapshot' is not a kind of table. Give one of ExtractKind.SNAPSHOT_ONLY, ExtractKind.APP",
        ),
        ({"kind": None}, "None is not a kind of table"),
        ({"table": ""}, "a name is empty"),
        ({"delta": "a\0"}, "holds a NUL"),
        ({"delta": "d", "columns": ("a", "a")}, "named twice"),
        ({"delta": "d", "casts": {"a": "varchar"}}, r"cast to 'varchar'. Cast it to one of int64, float64"),
        ({"delta": "d", "casts": {"a": "decimal(39,2)"}}, "Cast it to one of"),
        (
            {"delta": "d", "casts": {"a": "rounded string"}},
            "Cast it to one of.*, rounded int64, rounded float64, rounded decimal",
        ),
        ({"delta": "d", "casts": {"a": "rounded decimal(39,2)"}}, "Cast it to one of"),
        ({"delta": "d", "columns": ("b",), "casts": {"a": "string"}}, r"names \['a'\]"),
        ({"delta": "d", "start": 2**63}, "beyond the integers of 64 bits"),
        ({"delta": "d", "start": 5, "kind": ExtractKind.SNAPSHOT_APPEND}, "takes everything"),
        ({"delta": "d", "lag": -1}, "the lag is negative"),
        ({"delta": "d", "lag": timedelta(seconds=-1)}, "the lag is negative"),
        ({"delta": "d", "timezone": "Mars/Olympus"}, "'Mars/Olympus' is not a time zone"),
        ({"delta": "d", "timezone": "../etc"}, "is not a time zone"),
        ({"delta": "d", "unit_bytes": 0}, "above zero"),
        ({"delta": "d", "unit_width": 0}, "`unit_width` is not above zero"),
        ({"delta": "d", "unit_width": timedelta(hours=-1)}, "`unit_width` is not above zero"),
        ({"delta": "d", "unit_width": True}, "`unit_width` is not above zero"),
        ({"delta": "d", "urn": "\ud800"}, "dataset URN"),
    ],
)
def test_tables_that_can_not_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        SqlTable(**{"table": "t", "kind": APPEND} | options)
    assert caught.value.hint


def test_two_tables_with_one_urn_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two tables have the URN 't'"):
        SqlSource("db", (SqlTable("t", ExtractKind.SNAPSHOT_ONLY), SqlTable("x", ExtractKind.SNAPSHOT_ONLY, urn="t")))
