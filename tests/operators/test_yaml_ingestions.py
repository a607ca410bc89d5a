"""Ingestions in YAML: what a file makes, what the schema accepts, and the errors of a wrong file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from time import process_time
from typing import Any, Union, get_args, get_origin, get_type_hints

import jsonschema
import pytest
import yaml
from airflow.sdk import DAG
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gobblin.copy.checks import AtLeastFiles
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import Gunzip, Zstd
from airflow_gobblin.copy.finders import (
    DatePartitions,
    EachFolder,
    Glob,
    Manifest,
    NewestVersions,
    Ready,
    WholeTree,
)
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.registering import HiveTable
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model import wire
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.limits import RunLimits
from airflow_gobblin.model.policy import CommitPolicy
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark
from airflow_gobblin.model.work import ExtractKind, Limits
from airflow_gobblin.operators import GobblinIngestion, SparkOptions, located_yaml
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.operators.pipelines import Pipeline
from airflow_gobblin.operators.yaml_files import YAML_SCHEMA, _validator
from airflow_gobblin.operators.yaml_ingestions import DagOptions, YamlIngestion, load_ingestions
from airflow_gobblin.plugins.timetables import DatasetCronTimetable
from airflow_gobblin.rows.converters.base import OnBadRow
from airflow_gobblin.rows.converters.checks import InRange, Matches, NotNull
from airflow_gobblin.rows.converters.columns import AddColumn, DropColumns, RenameColumns
from airflow_gobblin.rows.sinks.base import Layout, Sink
from airflow_gobblin.rows.sinks.delta import DeltaSink
from airflow_gobblin.rows.sinks.iceberg import IcebergSink
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sinks.postgres import PostgresSink
from airflow_gobblin.rows.sources.kafka import Isolation, KafkaSource, OutOfRange, Start
from airflow_gobblin.rows.sources.kafka.values import AvroValues, BytesValues, JsonValues, TextValues, ValueFormat
from airflow_gobblin.rows.sources.sql import Predicate, SqlSource, SqlTable
from airflow_gobblin.stage import Stage
from airflow_gobblin.stages.functions import Frame, Sql
from airflow_gobblin.stages.outputs import OptionalInput, Readable, Whole
from airflow_gobblin.tables.port import Merge, SchemaRule
from tests.services.environment import ROOT

DEFINITIONS = json.loads(YAML_SCHEMA.read_text())["$defs"]

LEAST = """\
name: shop
journal: sqlite:////lake/journal.db
source:
  sql:
    conn_id: shop_db
    tables:
      - {table: orders, kind: append_only, delta: updated_at}
      - {table: customers, kind: snapshot_only}
sink:
  parquet: {target: /lake/shop}
"""
SHOP = Ingestion(
    name="shop",
    source=SqlSource(
        "shop_db",
        (
            SqlTable("orders", ExtractKind.APPEND_ONLY, delta="updated_at"),
            SqlTable("customers", ExtractKind.SNAPSHOT_ONLY),
        ),
    ),
    sink=ParquetSink("/lake/shop"),
    journal="sqlite:////lake/journal.db",
)

MIRROR = """\
kind: mirror
name: photos
source: /srv/camera
target: s3://photos_s3@photos/2026
journal: sqlite:////srv/journal.db
"""
FINDERS = (
    WholeTree(),
    EachFolder("in"),
    Glob("*/daily"),
    Manifest("files.txt"),
    DatePartitions("*", days=5),
    NewestVersions(count=2),
    Ready(EachFolder()),
)

Load = Callable[..., tuple[YamlIngestion, ...]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write texts to files a.yaml, b.yaml …, and load them."""

    def load(*texts: str) -> tuple[YamlIngestion, ...]:
        for name, text in zip("abcdef", texts, strict=False):
            (tmp_path / f"{name}.yaml").write_text(text)
        return load_ingestions("*.yaml", relative_to=tmp_path)

    return load


@pytest.fixture
def problems(load: Load, tmp_path: Path) -> Callable[..., list[str]]:
    """The problems of texts, each with its file's name."""

    def problems(*texts: str) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            load(*texts)
        assert str(YAML_SCHEMA) in str(caught.value)
        assert isinstance(caught.value.cause, str)
        return [line.removeprefix(f"{tmp_path}/") for line in caught.value.cause.strip("\n ").split("\n  ")]

    return problems


# --- Good files ---------------------------------------------------------------------------------------------------------------


def test_the_least_that_a_file_defines(load: Load, tmp_path: Path) -> None:
    (shop,) = load(LEAST)
    dag = DagOptions(dag_id="shop", datasets=tuple(table.urn for table in SHOP.source.tables))  # type: ignore[attr-defined]
    assert shop == YamlIngestion(tmp_path / "a.yaml", SHOP, SparkOptions(), dag)
    given = shop.dag.arguments()
    assert set(given.pop("params")) == {"datasets", "start", "end", "replace", "flush", "request"}
    assert given == {"dag_id": "shop", "max_active_runs": 1, "tags": [], "default_args": {}}


def test_all_that_a_file_can_define(load: Load) -> None:
    (shop,) = load("""\
x-row: &row {unit_bytes: 1048576, max_units: 4, timezone: Europe/Paris}
name: shop
journal: s3://lake@bucket/journal
policy: successful
partial_ok: true
seals: true
limits: {rows: 10, bytes: 20, seconds: 1.5}
batch: {bytes: 1000, rows: 10, age: {hours: 1}, kept: 0.25}
max_packs: 2
max_pack_weight: 1000000
attempts: 5
retention: {days: 1, hours: 12}
options: {anything: [1, {a: null}]}
code: [json]
converters:
  - rename_columns: {names: {a: b}}
  - drop_columns: {columns: [c]}
  - add_column: {name: d, value: 1}
checks:
  - not_null: {columns: [b], on_bad: drop}
  - in_range: {column: d, low: 1, high: 2.5}
  - matches: {column: b, pattern: "[a-z]+"}
source:
  sql:
    conn_id: shop_db
    reconcile: false
    tables:
      - <<: *row
        table: orders
        kind: append_only
        namespace: sales
        urn: all orders
        delta: at
        primary_keys: [id]
        columns: [id, at, no]
        casts: {id: int64}
        unit_width: {hours: 6}
        start: 2026-01-31 12:00:00+00:00
        lag: {minutes: 10}
        where:
          - {column: id, op: ">=", value: 7}
          - {column: state, op: in, value: [a, 1, true, 2.5]}
          - {column: at, op: "<", value: 2026-01-31}
          - {column: no, op: is null}
      - {table: clicks, kind: append_only, delta: id, start: 100, lag: 1000}
      - {table: days, kind: append_only, delta: day, start: 2026-01-31}
sink:
  parquet: {target: "s3://lake@bucket/shop", file_bytes: 1000000, compression_level: 3, layout: folder_per_unit}
spark: {conn_id: spark, conf: {spark.ui.enabled: "false"}, driver_memory: 1g, executor_cores: 2, steps_above: null}
dag:
  dag_id: the_shop
  description: All of it
  schedule: "@hourly"
  start_date: 2026-01-01
  end_date: 2027-01-01T00:00:00Z
  catchup: false
  max_active_runs: 2
  tags: [shop]
  default_args: {retries: 2, retry_delay: 60}
""")
    row = {"unit_bytes": 1 << 20, "max_units": 4, "timezone": "Europe/Paris"}
    orders = SqlTable(
        "orders",
        ExtractKind.APPEND_ONLY,
        namespace="sales",
        urn="all orders",
        delta="at",
        primary_keys=("id",),
        columns=("id", "at", "no"),
        casts={"id": "int64"},
        unit_width=timedelta(hours=6),
        start=datetime(2026, 1, 31, 12, tzinfo=UTC),
        lag=timedelta(minutes=10),
        where=(
            Predicate("id", ">=", 7),
            Predicate("state", "in", ("a", 1, True, 2.5)),
            Predicate("at", "<", date(2026, 1, 31)),
            Predicate("no", "is null"),
        ),
        **row,  # type: ignore[arg-type]
    )
    clicks = SqlTable("clicks", ExtractKind.APPEND_ONLY, delta="id", start=100, lag=1000)
    days = SqlTable("days", ExtractKind.APPEND_ONLY, delta="day", start=datetime(2026, 1, 31))  # noqa: DTZ001
    assert shop.ingestion == Ingestion(
        name="shop",
        source=SqlSource("shop_db", (orders, clicks, days), reconcile=False),
        sink=ParquetSink("s3://lake@bucket/shop", 1_000_000, 3, Layout.FOLDER_PER_UNIT),
        journal="s3://lake@bucket/journal",
        policy=CommitPolicy.SUCCESSFUL,
        partial_ok=True,
        seals=True,
        converters=(RenameColumns({"a": "b"}), DropColumns(("c",)), AddColumn("d", 1)),
        checks=(NotNull(("b",), OnBadRow.DROP), InRange("d", 1, 2.5), Matches("b", "[a-z]+")),
        limits=Limits(10, 20, 1.5),
        batch=Batch(1000, 10, timedelta(hours=1), 0.25),
        max_packs=2,
        max_pack_weight=1_000_000,
        attempts=5,
        retention=timedelta(hours=36),
        options={"anything": [1, {"a": None}]},
        code=("json",),
    )
    assert type(shop.ingestion.source.tables[1].lag) is int  # type: ignore[attr-defined]
    conf = {"spark.ui.enabled": "false"}
    assert shop.spark == SparkOptions("spark", conf, driver_memory="1g", executor_cores=2, steps_above=None)
    assert shop.dag == DagOptions(
        dag_id="the_shop",
        description="All of it",
        schedule="@hourly",
        start_date=datetime(2026, 1, 1),  # noqa: DTZ001
        end_date=datetime(2027, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=2,
        tags=("shop",),
        default_args={"retries": 2, "retry_delay": 60},
        datasets=tuple(table.urn for table in shop.ingestion.source.tables),  # type: ignore[attr-defined]
    )
    with DAG(**shop.dag.arguments()) as dag:
        GobblinIngestion(shop.ingestion, spark=shop.spark)
    assert dag.get_task("shop.finish").retry_delay == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("given", "sink"),
    [
        (
            "delta: {location: '/lake/{dataset}', workspace: /work, merge: true}",
            DeltaSink("/lake/{dataset}", "/work", merge=True),
        ),
        (
            (
                "delta: {location: '/lake/{dataset}', workspace: /work, partition: [day], sort: [id], schema_rule: add, "
                "merge: {keys: [id], delta: at, positions: [n]}, file_bytes: 7, compression_level: 3}"
            ),
            DeltaSink(
                "/lake/{dataset}", "/work", ("day",), Merge(("id",), "at", ("n",)), SchemaRule.ADD, 7, 3, ("id",)
            ),
        ),
        (
            "postgres: {conn_id: warehouse, table: 'raw.{dataset}', workspace: /work, schema_rule: {customers: widen}}",
            PostgresSink("warehouse", "raw.{dataset}", "/work", schema_rule={"customers": SchemaRule.WIDEN}),
        ),
    ],
)
def test_all_that_a_file_can_define_of_tables(load: Load, given: str, sink: Sink) -> None:
    (one,) = load(LEAST.replace("parquet: {target: /lake/shop}", given))
    assert one.ingestion.sink == sink  # type: ignore[union-attr]
    with DAG(**one.dag.arguments()):
        GobblinIngestion(one.ingestion, spark=one.spark)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("delta: {location: '/lake/{dataset}', workspace: work}", r"sink\.delta\.workspace: "),
        ("delta: {location: '/lake/{datset}', workspace: /work}", r"sink\.delta: .*{datset} is not a placeholder"),
        (
            "postgres: {conn_id: w, table: c, workspace: /work, schema_rule: change}",
            "expected 'refuse', 'add' or 'widen', found 'change'",
        ),
        ("postgres: {conn_id: w, table: c, workspace: /work, merge: {delta: at}}", "there is no 'keys'"),
    ],
)
def test_tables_that_cannot_be_are_refused_with_their_place(load: Load, given: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        load(LEAST.replace("parquet: {target: /lake/shop}", given))


def test_all_that_a_file_can_define_of_topics(load: Load) -> None:
    text = """\
name: clicks
journal: sqlite:////lake/journal.db
batch: {bytes: 268435456}
source:
  kafka:
    conn_id: kafka
    topics: [clicks, "orders.*"]
    exclude: [orders.test]
    start: START
    out_of_range: latest
    isolation: read_uncommitted
    unit_bytes: 1048576
    max_units: 8
    values: VALUES
sink:
  parquet: {target: /lake/clicks}
"""
    schema: dict[str, Any] = {"id": "int64", "address": {"city": "string"}, "tags": ["string"]}
    json_text = "{json: {schema: {id: int64, address: {city: string}, tags: [string]}, prefix: value_}}"
    texts: dict[str, ValueFormat] = {
        "{bytes: {}}": BytesValues(),
        "{text: {}}": TextValues(),
        json_text: JsonValues(schema, "value_"),
        "{avro: {registry: my_registry, subject: '{topic}'}}": AvroValues(registry="my_registry", subject="{topic}"),
    }
    starts: dict[str, Any] = {
        "earliest": Start.EARLIEST,
        "2026-01-31T00:00:00+00:00": datetime(2026, 1, 31, tzinfo=UTC),
        "{clicks: [0, 1200]}": {"clicks": (0, 1200)},
    }
    for values, expected in texts.items():
        for start, first in starts.items():
            (clicks,) = load(text.replace("VALUES", values).replace("START", start))
            assert isinstance(clicks.ingestion, Ingestion)
            assert clicks.ingestion.source == KafkaSource(
                "kafka",
                ("clicks", "orders.*"),
                ("orders.test",),
                first,
                OutOfRange.LATEST,
                Isolation.UNCOMMITTED,
                1 << 20,
                8,
                expected,
            )


def test_the_least_that_a_file_defines_of_a_mirror(load: Load) -> None:
    (photos,) = load(MIRROR + "dag: {schedule: '@daily'}\n")
    expected = Mirror("photos", "/srv/camera", "s3://photos_s3@photos/2026", "sqlite:////srv/journal.db")
    assert (photos.ingestion, photos.dag.dag_id) == (expected, "photos")
    assert set(photos.dag.arguments()["params"]) == {"datasets", "request"}, "a mirror has no ranges"


def test_all_that_a_file_can_define_of_a_mirror(load: Load) -> None:
    text = (
        MIRROR.replace("s3://photos_s3@photos/2026", "/srv/photos/new")
        + """\
datasets: {each_folder: {}}
include: ["**/*.jpg"]
exclude: [tmp/]
filter_file: /etc/photos.rules
compare: checksum
existing: update
delete: {at_most: 0.05}
keep: {letters: tp, strict: true, owner: etl, group: 1234, folder_permission: 0o750}
links: copy
empty_folders: true
workspace: /srv/photos
checksums: true
bandwidth: 1000000
split_above: 1073741824
convert: [gunzip: {}, zstd: {level: 5}]
checks: [at_least_files: {count: 3}]
register: {hive_table: {database: lake, table: "{dataset}", columns: [id bigint], partitions: [dt date], drop: true}}
place: archive/{folder}
backup: /srv/photos/_gobblin/backup
first: [urgent]
limits: {datasets: 3, file_sets: 4, files: 5000, bytes: 6000000}
file_events: true
unpack: {most_depth: 8}
max_packs: 2
max_pack_weight: 1000000
attempts: 5
code: []
"""
    )
    (photos,) = load(text)
    assert photos.ingestion == Mirror(
        name="photos",
        source="/srv/camera",
        target="/srv/photos/new",
        journal="sqlite:////srv/journal.db",
        datasets=EachFolder(),
        include=("**/*.jpg",),
        exclude=("tmp/",),
        filter_file="/etc/photos.rules",
        compare=Compare.CHECKSUM,
        existing=Existing.UPDATE,
        delete=Delete(0.05),
        keep=Keep("tp", strict=True, owner="etl", group=1234, folder_permission=0o750),
        links=Links.COPY,
        empty_folders=True,
        workspace="/srv/photos",
        checksums=True,
        bandwidth=1_000_000,
        split_above=1 << 30,
        convert=(Gunzip(), Zstd(5)),
        checks=(AtLeastFiles(3),),
        register=HiveTable("lake", "{dataset}", ("id bigint",), ("dt date",), drop=True),
        place="archive/{folder}",
        backup="/srv/photos/_gobblin/backup",
        first=("urgent",),
        limits=RunLimits(3, 4, 5000, 6_000_000),
        file_events=True,
        unpack=Unpack(most_depth=8),
        max_packs=2,
        max_pack_weight=1_000_000,
        attempts=5,
    )
    keys = set(yaml.safe_load(text)) - {"kind"}
    assert keys == {one.name for one in fields(Mirror)}, "all of them"


@pytest.mark.parametrize("finder", FINDERS, ids=lambda finder: type(finder).__name__)
def test_a_finder_by_its_kind(load: Load, finder: Any) -> None:
    def written(one: Any) -> dict[str, Any]:
        given = {f.name: getattr(one, f.name) for f in fields(one)}
        return {
            wire.kind_of(one): {name: written(value) if is_dataclass(value) else value for name, value in given.items()}
        }

    (photos,) = load(MIRROR + json.dumps({"datasets": written(finder)})[1:-1] + "\n")
    assert isinstance(photos.ingestion, Mirror)
    assert photos.ingestion.datasets == finder


def test_a_dag_file_takes_mirrors_and_ingestions(load: Load) -> None:
    for one in load(MIRROR, LEAST):
        with DAG(**one.dag.arguments()) as dag:
            GobblinIngestion(one.ingestion, spark=one.spark)
        assert len(dag.tasks) == 6


def test_a_wrong_mirror_is_refused_with_its_line_and_what_was_expected(problems: Callable[..., list[str]]) -> None:
    assert problems(MIRROR + "existing: replace\nkeep: {letters: z}\nsink: {}\n") == [
        "a.yaml:6:11: existing: expected 'fail', 'update' or 'skip', found 'replace'",
        "a.yaml:8:1: sink: there is no such key. Did you mean 'links'?",
    ]
    (keep,) = problems(MIRROR + "keep: {letters: z}\n")
    assert keep.startswith("a.yaml:6:7: keep: can't use Keep('z'): 'z' is none of its letters")
    (inside,) = problems(MIRROR.replace("/srv/camera", "/srv").replace("s3://photos_s3@photos/2026", "/srv/b"))
    assert "it is the source '/srv' or lies in it" in inside
    unknown = problems(MIRROR.replace("kind: mirror", "kind: copy"))
    assert "a.yaml:1:7: kind: expected 'ingestion', 'mirror' or 'pipeline', found 'copy'" in unknown
    (converter,) = problems(MIRROR + "convert: [{gunzpi: {}}]\n")
    assert converter.startswith("a.yaml:6:20: convert[0].gunzpi: ")
    (password,) = problems(MIRROR.replace("s3://photos_s3@", "s3://key:secret@"))
    assert "secret" not in password.partition("it holds")[0]


def test_a_schedule_with_data_intervals(load: Load, problems: Callable[..., list[str]]) -> None:
    (shop,) = load(LEAST + "dag: {schedule: {cron: '@daily', timezone: Europe/Paris}}\n")
    with DAG(**shop.dag.arguments()) as dag:
        GobblinIngestion(shop.ingestion)
    assert isinstance(dag.timetable, DatasetCronTimetable)
    assert dag.timetable.serialize() == {"expression": "0 0 * * *", "timezone": "Europe/Paris"}
    assert problems(LEAST + "dag: {schedule: {timezone: UTC}}\n") == ["a.yaml:11:17: dag.schedule: there is no 'cron'"]
    (problem,) = problems(LEAST + "dag: {schedule: {cron: '@daily', timezone: Nowhere}}\n")
    assert "there is no time zone 'Nowhere'" in problem


def test_the_form_offers_the_tables_that_the_file_names(load: Load) -> None:
    (shop,) = load(LEAST)
    form = shop.dag.arguments()["params"]["datasets"]
    assert form.schema["items"]["enum"] == ["orders", "customers"]
    assert form.resolve(["customers"]) == ["customers"]
    with pytest.raises(ValueError, match="costumers"):
        form.resolve(["costumers"])


def test_an_authors_own_sink_by_its_kind(
    tmp_path: Path, load: Load, problems: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_yaml.py").write_text("""\
from dataclasses import dataclass
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.model.wire import record

@record("acme.labelled")
@dataclass(frozen=True)
class Labelled(ParquetSink):
    labels: tuple[str, ...] = ()
""")
    monkeypatch.syspath_prepend(tmp_path)
    sink = "  acme.labelled: {target: /lake/shop, labels: [a]}\ncode: [acme_yaml]\n"
    (shop,) = load(LEAST.replace("  parquet: {target: /lake/shop}\n", sink))
    acme = sys.modules["acme_yaml"]
    assert shop.ingestion == replace(SHOP, sink=acme.Labelled("/lake/shop", labels=("a",)), code=("acme_yaml",))
    assert wire.kind_of(shop.ingestion.sink) == "acme.labelled"
    (problem,) = problems(LEAST.replace("  parquet: {target: /lake/shop}\n", sink.replace("labels:", "label:")))
    assert problem.startswith(
        "a.yaml:10:18: sink.acme.labelled: it can't be used: expected fields of Labelled and not ['label']"
    )


def test_files_come_in_the_order_of_their_paths_from_below_the_callers_folder(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.yaml").write_text(LEAST.replace("name: shop", f"name: {name}"))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.yaml").write_text(LEAST)
    (tmp_path / ".hidden.yaml").write_text("of an editor")
    (tmp_path / "folder.yaml").mkdir()
    dag_file = tmp_path / "dags.py"
    names: dict[str, Any] = {"__file__": str(dag_file), "load_ingestions": load_ingestions}
    exec("found = load_ingestions('*.yaml'); all = load_ingestions('**/*.yaml')", names)
    assert [one.ingestion.name for one in names["found"]] == ["a", "b", "c"]
    assert [one.ingestion.name for one in names["all"]] == ["a", "b", "c", "shop"]
    assert load_ingestions("*.yaml", relative_to=dag_file) == names["found"]


DAG_FILE = """\
from airflow.sdk import DAG
from airflow_gobblin import GobblinIngestion, load_ingestions

for one in load_ingestions("*.yaml"):
    with DAG(**one.dag.arguments()):
        GobblinIngestion(one.ingestion, spark=one.spark)
"""


def test_a_dag_file_of_four_lines(load: Load, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    load(LEAST, LEAST.replace("name: shop", "name: other") + "dag: {schedule: '@daily', tags: [b]}\n")
    (tmp_path / "shops.py").write_text(DAG_FILE)
    bag = DagBag(str(tmp_path / "shops.py"))
    assert bag.import_errors == {}
    assert {name: len(dag.tasks) for name, dag in bag.dags.items()} == {"shop": 6, "other": 6}
    assert bag.dags["other"].tags == {"b"}
    assert bag.dags["other"].fileloc == str(tmp_path / "shops.py")
    (tmp_path / "b.yaml").write_text(LEAST.replace("kind: append_only", "kind: append"))
    bag = DagBag(str(tmp_path / "shops.py"))
    (error,) = bag.import_errors.values()
    assert f"{tmp_path / 'b.yaml'}:7:31: source.sql.tables[0].kind: expected " in error


# --- What it costs ------------------------------------------------------------------------------------------------------------

HEAVY = """
import sys
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit
before = set(sys.modules)
from airflow_gobblin import load_ingestions
load_ingestions("*.yaml", relative_to=sys.argv[1])
new = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(*sorted(new - {"airflow", "airflow_gobblin", "packaging"}))
"""


def test_loading_brings_nothing_that_airflow_has_not_loaded_already(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LEAST)
    done = subprocess.run([sys.executable, "-c", HEAVY, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {"yaml", "_yaml", "jsonschema"}


def test_the_work_of_loading_is_in_proportion_to_the_datasets(load: Load) -> None:
    table = "- {table: t%d, kind: append_only, delta: at, lag: {minutes: 10}, columns: [id, at], casts: {id: int64}}\n"

    def seconds(count: int) -> float:
        """Return the processor's seconds of loading so many datasets."""
        tables = "".join("      " + table % number for number in range(count - 1))
        text = LEAST.replace("      - {table: customers, kind: snapshot_only}\n", tables)
        (shop,) = load(text)
        assert len(shop.ingestion.source.tables) == count  # type: ignore[union-attr]
        times = []
        for _ in range(5):
            began = process_time()
            load(text)
            times.append(process_time() - began)
        return min(times)

    assert seconds(400) < 8 * seconds(100)  # squares would be 16


# --- The schema and the constructors agree ------------------------------------------------------------------------------------

CLASSES: tuple[type[Any], ...] = (
    Ingestion,
    DagOptions,
    SparkOptions,
    KafkaSource,
    BytesValues,
    TextValues,
    JsonValues,
    AvroValues,
    SqlSource,
    SqlTable,
    Predicate,
    ParquetSink,
    DeltaSink,
    IcebergSink,
    PostgresSink,
    Batch,
    Limits,
    RenameColumns,
    DropColumns,
    AddColumn,
    NotNull,
    InRange,
    Matches,
    Mirror,
    Keep,
    HiveTable,
    RunLimits,
    Pipeline,
    Stage,
    Frame,
    Sql,
    Whole,
    OptionalInput,
    *(type(finder) for finder in FINDERS),
)
JSON_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    timedelta: "object",
    datetime: "string",
    date: "string",
    Decimal: "string",
}
JOBS = (Ingestion, Mirror, Pipeline)
NOT_IN_YAML = {LongWatermark, TimestampWatermark}  # `start` takes a number or a time, which become one
NEVER_WRITTEN = {(DagOptions, "datasets"), (DagOptions, "ranges")}  # the source's
FLOAT_MEANS_SECONDS = {("SqlTable", "lag"), ("SqlTable", "unit_width")}  # nobody sees 5 differ from 5.0
DURATION = {"weeks", "days", "hours", "minutes", "seconds"}


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return DEFINITIONS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def options_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def json_types(hint: Any) -> set[str]:
    """The JSON types of a type hint."""
    found = set()
    for option in options_of(hint):
        origin = get_origin(option)
        if origin is tuple:
            found.add("array")
        elif option is Readable:
            found |= {"string", "object"}
        elif origin is not None or is_dataclass(option) or getattr(option, "_is_protocol", False):
            found |= (
                set() if option in NOT_IN_YAML else {"object" if origin is None or issubclass(origin, Mapping) else "?"}
            )
        else:
            found.add("string" if issubclass(option, Enum) else JSON_TYPES[option])
    return found - ({"integer"} if "number" in found else set())


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_schema_has_the_fields_of_the_dataclass(cls: type[Any]) -> None:
    schema = DEFINITIONS[cls.__name__]
    hints = get_type_hints(cls)
    assert schema["additionalProperties"] is False
    extra = {"kind", "dag", "spark"} if cls in JOBS else set()
    written = [f for f in fields(cls) if (cls, f.name) not in NEVER_WRITTEN]
    assert set(schema["properties"]) - extra == {f.name for f in written}
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    assert set(schema.get("required", ())) - extra == required
    for f in written:
        described = resolved(schema["properties"][f.name])
        expect_type(cls, f.name, hints[f.name], described)
        if "default" in described:
            default = f.default if f.default_factory is MISSING else f.default_factory()
            assert wire.to_json(default) == described["default"]
        else:
            assert f.name in required or described["type"] == "object"


def expect_type(cls: type[Any], name: str, hint: Any, schema: Mapping[str, Any]) -> None:
    types_ = schema.get("type", "string")
    described = {types_} if isinstance(types_, str) else {*types_}
    dropped = {"number"} if (cls.__name__, name) in FLOAT_MEANS_SECONDS else set()
    expected = json_types(hint) - dropped | ({"integer"} if dropped else set())
    assert described == expected, name
    for option in options_of(hint):
        if isinstance(option, type) and issubclass(option, Enum) and datetime not in options_of(hint):
            assert schema.get("then", schema)["enum"] == [member.value for member in option]
        if option is timedelta:
            assert (set(schema["properties"]), schema["additionalProperties"]) == (DURATION, False)
        if get_origin(option) is tuple:
            element, _ = get_args(option)
            inner = resolved(schema["items"])
            assert inner is DEFINITIONS.get(getattr(element, "__name__", ""), inner)
            assert is_dataclass(element) == (inner is DEFINITIONS.get(getattr(element, "__name__", "")))
            given = {inner["type"]} if isinstance(inner["type"], str) else {*inner["type"]}
            assert given == json_types(element)
        if get_origin(option) is not None and issubclass(get_origin(option), Mapping):
            value = get_args(option)[1]
            known: Any = {"type": "string"} if value is str else {"$ref": "#/$defs/Reads"} if name == "reads" else None
            if isinstance(value, type) and issubclass(value, Enum):
                known = {"enum": [member.value for member in value]}
            assert schema.get("additionalProperties") == known


def test_the_schema_names_the_built_in_parts_as_they_are_registered() -> None:
    properties = DEFINITIONS["Ingestion"]["properties"]
    for where in ("converters", "checks"):
        named = properties[where]["items"]["properties"]
        assert {cls.__name__ for cls in CLASSES} >= {ref["$ref"].rpartition("/")[2] for ref in named.values()}
        for kind, ref in named.items():
            (cls,) = (cls for cls in CLASSES if cls.__name__ == ref["$ref"].rpartition("/")[2])
            assert wire._by_kind[kind] is cls
    built_in = {cls for cls in wire._by_kind.values() if cls.__module__.startswith("airflow_gobblin.rows.converters")}
    assert built_in <= set(CLASSES)


def keywords(schema: Any) -> Iterator[str]:
    """The keywords of a schema."""
    for key, value in schema.items():
        yield key
        if key in ("properties", "patternProperties", "$defs"):
            for inner in value.values():
                yield from keywords(inner)
        elif isinstance(value, dict) and key != "default":
            yield from keywords(value)


def test_the_schema_is_one_and_every_keyword_in_it_can_be_explained() -> None:
    from airflow_gobblin.operators.yaml_files import _EXPLAINED

    schema = json.loads(YAML_SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    silent = {"$schema", "$ref", "$defs", "title", "description", "default", "properties", "patternProperties", "items"}
    choice = {"if", "then", "else", "const"}
    assert set(keywords(schema)) == {*_EXPLAINED, *silent, *choice, "additionalProperties"}


# --- Bad files ----------------------------------------------------------------------------------------------------------------


def changed(old: str, new: str) -> str:
    assert LEAST.count(old) == 1
    return LEAST.replace(old, new)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            changed("append_only", "append"),
            "7:31: source.sql.tables[0].kind: expected 'snapshot_only', 'append_only' or …'append'",
        ),
        (
            changed(", delta:", ", dleta:"),
            "7:44: source.sql.tables[0].dleta: there is no such key. Did you mean 'delta'?",
        ),
        (LEAST + "zzz: 1", "11:1: zzz: there is no such key. Known: attempts, batch, …"),
        (changed("sql:", "mysql:"), "4:3: source.mysql: there is no such key. Did you mean 'sql'?"),
        (changed("table: customers, ", ""), "8:9: source.sql.tables[1]: there is no 'table'"),
        (changed("name: shop\n", ""), "1:1: there is no 'name'"),
        (changed("name: shop\n", "name: The Shop\n"), "1:7: name: expected a text that matches …, found 'The Shop'"),
        (changed("table: customers", "table: 2026"), "8:17: …: expected a text, found 2026; quote it"),
        (changed("table: customers", "table: true"), "8:17: …: expected a text, found true; quote it"),
        (changed("table: customers", "table: ''"), "8:17: …: expected a text, found an empty one"),
        (changed("shop_db", "postgresql://h/db"), "5:14: …conn_id: expected a text that matches …, found another text"),
        (LEAST + "attempts: 0", "11:11: attempts: expected at least 1, found 0"),
        (LEAST + "attempts: 3.0", "11:11: attempts: expected a whole number, found 3.0"),
        (LEAST + "partial_ok: no", "11:13: partial_ok: expected true or false, found 'no'"),
        (LEAST + "limits: {seconds: 0}", "11:19: limits.seconds: expected more than 0, found 0"),
        (LEAST + "retention: 24h", "11:12: retention: expected a mapping, found '24h'"),
        (LEAST + "retention: {}", "11:12: retention: expected one key, found none"),
        (LEAST + "retention: {minute: 1}", "11:13: retention.minute: there is no such key. Did you mean 'minutes'?"),
        (LEAST + "retention: {days: 1e300}", "11:12: retention: it can't be used: …"),
        (
            LEAST + "converters: [{upper: {}}]",
            "11:15: converters[0].upper: there is no such key. Known: add_column, …",
        ),
        (
            LEAST + "converters: [{acme.upper: {}}]",
            "11:27: converters[0].acme.upper: can't decode record of kind …`code…",
        ),
        (
            LEAST + "code: [no_such_module]\nconverters: [{acme.upper: {}}]",
            "11:7: code: can't import module 'no_such_module'…",
        ),
        (LEAST + "checks: [{matches: {column: a, pattern: '['}}]", "11:20: checks[0].matches: can't apply Matches(…"),
        (LEAST + "checks: [{not_null: {}}]", "11:21: checks[0].not_null: there is no 'columns'"),
        (
            LEAST + "dag: {start_date: yesterday}",
            "11:19: dag.start_date: it can't be used: Invalid isoformat string: …",
        ),
        (LEAST + "dag: {tags: x}", "11:13: dag.tags: expected a list, found 'x'"),
        (LEAST + f"dag: {{tags: [{'x' * 101}]}}", "11:14: dag.tags[0]: expected at most 100 characters, found 101"),
        (LEAST + "spark: {conf: {a: true}}", "11:19: spark.conf.a: expected a text, found true; quote it"),
        (
            changed("{target: /lake/shop}", "{target: lake}"),
            "10:21: sink.parquet.target: can't publish to target 'lake': …",
        ),
        (
            changed("{target: /lake/shop}", "{target: /l, compression_level: 30}"),
            "10:44: …: expected at most 22, found 30",
        ),
        (changed("sqlite:////lake/journal.db", "journal/db"), "2:10: journal: can't use journal 'journal/db': …"),
        (
            changed(", delta: updated_at", ""),
            "7:9: source.sql.tables[0]: can't use table 'orders': …needs a delta column…",
        ),
        (
            changed("customers", "orders"),
            "5:5: source.sql: can't use SqlSource('shop_db'): two tables have the URN 'orders'…",
        ),
        (
            changed("snapshot_only", "snapshot_only, lag: 5.0"),
            "8:54: …lag: expected a whole number, a mapping or nothing, …",
        ),
        (
            changed("snapshot_only", "snapshot_only, where: [{column: a, op: like, value: b}]"),
            "8:73: source.sql.tables[1].where[0].op: expected '=', '!=', …, found 'like'",
        ),
        (
            changed("snapshot_only", "snapshot_only, where: [{column: a, op: in, value: 1}]"),
            "8:57: source.sql.tables[1].where[0]: can't use Predicate(…",
        ),
        (
            changed("    tables:", "    tables: []\n    x:").split("    x:")[0] + "sink: {parquet: {target: /l}}",
            "6:13: …an empty one",
        ),
        (LEAST.replace("  parquet: {target: /lake/shop}", "  {}"), "10:3: sink: expected one key, found none"),
        (
            "x-a: &a {name: shop, name: b}\nb: {<<: *a}\nc: {<<: *a}",
            "1:22: x-a.name: the key was given before, in line 1",
        ),
        ("- name: shop", "1:1: expected a mapping, found a list"),
        ("shop", "1:1: expected a mapping, found 'shop'"),
        ("", "1:1: it is empty"),
        (LEAST + "name: shop", "11:1: name: the key was given before, in line 1"),
        (changed("kind: append_only", "kind: !!python/name:os.system"), "7:31: …kind: the tag …"),
        (LEAST.replace("sink:", "sink"), "…: it is not YAML: …"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line_and_what_was_expected(
    problems: Callable[..., list[str]], text: str, problem: str
) -> None:
    (found,) = problems(text)
    assert re.fullmatch("a.yaml:" + ".*".join(map(re.escape, problem.split("…"))), found), found


def test_all_that_is_wrong_is_reported_at_once_but_no_more_than_ten_things(problems: Callable[..., list[str]]) -> None:
    three = LEAST.replace("append_only", "append").replace("/lake/shop", "[]") + "attempts: none\n"
    assert [line.split(": ")[0] for line in problems(three)] == ["a.yaml:7:31", "a.yaml:10:21", "a.yaml:11:11"]
    refused = LEAST.replace(", delta: updated_at", "").replace("kind: snapshot_only", "kind: append_only")
    assert [line.split(": ")[0] for line in problems(refused + "retention: {days: 1e300}\n")] == [
        "a.yaml:7:9",
        "a.yaml:8:9",
        "a.yaml:11:12",
    ]
    many = LEAST + "".join(f"unknown_{n}: 1\n" for n in range(7))
    found = problems(many, many)
    assert [line.partition(":")[0] for line in found[:-1]] == ["a.yaml"] * 7 + ["b.yaml"] * 3
    assert found[-1] == "and 4 more"


def test_two_files_with_one_name(problems: Callable[..., list[str]], load: Load, tmp_path: Path) -> None:
    found = problems(LEAST, LEAST + "dag: {dag_id: other}")
    a = tmp_path / "a.yaml"
    assert found == [f"b.yaml:1:7: name: the ingestion 'shop' is in {a}:1 already; give one of them another name"]
    found = problems(LEAST, LEAST.replace("name: shop", "name: other") + "dag: {dag_id: shop}")
    assert found == [f"b.yaml:11:15: dag.dag_id: the DAG 'shop' is in {a}:1 already; give one of them another name"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (changed("sqlite:////lake/journal.db", "postgresql://ann:hunter2@host/db"), "2:10: journal"),
        (changed("sqlite:////lake/journal.db", "postgresql://host/db?password=hunter2"), "2:10: journal"),
        (changed("/lake/shop", "s3://key:hunter2@bucket/shop"), "10:21: sink.parquet.target"),
        (changed("shop_db", "postgresql://ann:hunter2@host/db"), "5:14: source.sql.conn_id"),
        (LEAST + "spark: {conf: {proxy: 'http://ann:hunter2@host'}}", "11:23: spark.conf.proxy"),
        (
            LEAST + "spark: {conf: {spark.hadoop.fs.s3a.secret.key: hunter2}}",
            "11:48: spark.conf.spark.hadoop.fs.s3a.secret.key",
        ),
        (LEAST + "spark: {conf: {spark.x: '-Djavax.net.ssl.keyStorePassword=hunter2'}}", "11:25: spark.conf.spark.x"),
        (LEAST + "dag: {default_args: {smtp_password: hunter2}}", "11:37: dag.default_args.smtp_password"),
        (LEAST + "'http://ann:hunter2@host': 1", "11:1: …"),
        (LEAST + "spark: {conf: {'http://ann:hunter2@host': '1'}}", "11:16: spark.conf.…"),
        (LEAST + "'http://ann:hunter2@host': 1\n'http://ann:hunter2@host': 2", "12:1: …"),
        (LEAST + "description: see http://ann:hunter2/b@host", "11:14: description"),
        (LEAST + "attempts: 'http://ann:hunter2@host'", "11:11: attempts"),
    ],
)
def test_a_password_is_refused_and_not_shown(problems: Callable[..., list[str]], text: str, where: str) -> None:
    (found,) = problems(text)
    assert found.startswith(f"a.yaml:{where}: ")
    assert "password" in found.lower() or "keys belong in the Airflow connection" in found or "given before" in found
    assert "hunter2" not in found


@pytest.mark.parametrize("text", ["a" * 400_000, "://" * 100_000, "x://a:1 " * 50_000, "x://" + "1:" * 200_000])
def test_a_long_text_is_searched_for_passwords_at_once(load: Load, text: str) -> None:
    began = process_time()
    (loaded,) = load(LEAST + f"dag: {{description: {json.dumps(text)}}}")
    assert loaded.dag.description == text
    assert process_time() - began < 10


def test_a_file_is_read_up_to_its_limit_only(problems: Callable[..., list[str]]) -> None:
    assert problems(LEAST + "#" * (4 << 20)) == ["a.yaml:1:1: it is larger than 4 MiB; make several files of it"]


@pytest.mark.parametrize(
    "conf", [{"spark.hadoop.fs.s3a.secret.key": "hunter2"}, {"spark.x": "jdbc:postgresql://h/d?password=hunter2"}]
)
def test_a_secret_among_the_settings_of_spark_is_refused_and_not_shown(conf: dict[str, str]) -> None:
    expected = r"can't use the Spark setting 'spark\..*it holds a secret"
    with pytest.raises(ConfigurationError, match=expected) as caught:
        SparkOptions(conf=conf)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=expected):
        ExtractOperator(task_id="extract", job=SHOP, pack={}, conf=conf)


def test_a_setting_that_names_the_place_of_a_secret_is_taken() -> None:
    SparkOptions(conf={"spark.authenticate.secret.file": "/run/secret", "spark.hadoop.fs.s3a.secret.key": "${env.KEY}"})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.yml", "no file in '{}' matches"),
        ("/tmp/*.yaml", "Give a pattern of relative paths"),
        ("", "Give a pattern of"),
    ],
)
def test_a_pattern_that_finds_nothing(load: Load, tmp_path: Path, pattern: str, expected: str) -> None:
    load(LEAST)
    with pytest.raises(ConfigurationError, match=re.escape(expected.format(tmp_path))):
        load_ingestions(pattern, relative_to=tmp_path)


def test_no_file_to_be_relative_to() -> None:
    with pytest.raises(ConfigurationError, match="Name a folder"):
        exec("load_ingestions('*.yaml')", {"load_ingestions": load_ingestions})


# --- Any change of a good file is either fine or reported ---------------------------------------------------------------------

WHOLE = located_yaml.parse(LEAST.encode()).value
ODD = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", "2026-01-01", [], ["x"], {}, {"x": 1}, "s3://", "\0", "é", 1 << 70]
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(inner, (*path, key))


@settings(max_examples=300, deadline=None)
@given(
    where=st.sampled_from(sorted(paths(WHOLE), key=str)),
    odd=ODD,
    add=st.sampled_from([None, *DEFINITIONS["SqlTable"]["properties"]]),
)
def test_any_odd_value_is_fine_or_reported_with_its_place(
    where: tuple[Any, ...], odd: Any, add: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = json.loads(json.dumps({"": WHOLE}))
    holder = document
    for key in ("", *where)[:-1]:
        holder = holder[key]
    last = ("", *where)[-1]
    if add is not None and isinstance(holder[last], dict):
        holder[last][add] = odd
    else:
        holder[last] = odd
    folder = tmp_path_factory.mktemp("odd")
    (folder / "a.yaml").write_text(json.dumps(document[""], indent=1))
    try:
        (loaded,) = load_ingestions("*.yaml", relative_to=folder)
    except ConfigurationError as error:
        placed = re.match(rf"\n  {re.escape(str(folder))}/a\.yaml:\d+:\d+: .", str(error.cause))
        assert placed
    else:
        assert [*_validator().iter_errors(document[""])] == []
        with DAG(**loaded.dag.arguments()):
            GobblinIngestion(loaded.ingestion, spark=loaded.spark)


# --- The page -----------------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "authoring-yaml.md").read_text()
BLOCKS = re.findall(r"^<!-- test: (\S+) -->\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_is_run() -> None:
    assert PAGE.count("```") == 2 * len(BLOCKS)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = dict(BLOCKS)
    for name in (
        *(f"ingestions/{one}.yaml" for one in ("shop", "clicks", "events", "photos", "raw")),
        "ingestions.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(blocks[name])
    defined: dict[str, Any] = {"__file__": str(tmp_path / "ingestions.py")}
    exec(compile(blocks["ingestions.py"], "ingestions.py", "exec"), defined)
    assert defined["dag"].dag_id == "shop"
    assert {"shop.verify_recover", "shop.finish"} <= set(defined["dag"].task_ids)
    clicks, events, photos, raw, shop = load_ingestions("ingestions/*.yaml", relative_to=tmp_path)
    assert isinstance(events.ingestion.source, KafkaSource)
    assert events.ingestion.source.values.on_bad is OnBadRow.DEAD_LETTER
    twin: dict[str, Any] = {}
    exec(compile(blocks["shop.py"], "shop.py", "exec"), twin)
    assert shop.ingestion == twin["shop"]
    assert isinstance(raw.ingestion.sink, PostgresSink)  # type: ignore[union-attr]
    assert isinstance(photos.ingestion, Mirror)
    assert photos.ingestion.datasets == Ready(EachFolder())
    tables = clicks.ingestion.source.tables  # type: ignore[union-attr]
    assert {(table.lag, table.unit_bytes) for table in tables} == {(3600.0, 1 << 26)}
    assert tables[1].kind is ExtractKind.SNAPSHOT_APPEND

    wrong = blocks["ingestions/shop.yaml"].replace("kind: append_only", "kind: append").replace("delta:", "detla:")
    (tmp_path / "ingestions" / "shop.yaml").write_text(wrong)
    with pytest.raises(ConfigurationError) as caught:
        load_ingestions("ingestions/*.yaml", relative_to=tmp_path)
    message = str(caught.value).replace(str(tmp_path), "/dags").replace(str(YAML_SCHEMA), "….schema.json")
    assert message == blocks["refused"].rstrip("\n")

    (line,) = blocks["schema"].splitlines()
    program = re.fullmatch(r'\$ python -c "(.*)"', line)
    assert program is not None
    exec(program[1])
    assert capsys.readouterr().out == f"{YAML_SCHEMA}\n"
