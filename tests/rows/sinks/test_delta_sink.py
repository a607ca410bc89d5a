"""Whole runs of ingestions into Delta tables: appended, replaced, rewound, merged, killed between commit and outcome."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError
from airflow_gobblin.model import wire
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.tables.port import Merge
from tests.lab import Lab
from tests.protocol.rows import Table

A = Table("a", ExtractKind.APPEND_ONLY, 12)
S = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


@pytest.fixture
def new_lab(tmp_path: Path) -> Callable[..., Lab]:
    """Return a function that makes an ingestion into Delta tables."""

    def make(*tables: Table, **options: Any) -> Lab:
        lab = Lab(tmp_path / "work", *tables)
        sink = DeltaSink(str(tmp_path / "lake" / "{dataset}"), str(tmp_path / "work"), **options)
        lab.ingestion = replace(lab.ingestion, sink=sink)
        return lab

    return make


def delta_of(lab: Lab, table: Table) -> DeltaTable:
    sink = lab.ingestion.sink
    assert isinstance(sink, DeltaSink)
    return DeltaTable(sink.location.replace("{dataset}", table.urn))


def rows(lab: Lab, table: Table) -> Counter[str]:
    """Read a table by deltalake, and its files by DuckDB: they agree."""
    delta = delta_of(lab, table)
    found = Counter(row["row"].rstrip(" ") for row in delta.to_pyarrow_table().to_pylist())
    if delta.file_uris():
        read = duckdb.sql(f"select row from read_parquet({delta.file_uris()})").fetchall()
        assert Counter(row.rstrip(" ") for (row,) in read) == found
    return found


def up_to(end: int) -> RunRequest:
    return RunRequest(f"up to {end}", datetime.fromtimestamp(end, UTC))


def test_runs_append_to_a_table_once_each(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    assert lab.run(request=up_to(5))["a"].rows == 5
    assert lab.run()["a"].rows == 7
    version = delta_of(lab, A).version()
    assert lab.run()["a"].status == "idle"
    assert delta_of(lab, A).version() == version
    assert rows(lab, A) == A.all_rows()


def test_a_snapshot_takes_the_place_of_all(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(S)
    lab.run()
    newer = replace(S, version=1, rows=3)
    lab.run(newer)
    assert rows(lab, S) == newer.all_rows()


def test_a_backfill_that_replaces_and_a_rewind_take_units_out_by_one_commit(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A)
    lab.run()
    amended = replace(A, version=1)
    lab.run(amended, request=RunRequest("again", 8, ("a",), 4, True))
    expected = A.all_rows() - Counter(A.row(n) for n in range(4, 8))
    assert rows(lab, A) == expected + Counter(amended.row(n) for n in range(4, 8))
    lab.admin.rewind("a", LongWatermark(0), "read it again")
    assert rows(lab, A) == Counter()
    lab.run()
    assert rows(lab, A) == amended.all_rows()


def test_a_table_is_partitioned(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(A, partition=("row",))
    assert "no column is left" in lab.run()["a"].detail


def test_merged_rows_are_there_once_and_refuse_rewind(new_lab: Callable[..., Lab]) -> None:
    table = replace(A, extract=ExtractKind.SNAPSHOT_APPEND)
    lab = new_lab(table, merge=True)
    lab.run(request=up_to(5))
    lab.run()
    assert rows(lab, table) == table.all_rows()
    with pytest.raises(ConfigurationError, match="merged"):
        lab.admin.rewind("a", LongWatermark(4), "read it again")


@pytest.mark.parametrize("committed", [False, True])
def test_a_run_that_died_before_or_after_its_commit_is_finished_by_the_next(
    new_lab: Callable[..., Lab], committed: bool
) -> None:
    lab = new_lab(A)
    lab.run(request=up_to(4))
    opened, plan = lab.decide(A)
    slot = lab.journal.history("a").pending
    assert slot is not None
    if committed:
        for step in lab.journal.steps(slot.decision):
            step.execute(opened.committer._context_of(slot.decision))
    lab.run()
    assert rows(lab, A) == A.all_rows()
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert rows(lab, A) == A.all_rows()


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


def test_times_are_held_in_microseconds_and_instants_in_utc() -> None:
    planned = pa.schema([("at", pa.timestamp("ms")), ("when", pa.timestamp("s", "Europe/Berlin"))])
    held = DeltaSink("/lake", "/work").schema(planned, None, "d")
    assert held.types == [pa.timestamp("us"), pa.timestamp("us", "UTC")]
