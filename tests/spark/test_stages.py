"""Stages of a pipeline on a real Spark: a diamond of PySpark functions and SQL, and what a rewind of its source brings about."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_gobblin import ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, Sql, Stage, State
from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import EnvironmentMismatchError, NotFoundError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.naming import dataset_id
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.replan import decide_and_plan_again
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark import pack
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.spark.ship import ship
from airflow_gobblin.stage import StageJob
from airflow_gobblin.stages.ddl import columns_of
from airflow_gobblin.stages.evaluation import _as_arrow
from airflow_gobblin.stages.functions import StageFunction
from airflow_gobblin.stages.outputs import Output
from airflow_gobblin.stages.views import versions_of
from airflow_gobblin.testing import inprocess
from tests.protocol.rows import RowSource, Table
from tests.services.environment import ROOT
from tests.stages.totals import Totals
from tests.test_docs import BLOCK

CODE = ("tests.spark.acme_stages",)
NUMBERED = Frame("acme.numbered")
NUMBER = r"cast(regexp_extract({}.row, '(\\d+)$', 1) AS int)"
JOIN = (
    f"SELECT {NUMBER.format('a')} AS number, concat(a.row, '+', coalesce(b.row, '-')) AS pair "
    f"FROM {{a}} a LEFT JOIN {{b}} b ON {NUMBER.format('a')} = {NUMBER.format('b')}"
)


class Diamond:
    """Two datasets; a stage of one, a query of both; and one of these two."""

    def __init__(self, spark: SparkSession, folder: Path, one: StageFunction = NUMBERED) -> None:
        self.spark, self.folder = spark, folder
        self.rows = {"a": 0, "b": 0}
        self.revision, self.runs = 0, 0
        self.one = one

    @property
    def journal(self) -> str:
        return f"file://{self.folder}/journal"

    @property
    def pipeline(self) -> Pipeline:
        tables = tuple(Table(urn, ExtractKind.APPEND_ONLY, rows, self.revision) for urn, rows in self.rows.items())
        raw = Ingestion("raw", RowSource(tables), self.sink("raw"), self.journal, retention=timedelta(0))
        one = Stage("one", self.one, {"rows": raw["a"]}, self.sink("one"), retention=timedelta(0))
        two = Stage("two", Sql(JOIN), {"a": raw["a"], "b": raw["b"]}, self.sink("two"), retention=timedelta(0))
        both = Stage("both", Frame("acme.both"), {"one": one, "two": two}, self.sink("both"), retention=timedelta(0))
        return Pipeline("flights", (both, raw, one, two), self.journal, CODE)

    def sink(self, name: str) -> ParquetSink:
        return ParquetSink(f"{self.folder}/{name}")

    def opened(self, name: str) -> OpenJob:
        import_kinds(CODE)
        return inprocess.open_job(self.pipeline[name], journal=Journal.create(self.journal, name))

    def grow(self, a: int, b: int) -> None:
        """A scheduled run of the source, which seals what it comes to."""
        self.rows = {"a": self.rows["a"] + a, "b": self.rows["b"] + b}
        end = datetime.fromtimestamp(max(self.rows.values()), UTC)
        inprocess.run(self.opened("raw"), request=RunRequest(f"raw/{end}", end, version=end))

    def run(self, name: str) -> DatasetReport:
        """A run of a stage, whose versions are made on Spark, one after another."""
        self.runs += 1
        return run_stage(self.spark, self.opened(name), RunRequest(f"{name}/{self.runs}"), CODE)

    def rest(self) -> None:
        """Run every stage until none has anything to do."""
        for _ in range(6):
            found = [self.run(name).status for name in ("one", "two", "both")]
            if found == ["idle"] * 3:
                return
            assert {*found} <= {"idle", "committed"}
        raise AssertionError("they don't come to rest")

    def rewind(self, urn: str, to: int) -> None:
        """The source has other rows from now on, and those from a position on are taken back."""
        self.revision += 1
        admin = Administration(Journal.open(self.journal, "raw", write=True), f"{self.folder}/raw", "ann")
        admin.rewind(urn, LongWatermark(to), "the rows were wrong")

    def table(self, name: str, urn: str | None = None) -> list[dict[str, Any]]:
        found = Journal.open(self.journal, name).read_dataset(urn or name)
        rows: list[dict[str, Any]] = found.to_arrow().to_table().to_pylist()
        assert len(rows) == found.rows
        return rows

    def check(self) -> None:
        """One pass in plain Python over what the source published gives the same, and evaluations fit each other."""
        a, b = (sorted(row["row"] for row in self.table("raw", urn)) for urn in "ab")
        of_b = {number(row): row for row in b}
        one = {number(row): row.upper() for row in a}
        two = {number(row): f"{row}+{of_b.get(number(row), '-')}" for row in a}
        made = self.table("both")
        assert Counter((row["number"], row["name"]) for row in self.table("one")) == Counter(one.items())
        assert Counter((row["number"], row["pair"]) for row in self.table("two")) == Counter(two.items())
        both = Counter((row["number"], row["name"], row["pair"]) for row in made)
        assert both == Counter((key, one[key], two[key]) for key in one)
        assert {row["one_by"] for row in made} == {row["made_by"] for row in self.table("one")}


def run_stage(
    spark: SparkSession,
    opened: OpenJob,
    request: RunRequest,
    code: tuple[str, ...],
    connections: SparkConnections | None = None,
) -> DatasetReport:
    """Carry out a run of a stage, whose versions are made on Spark, one after another."""
    verify_recover(opened, request)
    plan, root = create_work_units(opened, request), opened.files.root
    while plan.packs:
        (pack,) = plan.packs
        given = connections or SparkConnections({})
        run_pack(spark, root, opened.staging.folder, plan.run, pack.index, code, given)
        if not decide_and_plan_again(opened, request, plan, pack):
            write_commit_steps(opened, plan, pack)
            execute_commit_steps(opened, plan, pack)
            break
        plan = opened.staging.run(plan.run) or plan
    (report,) = finish(opened, plan)
    return report


def number(row: str) -> int:
    return int(row.rpartition("/")[2])


@pytest.fixture
def diamond(spark: SparkSession, tmp_path: Path) -> Diamond:
    return Diamond(spark, tmp_path)


def test_a_diamond_gives_what_one_pass_in_python_does_and_follows_a_rewind(diamond: Diamond) -> None:
    diamond.grow(6, 6)
    diamond.grow(4, 4)
    diamond.rest()
    diamond.check()
    before = {row["made_by"] for row in diamond.table("one")}
    assert len(before) == 2, "each version is evaluated once"
    diamond.rewind("a", 8)
    diamond.rest()
    diamond.grow(2, 2)
    diamond.rest()
    diamond.check()
    assert len(before & {row["made_by"] for row in diamond.table("one")}) == 1, "the first version is as it was"
    actions = [slot.decision.action for slot in Journal.open(diamond.journal, "both").history("both").slots]
    assert actions == [Action.COMMIT, Action.COMMIT, Action.REWIND, Action.COMMIT]


def test_a_version_without_rows_of_an_input_is_made_with_its_columns(diamond: Diamond) -> None:
    diamond.grow(4, 4)
    diamond.grow(2, 0)
    diamond.rest()
    diamond.check()
    assert [row["pair"] for row in diamond.table("two") if row["number"] == 5] == ["a/5+-"]


def test_a_stage_waits_for_an_input_that_has_published_nothing_yet(diamond: Diamond) -> None:
    diamond.grow(4, 0)
    assert diamond.run("two").status == "idle"
    assert diamond.run("one").status == "committed"
    diamond.grow(0, 6)
    diamond.rest()
    assert len(diamond.table("two")) == 4


def test_an_input_of_several_producers_has_the_rows_of_all(diamond: Diamond) -> None:
    diamond.grow(4, 2)
    raw = diamond.pipeline["raw"]
    assert isinstance(raw, Ingestion)
    both = Stage("all", Sql("SELECT row FROM {rows}"), {"rows": (raw["a"], raw["b"])}, diamond.sink("all"))
    mixed = Stage("mixed", NUMBERED, {"rows": (raw["a"], both)}, diamond.sink("mixed"))
    pipeline = Pipeline("several", (raw, both, mixed), diamond.journal, CODE)
    for name in ("all", "mixed"):
        opened = inprocess.open_job(pipeline[name], journal=Journal.create(diamond.journal, name))
        assert run_stage(diamond.spark, opened, RunRequest(name), CODE).status == "committed"
    rows = [f"a/{n}" for n in range(4)] + [f"b/{n}" for n in range(2)]
    assert sorted(row["row"] for row in diamond.table("all")) == rows
    assert sorted(row["name"].lower() for row in diamond.table("mixed")) == sorted(rows + rows[:4])


def test_other_columns_than_before_are_refused_and_nothing_is_published(spark: SparkSession, tmp_path: Path) -> None:
    diamond = Diamond(spark, tmp_path, Frame("acme.fickle"))
    diamond.grow(4, 4)
    assert diamond.run("one").status == "committed"
    diamond.grow(6, 6)
    report = diamond.run("one")
    assert report.status == "failed"
    assert "its function gives row string, more string, and gave row string" in report.detail
    assert len(diamond.table("one")) == 4
    assert "or drop it, with its files, and it makes all versions again" in report.detail
    admin = Administration(Journal.open(diamond.journal, "one", write=True), f"{tmp_path}/one", "ann")
    for change in admin.would_drop_all(delete_files=True):
        admin.carry_out(change, "it has other columns now")
    diamond.one = Sql("SELECT row, 'text' AS more FROM {rows}")
    assert diamond.run("one").status == "committed"
    assert {*diamond.table("one")[0]} == {"row", "more"}


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (
            Sql("SELECT row, 'text' AS more FROM {rows}"),
            "its function gives row string, more string, and gave row string",
        ),
        (Frame("acme.numbered"), "its function gives name string, number int32, made_by string, and gave row string"),
        (Sql("SELECT upper(row) AS row FROM {rows}"), "raw/a/.*parquet"),
    ],
    ids=["a query of other columns", "a function of other columns", "the same columns"],
)
def test_other_columns_are_refused_before_a_file_is_read(
    spark: SparkSession, tmp_path: Path, function: StageFunction, cause: str
) -> None:
    diamond = Diamond(spark, tmp_path, Sql("SELECT row FROM {rows}"))
    diamond.grow(4, 4)
    assert diamond.run("one").status == "committed"
    before = {*tmp_path.glob("raw/a/*.parquet")}
    diamond.grow(6, 6)
    for path in {*tmp_path.glob("raw/a/*.parquet")} - before:
        path.write_bytes(b"a reader of this fails")
    diamond.one = function
    report = diamond.run("one")
    assert report.status == "failed"
    assert re.search(cause, report.detail), report.detail


def test_what_executors_have_is_looked_at_only_if_a_version_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = EnvironmentMismatchError(operation="run", subject="Python", cause="no module 'acme'", hint="Install it.")
    monkeypatch.setattr(pack, "probe_executors", lambda *_: found)
    diamond = Diamond(spark, tmp_path)
    diamond.grow(4, 4)
    assert diamond.run("one").status == "committed"
    diamond.grow(6, 6)
    diamond.one = Frame("acme.broken")
    with pytest.raises(EnvironmentMismatchError, match="no module 'acme'"):
        diamond.run("one")


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (Frame("acme.nothing"), "its function gives a NoneType"),
        (Frame("acme.broken"), "no_such_column"),
        (Frame("acme.twice"), "can't evaluate stage 'one': two columns are named 'row'. Rename, cast or drop them"),
        (Frame("acme.both"), "it can't be called with rows"),
        (Frame("acme.nunbered"), "no imported module registers it. Did you mean 'acme.numbered'"),
        (Sql("SELECT nothing FROM {rows}"), "`nothing` cannot be resolved"),
    ],
)
def test_a_function_that_cannot_be_used_fails_by_name(
    spark: SparkSession, tmp_path: Path, function: StageFunction, cause: str
) -> None:
    diamond = Diamond(spark, tmp_path, function)
    diamond.grow(4, 4)
    report = diamond.run("one")
    assert report.status == "failed"
    assert cause in report.detail


class SparkTotals(Totals):
    """A stage with state on Spark."""

    function = Frame("acme.totals")
    code = CODE

    def __init__(self, spark: SparkSession, folder: Path, state: State | None = None) -> None:
        super().__init__(folder, state or State(("key",), "key bigint, total bigint, by string, noise double", 2, 3))
        self.spark = spark

    def bound(self, job: StageJob) -> StageJob:
        import_kinds(CODE)
        return job

    def run(self) -> DatasetReport:
        self.runs += 1
        return run_stage(self.spark, self.opened(), RunRequest(f"totals/{self.runs}"), CODE)


@pytest.fixture
def totals(spark: SparkSession, tmp_path: Path) -> SparkTotals:
    return SparkTotals(spark, tmp_path)


def test_rows_and_state_of_a_version_agree_and_a_restore_goes_back_to_the_right_state(totals: SparkTotals) -> None:
    for rows in (4, 3, 5):
        totals.grow(rows)
    assert totals.run().status == "committed"
    totals.check()
    first = totals.states()[4]
    totals.rewind(7)
    totals.grow(0)
    totals.grow(2)
    totals.run()
    assert totals.actions.count(Action.REWIND) == 1
    totals.check()
    states = totals.states()
    assert sorted(states) == [7, 12, 14], "the newest three versions keep theirs"
    assert all(states[7][key]["by"].startswith(row["by"]) for key, row in first.items())
    found = totals.read.read_dataset("totals")
    assert found.to_spark(totals.spark).count() == found.rows == 3 + 3 + 3 + 2


def test_what_died_after_its_evaluation_or_its_decision_is_one_evaluation_all_the_same(totals: SparkTotals) -> None:
    totals.grow(4)
    totals.run()
    for decides in (False, True):
        totals.grow(5)
        opened, request = totals.opened(), RunRequest(f"dies/{decides}")
        verify_recover(opened, request)
        plan = create_work_units(opened, request)
        (pack,) = plan.packs
        run_pack(
            totals.spark, opened.files.root, opened.staging.folder, plan.run, pack.index, CODE, SparkConnections({})
        )
        if decides:
            write_commit_steps(opened, plan, pack)
        totals.run()
        totals.check()
    assert sorted(totals.states()) == [4, 9, 14]


def test_state_without_declared_columns_has_none_in_the_first_version(totals: SparkTotals) -> None:
    totals.function, totals.state = Frame("acme.grown"), State(("key",), buckets=2)
    for rows in (4, 3):
        totals.grow(rows)
    assert totals.run().status == "committed"
    assert {key: row["new"] for key, row in totals.states()[7].items()} == {0: 3, 1: 2, 2: 2}
    totals.state = State(("key",), "key bigint, new string", buckets=2)
    totals.grow(3)
    report = totals.run()
    assert report.status == "failed"
    assert "it is declared with key int64, new string, and has key int64, new int64" in report.detail
    totals.state = State(("key",), "key bigint COMMENT 'only Spark reads it', new string", buckets=2)
    report = totals.run()
    assert report.status == "failed"
    assert "it is declared with key int64, new string, and has key int64, new int64" in report.detail


@pytest.mark.parametrize(
    "text",
    [
        "a boolean, b tinyint, c byte, d smallint, e short, f int, g integer, h bigint, i long, j float, k real, l double",
        "a string, b binary, c date, d timestamp_ntz, e timestamp_ltz, f decimal, g dec(5), h numeric(20, 4), i timestamp",
        "`a b` INT NOT NULL, c: string, d array<struct<x: int, y: string>>, `e``,f` bigint, g map<string, int>",
    ],
)
def test_columns_that_are_read_without_spark_are_those_that_spark_reads(spark: SparkSession, text: str) -> None:
    of_spark = {field.name: str(field.type) for field in _as_arrow(spark.createDataFrame([], text))}
    found = columns_of(text)
    assert found is not None
    assert [*found] == [*of_spark]
    assert {name: one or of_spark[name] for name, one in found.items()} == of_spark


def test_columns_may_be_lists_of_which_spark_declares_now_and_then_that_no_element_is_null(totals: SparkTotals) -> None:
    totals.function, totals.state = Frame("acme.gathered"), State(("key",), "key bigint, seen array<string>", buckets=2)
    for rows in (4, 3):
        totals.grow(rows)
    report = totals.run()
    assert report.status == "committed", report.detail
    assert totals.states()[7][0]["seen"] == ["rows/0", "rows/3", "rows/6"]


def test_buckets_of_state_stay_apart_on_fewer_cores(totals: SparkTotals) -> None:
    totals.function, totals.state = Frame("acme.wide"), State(("key",), "key bigint", buckets=8)
    conf, before = totals.spark.conf, totals.spark.conf.getAll
    conf.set("spark.sql.shuffle.partitions", "8")  # as many as buckets: shuffled rows are written as they are
    conf.set("spark.sql.adaptive.coalescePartitions.minPartitionSize", "1k")
    try:
        for rows in (4, 3):
            totals.grow(rows)
            assert totals.run().status == "committed"
    finally:
        conf.set("spark.sql.shuffle.partitions", before["spark.sql.shuffle.partitions"])
        conf.unset("spark.sql.adaptive.coalescePartitions.minPartitionSize")
    assert conf.getAll == before, "the session has its own settings again"
    files = totals.read.read_state("totals").files
    assert (len(files), sum(file.rows for file in files)) == (8, 70_000), "each is written by a task"
    parts = totals.read.read_dataset("totals").to_arrow().to_table()["parts"].to_pylist()
    assert parts[-1] == 8, "and read by one"


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (
            "fickle_state",
            "its function gives, as state, key int64, new int64, more string, and gave key int64, new int64",
        ),
        ("keys_twice", "2 rows have the key key="),
        ("no_keys", "a row has no 'key', which is of the key"),
        (
            "no_key_column",
            "its state has no column 'key', which is of its key: it has kee int64, new int64. Did you mean 'kee'",
        ),
        (
            "random",
            "more than one of its channels, such as its rows and its state, is made by something that Spark gives",
        ),
        (
            "timed",
            "more than one of its channels, such as its rows and its state, is made by something that Spark gives",
        ),
        ("only_rows", "its function gives a DataFrame. Return Out(rows=…, state=…)"),
        ("numbered", "it can't be called with rows, state"),
    ],
)
def test_a_state_that_cannot_be_kept_fails_by_name(totals: SparkTotals, function: str, cause: str) -> None:
    totals.function, totals.state = Frame(f"acme.{function}"), State(("key",), buckets=2)
    for rows in (4, 3):
        totals.grow(rows)
    report = totals.run()
    assert report.status == "failed"
    assert cause in report.detail
    assert len(totals.states()) == (function == "fickle_state")


class Partitioned(Diamond):
    """Stages whose rows have partition columns, which other stages read."""

    def sink(self, name: str) -> ParquetSink:
        return ParquetSink(f"{self.folder}/{name}", partition=() if name == "raw" else ("number",))


def test_the_rows_of_a_stage_lie_in_the_folders_of_their_partitions(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Partitioned(spark, tmp_path)
    pipeline.grow(3, 3)
    pipeline.rest()
    pipeline.check()
    folders = {path.parent.relative_to(tmp_path) for path in tmp_path.glob("one/one/*/*.parquet")}
    assert {str(folder) for folder in folders} == {f"one/one/number={number}" for number in range(3)}
    pipeline.rewind("a", 2)
    pipeline.grow(0, 0)
    pipeline.rest()
    pipeline.check()


class Split(Diamond):
    """A stage with a channel, and one that reads its rows and the channel."""

    stages = ("split", "sorted")

    @property
    def pipeline(self) -> Pipeline:
        (raw, *_) = (job for job in super().pipeline.jobs if isinstance(job, Ingestion))
        reads, off = {"rows": raw["a"]}, timedelta(0)
        split = Stage("split", self.one, reads, self.sink("split"), channels=("odd",), retention=off)
        reads = {"even": split.output, "odd": split["odd"]}
        both = Stage("sorted", Frame("acme.split_sorted"), reads, self.sink("sorted"), retention=off)
        return Pipeline("halves", (raw, split, both), self.journal, CODE)


def test_channels_of_a_version_are_of_one_evaluation_and_a_stage_reads_them_of_the_same_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = Split(spark, tmp_path, Frame("acme.split"))
    for rows in (4, 3):
        pipeline.grow(rows, rows)
        for name in Split.stages:
            assert pipeline.run(name).status == "committed"
    journal = Journal.open(pipeline.journal, "split")
    odd, even = journal.read_dataset("split", channel="odd"), journal.read_dataset("split")
    assert sorted(row["number"] for row in odd.to_arrow().to_table().to_pylist()) == [1, 3, 5]
    assert sorted(row["number"] for row in even.to_arrow().to_table().to_pylist()) == [0, 2, 4, 6]
    assert [(one.rows, one.channels) for one in versions_of(journal)] == [(2, {"odd": 1}), (2, {"odd": 2})]
    old = journal.read_dataset("split", channel="odd", version=datetime.fromtimestamp(4, UTC))
    assert (old.rows, odd.to_spark(spark).columns[-1]) == (2, "half")
    assert [(row["rows"], len(row["made_by"])) for row in pipeline.table("sorted")] == [(4, 1), (3, 1)]
    with pytest.raises(NotFoundError, match=r"it has no such channel\. Did you mean 'odd'"):
        journal.read_dataset("split", channel="od")
    pipeline.rewind("a", 4)
    pipeline.grow(0, 0)
    for name in Split.stages:
        assert pipeline.run(name).status == "committed"
    found = Journal.open(pipeline.journal, "split").read_dataset("split", channel="odd").to_arrow().to_table()
    assert sorted(row["number"] for row in found.to_pylist()) == [1, 3, 5], (
        "the channel was taken back with its version"
    )
    made = {row["made_by"] for row in pipeline.table("split")} | {row["made_by"] for row in found.to_pylist()}
    assert {one for row in pipeline.table("sorted") for one in row["made_by"]} == made
    assert len(made) == 2


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        ("acme.split_fickle", "its function gives, as odd, row string, more string, and gave row string"),
        ("acme.split_twice", "more than one of its channels"),
        ("acme.numbered", "its function gives a DataFrame. Return Out(rows=…, odd=…)"),
    ],
)
def test_a_channel_that_cannot_be_published_fails_by_name(
    spark: SparkSession, tmp_path: Path, function: str, cause: str
) -> None:
    pipeline = Split(spark, tmp_path, Frame(function))
    pipeline.grow(4, 4)
    pipeline.run("split")
    pipeline.grow(6, 6)
    report = pipeline.run("split")
    assert report.status == "failed"
    assert cause in report.detail


@pytest.mark.parametrize("function", ["leaking", "leaking_columns"])
def test_no_secret_is_in_what_a_stage_leaves(
    spark: SparkSession, tmp_path: Path, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    """I16."""
    caplog.set_level("DEBUG", "airflow_gobblin")
    pipeline, secret = Diamond(spark, tmp_path, Frame(f"acme.{function}")), "canary-of-a-stage"
    connections = SparkConnections({"acme": f"postgresql://ann:{secret}@db/main"})
    reports = []
    for rows in (4, 6):
        pipeline.grow(rows, rows)
        reports.append(run_stage(spark, pipeline.opened("one"), RunRequest(f"one/{rows}"), CODE, connections))
    assert reports[-1].status == "failed"
    assert all(secret not in report.text for report in reports)
    assert secret not in caplog.text
    found = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert found == []


def test_a_stage_needs_spark(diamond: Diamond) -> None:
    diamond.grow(4, 4)
    opened = diamond.opened("one")
    report = inprocess.run(opened, NoConnections())["one"]
    assert report.status == "failed"
    assert "a stage needs Spark, and there is none here" in report.detail
    assert dataset_id("raw", "a") in opened.job.work.source_identity


def flights_of_the_page(path: Path) -> None:
    """Eleven flights of three carriers, and the weather of an hour."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE flights (id INTEGER PRIMARY KEY, carrier TEXT, origin TEXT, hour INT, delay INT)"
        )
        database.execute("CREATE TABLE weather (id INTEGER PRIMARY KEY, origin TEXT, hour INT, wind REAL)")
        database.executemany(
            "INSERT INTO flights (carrier, origin, hour, delay) VALUES (?, 'JFK', ?, ?)",
            [*((carrier, hour, hour) for carrier in ("AA", "UA") for hour in range(5)), ("DL", 1, None)],
        )
        database.execute("INSERT INTO weather (origin, hour, wind) VALUES ('JFK', 2, 20.5)")


def test_a_pipeline_is_tried_as_on_the_page(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = dict(BLOCK.findall((ROOT / "docs" / "pipelines.md").read_text()))
    (tmp_path / "acme_flights.py").write_text(blocks["module acme_flights"])
    monkeypatch.syspath_prepend(tmp_path)
    flights_of_the_page(tmp_path / "flights.db")
    defined: dict[str, Any] = {}
    for name in ("pipeline", "trying"):
        exec(compile(blocks[name].replace("/lake/", f"{tmp_path}/"), "pipelines.md", "exec"), defined)
    first, second = capsys.readouterr().out.splitlines()
    assert "'joined': 'committed, 11 rows', 'delays': 'committed, 3 rows'}" in first
    assert first.startswith("{'raw/flights': 'committed, 11 rows', ")
    assert second.startswith("{'raw/flights': 'idle, ")
    found = Journal.open(defined["flights"].journal, "delays").read_dataset("delays").to_arrow().to_table()
    assert sorted(row["carrier"] for row in found.to_pylist()) == ["AA", "DL", "UA"]


def test_the_pipeline_of_the_page(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = dict(BLOCK.findall((ROOT / "docs" / "pipelines.md").read_text()))
    for module in ("acme_flights", "acme_checks"):
        (tmp_path / f"{module}.py").write_text(blocks[f"module {module}"])
    monkeypatch.syspath_prepend(tmp_path)
    flights_of_the_page(tmp_path / "flights.db")
    defined: dict[str, Any] = {}
    exec(compile(blocks["pipeline"].replace("/lake/", f"{tmp_path}/"), "pipelines.md", "exec"), defined)
    assert {"flights.raw", "flights.joined", "flights.delays"} <= defined.keys()
    pipeline: Pipeline = defined["flights"]
    import_kinds(pipeline.code)
    spark.addArtifacts(str(ship(pipeline.code, tmp_path / "code")), pyfile=True)
    connections = SparkConnections({"flights_db": f"sqlite:///{tmp_path}/flights.db"})
    end = datetime(2026, 1, 1, tzinfo=UTC)
    for job in pipeline.bound:
        opened = OpenJob(job, Journal.create(job.journal, job.name, connections), connections)
        if job.name == "raw":
            inprocess.run(opened, connections, RunRequest("raw", end, version=end))
        else:
            assert run_stage(spark, opened, RunRequest(job.name), pipeline.code).status == "committed"
    found = Journal.open(pipeline.journal, "delays").read_dataset("delays").to_arrow().to_table().to_pylist()
    assert {row["carrier"]: (row["flights"], row["delay"]) for row in found} == {
        "AA": (5, 2.0),
        "UA": (5, 2.0),
        "DL": (1, None),
    }
    exec(compile(blocks["read version"].replace("/lake/", f"{tmp_path}/"), "pipelines.md", "exec"), defined)
    assert defined["delays"].to_table().to_pylist() == found
    exec(compile(blocks["channels"].replace("/lake/", f"{tmp_path}/"), "pipelines.md", "exec"), defined)
    checks: Pipeline = defined["checks"]
    import_kinds(checks.code)
    for name, rows in (("checked", 10), ("report", 1)):
        opened = OpenJob(checks[name], Journal.create(pipeline.journal, name, connections), connections)
        report = run_stage(spark, opened, RunRequest(name), checks.code)
        assert (report.status, report.rows) == ("committed", rows)
    found = Journal.open(pipeline.journal, "report").read_dataset("report").to_arrow().to_table().to_pylist()
    assert found == [{"carrier": "DL", "refused": 1}]


def test_the_state_of_the_page(spark: SparkSession) -> None:
    blocks = dict(BLOCK.findall((ROOT / "docs" / "pipelines.md").read_text()))
    defined: dict[str, Any] = {"joined": Output("joined", "joined")}
    for name in ("state", "module acme_delays"):
        exec(compile(blocks[name], "pipelines.md", "exec"), defined)
    columns, state = "carrier string, month string, delay int", defined["delays"].state
    assert (state.key, state.keep) == (("carrier", "month"), 48)
    versions = [[("AA", "1", 10), ("AA", "1", 20), ("UA", "1", 5)], [("AA", "2", 1), ("UA", "1", 7)]]
    kept, found = spark.createDataFrame([], state.schema), []
    for rows in versions:
        made = defined["month_to_date"](spark.createDataFrame(rows, columns), kept)
        found.append(sorted(map(tuple, made.rows.collect())))
        kept = made.state
    assert found == [[("AA", "1", 2, 30), ("UA", "1", 1, 5)], [("AA", "2", 1, 1), ("UA", "1", 2, 12)]]
    assert sorted(map(tuple, kept.collect())) == [("AA", "1", 2, 30), ("AA", "2", 1, 1), ("UA", "1", 2, 12)]
