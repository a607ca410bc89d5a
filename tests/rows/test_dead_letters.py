"""Dead letters: refused rows are kept beside the dataset and published by the same slot; no reader takes them for data."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.admin.views import FileState, audit, list_slots, verify
from airflow_gobblin.cli.showing import slot_row
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.events.publication import publication
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.dead_letters import FOLDER
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.converters.base import OnBadRow, RowCheck
from airflow_gobblin.rows.converters.checks import Matches
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.protocol.rows import RowSource, Table
from tests.rows.sources.databases import DATABASES, Database, empty_database

URN = "planes"
EVEN = Matches("row", ".*[02468]", OnBadRow.DEAD_LETTER)
NONE = Matches("row", "nothing", OnBadRow.DEAD_LETTER)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return empty_database(request, tmp_path)


class Lake:
    """An ingestion of one dataset whose rows are `planes/0`, `planes/1` …; a unit has four."""

    def __init__(self, folder: Path, rows: int = 10, **options: Any) -> None:
        self.folder = folder
        layout = options.pop("layout", Layout.FLAT)
        options = {"checks": (EVEN,), "retention": timedelta(0), **options}
        sink = ParquetSink(str(folder), layout=layout)
        self.job = Ingestion("flights", self.source(rows), sink, "unused", **options)
        self.journal = Journal.create(MemoryStore(), self.job.name)

    def source(self, rows: int) -> RowSource:
        return RowSource((Table(URN, ExtractKind.APPEND_ONLY, rows),))

    @property
    def opened(self) -> OpenJob:
        return inprocess.open_job(self.job, journal=self.journal)

    def run(self, rows: int | None = None, request: RunRequest | None = None, **changes: Any) -> DatasetReport:
        source = self.job.source if rows is None else self.source(rows)
        self.job = replace(self.job, source=source, **changes)
        return inprocess.run(self.opened, request=request)[URN]

    @property
    def rows(self) -> list[Any]:
        return sorted(self.journal.read_dataset(URN).to_arrow().to_table()["row"].to_pylist())

    @property
    def letters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.journal.read_dead_letters(URN).to_arrow().to_table().to_pylist()
        return found

    @property
    def refused(self) -> list[str]:
        return sorted(json.loads(letter["row"])["row"] for letter in self.letters)

    @property
    def files(self) -> LocalFiles:
        return LocalFiles(self.folder)

    def on_disk(self) -> list[str]:
        """The dead letters that are there."""
        return [path for path in self.files.walk(URN) if f"/{FOLDER}/" in path]

    def expect_sound(self) -> None:
        """Expect `verify` and `audit` to find everything as recorded in the journal."""
        assert {one.state for one in verify(self.journal, self.files, URN)} <= {FileState.OK}
        assert [one for one in audit(self.journal, self.files) if one.level == "problem"] == []


def named(*numbers: int) -> list[str]:
    return sorted(f"{URN}/{n}" for n in numbers)


@pytest.mark.parametrize("layout", Layout)
def test_refused_rows_are_kept_with_the_reason_and_no_reader_sees_them(tmp_path: Path, layout: Layout) -> None:
    lake = Lake(tmp_path, layout=layout)
    report = lake.run()
    assert (report.status, report.rows, report.text) == (Status.COMMITTED, 5, "slot 1: 5 dead letters")
    assert lake.rows == named(0, 2, 4, 6, 8)
    assert lake.refused == named(1, 3, 5, 7, 9)
    letter = min(lake.letters, key=lambda one: str(one["row"]))
    assert letter == {
        "unit": "u0",
        "refused_by": "matches",
        "reason": repr(EVEN),
        "position": '{"row": 1}',
        "row": '{"row": "planes/1"}',
        "raw": None,
    }
    of_a_folder = ds.dataset(str(tmp_path / URN), format="parquet").to_table()
    assert sorted(of_a_folder["row"].to_pylist()) == lake.rows, "a reader of the folder passes over them, too"
    assert len(lake.on_disk()) == 3
    lake.expect_sound()
    history = lake.journal.history(URN)
    (slot,) = list_slots(history)
    assert (slot.rows, slot.dead_letters, slot.rows_read) == (5, 5, 10)
    assert slot_row(slot)["dead_letters"] == publication("flights", history.slot(1), None).dead_letters == 5


def test_a_unit_of_bad_rows_only_is_published(tmp_path: Path) -> None:
    lake = Lake(tmp_path, checks=(NONE,))
    assert lake.run().status is Status.COMMITTED
    assert (lake.rows, lake.refused) == ([], named(*range(10)))
    assert lake.journal.state(URN).watermark == LongWatermark(10)
    assert lake.run(12).status is Status.COMMITTED
    assert lake.refused == named(*range(12))
    lake.expect_sound()


def test_a_backfill_that_replaces_reads_them_again(tmp_path: Path) -> None:
    """The rule was wrong: with the right one, the rows are data, and the dead letters go with the units that had them."""
    lake = Lake(tmp_path)
    lake.run()
    before = lake.on_disk()
    request = RunRequest("again", 10, (URN,), 0, replace=True)
    assert (
        lake.run(request=request, checks=(Matches("row", ".*[^3]", OnBadRow.DEAD_LETTER),)).status is Status.COMMITTED
    )
    assert (lake.rows, lake.refused) == (named(0, 1, 2, 4, 5, 6, 7, 8, 9), named(3))
    lake.run(11)
    assert {*before}.isdisjoint(lake.on_disk()), "replaced files are removed after their retention"
    lake.expect_sound()


def test_a_rewind_takes_them_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run()
    Administration(lake.journal, lake.files, "ann").rewind(URN, LongWatermark(4), "the rule was wrong")
    assert lake.refused == named(1, 3)
    lake.run()
    assert (lake.rows, lake.refused) == (named(0, 2, 4, 6, 8), named(1, 3, 5, 7, 9))
    lake.expect_sound()


def test_missing_dead_letters_are_found(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run()
    (tmp_path / lake.on_disk()[0]).unlink()
    assert [one.state for one in verify(lake.journal, lake.files, URN)].count(FileState.MISSING) == 1
    assert any(FOLDER in one.detail for one in audit(lake.journal, lake.files) if one.level == "problem")


def test_a_manifest_lists_no_dead_letters(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run()
    (path,) = (path for path in lake.files.walk("_gobblin/manifests") if path.endswith(".json"))
    manifest = json.loads(lake.files.read(path))
    assert len(manifest["added"]) == 3
    assert FOLDER not in json.dumps(manifest)


# --- Converters and bounds that refuse -----------------------------------------------------------------------------------------


@record("test.to_number")
@dataclass(frozen=True)
class ToNumber:
    """A converter that can't convert every row."""

    on_bad: OnBadRow = OnBadRow.DEAD_LETTER
    at_most: int | float | None = None

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        return pa.schema([pa.field("row", pa.int64(), nullable=False)])

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.match_substring_regex(batch["row"], "/[0-4]$")

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = pc.cast(pc.replace_substring(batch["row"], f"{URN}/", ""), pa.int64())
        return pa.RecordBatch.from_arrays([numbers], schema=self.schema(batch.schema))


def test_a_converter_may_refuse_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path, converters=(ToNumber(),), checks=())
    assert lake.run().text == "slot 1: 5 dead letters"
    assert (lake.rows, lake.refused) == ([0, 1, 2, 3, 4], named(5, 6, 7, 8, 9))
    assert {letter["refused_by"] for letter in lake.letters} == {"test.to_number"}
    assert {letter["position"] for letter in lake.letters} == {json.dumps({"row": n}) for n in range(4)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"checks": (replace(EVEN, at_most=1),)}, "2 of its 4 rows fail the check Matches"),
        ({"checks": (replace(EVEN, at_most=0.49),)}, "at most 49 % may be dead letters"),
        ({"checks": (), "converters": (ToNumber(at_most=2),)}, "3 of its 4 rows fail the check ToNumber"),
        ({"checks": (), "converters": (ToNumber(OnBadRow.FAIL),)}, "the first is row 1 of the unit"),
    ],
)
def test_above_its_bound_a_unit_fails_and_leaves_nothing(tmp_path: Path, options: Any, expected: str) -> None:
    lake = Lake(tmp_path, **options)
    report = lake.run()
    assert report.status is Status.FAILED
    assert expected in report.text
    assert lake.on_disk() == []
    assert lake.run(checks=(replace(EVEN, at_most=0.5),), converters=()).status is Status.COMMITTED


def test_a_row_that_two_checks_refuse_is_one_dead_letter(tmp_path: Path) -> None:
    dropped = Matches("row", ".*[^1]", OnBadRow.DROP)
    lake = Lake(tmp_path, checks=(dropped, EVEN, NONE))
    lake.run()
    assert lake.rows == []
    assert lake.refused == named(0, *range(2, 10)), "row 1 was dropped before"
    assert {one["refused_by"] for one in lake.letters} == {"matches"}
    lake.expect_sound()


def test_a_bound_needs_a_check_that_leaves_out_rows() -> None:
    assert replace(EVEN, at_most=3).at_most == 3
    with pytest.raises(ConfigurationError, match="it leaves out no rows"):
        Matches("row", "x", OnBadRow.FAIL, 3)


@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_what_a_driver_cant_read_fails_its_unit_and_as_text_it_is_a_dead_letter(
    database: Database, tmp_path: Path
) -> None:
    bad = "infinity" if database.kind == "postgres" else "20260101"
    database.run("CREATE TABLE visits (id INTEGER PRIMARY KEY, day DATE)")
    database.insert("visits", [(1, "2026-01-01"), (2, bad), (3, "2026-01-03")])
    check = Matches("day", r"\d{4}-\d\d-\d\d", OnBadRow.DEAD_LETTER)

    def run(table: SqlTable, checks: tuple[RowCheck, ...] = ()) -> tuple[OpenJob, DatasetReport]:
        source = SqlSource("db", (table,))
        sink = ParquetSink(str(tmp_path / f"lake{len(checks)}"))
        opened = inprocess.open_job(Ingestion("shop", source, sink, "unused", checks=checks), database)
        return opened, inprocess.run(opened, database)["visits"]

    table = SqlTable("visits", ExtractKind.APPEND_ONLY, delta="id", primary_keys=("id",))
    opened, report = run(table)
    assert (report.status, opened.journal.state("visits").live) == (Status.FAILED, {})
    assert "row 2 of the unit (id=2)" in report.detail
    opened, report = run(replace(table, casts={"day": "string"}), (check,))
    assert report.text == "slot 1: 1 dead letter"
    (letter,) = opened.journal.read_dead_letters("visits").to_arrow().to_table().to_pylist()
    assert json.loads(letter["row"]) == {"id": 2, "day": bad}
