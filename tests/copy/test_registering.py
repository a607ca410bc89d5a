"""A mirror's registrations, by their steps; `tests/spark/test_hive.py` carries those about Hive out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.copy.options import Delete, Keep
from airflow_gobblin.copy.registering import HiveTable, PlacedFileSet
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.site import Site
from airflow_gobblin.model.wire import record
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import Phase, StepContext, StepStatus
from airflow_gobblin.steps.hive import HiveTableStep
from tests.copy.mirrors import Trees, statuses

COLUMNS = ("id bigint", "tags array<struct<name:string, at:decimal(10,2)>>")
TABLE = HiveTable("lake", "{dataset}", COLUMNS, ("dt date", "Hour int"))


@record("tests.catalog_step")
@dataclass(frozen=True)
class CatalogStep:
    """Writes which folders of a file set have files: a registration that needs no Spark."""

    catalog: str
    folder: str
    phase = Phase.SETTLE
    fence = None
    conflict = lost = "it can't be written"

    @property
    def subject(self) -> str:
        return f"entry of {self.folder!r}"

    def _found(self, context: StepContext) -> str:
        return json.dumps(sorted({str(Path(path).parent) for path in context.files.walk(self.folder)}))

    def verify(self, context: StepContext) -> StepStatus:
        entry = Path(self.catalog)
        same = entry.exists() and entry.read_text() == self._found(context)
        return StepStatus.DONE if same else StepStatus.TODO

    def execute(self, context: StepContext) -> None:
        Path(self.catalog).write_text(self._found(context))

    def undo(self, context: StepContext) -> None:
        """It stays."""

    def files(self) -> tuple[()]:
        return ()

    def folders(self) -> tuple[()]:
        return ()


@record("tests.catalog")
@dataclass(frozen=True)
class Catalog:
    """A catalog that is a folder of files."""

    folder: str
    site: Site = Site.TASK

    def steps(self, placed: PlacedFileSet) -> Iterator[CatalogStep]:
        yield CatalogStep(f"{self.folder}/{placed.dataset}", placed.below_workspace(placed.folder))


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Two tables, each a dataset."""
    (tmp_path / "catalog").mkdir()
    trees = Trees(tmp_path, {"register": Catalog(f"{tmp_path}/catalog"), "delete": Delete(1)})
    for path in ("sales/dt=1/a", "sales/dt=2/a", "stock/dt=1/a"):
        trees.write(path)
    return trees


def entry(trees: Trees, name: str) -> Any:
    return json.loads((trees.folder / "catalog" / name).read_text())


def test_a_registration_of_ones_own_is_carried_out_once_files_are_placed_and_deleted(trees: Trees) -> None:
    assert statuses(trees.run()) == {"sales#files": "committed", "stock#files": "committed"}
    assert (entry(trees, "sales"), entry(trees, "stock")) == (["sales/dt=1", "sales/dt=2"], ["stock/dt=1"])
    (trees.source / "sales/dt=1/a").unlink()
    assert statuses(trees.run()) == {"sales#files": "committed", "stock#files": "idle"}
    assert entry(trees, "sales") == ["sales/dt=2"]


def test_one_that_fails_leaves_its_slot_pending_and_the_next_run_goes_on(trees: Trees) -> None:
    (trees.folder / "catalog/sales").mkdir()
    reports = trees.run()
    assert statuses(reports) == {"sales#files": "failed", "stock#files": "committed"}
    assert trees.journal.state("sales#files").pending
    assert trees.equal(), "its files are placed"
    (trees.folder / "catalog/sales").rmdir()
    assert statuses(trees.run()) == {"sales#files": "idle", "stock#files": "idle"}
    assert entry(trees, "sales") == ["sales/dt=1", "sales/dt=2"]


def test_it_knows_the_folder_below_the_workspace(trees: Trees) -> None:
    trees = trees.using(workspace=str(trees.folder))
    assert statuses(trees.run()) == {"sales#files": "committed", "stock#files": "committed"}
    assert entry(trees, "stock") == ["target/stock/dt=1"]


def hive_step(
    table: HiveTable, folder: str, *changed: str, target: str = "/lake", workspace: str = ""
) -> HiveTableStep:
    """The step about a file set of the dataset `Sales`."""
    placed = PlacedFileSet("Sales", "files", target, workspace or target, folder, frozenset(changed))
    (step,) = table.steps(placed)
    assert isinstance(step, HiveTableStep)
    return step


def test_a_hive_table_lies_where_its_file_set_does() -> None:
    step = hive_step(TABLE, "sales", ".", "dt=1/hour=2", "dt=1/hour=2/deep", "dt=1", workspace="/")
    assert (step.database, step.table, step.columns) == ("lake", "sales", COLUMNS)
    assert (step.folder, step.location, step.within) == ("lake/sales", "file:/lake/sales", ".")
    assert step.changed == ("dt=1/hour=2",)
    assert (step.phase, step.site, step.fence) == (Phase.SETTLE, Site.DRIVER, None)
    whole = hive_step(HiveTable("lake", "sales", COLUMNS), ".", ".", "any")
    assert (whole.folder, whole.location, whole.within, whole.changed) == (".", "file:/lake", ".", ())


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("sales/dt=1", ("sales", "dt=1", ("dt=1/Hour=2",))),
        ("sales/dt=1/Hour=2", ("sales", "dt=1/Hour=2", ("dt=1/Hour=2",))),
        ("dt=1/Hour=2", (".", "dt=1/Hour=2", ("dt=1/Hour=2",))),
    ],
)
def test_a_file_set_may_be_partitions_of_a_table(folder: str, expected: object) -> None:
    changed = "Hour=2" if folder.endswith("=1") else "."
    step = hive_step(TABLE, folder, changed)
    assert (step.folder, step.within, step.changed) == expected


@pytest.mark.parametrize(
    ("target", "given", "location"),
    [
        ("/lake/", "", "file:/lake"),
        ("file:///lake", "", "file:/lake"),
        ("s3://conn@bucket/lake", "", "s3a://bucket/lake"),
        ("s3://conn@bucket/lake", "s3://bucket/lake/", "s3://bucket/lake"),
        ("webhdfs://conn@namenode:9870/lake", "hdfs://namenode:8020/lake", "hdfs://namenode:8020/lake"),
    ],
)
def test_a_location_is_as_spark_names_it(target: str, given: str, location: str) -> None:
    step = hive_step(HiveTable("lake", "sales", location=given), "sales", target=target)
    assert step.location == f"{location}/sales"


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (lambda: hive_step(TABLE, "sales", target="webhdfs://c@namenode:9870/lake"), "Give location='hdfs://"),
        (
            lambda: hive_step(TABLE, "sales", "2026/01"),
            "folder '2026/01' of a table by HiveTable: it is not a partition dt=",
        ),
        (lambda: hive_step(HiveTable("lake", "{dataset} {set}"), "."), "table 'Sales files' .* can't name a table"),
        (lambda: HiveTable("lake", "{folder}"), "'folder' is none of its parts"),
        (lambda: HiveTable("lake", "{"), "table='{'"),
        (lambda: HiveTable("lake; --", "t"), "can't name a database"),
        (lambda: HiveTable("lake", "t", ("id",)), r"columns=\('id',\) .*not a tuple of columns"),
        (lambda: HiveTable("lake", "t", ("id int", "x int) --")), "not a tuple of columns"),
        (lambda: HiveTable("lake", "t", ("id int",), "dt date"), "Write partitions="),  # type: ignore[arg-type]
        (lambda: HiveTable("lake", "t", format="csv"), "it is none of parquet, orc"),
        (lambda: Mirror("m", "/a", "/b", "/j", register=Keep("t")), "it registers nothing"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_named(step: Callable[[], object], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        step()


def test_what_cannot_be_registered_is_refused_before_anything_is_copied(trees: Trees) -> None:
    trees.write("no-name/a")
    trees = trees.using(register=Named(f"{trees.folder}/catalog"))
    reports = trees.run()
    assert statuses(reports) == {"no-name#files": "failed", "sales#files": "committed", "stock#files": "committed"}
    assert "'no-name' is not a name" in reports["no-name#files"].detail


@record("tests.named_catalog")
@dataclass(frozen=True)
class Named(Catalog):
    """A catalog of names with letters only."""

    def steps(self, placed: PlacedFileSet) -> Iterator[CatalogStep]:
        if not placed.dataset.isalpha():
            raise ConfigurationError(operation="register", subject="it", cause=f"{placed.dataset!r} is not a name")
        yield from super().steps(placed)


def test_without_spark_a_run_is_refused_at_planning_and_nothing_is_changed(trees: Trees) -> None:
    trees = trees.using(register=TABLE)
    with pytest.raises(
        ConfigurationError,
        match=r"Spark's driver registers what it publishes, and no Spark is known here\. Run it where .* leave `register` out",
    ):
        trees.run()
    assert not trees.target.exists()
    prospect = would_plan(trees.opened(), RunRequest("dry"))
    assert {one.urn for one in prospect.datasets} == {"sales#files", "stock#files"}, "its plan can be seen"


@dataclass(frozen=True)
class Known:
    """One connection."""

    text: str

    def uri(self, conn_id: str) -> str:
        return self.text


@pytest.mark.parametrize(
    ("connection", "uris"),
    [
        ("hive-metastore://one", "thrift://one:9083"),
        ("hive-metastore://user:secret@one:9999", "thrift://one:9999"),
        ("hive-metastore://one%2Cother:9999", "thrift://one:9999,thrift://other:9999"),
    ],
)
def test_a_connection_shows_where_the_metastore_is(connection: str, uris: str) -> None:
    given = replace(TABLE, conn_id="metastore").settings(Known(connection))
    assert given == {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": uris}
    assert TABLE.settings(Known(connection)) == {}


@pytest.mark.parametrize(
    ("connection", "cause"),
    [("postgres://one", "it is of type 'postgres'"), ("hive-metastore://", "it names no host")],
)
def test_a_connection_that_is_none_of_a_metastore_is_named_before_anything_is_copied(
    trees: Trees, connection: str, cause: str
) -> None:
    trees = trees.using(register=replace(TABLE, conn_id="metastore"))
    trees.connections = Known(connection)
    for prospect in would_plan(trees.opened(), RunRequest("dry")).datasets:
        assert prospect.status == "failed"
        assert cause in prospect.detail
