"""The requests of a DAG run to an ingestion, and the commands that it suggests."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, Context, CronDataIntervalTimetable
from airflow.sdk.api.datamodels._generated import DagRun, DagRunState, DagRunType
from airflow.serialization.serialized_objects import DagSerialization

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.watermark import Json, LongWatermark, MultiLongWatermark, TimestampWatermark
from airflow_gobblin.operators import ingestion_params
from airflow_gobblin.operators.run_requests import replacing_command, run_request
from airflow_gobblin.plugins.timetables import DatasetCronTimetable
from airflow_gobblin.run.request import RunRequest
from tests.services.environment import ROOT

PAGE = (ROOT / "docs" / "backfills.md").read_text()
DAY = (datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))


def context(
    kind: str = "manual",
    conf: dict[str, Any] | None = None,
    interval: tuple[datetime, datetime] | tuple[None, None] = (None, None),
    partition_key: str | None = None,
    **dag: Any,
) -> Context:
    run = DagRun(
        dag_id="shop",
        run_id="r1",
        logical_date=interval[0],
        data_interval_start=interval[0],
        data_interval_end=interval[1],
        run_after=DAY[1],
        start_date=DAY[1],
        end_date=None,
        run_type=DagRunType(kind),
        state=DagRunState.RUNNING,
        conf=conf,
        consumed_asset_events=[],
        partition_key=partition_key,
    )
    made = DAG("shop", **{"schedule": DatasetCronTimetable("@daily"), "params": {"note": "x"}, **dag})
    return {"dag_run": run, "dag": made}


def asked(**given: Any) -> RunRequest:
    return RunRequest("shop/r1", **given)


def test_a_scheduled_run_is_bounded_by_its_end_and_a_backfill_by_both() -> None:
    assert run_request(context("scheduled", None, DAY)) == asked(end=DAY[1], version=DAY[1])
    assert run_request(context("backfill", {}, DAY)) == asked(start=DAY[0], end=DAY[1])
    conf = {"datasets": ["a"], "replace": True, "request": "once more"}
    expected = asked(start=DAY[0], end=DAY[1], datasets=("a",), replace=True, request="once more")
    assert run_request(context("backfill", conf, DAY)) == expected
    assert run_request(context("manual", {}, DAY)) == asked(), "that of a run by hand is only the last one before it"
    assert run_request(context("scheduled", {}, (DAY[0], DAY[0]))) == asked(version=DAY[0]), (
        "a point in time bounds nothing"
    )


WOKEN = AssetOrTimeSchedule(timetable=CronDataIntervalTimetable("@daily", "UTC"), assets=[Asset("s3://shop/orders")])


@pytest.mark.parametrize(
    ("kind", "schedule", "version"),
    [
        ("manual", None, DAY[1]),
        ("asset_triggered", [Asset("s3://shop/orders")], DAY[1]),
        ("manual", [Asset("s3://shop/orders")], DAY[1]),
        ("manual", "@daily", None),
        ("manual", WOKEN, None),
        ("asset_triggered", WOKEN, None),
    ],
)
def test_a_run_without_an_interval_may_seal_when_it_was_due_if_its_dag_has_no_times(
    kind: str, schedule: Any, version: datetime | None
) -> None:
    assert run_request(context(kind, schedule=schedule)) == asked(version=version)


def test_a_run_by_hand_may_name_a_range() -> None:
    assert run_request(context(conf={"start": "2026-01-03", "end": "2026-01-04T01:00+01:00"})) == asked(
        start=DAY[0], end=DAY[1]
    )
    assert run_request(context(conf={"start": 5})) == asked(start=5)
    form: dict[str, Any] = {
        "datasets": [],
        "start": None,
        "end": None,
        "replace": False,
        "request": None,
        "note": "of the DAG's own",
    }
    assert run_request(context(conf=form)) == asked()


def test_a_partition_key_names_a_dataset() -> None:
    assert run_request(context(partition_key="a/b c")) == asked(datasets=("a/b c",))
    assert run_request(context(conf={"datasets": ["a"]}, partition_key="a")) == asked(datasets=("a",))
    with pytest.raises(ConfigurationError, match="has the partition key 'a'"):
        run_request(context(conf={"datasets": ["b"]}, partition_key="a"))
    assert run_request(context(partition_key="2026-01-03", schedule="@daily")) == asked(), "it is none of a URN"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"dataset": ["a"]}, "'dataset' of the run's configuration: there is no such key. Did you mean 'datasets'"),
        ({"x": 1}, "Known: datasets, end, flush, note, replace, request, start"),
        ({"datasets": "a"}, "it is not a list of URNs"),
        ({"datasets": [1]}, "it is not a list of URNs"),
        ({"replace": "yes", "start": 1}, "it is not true or false"),
        ({"start": True}, "it is not a point in time, as ISO 8601 text, an integer of 64 bits, or offsets"),
        ({"start": "soon"}, "it is not a point in time"),
        ({"start": 1.5}, "it is not a point in time"),
        ({"start": 2**63 + 1}, "it is not a point in time"),
        ({"request": 5}, "it is not a text"),
        ({"replace": True}, "there is no start"),
        ({"flush": "yes"}, "it is not true or false"),
        ({"flush": True, "start": 1}, "a backfill and a flush"),
        ({"end": "2026-01-01", "start": "2026-01-02"}, "is not before its end"),
    ],
)
def test_a_configuration_that_cant_be_meant_is_refused_by_name(conf: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        run_request(context(conf=conf))


def test_a_backfill_has_one_range() -> None:
    with pytest.raises(ConfigurationError, match="has an interval of its own"):
        run_request(context("backfill", {"start": "2026-01-01"}, DAY))
    with pytest.raises(ConfigurationError, match="gives it no interval"):
        run_request(context("backfill", {}, (DAY[0], DAY[0])))
    assert run_request(context("backfill", {"start": 4, "end": 5}, (DAY[0], DAY[0]))) == asked(start=4, end=5)


def test_the_form_offers_the_datasets() -> None:
    params = ingestion_params(("a", "b"))
    with DAG("form", schedule=None, params=params) as dag:
        pass
    shown = DagSerialization.to_dict(dag)["dag"]["params"]
    assert [name for name, _ in shown] == ["datasets", "start", "end", "replace", "flush", "request"]
    assert params["datasets"].resolve(["b"]) == ["b"]
    for bad in (["c"], "a"):
        with pytest.raises(ValueError, match=r"Invalid input for param datasets|is not"):
            params["datasets"].resolve(bad)
    assert ingestion_params()["datasets"].resolve(["anything"]) == ["anything"]


def test_what_to_type_is_a_backfill_of_the_runs_interval() -> None:
    within = Range(*(TimestampWatermark(when) for when in DAY))
    typed = shlex.split(replacing_command(context("scheduled", {}, DAY), "it's", 7, within))
    assert typed[:3] == ["airflow", "backfill", "create"]
    assert typed[typed.index("--from-date") + 1] == typed[typed.index("--to-date") + 1] == "2026-01-03T00:00:00+00:00"
    assert typed[-1] == '{"datasets": ["it\'s"], "replace": true, "request": "after slot 7"}'


def test_what_to_type_is_a_run_by_hand_of_what_was_published_where_the_run_has_no_interval() -> None:
    keys = Range(LongWatermark(5), LongWatermark(9))
    typed = shlex.split(replacing_command(context(), "a", 7, keys))
    assert typed[:4] == ["airflow", "dags", "trigger", "shop"]
    assert typed[-1] == '{"datasets": ["a"], "replace": true, "start": 5, "end": 9}'
    assert shlex.split(replacing_command(context("scheduled", {}, DAY), "a", 7, keys))[1] == "dags"
    early = Range(*(TimestampWatermark(datetime(2025, 1, day, tzinfo=UTC)) for day in (1, 2)))
    assert "2025-01-01" in replacing_command(context("scheduled", {}, DAY), "a", 7, early)


def test_what_to_type_is_a_run_by_hand_of_offsets_by_partition() -> None:
    offsets = Range(MultiLongWatermark((5, 2, 7)), MultiLongWatermark((9, 4, 7)))
    typed = shlex.split(replacing_command(context(), "it's", 7, offsets))
    assert typed[:4] == ["airflow", "dags", "trigger", "shop"]
    conf = json.loads(typed[-1])
    assert conf == {"datasets": ["it's"], "replace": True, "start": {"0": 5, "1": 2}, "end": {"0": 9, "1": 4}}
    assert run_request(context(conf=conf)).start == {0: 5, 1: 2}


@dataclass(frozen=True, order=True)
class LineNumber:
    """An author's own type."""

    kind: ClassVar[str] = "test.line_number"
    value: int

    def to_json(self) -> Json:
        return self.value

    @classmethod
    def from_json(cls, value: Any) -> LineNumber:
        return cls(value)

    def progress(self, low: LineNumber, high: LineNumber) -> float:
        return 0.0


def test_what_to_type_is_a_rewind_where_positions_are_no_times_and_no_integers() -> None:
    typed = shlex.split(replacing_command(context(), "it's", 7, Range(LineNumber(5), LineNumber(9))))
    assert typed[:4] == ["airflow", "gobblin", "rewind", "it's"]
    assert typed[typed.index("--to") + 1] == "5"


@pytest.mark.parametrize("start", [{"0": 5, "2": 0}, '{"0": 5, "2": 0}'])
def test_a_range_may_be_of_offsets_by_partition(start: object) -> None:
    request = run_request(context(conf={"start": start, "end": {"2": 9}}))
    assert (request.start, request.end) == ({0: 5, 2: 0}, {2: 9})
    assert request.run_key("i") != run_request(context(conf={"start": start})).run_key("i")


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"start": {}}, "it is not a point in time"),
        ({"start": {"a": 1}}, "it is not a point in time"),
        ({"start": {"0": -1}}, "it is not a point in time"),
        ({"start": {"0": 1.5}}, "it is not a point in time"),
        ({"start": '{"0": '}, "it is not a point in time"),
        ({"start": {"0": 2**63 + 1}}, "it is not a point in time"),
        ({"start": {"0": 1, "00": 2}}, "one for each"),
        ({"start": '{"0": 1, "0": 2}'}, "one for each"),
        ({"start": '{"0": ' + "[" * 100_000}, "it is not a point in time"),
        ({"start": {"0": 5}, "end": {"1": 9}}, "can't be compared"),
        ({"start": {"0": 5}, "end": 9}, "can't be compared"),
        ({"start": {"0": 5, "1": 0}, "end": {"0": 9, "1": 0}}, "is not before its end"),
        ({"end": {"0": 5}}, "there is no start"),
    ],
)
def test_offsets_that_are_no_range_are_refused(conf: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        run_request(context(conf=conf))


def test_the_page_of_backfills(tmp_path: Path) -> None:
    (code,) = re.findall(r"<!-- test: backfills -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(code.replace("/lake/", f"{tmp_path}/"), "backfills.md", "exec"), defined)
    dag = defined["dag"]
    assert dag.get_task("shop.create_work_units").job.name == "shop"
    assert dag.rerun_with_latest_version is False
    assert dag.timetable.partitioned_at_runtime
    for conf in re.findall(r"--(?:dag-run-)?conf '(\{.*?\})'", PAGE):
        assert run_request(context(conf=json.loads(conf))).datasets == ("orders",)
    assert set(ingestion_params()) <= set(re.findall(r"`(\w+)`", PAGE))
