"""Bad input, end to end: an error that names the thing, the expectation and the way out, as early as possible, with
every other dataset and all state as they were.

Bad records are in `test_journal.py`, claims in `test_claims.py`, stores in `stores/test_refused.py`, what databases may hold in
`sources/`, and a missing Spark connection in `spark/test_extract_operator.py`.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pytest

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.admin.export import ExportedDataset, export
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, SourceError, StoreError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, LongWatermark, TimestampWatermark
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, ExtractKind, UnitResult, WorkUnit
from airflow_gobblin.rows.converters.checks import NotNull
from airflow_gobblin.rows.converters.columns import AddColumn, DropColumns, RenameColumns
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, Reader, ReadRequest
from airflow_gobblin.rows.sources.sql import Predicate, SqlSource, SqlTable
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport, incomplete
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.publishing import MoveStep
from airflow_gobblin.storage.files import Files, LocalFiles, contained
from airflow_gobblin.storage.stores import base
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.lab import Lab, stick
from tests.protocol.rows import SCHEMA, LineSink, RowReader, RowSource, Table
from tests.rows.sources.databases import FixedUri, SqliteDatabase

SOURCE = SqlSource("db", tuple(SqlTable(name, ExtractKind.APPEND_ONLY, delta="id") for name in ("good", "shop")))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_PAUSE", 0)


class Tables:
    """Two tables of a real database, and the files that one run published of them."""

    def __init__(self, folder: Path) -> None:
        self.target = folder / "target"
        self.database = SqliteDatabase(folder / "shop.db")
        for name in ("good", "shop"):
            self.database.run(f"CREATE TABLE {name} (id INTEGER, name TEXT)")
            self.database.insert(name, [(n, f"{name} {n}") for n in range(5)])
        self.store = MemoryStore()
        assert set(self.statuses(self.run())) == {"committed"}

    def opened(self, source: SqlSource = SOURCE, **options: Any) -> OpenJob:
        ingestion = Ingestion("bad", source, ParquetSink(str(self.target)), "unused", **options)
        return OpenJob(ingestion, Journal.create(self.store, "bad"), self.database)

    def run(self, source: SqlSource = SOURCE) -> dict[str, DatasetReport]:
        return inprocess.run(self.opened(source), self.database)

    def statuses(self, reports: Mapping[str, DatasetReport]) -> list[str]:
        return [reports[urn].status for urn in ("good", "shop")]

    def look(self, urn: str = "") -> dict[str, bytes]:
        """The journal's records and the published files: of one dataset, or all."""
        files = [p for p in self.target.rglob("*.parquet") if "_gobblin" not in p.parts]
        found = {str(path.relative_to(self.target)): path.read_bytes() for path in files}
        found |= {key: self.store.get(key) or b"" for key in self.store.list("")}
        return {key: data for key, data in found.items() if not urn or f"{urn}/" in key}

    def names(self, urn: str) -> Counter[str]:
        published = Journal.create(self.store, "bad").read_dataset(urn)
        return Counter(published.to_arrow().to_table().column("name").to_pylist())


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def drop_table(db: SqliteDatabase) -> None:
    db.run("DROP TABLE shop")


def rename_delta(db: SqliteDatabase) -> None:
    db.run("ALTER TABLE shop RENAME COLUMN id TO nr")


def null_delta(db: SqliteDatabase) -> None:
    db.insert("shop", [(None, "no position")])


def other_type(db: SqliteDatabase) -> None:
    db.run("DROP TABLE shop", "CREATE TABLE shop (id INTEGER, name REAL)")
    db.insert("shop", [(9, 1.5)])


OTHER_COLUMN = replace(SOURCE, tables=(SOURCE.tables[0], replace(SOURCE.tables[1], delta="nr")))


@pytest.mark.parametrize("way_out", ["go back", "another URN", "drop"])
def test_another_delta_column_of_the_same_kind_stops_its_dataset(tables: Tables, way_out: str) -> None:
    """Its positions are of another axis: rows with a `nr` below the watermark would be lost, and the rest come twice."""
    tables.database.run("ALTER TABLE shop ADD COLUMN nr INTEGER", "UPDATE shop SET nr = id + 3")
    tables.database.insert("shop", [(5, "shop 5", 2)])
    tables.database.insert("good", [(5, "good 5")])

    reports = tables.run(OTHER_COLUMN)

    assert tables.statuses(reports) == ["committed", "failed"]
    _expect(
        reports["shop"].detail,
        "its positions are of column 'id', and its delta column is now 'nr'",
        "Go back to the former delta column, publish it under another URN, or drop the dataset",
    )
    urn, source = "shop", SOURCE
    if way_out == "another URN":
        table = replace(OTHER_COLUMN.tables[1], urn="shop2")
        urn, source = "shop2", replace(SOURCE, tables=(SOURCE.tables[0], table))
    elif way_out == "drop":
        opened, source = tables.opened(), OTHER_COLUMN
        Administration(opened.journal, str(tables.target), "ann").drop("shop", "another column", delete_files=True)
    assert tables.run(source)[urn].status == "committed"
    assert tables.names(urn) == Counter(f"shop {n}" for n in range(6))


def test_the_delta_column_is_known_after_a_rewind_and_a_failed_run(tables: Tables) -> None:
    """Neither leaves a unit of it that is live, or was the last to run."""
    admin = Administration(tables.opened().journal, str(tables.target), "ann")
    admin.rewind("shop", LongWatermark(0), "wrong")
    tables.database.run("ALTER TABLE shop ADD COLUMN nr INTEGER", "UPDATE shop SET nr = id + 3")
    assert "its positions are of column 'id'" in tables.run(OTHER_COLUMN)["shop"].detail
    assert tables.run(SOURCE)["shop"].status == "committed"
    tables.database.insert("shop", [("5", "shop 5", 5)])
    tables.database.run("UPDATE shop SET name = CAST(x'ff' AS TEXT) WHERE id = 5")
    assert tables.run(SOURCE)["shop"].status == "failed"
    assert "its positions are of column 'id'" in tables.run(OTHER_COLUMN)["shop"].detail


def other_delta(db: SqliteDatabase) -> None:
    db.run("DROP TABLE shop", "CREATE TABLE shop (id TIMESTAMP, name TEXT)")
    db.insert("shop", [("2026-01-01 00:00:00", "a")])


@pytest.mark.parametrize(
    ("spoil", "names", "way_out"),
    [
        (drop_table, "no table 'shop'", "There is 'good'"),
        (rename_delta, "no column 'id' in table 'shop'", "There is|Did you mean"),
        (null_delta, "delta column 'id', expected as integer, 1 rows are NULL", "leave them out by the table's `where`"),
        (other_type, "column 'name' was string and is now double", "Cast the columns back in the source's `casts`"),
        (other_delta, "positions are of kind 'long', and its delta column gives 'timestamp'", "Go back to the delta column"),
    ],
)  # fmt: skip
def test_a_table_that_became_bad_stops_alone_before_anything_of_it_is_read(
    tables: Tables, spoil: Callable[[SqliteDatabase], None], names: str, way_out: str
) -> None:
    before = tables.look("shop")
    tables.database.insert("good", [(5, "good 5")])
    spoil(tables.database)

    plan = create_work_units(tables.opened(), RunRequest("early"))
    assert [d.urn for pack in plan.packs for d in pack.datasets] == ["good"], "it is known at planning"
    (note,) = plan.notes
    assert (note.urn, note.status) == ("shop", "failed")

    reports = tables.run()
    assert tables.statuses(reports) == ["committed", "failed"]
    for text in (note.detail, reports["shop"].detail):
        _expect(text, "dataset 'shop'", names, way_out)
    error = incomplete(tables.opened().job, reports.values())
    assert error is not None
    assert "shop: failed" in str(error)
    assert tables.look("shop") == before
    assert tables.names("good") == Counter(f"good {n}" for n in range(6))


def _expect(text: str, *patterns: str) -> None:
    for pattern in patterns:
        assert re.search(pattern, text), f"{pattern!r} is not in {text!r}"


def test_what_became_good_again_goes_on_where_it_was(tables: Tables) -> None:
    null_delta(tables.database)
    assert tables.run()["shop"].status == "failed"
    tables.database.run("UPDATE shop SET id = 7 WHERE id IS NULL")
    assert tables.run()["shop"].rows == 1


def test_nobody_rewinds_past_what_a_table_has_removed(tables: Tables) -> None:
    tables.database.run("DELETE FROM shop WHERE id < 2")
    tables.database.insert("shop", [(5, "shop 5")])
    tables.run()
    before = tables.look()
    admin = Administration(Journal.create(tables.store, "bad"), str(tables.target), "ann")
    with pytest.raises(ConfigurationError, match=r"removed or changed rows since: it had those from 2 on .* from 5 on"):
        admin.rewind("shop", LongWatermark(0), "wrong names")
    assert tables.look() == before
    admin.rewind("shop", LongWatermark(5), "wrong names")
    tables.run()
    assert tables.names("shop") == Counter(f"shop {n}" for n in range(6))


def test_a_new_nullable_column_is_no_conflict(tables: Tables) -> None:
    tables.database.run("ALTER TABLE shop ADD COLUMN price INTEGER")
    tables.database.insert("shop", [(9, "nine", 1)])
    assert tables.run()["shop"].status == "committed"
    assert tables.names("shop")["nine"] == 1


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/shop", "connection 'db' can't be opened"),
        ("sqlite:////nowhere/shop.db", "connection 'db' can't be opened"),
    ],
)
def test_a_database_that_is_out_of_reach_fails_the_planning_which_may_be_tried_again(
    tables: Tables, uri: str, expected: str
) -> None:
    before = tables.look()
    staged = sorted(p for p in tables.target.rglob("*") if p.is_file())
    opened = tables.opened()
    away = OpenJob(opened.job, opened.journal, FixedUri(uri))
    with pytest.raises(SourceError, match=expected) as caught:
        create_work_units(away, RunRequest("run"))
    assert caught.value.retryable
    assert caught.value.hint
    assert "s3cret" not in str(caught.value)
    assert tables.look() == before
    assert sorted(p for p in tables.target.rglob("*") if p.is_file()) == staged
    assert tables.statuses(tables.run()) == ["idle", "idle"]


def test_a_connection_that_is_not_there_is_named(tables: Tables) -> None:
    before = tables.look()
    opened = tables.opened()
    plan = create_work_units(OpenJob(opened.job, opened.journal, NoConnections()), RunRequest("run"))
    assert [n.status for n in plan.notes] == ["failed", "failed"]
    assert all("connection 'db'" in n.detail for n in plan.notes)
    assert plan.packs == ()
    assert tables.look() == before


@pytest.mark.parametrize("options", [{"converters": (DropColumns(("naem",)),)}, {"checks": (NotNull(("naem",)),)}])
def test_a_column_that_a_converter_or_check_misses_is_known_at_planning(
    tables: Tables, options: dict[str, Any]
) -> None:
    before = tables.look()
    tables.database.insert("shop", [(9, "nine")])
    plan = create_work_units(tables.opened(**options), RunRequest("run"))
    (note,) = (n for n in plan.notes if n.status == "failed")
    _expect(note.detail, "'naem'", "id|name")
    assert tables.look() == before


# Targets


def test_a_target_that_is_no_folder_fails_the_planning(tmp_path: Path) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("mine\n")
    lab = Lab(blocker / "target", Table("a", ExtractKind.APPEND_ONLY, 4), Table("b", ExtractKind.APPEND_ONLY, 4))
    before = lab.records()
    with pytest.raises(StoreError, match=f"{blocker}/target.*A file is in the place of a folder: move it away"):
        create_work_units(lab.opened(), RunRequest("run"))
    noted = {key.split("/")[1] for key in lab.records().keys() - before.keys() if "/n/" in key}
    assert lab.records().keys() - before.keys() == {f"lab/{urn}/n/0000000000/000000-unpublished" for urn in noted}
    assert noted == {"a", "b"}
    assert blocker.read_text() == "mine\n"


class Unwritable(LocalFiles):
    """A target that can be read and not written to."""

    number = 0

    def create(self, path: str) -> BinaryIO:
        raise OSError(self.number, os.strerror(self.number), path)


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.EACCES, "The Airflow worker's user must be able to write there"),
        (errno.EROFS, "mounted read-only: mount it for writing"),
        (errno.ENOSPC, "The disk is full: make room"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_a_target_that_cant_be_written_to_fails_the_planning(tmp_path: Path, number: int, way_out: str) -> None:
    lab = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 4), Table("b", ExtractKind.APPEND_ONLY, 4))
    lab.run()
    before, published = lab.records(), lab.published()
    files = Unwritable(tmp_path)
    files.number = number
    grown = RowSource(tuple(Table(urn, ExtractKind.APPEND_ONLY, 8) for urn in "ab"))
    opened = OpenJob(replace(lab.ingestion, source=grown), lab.journal, NoConnections(), files)
    with pytest.raises(StoreError, match=f"{tmp_path}.*{way_out}") as caught:
        create_work_units(opened, RunRequest("run"))
    assert caught.value.retryable
    assert (lab.records(), lab.published()) == (before, published)


@pytest.mark.parametrize("target", ["relative/path", "s3://", "hdfs://host/path"])
def test_a_target_that_is_no_absolute_path_is_refused(target: str) -> None:
    ingestion = Ingestion("i", RowSource(()), LineSink(target), "unused")
    with pytest.raises(ConfigurationError, match=r"Give 'file:///…' or an absolute path|names? a bucket"):
        OpenJob(ingestion, Journal.create(MemoryStore(), "i"), NoConnections())


@pytest.mark.parametrize("same_journal", [True, False])
def test_two_ingestions_on_one_target(tmp_path: Path, same_journal: bool) -> None:
    """The second is stopped at planning, for the dataset that they share; its other one goes on."""
    a, b = (Table(urn, ExtractKind.APPEND_ONLY, 4) for urn in "ab")
    lab = Lab(tmp_path, a)
    lab.run()
    published, records = lab.published(), lab.records()
    store = lab.store if same_journal else MemoryStore()
    second = Ingestion("second", RowSource((a, b)), LineSink(str(tmp_path)), "unused")
    reports = inprocess.run(OpenJob(second, Journal.create(store, "second"), NoConnections()), NoConnections())
    assert (reports["a"].status, reports["b"].status) == ("failed", "committed")
    _expect(
        reports["a"].detail,
        f"dataset 'a' of ingestion 'second' to {tmp_path}/a",
        f"belongs to dataset 'a' of ingestion 'lab' in journal {lab.journal.id}",
        "Give the dataset a target of its own; or, if the other one is gone, `airflow gobblin release-claim`",
    )
    assert {k: v for k, v in lab.published().items() if k.startswith("a/")} == published
    assert {k: v for k, v in lab.records().items() if k in records} == records
    assert not any(key.startswith("second/a/") and "/n/" not in key for key in store.list("")), "no slot is taken"


# Mistakes of authors of code


@dataclass(frozen=True)
class NoRecord(LineSink):
    """Its author forgot `wire.record`."""


def test_a_class_that_is_not_registered_is_refused_when_the_dag_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"NoRecord: the class is not registered. Mark it with @record"):
        Ingestion("i", RowSource(()), NoRecord(str(tmp_path)), "unused")


@record("test.unregistered_steps")
@dataclass(frozen=True)
class StepsOfNoKind(LineSink):
    """Publish dataset `a` by steps that are not registered."""

    def publish(self, plan: Plan, results: Iterable[UnitResult], files: Files) -> Iterator[CommitStep]:
        for step in super().publish(plan, results, files):
            yield (
                _NoKind(**{f.name: getattr(step, f.name) for f in fields(cast(Any, step))}) if plan.urn == "a" else step
            )


class _NoKind(MoveStep):
    pass


def test_a_step_that_is_not_registered_is_known_before_a_slot_is_decided(tmp_path: Path) -> None:
    lab = Lab(tmp_path, *(Table(urn, ExtractKind.APPEND_ONLY, 4) for urn in "ab"), max_packs=1)
    lab.ingestion = replace(lab.ingestion, sink=StepsOfNoKind(str(tmp_path)))
    _, plan = lab.decide()
    written = {r.urn: r for r in write_commit_steps(lab.opened(), plan, plan.packs[0])}
    assert (written["a"].status, written["b"].status) == ("failed", "pending")
    _expect(written["a"].detail, "_NoKind: the class is not registered", "Mark it with @record")
    assert lab.journal.history("a").slots == ()


@record("test.odd_source")
@dataclass(frozen=True)
class OddSource(RowSource):
    """Rows; dataset `a` is planned or read oddly."""

    odd: str = ""

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        plan = super().plan(dataset, states, request, connections)
        first = next(iter(plan.units))
        if dataset.urn == "a" and self.odd == "twice":
            return replace(plan, units=(first, first))
        if dataset.urn == "a" and self.odd == "foreign":
            return replace(plan, units=(replace(first, urn="b"),))
        if dataset.urn == "a" and self.odd == "no number":
            return replace(plan, units=(replace(first, properties={"x": float("nan")}),))
        if dataset.urn == "a" and self.odd == "no JSON":
            return replace(plan, units=(replace(first, properties={"x": object()}),))  # type: ignore[dict-item]
        if dataset.urn == "a" and self.odd == "raises":
            raise KeyError("naem")
        return plan

    def read(self, unit: WorkUnit, schema: Any, request: ReadRequest, connections: Connections) -> Reader:
        reader = LeavingReader if self.odd == "leaves no number" and unit.urn == "a" else RowReader
        return reader(self.table(unit.urn), unit, request.limits)


class LeavingReader(RowReader):
    """Leave something for the next run that can't be kept."""

    @property
    def properties(self) -> Mapping[str, Json]:
        return {"x": float("nan")}


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ("twice", "two units share the id.*a fault of the source's code"),
        ("foreign", "is of another dataset.*a fault of the source's code"),
        ("no number", "ValueError"),
        ("no JSON", "builtins.object: the class is not registered"),
        ("raises", "KeyError: 'naem'"),
        ("leaves no number", "extract unit 'u0' of dataset 'a': ValueError: .*not JSON compliant"),
    ],
)
def test_a_source_that_plans_or_reads_oddly_stops_its_dataset_alone(tmp_path: Path, odd: str, expected: str) -> None:
    lab = Lab(tmp_path, *(Table(urn, ExtractKind.APPEND_ONLY, 4) for urn in "ab"))
    assert isinstance(lab.ingestion.source, RowSource)
    source = OddSource(lab.ingestion.source.tables, odd)
    opened = OpenJob(replace(lab.ingestion, source=source), lab.journal, NoConnections())
    reports = inprocess.run(opened, NoConnections())
    assert (reports["a"].status, reports["b"].status) == ("failed", "committed")
    _expect(reports["a"].detail, expected)
    assert lab.journal.history("a").slots == ()
    assert lab.files("a") == []


def test_every_error_shows_a_way_out_where_a_dag_author_meets_it(tmp_path: Path) -> None:
    source, sink = RowSource(()), LineSink(str(tmp_path))
    made: list[Callable[[], object]] = [
        lambda: Ingestion("", source, sink, "db"),
        lambda: Ingestion("i", source, sink, "db", max_packs=0),
        lambda: Ingestion("i", source, sink, "db", attempts=0),
        lambda: Ingestion("i", source, sink, "db", policy="half"),  # type: ignore[arg-type]
        lambda: WorkUnit("a b", "d"),
        lambda: Predicate("a", "like", "x"),
        lambda: Predicate("a", "in", ()),
        lambda: Predicate("a", "=", float("nan")),
        lambda: SqlTable("t", ExtractKind.APPEND_ONLY),
        lambda: SqlTable("t", ExtractKind.SNAPSHOT_ONLY, timezone="Mars/Olympus"),
        lambda: SOURCE.read(WorkUnit("u0", "unknown"), SCHEMA, ReadRequest(), NoConnections()),
        lambda: ParquetSink("/target", file_bytes=0),
        lambda: RenameColumns({"row": "x", "more": "x"}).schema(SCHEMA.append(pa.field("more", pa.int64()))),
        lambda: AddColumn("row", 1).schema(SCHEMA),
        lambda: contained("../out"),
        lambda: LocalFiles(tmp_path).read("/absolute"),
    ]
    for make in made:
        with pytest.raises(GobblinError) as caught:
            make()
        assert caught.value.hint, str(caught.value)


def test_every_refused_action_shows_a_way_out(tmp_path: Path) -> None:
    gone = Table("gone", ExtractKind.APPEND_ONLY, 4)
    lab = Lab(tmp_path / "lake", Table("a", ExtractKind.APPEND_ONLY, 4), Table("s", ExtractKind.SNAPSHOT_ONLY, 4))
    empty = Lab(tmp_path / "lake").admin
    lab.run()
    lab.admin.set_watermark("new", LongWatermark(20), "it starts there")
    stick(lab, gone)
    lab.ingestion = replace(lab.ingestion, attempts=3)
    lab.decide(Table("left", ExtractKind.APPEND_ONLY, 4))
    admin, nobody = lab.admin, Administration(lab.journal, str(lab.folder), "")
    elsewhere = Administration(lab.journal, str(tmp_path), "ann")
    time = TimestampWatermark.from_json("2026-01-31T12:00:00+00:00")
    published = export(lab.journal, lab.journal.history("a"))
    made: list[Callable[[], object]] = [
        lambda: admin.release("a", "why"),
        lambda: admin.release("a", "why", slot=1),
        lambda: admin.release("a", ""),
        lambda: admin.release("b", "why"),
        lambda: empty.release("a", "why"),
        lambda: nobody.drop("a", "why"),
        lambda: elsewhere.drop("a", "why"),
        lambda: admin.abandon("a", "why"),
        lambda: admin.abandon("left", "why", slot=7),
        lambda: admin.rewind("s", LongWatermark(1), "why"),
        lambda: admin.rewind("a", LongWatermark(-1), "why"),
        lambda: admin.rewind("a", LongWatermark(4), "why"),
        lambda: admin.rewind("a", time, "why"),
        lambda: admin.rewind("new", LongWatermark(5), "why"),
        lambda: admin.rewind("left", LongWatermark(1), "why"),
        lambda: admin.position("s", "1"),
        lambda: admin.position("a", "one"),
        lambda: admin.set_watermark("s", LongWatermark(9), "why"),
        lambda: admin.set_watermark("a", LongWatermark(4), "why"),
        lambda: admin.set_watermark("a", time, "why"),
        lambda: admin.set_watermark("new", LongWatermark(5), "why"),
        lambda: admin.set_watermark("gone", LongWatermark(9), "why"),
        lambda: admin.drop("gone", "why"),
        lambda: admin.import_state(ExportedDataset("a", LongWatermark(9)), "why"),
        lambda: admin.import_state(replace(published, urn="c"), "why"),
        lambda: admin.release_claim("nowhere", "why"),
    ]
    before = lab.records()
    for make in made:
        with pytest.raises(GobblinError) as caught:
            make()
        assert caught.value.hint, str(caught.value)
    assert lab.records() == before
