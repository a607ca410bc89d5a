"""The partitions that a mirror publishes are registered in a real Hive metastore, by a step on the driver of a real Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.connect.session import SparkSession as RemoteSession

from airflow_gobblin.copy.options import Delete
from airflow_gobblin.copy.registering import HiveTable
from airflow_gobblin.errors import ConfigurationError, StepConflictError, StepError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.steps import StepsOnSpark
from airflow_gobblin.operators.spark_options import SparkOptions
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import StepContext, StepStatus
from airflow_gobblin.steps.hive import _AT_ONCE, HiveTableStep
from airflow_gobblin.storage.files import LocalFiles
from tests.copy.mirrors import Trees, statuses
from tests.proofs import one_in
from tests.services.hive import Metastore
from tests.services.hive_tap import LostCall, Tap, tapped
from tests.services.spark_connect import SparkConnect, running_spark_connect

COLUMNS, DAYS = ("id bigint",), ("dt string",)


def session(server: SparkConnect) -> Iterator[Any]:
    """A session. PySpark's usual way to one would keep other tests of this process from a Spark without Connect."""
    spark = RemoteSession.builder.remote(server.url).create()
    yield spark
    spark.client.close()


@pytest.fixture(scope="module")
def tap(metastore: Metastore) -> Iterator[Tap]:
    """The metastore, as all of Spark reaches it here."""
    with tapped(metastore) as tap:
        yield tap


@pytest.fixture(scope="module")
def warm(tap: Tap, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """A warm Spark that knows the metastore."""
    with running_spark_connect(tmp_path_factory.mktemp("connect"), tap.metastore.settings) as server:
        yield server


@pytest.fixture(scope="module")
def hive(warm: SparkConnect) -> Iterator[Any]:
    """A session of it."""
    yield from session(warm)


@pytest.fixture
def database(hive: Any) -> str:
    """A database of the test's own."""
    name = f"lake_{uuid.uuid4().hex[:8]}"
    hive.sql(f"CREATE DATABASE {name}").collect()
    return name


# --- The step -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table `sales`, and its folder below a target."""

    spark: Any
    database: str
    target: Path

    @property
    def folder(self) -> Path:
        return self.target / "sales"

    @property
    def partitions(self) -> list[str]:
        return [row[0] for row in self.sql("SHOW PARTITIONS sales")]

    def sql(self, text: str) -> list[Any]:
        rows: list[Any] = self.spark.sql(text.replace("sales", f"{self.database}.sales", 1)).collect()
        return rows

    def put(self, *partitions: str) -> HiveTableStep:
        """Place a file in each partition.

        :return: the step of a slot that did it.
        """
        for partition in partitions:
            (self.folder / partition).mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"id": [1]}), self.folder / partition / "a.parquet")
        return self.step(*partitions)

    def delete(self, *partitions: str) -> HiveTableStep:
        """Delete their files.

        :return: the step of a slot that did it.
        """
        for partition in partitions:
            (self.folder / partition / "a.parquet").unlink()
        return self.step(*partitions, drop=True)

    def step(self, *changed: str, **options: Any) -> HiveTableStep:
        given = {"columns": COLUMNS, "partitions": DAYS, "location": f"file:{self.folder}", **options}
        return HiveTableStep(self.database, "sales", format="parquet", folder="sales", changed=changed, **given)

    @property
    def context(self) -> StepContext:
        return StepContext(LocalFiles(self.target), spark=self.spark)

    def carry_out(self, step: HiveTableStep) -> None:
        assert step.verify(self.context) is StepStatus.TODO
        step.execute(self.context)
        assert step.verify(self.context) is StepStatus.DONE


@pytest.fixture
def table(hive: Any, database: str, tmp_path: Path) -> Table:
    return Table(hive, database, tmp_path)


def test_partitions_are_added_once_and_dropped_without_files_if_wanted(table: Table) -> None:
    first = table.put("dt=1", "dt=2")
    table.carry_out(first)
    first.execute(table.context)
    assert table.partitions == ["dt=1", "dt=2"]
    assert [tuple(row) for row in table.sql("SELECT id, dt FROM sales ORDER BY dt")] == [(1, "1"), (1, "2")]

    second = table.delete("dt=1")
    assert replace(second, drop=False).verify(table.context) is StepStatus.DONE
    table.carry_out(second)
    assert table.partitions == ["dt=2"]


def test_a_late_process_of_an_older_slot_takes_nothing_back(table: Table) -> None:
    slots = [table.put("dt=1", "dt=2")]
    table.carry_out(slots[-1])
    slots.append(table.delete("dt=1"))
    table.carry_out(slots[-1])
    slots.append(table.put("dt=3"))
    table.carry_out(slots[-1])
    for late in slots:
        late.execute(table.context)
        assert table.partitions == ["dt=2", "dt=3"]


def test_a_process_that_waited_between_its_look_and_its_statement_mends_what_it_undid(table: Table) -> None:
    table.carry_out(table.put("dt=1"))
    older = table.delete("dt=1")
    sql, dropped = table.spark.sql, list[str]()

    def meanwhile(statement: str) -> Any:
        if " DROP " in statement and not dropped:
            dropped.append(statement)
            table.carry_out(older)  # somebody else does it, and then a newer slot's
            table.carry_out(table.put("dt=1"))
        return sql(statement)

    session: Any = _Session(table.spark, meanwhile)
    older.execute(replace(table.context, spark=session))
    assert dropped
    assert table.partitions == ["dt=1"]


@dataclass(frozen=True)
class _Session:
    """A session whose statements pass through somebody's hands."""

    spark: Any
    sql: Callable[[str], Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spark, name)


def test_values_are_those_that_hive_escapes(table: Table) -> None:
    folders = ["dt=a%3Ab", "dt=it's", "dt=a b", "dt=ü", "dt=back\\slash", "dt=__HIVE_DEFAULT_PARTITION__"]
    table.carry_out(table.put(*folders))
    rows = {row[0] for row in table.sql("SELECT dt FROM sales")}
    assert rows == {"a:b", "it's", "a b", "ü", "back\\slash", None}
    table.carry_out(table.delete(*folders[:3], folders[5]))
    assert {row[0] for row in table.sql("SELECT dt FROM sales")} == {"ü", "back\\slash"}


def test_a_file_set_that_is_a_part_of_a_table_changes_nothing_else_of_it(table: Table) -> None:
    table.put("dt=1/h=1", "dt=1/h=2", "dt=2/h=1")
    both = {"partitions": ("dt int", "h int")}
    table.carry_out(table.step("dt=1/h=1", within="dt=1", **both))
    assert table.partitions == ["dt=1/h=1", "dt=1/h=2"]
    table.carry_out(table.step("dt=2/h=1", within="dt=2/h=1", **both))
    (table.folder / "dt=2/h=1/a.parquet").unlink()
    assert table.step(within="dt=1", drop=True, **both).verify(table.context) is StepStatus.DONE
    table.carry_out(table.step("dt=2/h=1", within="dt=2/h=1", drop=True, **both))
    assert table.partitions == ["dt=1/h=1", "dt=1/h=2"]


def test_a_folder_named_otherwise_than_its_value_is_an_error_with_the_statement(table: Table) -> None:
    step = replace(table.put("dt=01"), partitions=("dt int",))
    with pytest.raises(StepError, match=r"this changes nothing.* ADD IF NOT EXISTS PARTITION \(`dt` = '01'\)"):
        step.execute(table.context)


def test_another_location_is_an_error_that_names_both(table: Table, tmp_path: Path) -> None:
    step, elsewhere = table.put("dt=1"), tmp_path / "elsewhere"
    table.sql(f"CREATE EXTERNAL TABLE sales (id bigint) PARTITIONED BY (dt string) LOCATION '{elsewhere}'")
    with pytest.raises(StepConflictError, match=f"location 'file:{elsewhere}', and not 'file:{table.folder}'"):
        step.execute(table.context)
    table.sql("DROP TABLE sales")

    table.carry_out(table.step())
    table.sql("ALTER TABLE sales DROP PARTITION (dt = '1')")
    table.sql(f"ALTER TABLE sales ADD PARTITION (dt = '1') LOCATION '{elsewhere}'")
    with pytest.raises(StepConflictError, match=f"'dt=1' has the location 'file:{elsewhere}', and not 'file:.*/dt=1'"):
        step.verify(table.context)
    assert table.delete("dt=1").verify(table.context) is StepStatus.DONE, "a partition elsewhere is somebody's own"


def test_what_is_another_table_or_deletes_files_is_refused(table: Table) -> None:
    step = table.put("dt=1")
    with pytest.raises(StepError, match="no such table, and its columns aren't known"):
        replace(step, columns=()).execute(table.context)
    for made, cause in (
        ("CREATE TABLE sales (id bigint) PARTITIONED BY (dt string) STORED AS PARQUET", "it owns its files"),
        (f"CREATE EXTERNAL TABLE sales (id bigint) LOCATION '{table.folder}'", "are none, and not dt"),
    ):
        table.sql(made)
        with pytest.raises(StepConflictError, match=cause):
            step.execute(table.context)
        table.sql("DROP TABLE sales")


def test_a_spark_without_hive_is_refused(table: Table, spark_connect: SparkConnect) -> None:
    for spark in session(spark_connect):
        with pytest.raises(
            ConfigurationError, match=r"'in-memory', and not 'hive'\. Set spark.sql.catalogImplementation"
        ):
            table.put("dt=1").verify(replace(table.context, spark=spark))
    with pytest.raises(ConfigurationError, match="there is no Spark here"):
        table.put("dt=1").verify(replace(table.context, spark=None))


# --- The runs -----------------------------------------------------------------------------------------------------------------


@dataclass
class Lake(Trees):
    """A mirror whose steps on Spark are carried out by the tasks' own runner.

    :param spark: how it reaches Spark.
    """

    spark: SparkOptions = field(default_factory=SparkOptions)

    def opened(self) -> OpenJob:
        opened = super().opened()
        opened.committer.runner = StepsOnSpark(opened, self.spark.submit_arguments(), self.spark.steps_above)
        return opened

    def on(self, conn_id: str) -> Lake:
        """The same by another Spark."""
        return replace(self, spark=SparkOptions(conn_id, steps_above=None))

    def write_rows(self, path: str, ids: Sequence[int]) -> None:
        pq.write_table(pa.table({"id": ids}), self.write(path))


@pytest.fixture
def lake(tap: Tap, warm: SparkConnect, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A mirror of a table with two partitions, by a Spark that starts when it is needed."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_WARM", warm.connection)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", '{"conn_type": "spark", "host": "local[1]"}')
    options = {"register": HiveTable(database, "{dataset}", COLUMNS, DAYS, drop=True), "delete": Delete(1)}
    lake = Lake(tmp_path, options, spark=SparkOptions("spark_here", conf=tap.metastore.settings, steps_above=None))
    lake.write_rows("sales/dt=1/a.parquet", [1, 2])
    lake.write_rows("sales/dt=2/a.parquet", [3])
    lake.write("sales/_SUCCESS")
    return lake


def test_the_metastore_may_be_an_airflow_connection(
    hive: Any, database: str, lake: Lake, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_METASTORE", f"hive-metastore://127.0.0.1:{metastore.port}")
    lake.connections = AirflowConnections()
    lake.options["register"] = HiveTable(database, "{dataset}", COLUMNS, DAYS, conn_id="metastore")
    lake.spark = SparkOptions("spark_here", steps_above=None)
    assert statuses(lake.run()) == {"sales#files": "committed"}
    assert [row[0] for row in hive.sql(f"SHOW PARTITIONS {database}.sales").collect()] == ["dt=1", "dt=2"]
    lake.write_rows("sales/dt=3/a.parquet", [4])
    lake.spark = SparkOptions("spark_warm", steps_above=None)
    report = lake.run()["sales#files"]
    assert report.status == "failed"
    assert "this Spark runs already, and can't be given spark.sql.catalogImplementation" in report.text


def test_runs_register_what_they_publish_also_what_another_one_left(hive: Any, database: str, lake: Lake) -> None:
    opened, plan = lake.decided()
    opened.committer.runner = None
    (report,) = execute_commit_steps(opened, plan, plan.packs[0])
    assert "some of its steps need Spark's driver, and no Spark is known here" in report.detail
    assert lake.equal(), "all files are placed"
    assert not hive.catalog.tableExists(f"{database}.sales")
    (report,) = verify_recover(lake.opened(), RunRequest("next"))
    assert report.status == "recovered"
    rows = hive.sql(f"SELECT id, dt FROM {database}.sales ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "1"), (2, "1"), (3, "2")]

    lake.write_rows("sales/dt=3/a.parquet", [4])
    (lake.source / "sales/dt=1/a.parquet").unlink()
    lake.spark = SparkOptions("spark_warm", steps_above=1)  # so the whole sequence goes to Spark
    assert statuses(lake.run()) == {"sales#files": "committed"}
    assert [row[0] for row in hive.sql(f"SHOW PARTITIONS {database}.sales").collect()] == ["dt=2", "dt=3"]


DAYS_OF_TWO_STATEMENTS = [f"dt={number:04d}" for number in range(_AT_ONCE + 1)]


@one_in(7)
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(LostCall("create_table", 1, arrives=False), id="before the table"),
        pytest.param(LostCall("create_table", 1, arrives=True), id="after the table"),
        pytest.param(LostCall("add_partition", 1, arrives=False), id="before partitions"),
        pytest.param(LostCall("add_partition", 1, arrives=True), id="among partitions"),
        pytest.param(LostCall("add_partition", 2, arrives=True), id="after partitions"),
        pytest.param(LostCall("drop_partition", 1, arrives=False), id="before a drop"),
        pytest.param(LostCall("drop_partition", 1, arrives=True), id="after a drop"),
    ],
)
def test_a_driver_killed_between_its_calls_to_the_metastore_leaves_what_the_next_run_ends_once(
    hive: Any, database: str, lake: Lake, tap: Tap, at: LostCall
) -> None:
    for day in DAYS_OF_TWO_STATEMENTS:
        lake.write_rows(f"sales/{day}/a.parquet", [1])
    if at.name == "drop_partition":
        assert statuses(lake.on("spark_warm").run()) == {"sales#files": "committed"}
        (lake.source / "sales/dt=1/a.parquet").unlink()
    tap.changes.clear()
    tap.lose, tap.kill = at, kill_drivers
    report = lake.run()["sales#files"]
    assert tap.lose is None, "the driver was killed at that call"
    assert report.status == "failed"
    assert lake.equal(), "all files are placed and deleted"
    assert lake.journal.history("sales#files").slots[-1].outcome is None

    assert statuses(lake.on("spark_warm").run()) == {"sales#files": "idle"}, "its slot was finished first"
    assert lake.journal.history("sales#files").slots[-1].done
    expected = ["drop"] if at.name == "drop_partition" else ["create", "add", "add"]
    assert [name.partition("_")[0] for name in tap.changes] == expected, "each change was made once"
    there = {"dt=2"} if at.name == "drop_partition" else {"dt=1", "dt=2"}
    found = [row[0] for row in hive.sql(f"SHOW PARTITIONS {database}.sales").collect()]
    assert found == sorted({*DAYS_OF_TWO_STATEMENTS, *there})


def kill_drivers() -> None:
    """Kill the Spark applications that carry out steps."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("carry_out_steps.py" in word for word in process.cmdline()):
                process.kill()
                process.wait(60)
