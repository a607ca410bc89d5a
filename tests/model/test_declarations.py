"""One value where several are expected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_gobblin import (
    DropColumns,
    Ingestion,
    KafkaSource,
    Mirror,
    NotNull,
    ParquetSink,
    SqlSource,
    SqlTable,
)
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.work import ExtractKind

TABLE = SqlTable("t", ExtractKind.SNAPSHOT_ONLY)


def ingestion(**given: object) -> Ingestion:
    return Ingestion("shop", SqlSource("db", (TABLE,)), ParquetSink("/lake"), "/journal", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "refused", "hint"),
    [
        (lambda: NotNull("id"), "columns='id' of NotNull: it is not a tuple", "Write columns=('id',)."),  # type: ignore[arg-type]
        (lambda: DropColumns("id"), "columns='id' of DropColumns", "Write columns=('id',)."),  # type: ignore[arg-type]
        (lambda: ParquetSink("/lake", partition="day"), "partition='day' of ParquetSink", "Write partition=('day',)."),  # type: ignore[arg-type]
        (lambda: KafkaSource("kafka", ("a",), exclude="b"), "exclude='b' of KafkaSource", "Write exclude=('b',)."),  # type: ignore[arg-type]
        (lambda: SqlTable("t", TABLE.kind, columns="id"), "columns='id' of SqlTable", "Write columns=('id',)."),  # type: ignore[arg-type]
        (lambda: SqlSource("db", TABLE), "tables=… of SqlSource: a SqlTable is not a tuple", "Write tables=(…,)."),  # type: ignore[arg-type]
        (lambda: ingestion(code="acme"), "code='acme' of Ingestion", "Write code=('acme',)."),
        (lambda: ingestion(checks=NotNull(("id",))), "checks=… of Ingestion: a NotNull is", "Write checks=(…,)."),
        (lambda: Mirror("m", "/a", "/b", "/j", code="acme"), "code='acme' of Mirror", "Write code=('acme',)."),  # type: ignore[arg-type]
    ],
)
def test_one_value_is_not_taken_for_several(made: Callable[[], object], refused: str, hint: str) -> None:
    """The letters of a text would be columns, modules or topics."""
    with pytest.raises(ConfigurationError) as raised:
        made()
    assert refused in str(raised.value)
    assert str(raised.value).endswith(hint)
