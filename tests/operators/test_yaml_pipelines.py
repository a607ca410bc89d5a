"""Pipelines in YAML: what a file makes, and the errors of a wrong file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import AssetOrTimeSchedule

from airflow_gobblin import (
    ConfigurationError,
    ExtractKind,
    Frame,
    Ingestion,
    OptionalInput,
    ParquetSink,
    Pipeline,
    Sql,
    SqlSource,
    SqlTable,
    Stage,
    State,
    Whole,
    YamlPipeline,
    load_ingestions,
    load_pipelines,
)
from airflow_gobblin.plugins.timetables import DatasetCronTimetable
from airflow_gobblin.stage import StageJob
from tests.operators.test_yaml_ingestions import LEAST
from tests.services.environment import ROOT

DOCS = ROOT / "docs"

FLIGHTS = """\
kind: pipeline
name: flights
journal: sqlite:////lake/journal.db
code: [no_such_module_here]
dag: {schedule: "@hourly", start_date: "2026-01-01T00:00:00+00:00", tags: [lake]}
jobs:
  - name: raw
    journal: sqlite:////lake/journal.db
    source:
      sql:
        conn_id: flights_db
        tables:
          - {table: flights, kind: append_only, delta: id}
          - {table: weather, kind: append_only, delta: id}
    sink: {parquet: {target: /lake/raw}}
  - name: joined
    function: {frame: {name: acme.join}}
    reads:
      flights: raw/flights
      weather: {whole: {of: raw/weather}}
    writes: {parquet: {target: /lake/joined}}
  - name: delays
    function: {sql: {query: "SELECT carrier FROM {joined} JOIN {weather}"}}
    reads:
      joined: [joined]
      weather: {optional: {of: {whole: {of: raw/weather}}, at_most: {hours: 6}}}
    writes: {parquet: {target: /lake/delays}}
    attempts: 5
    retention: {days: 2}
"""
RAW = Ingestion(
    "raw",
    SqlSource(
        "flights_db",
        tuple(SqlTable(table, ExtractKind.APPEND_ONLY, delta="id") for table in ("flights", "weather")),
    ),
    ParquetSink("/lake/raw"),
    "sqlite:////lake/journal.db",
)
JOINED = Stage(
    "joined",
    Frame("acme.join"),
    {"flights": RAW["flights"], "weather": Whole(RAW["weather"])},
    ParquetSink("/lake/joined"),
)

Load = Callable[[str], YamlPipeline]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str) -> YamlPipeline:
        (tmp_path / "a.yaml").write_text(text)
        (found,) = load_pipelines("*.yaml", relative_to=tmp_path)
        return found

    return load


def without_optional(text: str) -> str:
    """A stage can't have a dataset by two inputs and by one of them only optionally: this one only reads the other."""
    return re.sub(r"      weather: \{optional.*\n", "", text).replace(" JOIN {weather}", "")


def test_a_file_makes_the_pipeline_that_its_twin_in_python_does(load: Load) -> None:
    delays = Stage(
        "delays",
        Sql("SELECT carrier FROM {joined}"),
        {"joined": (JOINED,)},
        ParquetSink("/lake/delays"),
        attempts=5,
        retention=timedelta(days=2),
    )
    twin = Pipeline("flights", (RAW, JOINED, delays), RAW.journal, ("no_such_module_here",))
    assert load(without_optional(FLIGHTS)).pipeline.bound == twin.bound


def test_an_optional_input_by_its_name(load: Load) -> None:
    other = FLIGHTS.replace("of: raw/weather}}, at_most", "of: late/gusts}}, at_most")
    late = "  - name: late\n" + FLIGHTS.partition("  - name: raw\n")[2].partition("  - name: joined")[0]
    late = late.replace("/lake/raw", "/lake/late").replace("table: weather", "table: gusts")
    found = load(other + late).pipeline.jobs[2]
    assert isinstance(found, Stage)
    expected = replace(RAW["gusts"], job="late")
    assert found.reads["weather"] == OptionalInput(Whole(expected), timedelta(hours=6))


def test_a_stage_with_state(load: Load) -> None:
    schema = "carrier string, month string, flights bigint"
    state = f"function: {{frame: {{name: acme.join}}}}\n    state: {{key: [carrier, month], schema: '{schema}', keep: 24}}\n"
    found = load(without_optional(FLIGHTS).replace("function: {frame: {name: acme.join}}\n", state)).pipeline.jobs[1]
    assert isinstance(found, Stage)
    assert found.state == State(("carrier", "month"), schema, keep=24)


def test_a_stage_with_channels_and_one_that_reads_one(load: Load) -> None:
    frame = "    function: {frame: {name: acme.join}}\n"
    text = without_optional(FLIGHTS).replace(frame, f"{frame}    channels: [refused]\n")
    _, joined, delays = load(text.replace("[joined]", "joined/refused")).pipeline.bound
    assert isinstance(joined, StageJob)
    assert isinstance(delays, StageJob)
    assert joined.work.channels == ("refused",)
    (read,) = delays.work.upstreams
    assert (read.id, read.label, read.channel) == ("joined/joined", "joined/refused", "refused")


def test_the_dags_of_a_file(load: Load) -> None:
    raw, joined, delays = load(without_optional(FLIGHTS)).dags(max_active_tasks=3)
    assert [dag.dag_id for dag in (raw, joined, delays)] == ["flights.raw", "flights.joined", "flights.delays"]
    assert (joined.start_date, joined.tags, joined.max_active_tasks) == (datetime(2026, 1, 1, tzinfo=UTC), {"lake"}, 3)
    assert isinstance(joined.timetable, AssetOrTimeSchedule)
    zoned = FLIGHTS.replace('"@hourly"', '{cron: "@daily", timezone: Europe/Paris}')
    raw, *_ = load(without_optional(zoned)).dags()
    assert isinstance(raw.timetable, DatasetCronTimetable)
    assert raw.timetable.serialize() == {"expression": "0 0 * * *", "timezone": "Europe/Paris"}


def test_a_file_without_a_schedule_has_stages_that_are_only_woken(load: Load) -> None:
    unscheduled = without_optional(FLIGHTS).replace('"@hourly"', "null")
    raw, joined, _ = load(unscheduled).dags()
    assert not raw.timetable.can_be_scheduled
    assert not isinstance(joined.timetable, AssetOrTimeSchedule)
    late = "  - name: late\n" + FLIGHTS.partition("  - name: raw\n")[2].partition("  - name: joined")[0]
    late = late.replace("/lake/raw", "/lake/late").replace("table: weather", "table: gusts")
    two = unscheduled.replace("{whole: {of: raw/weather}}", "late/gusts") + late
    with pytest.raises(ConfigurationError, match=r"a\.yaml:5:17: dag\.schedule: .*'joined' waits for 'late' and 'raw'"):
        load(two)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("    function: {frame: {name: acme.join}}\n", "", "16:5: jobs[1]: there is no 'function'"),
        ("acme.join", "[]", "17:30: jobs[1].function.frame.name: expected a text, found a list"),
        ("frame:", "fram:", "17:16: jobs[1].function.fram: there is no such key. Did you mean 'frame'?"),
        (
            "flights: raw/flights",
            "flights: rwa/flights",
            "19:16: jobs[1].reads.flights: …reads 'rwa/flights', and there is no job 'rwa' in it. Did you mean 'raw'?",
        ),
        ("[joined]", "joined/rows", "25:15: jobs[2].reads.joined: …stage 'joined' has no channel of that name…"),
        ("[joined]", "[delays]", "7:3: jobs: …its stages read each other: …"),
        ("[joined]", "[]", "25:15: jobs[2].reads.joined: expected a list of at least 1, found an empty one"),
        ("[joined]", "{all: raw}", "25:16: jobs[2].reads.joined.all: there is no such key. Known: optional, whole"),
        ("[joined]", "joined/", "25:15: jobs[2].reads.joined: …"),
        ("FROM {joined}", "FROM {join}", "22:5: jobs[2]: …there is no input 'join'…"),
        ("/lake/delays", "lake", "26:32: jobs[2].writes.parquet.target: can't publish to target 'lake'…"),
        ("/lake/delays", "/lake/raw", "7:3: jobs: …two jobs write to '/lake/raw'…"),
        ("name: delays", "name: joined", "7:3: jobs: …two jobs are named 'joined'…"),
        ("attempts: 5", "attempts: 0", "27:15: jobs[2].attempts: expected at least 1, found 0"),
        (", start_date", ", dag_id: x, start_date", "5:36: dag.dag_id: expected nothing, found 'x'"),
        ('schedule: "@hourly", ', "", "5:6: dag: there is no 'schedule'"),
        ('"@hourly"', "3", "5:17: dag.schedule: expected a text, a mapping or nothing, found 3; quote it"),
        ("    sink:", "    dag: {}\n    sink:", "15:10: jobs[0].dag: expected nothing, found a mapping"),
        ("    sink:", "    policy: {}\n    sink:", "15:13: jobs[0].policy: …"),
        ("    journal: sqlite:////lake/journal.db", "    journal: journal/db", "8:14: jobs[0].journal: …"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line_and_what_was_expected(
    load: Load, old: str, new: str, problem: str
) -> None:
    text = without_optional(FLIGHTS)
    assert old in text
    with pytest.raises(ConfigurationError) as caught:
        load(text.replace(old, new, 1))
    first = str(caught.value.cause).strip().partition("\n")[0].partition("a.yaml:")[2]
    assert re.fullmatch(".*".join(map(re.escape, problem.split("…"))), first), first


def test_each_loader_names_the_other(tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(without_optional(FLIGHTS))
    (tmp_path / "shop.yaml").write_text(LEAST)
    with pytest.raises(ConfigurationError, match="it is a pipeline, which `load_pipelines` reads"):
        load_ingestions("flights.yaml", relative_to=tmp_path)
    with pytest.raises(ConfigurationError, match="it is not a pipeline: `load_ingestions` reads it"):
        load_pipelines("shop.yaml", relative_to=tmp_path)
    with pytest.raises(ConfigurationError, match=r"can't load pipelines from '\*\.yml'.*no file in"):
        load_pipelines("*.yml", relative_to=tmp_path)


def test_two_files_with_one_job(tmp_path: Path) -> None:
    text = without_optional(FLIGHTS)
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace("name: flights", "name: other"))
    with pytest.raises(ConfigurationError) as caught:
        load_pipelines("*.yaml", relative_to=tmp_path)
    assert f"b.yaml:7:11: jobs[0].name: the job 'raw' is in {tmp_path}/a.yaml:7 already" in str(caught.value)


def test_the_page(tmp_path: Path) -> None:
    """The file is the pipeline that the page on pipelines has in Python."""
    blocks = dict(
        re.findall(r"<!-- test: (.+?) -->\n```\w+\n(.*?)```", (DOCS / "authoring-yaml.md").read_text(), re.DOTALL)
    )
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "flights.yaml").write_text(blocks["pipelines/flights.yaml"])
    defined: dict[str, Any] = {"__file__": str(tmp_path / "pipelines.py")}
    exec(compile(blocks["pipelines.py"], "pipelines.py", "exec"), defined)
    assert {"flights.raw", "flights.joined", "flights.delays"} <= defined.keys()
    twin: dict[str, Any] = {}
    python = dict(
        re.findall(r"<!-- test: (.+?) -->\n```python\n(.*?)```", (DOCS / "pipelines.md").read_text(), re.DOTALL)
    )
    exec(compile(python["pipeline"], "pipelines.md", "exec"), twin)
    assert defined["one"].pipeline.bound == twin["flights"].bound


PARSED = """
import sys
from airflow_gobblin import load_pipelines
for name in ("pyspark", "acme_kinds_of_stages", "no_such_module_here"):
    sys.modules[name] = None
(found,) = load_pipelines("*.yaml", relative_to=sys.argv[1])
print(*(dag.dag_id for dag in found.dags()))
"""


def test_a_dag_file_imports_no_code_of_stages_and_no_spark(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(without_optional(FLIGHTS))
    done = subprocess.run([sys.executable, "-c", PARSED, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["flights.raw", "flights.joined", "flights.delays"], done.stderr


def test_an_ingestion_of_a_pipeline_has_kinds_of_its_own_code(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_kinds_of_stages.py").write_text("""\
from dataclasses import dataclass
from airflow_gobblin import ParquetSink, record

@record("acme.staged")
@dataclass(frozen=True)
class Staged(ParquetSink):
    pass
""")
    monkeypatch.syspath_prepend(tmp_path)
    own = "sink: {acme.staged: {target: /lake/raw}}\n    code: [acme_kinds_of_stages]"
    found: Any = load(without_optional(FLIGHTS).replace("sink: {parquet: {target: /lake/raw}}", own)).pipeline.jobs[0]
    assert type(found.sink).__name__ == "Staged"
