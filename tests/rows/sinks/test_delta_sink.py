"""Delta tables as a sink declares them, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.model import wire
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.tables.port import Merge
from tests.protocol.rows import Table
from tests.tables.formats import Delta
from tests.tables.labs import TableLab


def test_a_table_has_columns_besides_those_of_its_partition(tmp_path: Path) -> None:
    lab = TableLab(tmp_path / "work", Delta(tmp_path / "lake"), Table("a", ExtractKind.APPEND_ONLY, 12))
    lab.declare(partition=("row",))
    assert "no column is left" in lab.run()["a"].detail


def test_the_page_on_sinks_declares_sinks_that_can_be() -> None:
    page = Path("docs/sinks.md").read_text()
    (code,) = re.findall(r"<!-- test: delta -->\n```python\n(.*?)```", page, re.DOTALL)
    made: dict[str, Any] = {}
    exec(code, made)
    assert made["sink"].partition == ("country",)
    assert made["merging"].merge is True


def test_a_record_of_it_crosses_processes() -> None:
    sink = DeltaSink("s3://lake@bucket/{dataset}", "/work", ["a"], Merge(("b",), "c"), {"d": "add"})  # type: ignore[arg-type, dict-item]
    assert wire.loads(wire.dumps(sink), DeltaSink, "it") == sink


@pytest.mark.parametrize(
    "options",
    [{"file_bytes": 0}, {"location": "/lake/{datset}"}, {"partition": ("a", "a")}, {"location": "relative"}],
    ids=str,
)
def test_what_can_not_be_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        DeltaSink(**{"location": "/lake", "workspace": "/work", **options})


@pytest.mark.parametrize("kind", [pa.uint8(), pa.time32("s"), pa.timestamp("ns"), pa.duration("s")], ids=str)
def test_columns_that_delta_does_not_hold_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(SchemaConflictError, match="column 'bad'"):
        DeltaSink("/lake", "/work").schema(pa.schema([("good", pa.int64()), ("bad", kind)]), None, "d")


def test_a_column_to_sort_by_that_is_not_there_is_refused_by_name() -> None:
    sink = DeltaSink("/lake", "/work", sort=("at",))
    with pytest.raises(SchemaConflictError, match=r"column 'at' of dataset 'd'.*sorted by it"):
        sink.schema(pa.schema([("id", pa.int64())]), None, "d")
    assert sink.schema(pa.schema([("at", pa.int64())]), None, "d").names == ["at"]


def test_times_are_held_in_microseconds_and_instants_in_utc() -> None:
    planned = pa.schema([("at", pa.timestamp("ms")), ("when", pa.timestamp("s", "Europe/Berlin"))])
    held = DeltaSink("/lake", "/work").schema(planned, None, "d")
    assert held.types == [pa.timestamp("us"), pa.timestamp("us", "UTC")]
