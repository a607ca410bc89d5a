"""Pipelines as authors write them: what is refused in a DAG file, and the DAGs that come of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pendulum
import pytest
from airflow.sdk import DAG, Asset, AssetAny, AssetOrTimeSchedule, CronDataIntervalTimetable, DeltaDataIntervalTimetable
from airflow.sdk.definitions.timetables.assets import AssetTriggeredTimetable
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction

from airflow_gobblin import (
    ConfigurationError,
    ExtractKind,
    Frame,
    Ingestion,
    Layout,
    OptionalInput,
    Output,
    ParquetSink,
    Pipeline,
    Readable,
    Sql,
    SqlSource,
    SqlTable,
    Stage,
    Whole,
)
from airflow_gobblin.plugins.timetables import DatasetCronTimetable, StageTimetable
from airflow_gobblin.stage import StageJob

START = datetime(2026, 1, 1, tzinfo=UTC)
JOURNAL = "sqlite:////lake/journal.db"


def raw(name: str = "raw", target: str = "/lake/raw") -> Ingestion:
    tables = tuple(SqlTable(table, ExtractKind.APPEND_ONLY, delta="id") for table in ("flights", "weather"))
    return Ingestion(name, SqlSource("flights_db", tables), ParquetSink(target), JOURNAL)


def stage(name: str, *reads: Readable, target: str = "") -> Stage:
    inputs = {f"in{number}": one for number, one in enumerate(reads)}
    return Stage(name, Frame(f"acme.{name}"), inputs, ParquetSink(target or f"/lake/{name}"))


def flights() -> Pipeline:
    source = raw()
    joined, counted = stage("joined", source["flights"], source["weather"]), stage("counted", source["flights"])
    report = Stage(
        "report", Sql("SELECT * FROM {a} JOIN {b}"), {"a": joined, "b": Whole(counted)}, ParquetSink("/lake/report")
    )
    return Pipeline("flights", (report, joined, source, counted), JOURNAL, ("acme_flights",))


def test_jobs_come_after_what_they_read_and_know_where_it_is() -> None:
    pipeline = flights()
    assert [job.name for job in pipeline.bound] == ["raw", "joined", "counted", "report"]
    assert cast(Ingestion, pipeline["raw"]).seals
    report = pipeline["report"]
    assert isinstance(report, StageJob)
    assert (report.journal, report.work.code) == (JOURNAL, ("acme_flights",))
    found = {name: (one.id, one.reach) for name, (one,) in report.work.inputs.items()}
    of_raw = frozenset({"raw/flights"})
    assert [one.whole for one in report.work.upstreams] == [False, True]
    assert found == {"a": ("joined/joined", of_raw | {"raw/weather"}), "b": ("counted/counted", of_raw)}


def test_a_stage_is_another_one_if_its_inputs_are_in_other_journals() -> None:
    """Two DAGs with a stage of one name would take back each other's versions: so the second is refused."""

    def source_of(*journals: str) -> str:
        sources = [replace(raw(f"raw{n}", f"/lake/raw{n}"), journal=journal) for n, journal in enumerate(journals)]
        one = stage("one", *(source["flights"] for source in sources))
        return cast(StageJob, Pipeline("p", (*sources, one), JOURNAL)["one"]).work.source_identity

    assert source_of(JOURNAL, JOURNAL) == "raw0/flights raw1/flights"
    assert source_of(JOURNAL, "/other") == "raw0/flights raw1/flights in /other"
    assert source_of("/other", JOURNAL) == "raw0/flights in /other raw1/flights"


def split(*channels: str) -> Stage:
    return Stage("split", Frame("acme.split"), {"a": raw()["flights"]}, ParquetSink("/lake/split"), channels=channels)


def test_channels_of_a_stage_are_one_upstream_also_an_optional_one() -> None:
    source, one = raw(), split("late", "early")
    late, early = OptionalInput(one["late"]), OptionalInput(one["early"])
    jobs = Pipeline("p", (source, one, stage("two", source["weather"], late, early)), JOURNAL)
    two = jobs["two"]
    assert isinstance(two, StageJob)
    assert [(of.id, of.label, of.required) for of in two.work.upstreams] == [
        ("raw/weather", "raw/weather", True),
        ("split/split", "split/late", False),
        ("split/split", "split/early", False),
    ]
    assert woken({dag.dag_id: dag for dag in jobs.dags(schedule="@hourly", start_date=START)}["p.two"]) == {
        "gobblin://raw/_versions",
        "gobblin://split/_versions",
    }


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a stage without upstream": (lambda: stage("alone"), "it reads nothing"),
    "what is no output": (lambda: stage("odd", cast(Any, "raw")), "its input 'in0' is 'raw'"),
    "an input without parts": (
        lambda: Stage("odd", Frame("acme.odd"), {"a": ()}, ParquetSink("/lake/odd")),
        "its input 'a' is ()",
    ),
    "an input with a part twice": (
        lambda: Stage("odd", Frame("acme.odd"), {"a": (raw()["flights"], raw()["flights"])}, ParquetSink("/lake/odd")),
        "its input 'a' has something twice",
    ),
    "an input that no function can name": (
        lambda: Stage("odd", Frame("acme.odd"), {"a b": raw()["flights"]}, ParquetSink("/lake/odd")),
        "the input 'a b' can't be a parameter's name",
    ),
    "a query of an unknown input": (
        lambda: Stage("odd", Sql("SELECT * FROM {flihgts}"), {"flights": raw()["flights"]}, ParquetSink("/lake/odd")),
        "there is no input 'flihgts'. Did you mean 'flights'",
    ),
    "an input that a query doesn't read": (
        lambda: Stage("odd", Sql("SELECT 1"), {"flights": raw()["flights"]}, ParquetSink("/lake/odd")),
        "it doesn't read 'flights'",
    ),
    "a query that reaches into an input": (lambda: Sql("SELECT {a.schema}"), "{a.schema} names no input"),
    "a query with a brace": (lambda: Sql("SELECT '{'"), "it is not a template"),
    "a folder for each unit": (
        lambda: Stage(
            "odd", Frame("acme.odd"), {"a": raw()["flights"]}, ParquetSink("/lake/odd", layout=Layout.FOLDER_PER_UNIT)
        ),
        "its sink has a folder for each unit",
    ),
    "two jobs of one name": (
        lambda: Pipeline("p", (raw(), stage("one", raw()["flights"]), stage("one", raw()["weather"])), JOURNAL),
        "two jobs are named 'one'",
    ),
    "two stages that write into one place": (
        lambda: Pipeline(
            "p",
            (raw(), stage("one", raw()["flights"]), stage("two", raw()["flights"], target="/lake/one/")),
            JOURNAL,
        ),
        "two jobs write to '/lake/one', 'one' and 'two'",
    ),
    "two stages that write into one place, named in two ways": (
        lambda: Pipeline(
            "p",
            (raw(), stage("one", raw()["flights"]), stage("two", raw()["flights"], target="file:///lake/one")),
            JOURNAL,
        ),
        "two jobs write to '/lake/one', 'one' and 'two'",
    ),
    "a stage that writes into another's place": (
        lambda: Pipeline(
            "p",
            (raw(), stage("one", raw()["flights"], target="/lake/two/one"), stage("two", raw()["flights"])),
            JOURNAL,
        ),
        "'one' writes to '/lake/two/one', which is inside '/lake/two', where 'two' writes",
    ),
    "a stage that writes into another's place in a bucket": (
        lambda: Pipeline(
            "p",
            (
                raw(),
                stage("one", raw()["flights"], target="s3://lake@bucket/all"),
                stage("two", raw()["flights"], target="s3://lake@bucket/all/two/"),
            ),
            JOURNAL,
        ),
        "'two' writes to 's3://lake@bucket/all/two/', which is inside 's3://lake@bucket/all', where 'one' writes",
    ),
    "a stage that writes into an ingestion's place": (
        lambda: Pipeline("p", (raw(), stage("one", raw()["flights"], target="/lake/raw/flights")), JOURNAL),
        "'one' writes to '/lake/raw/flights', which is inside '/lake/raw', where 'raw' writes",
    ),
    "a cycle": (
        lambda: Pipeline(
            "p",
            (raw(), stage("one", raw()["flights"], Output("two", "two")), stage("two", Output("one", "one"))),
            JOURNAL,
        ),
        "its stages read each other: ",
    ),
    "an unknown job": (
        lambda: Pipeline("p", (raw(), stage("one", raw("row")["flights"])), JOURNAL),
        "stage 'one' reads 'row/flights', and there is no job 'row' in it. Did you mean 'raw'",
    ),
    "a stage that waits for nothing": (
        lambda: Pipeline("p", (raw(), stage("one", OptionalInput(raw()["flights"]))), JOURNAL),
        "stage 'one' waits for nothing that it reads",
    ),
    "an input that is never close enough": (
        lambda: OptionalInput(raw()["flights"], timedelta(hours=-1)),
        "optional input 'raw/flights': `at_most` is -1 day, 23:00:00, which is negative",
    ),
    "a diamond with an optional input": (
        lambda: Pipeline(
            "p",
            (
                source := raw(),
                one := stage("one", source["flights"]),
                stage("two", source["flights"], OptionalInput(one)),
            ),
            JOURNAL,
        ),
        "stage 'two' has 'raw/flights' both by 'raw/flights' and by 'one/one', and not always by both",
    ),
    "a diamond with an optional input further up": (
        lambda: Pipeline(
            "p",
            (
                source := raw(),
                one := stage("one", source["weather"], OptionalInput(source["flights"])),
                stage("two", source["flights"], one),
            ),
            JOURNAL,
        ),
        "stage 'two' has 'raw/flights' both by 'raw/flights' and by 'one/one', and not always by both",
    ),
    "a dataset that a stage doesn't have": (
        lambda: Pipeline("p", (raw(), stage("one", raw()["flights"]), stage("two", Output("one", "flights"))), JOURNAL),
        "stage 'one' has no channel of that name",
    ),
    "a channel that a stage doesn't have": (
        lambda: split("late")["lat"],
        "it has no channel 'lat'. Did you mean 'late'",
    ),
    "a channel that a stage of the pipeline doesn't have": (
        lambda: Pipeline("p", (raw(), split("late"), stage("two", split("early")["early"])), JOURNAL),
        "stage 'two' reads 'split/early', and stage 'split' has no channel of that name",
    ),
    "a channel with the name of the state": (lambda: split("state"), "'state' can't be the name of a channel"),
    "a channel with the name of the rows": (lambda: split("rows"), "'rows' can't be the name of a channel"),
    "a channel with the name of its stage": (lambda: split("split"), "'split' can't be the name of a channel"),
    "a channel that can't be a folder": (lambda: split("a/b"), "'a/b' can't be the name of a channel"),
    "a channel twice": (lambda: split("late", "late"), "two of its channels have one name"),
    "channels as a text": (
        lambda: Stage("odd", Frame("acme.odd"), {"a": raw()["flights"]}, ParquetSink("/l"), channels=cast(Any, "late")),
        "its channels are 'late'. Name them in a tuple",
    ),
    "a query with channels": (
        lambda: Stage("odd", Sql("SELECT * FROM {a}"), {"a": raw()["flights"]}, ParquetSink("/l"), channels=("late",)),
        "a query gives rows, and no channels",
    ),
    "an unknown job of a pipeline": (lambda: flights()["joint"], "Did you mean 'joined'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_name(case: str) -> None:
    make, cause = REFUSED[case]
    with pytest.raises(ConfigurationError) as raised:
        make()
    assert cause in str(raised.value)


def test_each_job_has_a_dag_and_stages_are_woken_by_what_they_read_and_by_time() -> None:
    dags = {dag.dag_id: dag for dag in flights().dags(schedule="@hourly", start_date=START)}
    assert [*dags] == ["flights.raw", "flights.joined", "flights.counted", "flights.report"]
    assert isinstance(dags["flights.raw"].timetable, CronDataIntervalTimetable)
    assert woken(dags["flights.joined"]) == {"gobblin://raw/_versions"}
    assert woken(dags["flights.report"]) == {"gobblin://joined/_versions", "gobblin://counted/_versions"}
    assert "report.create_work_units" in dags["flights.report"].task_ids


def test_stages_run_by_time_half_an_interval_after_their_inputs_began() -> None:
    _, joined, *_ = flights().dags(schedule="0 6 * * *", start_date=START)
    timetable = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(joined)).timetable
    asked = TimeRestriction(earliest=pendulum.datetime(2026, 1, 1), latest=None, catchup=True)
    first = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=asked)
    assert first is not None
    assert first.data_interval == (pendulum.datetime(2026, 1, 1, 6), pendulum.datetime(2026, 1, 2, 6))
    assert first.run_after == pendulum.datetime(2026, 1, 2, 18)
    second = timetable.next_dagrun_info(last_automated_data_interval=first.data_interval, restriction=asked)
    assert second is not None
    assert (second.data_interval, second.run_after) == (
        (pendulum.datetime(2026, 1, 2, 6), pendulum.datetime(2026, 1, 3, 6)),
        pendulum.datetime(2026, 1, 3, 18),
    )


@pytest.mark.parametrize(
    "schedule", [DatasetCronTimetable("@daily", "Europe/Paris"), CronDataIntervalTimetable("@daily", "Europe/Paris")]
)
def test_stages_run_in_the_time_zone_of_the_schedule(schedule: Any) -> None:
    _, joined, *_ = flights().dags(schedule=schedule, start_date=START)
    assert isinstance(joined.timetable, AssetOrTimeSchedule)
    assert isinstance(joined.timetable.timetable, StageTimetable)
    assert joined.timetable.timetable.serialize() == {"expression": "0 0 * * *", "timezone": "Europe/Paris"}


def test_a_timetable_of_other_kinds_is_that_of_stages_too() -> None:
    hours = DeltaDataIntervalTimetable(timedelta(hours=3))
    _, joined, *_ = flights().dags(schedule=hours, start_date=START)
    assert isinstance(joined.timetable, AssetOrTimeSchedule)
    assert joined.timetable.timetable is hours


def test_without_a_schedule_stages_are_only_woken() -> None:
    dags = {dag.dag_id: dag for dag in flights().dags(schedule=None, start_date=START)}
    assert not dags["flights.raw"].timetable.can_be_scheduled
    assert not isinstance(dags["flights.report"].timetable, AssetOrTimeSchedule)
    assert awaited(dags["flights.report"]) == {"gobblin://joined/_versions", "gobblin://counted/_versions"}


def test_by_assets_ingestions_run_and_stages_are_only_woken_by_what_they_read() -> None:
    for assets in (Asset("feed"), [Asset("feed")]):
        dags = {dag.dag_id: dag for dag in flights().dags(schedule=assets, start_date=START)}
        assert isinstance(dags["flights.raw"].timetable, AssetTriggeredTimetable)
        assert not isinstance(dags["flights.report"].timetable, AssetOrTimeSchedule)
        assert awaited(dags["flights.report"]) == {"gobblin://joined/_versions", "gobblin://counted/_versions"}


def test_by_assets_and_times_stages_run_by_the_times_too() -> None:
    schedule = AssetOrTimeSchedule(timetable=CronDataIntervalTimetable("@daily", "UTC"), assets=[Asset("feed")])
    dags = {dag.dag_id: dag for dag in flights().dags(schedule=schedule, start_date=START)}
    assert dags["flights.raw"].timetable is schedule
    assert woken(dags["flights.joined"]) == {"gobblin://raw/_versions"}


def test_a_period_has_data_intervals() -> None:
    dags = flights().dags(schedule=timedelta(hours=3), start_date=START)
    assert isinstance(dags[0].timetable, DeltaDataIntervalTimetable)
    assert isinstance(dags[1].timetable, AssetOrTimeSchedule)
    assert dags[1].timetable.timetable is dags[0].timetable


def test_stages_that_wait_for_several_ingestions_need_a_schedule() -> None:
    one, other = raw("raw"), raw("rates", "/lake/rates")
    first, second = stage("first", one["flights"]), stage("second", other["flights"])
    jobs = (one, other, first, second, stage("both", first, second))
    for schedule in (None, Asset("feed")):
        with pytest.raises(
            ConfigurationError, match="stage 'both' waits for 'rates' and 'raw', which seal no version in common"
        ):
            Pipeline("flights", jobs, JOURNAL).dags(schedule=schedule, start_date=START)
    late = stage("late", first, OptionalInput(second))
    assert Pipeline("flights", (*jobs[:-1], late), JOURNAL).dags(schedule=None, start_date=START)


def woken(dag: DAG) -> set[str]:
    """The assets whose events start a run, of a DAG that has a schedule, too."""
    assert isinstance(dag.timetable, AssetOrTimeSchedule)
    assert isinstance(dag.timetable.timetable, StageTimetable)
    return awaited(dag)


def awaited(dag: DAG) -> set[str]:
    """The assets whose events start a run."""
    condition = dag.timetable.asset_condition
    assert isinstance(condition, AssetAny)
    return {asset.uri for asset in condition.objects if isinstance(asset, Asset)}


@pytest.mark.slow
def test_a_dag_file_of_a_pipeline_needs_neither_spark_nor_the_functions() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from tests.test_pipeline import flights, START\n"
        "flights().dags(schedule='@hourly', start_date=START)\n"
        "print([name for name in ('pyarrow', 'pandas', 'acme_flights') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
