"""Tables in PostgreSQL as a sink declares them: what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.rows.sinks.postgres import PostgresSink


def test_what_it_cannot_be_is_refused() -> None:
    for bad in (
        {"table": "raw.{datset}"},
        {"schema_rule": "widen everything"},
        {"file_bytes": 0},
        {"table": "_gobblin.{dataset}"},
        {"table": "raw." + "x" * 64},
    ):
        with pytest.raises(ConfigurationError):
            PostgresSink(**{"conn_id": "w", "table": "raw.{dataset}", "workspace": "/work"} | bad)


def test_a_column_that_it_cannot_hold_is_refused() -> None:
    sink = PostgresSink("w", "raw.{dataset}", "/work")
    with pytest.raises(SchemaConflictError, match="column 'at'"):
        sink.schema(pa.schema([("at", pa.timestamp("ns"))]), None, "a")
    assert sink.schema(pa.schema([("id", pa.uint32())]), None, "a") == pa.schema([("id", pa.int64())])
