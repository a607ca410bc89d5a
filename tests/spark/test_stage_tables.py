"""Stages whose rows go to a table, on a real Spark: made, restored after a rewind upstream, killed between commit and outcome."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_gobblin import ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, Stage
from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.admin.findings import AuditLevel
from airflow_gobblin.admin.views import audit, list_slots
from airflow_gobblin.errors import NotFoundError, TableError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.testing import inprocess
from tests.proofs import one_in
from tests.protocol.rows import RowSource, Table
from tests.spark.test_stages import run_stage
from tests.tables.formats import Format, Postgres, format_of

pytestmark = one_in(3, "tabled")

CODE = ("tests.spark.acme_stages",)


class Tabled:
    """A dataset, and a stage of it whose rows are in a table; numbers that are odd are a channel of files."""

    def __init__(self, spark: SparkSession, folder: Path, form: Format) -> None:
        self.spark, self.folder, self.format = spark, folder, form
        self.connections = SparkConnections(form.uris)
        self.rows, self.revision, self.runs = 0, 0, 0

    @property
    def journal(self) -> str:
        return f"file://{self.folder}/journal"

    @property
    def pipeline(self) -> Pipeline:
        source = RowSource((Table("a", ExtractKind.APPEND_ONLY, self.rows, self.revision),))
        raw = Ingestion("raw", source, ParquetSink(f"{self.folder}/raw"), self.journal, retention=timedelta(0))
        sink = self.format.sink(f"{self.folder}/work")
        stage = Stage("split", Frame("acme.split"), {"rows": raw["a"]}, sink, channels=("odd",), retention=timedelta(0))
        return Pipeline("flights", (raw, stage), self.journal, CODE)

    def opened(self, name: str) -> OpenJob:
        import_kinds(CODE)
        return inprocess.open_job(self.pipeline[name], self.connections, Journal.create(self.journal, name))

    def grow(self, rows: int) -> None:
        self.rows += rows
        end = datetime.fromtimestamp(self.rows, UTC)
        inprocess.run(self.opened("raw"), request=RunRequest(f"raw/{end}", end, version=end))

    def run(self) -> DatasetReport:
        self.runs += 1
        return run_stage(self.spark, self.opened("split"), RunRequest(f"split/{self.runs}"), CODE, self.connections)

    def rewind(self, to: int) -> None:
        self.revision += 1
        admin = Administration(Journal.open(self.journal, "raw", write=True), f"{self.folder}/raw", "ann")
        admin.rewind("a", LongWatermark(to), "the rows were wrong")

    def table(self) -> Counter[str]:
        """The rows of the table, as a reader outside gets them."""
        return Counter(self.format.rows("split", "name"))

    def of_the_source(self) -> Counter[str]:
        rows = Journal.open(self.journal, "raw").read_dataset("a").to_arrow().to_table().to_pylist()
        return Counter(row["row"].upper() for row in rows)

    def check(self) -> None:
        """The table and the channel have what one pass over the source gives, and the journal agrees."""
        split = Journal.open(self.journal, "split")
        odd = split.read_dataset("split", channel="odd").to_arrow().to_table().to_pylist()
        rows = self.of_the_source()
        assert self.table() == Counter({row: count for row, count in rows.items() if number(row) % 2 == 0})
        assert Counter(row["name"] for row in odd) == Counter({row: n for row, n in rows.items() if number(row) % 2})
        read = split.read_dataset("split").to_arrow(self.connections).to_table().to_pylist()
        assert Counter(row["name"] for row in read) == self.table()
        found = [*audit(split, self.opened("split").files, connections=self.connections)]
        assert [one for one in found if one.level is AuditLevel.PROBLEM] == []

    def actions(self) -> list[Action]:
        return [slot.decision.action for slot in Journal.open(self.journal, "split").history("split").slots]


def number(row: str) -> int:
    return int(row.rstrip(" ").rpartition("/")[2])


@pytest.fixture(params=["delta", "iceberg", "postgres"])
def tabled(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Tabled:
    return Tabled(spark, tmp_path, format_of(request.param, tmp_path / "tables", request.getfixturevalue))


def test_versions_go_to_a_table_and_come_back_after_a_rewind_upstream(tabled: Tabled) -> None:
    for rows in (6, 4):
        tabled.grow(rows)
    assert tabled.run().status == "committed"
    tabled.check()
    tabled.rewind(8)
    tabled.grow(2)
    assert tabled.run().status == "committed"
    tabled.check()
    assert tabled.actions() == [Action.COMMIT, Action.COMMIT, Action.REWIND, Action.COMMIT]
    assert tabled.run().status == "idle"
    journal = Journal.open(tabled.journal, "split")
    views = list_slots(journal.history("split"))
    assert {bool(view.table) for view in views} == {True}
    first = journal.history("split").state.checkpoints[1].version
    if not tabled.format.has_versions:
        with pytest.raises(NotFoundError):
            journal.read_dataset("split", version=first)
    else:
        old = journal.read_dataset("split", version=first).to_arrow(tabled.connections).to_table()
        assert old.num_rows == 3


def test_a_version_that_died_between_its_commit_and_its_outcome_is_finished_by_the_next_run(tabled: Tabled) -> None:
    tabled.grow(6)
    opened, request = tabled.opened("split"), RunRequest("split/dies")
    plan = create_work_units(opened, request)
    (pack,) = plan.packs
    run_pack(tabled.spark, opened.files.root, opened.staging.folder, plan.run, pack.index, CODE, tabled.connections)
    write_commit_steps(opened, plan, pack)
    slot = opened.journal.history("split").pending
    assert slot is not None
    for step in opened.journal.steps(slot.decision):
        step.execute(opened.committer._context_of(slot.decision))
    tabled.run()
    tabled.check()
    assert tabled.actions() == [Action.COMMIT]


def test_the_data_files_of_a_first_version_that_lost_are_swept(tabled: Tabled) -> None:
    """When it was planned there was no table, and so no place of data files."""
    if not tabled.format.has_files:
        return
    tabled.grow(6)
    runs = [(opened := tabled.opened("split"), create_work_units(opened, RunRequest(f"split/{n}"))) for n in range(2)]
    for opened, plan in runs:
        run_pack(tabled.spark, opened.files.root, opened.staging.folder, plan.run, 0, CODE, tabled.connections)
    data = tabled.folder / "tables"
    assert len([*data.glob("**/data/gobblin/*")]) == 2
    for opened, plan in runs:
        inprocess.publish(opened, plan, opened.connections)
        finish(opened, plan)
    (left,) = data.glob("**/data/gobblin/*")
    assert left.name == Journal.open(tabled.journal, "split").history("split").slots[0].decision.token
    tabled.check()


def test_a_table_with_other_columns_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, postgres_database: str
) -> None:
    database = Postgres(postgres_database)
    tabled = Tabled(spark, tmp_path, database)
    tabled.grow(6)
    tabled.run()
    database.sql("ALTER TABLE raw.split DROP COLUMN name")
    tabled.grow(2)
    report = tabled.run()
    assert report.status == "failed"
    assert "gives column name" in report.detail
    assert tabled.actions() == [Action.COMMIT]


def test_a_table_that_is_gone_is_not_made_anew_beside_versions_that_were_in_it(tabled: Tabled) -> None:
    tabled.grow(6)
    tabled.run()
    tabled.format.drop("split")
    with pytest.raises(TableError, match="is gone"):
        tabled.run()  # with nothing new, too
    tabled.grow(2)
    with pytest.raises(TableError, match="is gone"):
        tabled.run()
