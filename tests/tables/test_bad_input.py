"""Bad input of tables, over whole runs: an error that names the thing, what was expected and the way out; nothing of that dataset
is published, and the others are done.

The declarations of people are in the tests of each sink; merges are in `test_merging.py` and the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest

from airflow_gobblin.errors import TableError, TableMovedError
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.converters.columns import RenameColumns
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.testing.files import write
from tests.proofs import one_in
from tests.protocol.rows import Table, texts
from tests.services.iceberg_rest import IcebergRest
from tests.services.processes import free_port
from tests.services.s3 import CONNECTION, S3Server
from tests.services.s3_proxy import Fault, running_proxy
from tests.tables.formats import Delta, Iceberg, Postgres, format_of, formats
from tests.tables.labs import TableLab

pytestmark = one_in(2, "table_lab")

A = Table("a", ExtractKind.APPEND_ONLY, 12)
B = Table("b", ExtractKind.APPEND_ONLY, 5)
NewLab = Callable[..., TableLab]


@record("test.column_of_a")
@dataclass(frozen=True)
class ColumnOfA:
    """A converter that adds a column `c`, in which every row of dataset a has this value."""

    value: str

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        return incoming.append(pa.field("c", pa.string()))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [self.value if row.startswith("a/") else "b" for row in texts(batch)]
        return pa.record_batch([*batch.columns, pa.array(values)], self.schema(batch.schema))


def expect(report: DatasetReport, *texts: str) -> None:
    """A dataset failed, with these texts in its report."""
    assert report.status == "failed", report
    for text in texts:
        assert text in report.detail, report.detail


def only_b(lab: TableLab, *texts: str) -> None:
    """A run publishes dataset b, and gives the reason why not dataset a; once that is fixed, so is a."""
    reports = lab.run()
    expect(reports["a"], *texts)
    assert reports["b"].status == "committed"
    assert lab.table_rows("b") == B.all_rows()
    assert not lab.journal.history("a").state.live
    assert lab.journal.history("a").pending is None


def as_user(name: str, url: str) -> str:
    """Return the URL of a database as one of its users has it, whose password is `secret`."""
    place = urlsplit(url)
    return place._replace(netloc=f"{name}:secret@{place.hostname}:{place.port}").geturl()


def catalog_of(url: str, folder: Path) -> str:
    """Return the connection of a catalog of Iceberg tables in a database."""
    return f"{url}?warehouse={quote(f'file://{folder}/lake', safe='')}"


def unreachable(lab: TableLab) -> SparkConnections:
    """Return the connections of a lab, to servers that aren't there."""
    nowhere = f"nobody:secret@127.0.0.1:{free_port()}"
    return SparkConnections(
        {name: urlsplit(uri)._replace(netloc=nowhere).geturl() for name, uri in lab.format.uris.items()}
    )


def mended(lab: TableLab) -> None:
    assert lab.run()["a"].status == "committed"
    assert lab.table_rows("a") == A.all_rows()


def test_a_table_of_another_schema_is_named_with_its_column(table_lab: NewLab) -> None:
    lab = table_lab(A, B)
    lab.format.make("a", pa.schema([("row", pa.int64())]))
    only_b(lab, "column 'row'", "int64", "string")
    lab.format.drop("a")
    mended(lab)


def test_a_table_of_another_journal_is_named_with_its_owner(table_lab: NewLab) -> None:
    former = table_lab(A)
    former.run()
    lab = former.other("second")
    reports = lab.run(A, B)
    expect(reports["a"], former.table("a").name, f"belongs to {former.owner('a')}", "airflow gobblin take-over")
    assert reports["b"].status == "committed"
    assert lab.table_rows("b") == B.all_rows()
    assert former.table_rows("a") == A.all_rows()


def test_a_table_of_another_dataset_of_the_same_journal_is_named(table_lab: NewLab) -> None:
    lab = table_lab(A)
    lab.run()
    lab.rename("a")
    expect(lab.run(B)["b"], f"belongs to {lab.owner('a')}")
    assert lab.table_rows("a") == A.all_rows()


def test_a_table_that_was_dropped_is_not_made_anew_beside_what_was_published_to_it(table_lab: NewLab) -> None:
    lab = table_lab(A, B)
    lab.run()
    lab.format.drop("a")
    reports = lab.run(replace(A, rows=16), replace(B, rows=8))
    expect(reports["a"], lab.table("a").name, "is gone since rows of 'a' were published to it", "drop the dataset")
    assert reports["b"].status == "committed"
    lab.admin.drop("a", "its table is lost")
    assert lab.run()["a"].status == "committed"
    assert lab.table_rows("a") == replace(A, rows=16).all_rows()


@pytest.mark.slow
def test_a_table_that_is_gone_stops_its_dataset_with_nothing_new_to_plan_too(table_lab: NewLab) -> None:
    lab = table_lab(A, B)
    lab.run()
    lab.format.drop("a")
    gone = "is gone since rows of 'a' were published to it"
    (shown, _) = would_plan(lab.opened(), RunRequest("shown")).datasets
    assert (shown.status, gone in shown.detail) == ("failed", True)
    reports = lab.run()
    expect(reports["a"], lab.table("a").name, gone)
    assert reports["b"].status == "idle"


def test_a_table_that_is_gone_stops_its_dataset_while_rows_wait_too(table_lab: NewLab) -> None:
    lab = table_lab(A, batch=Batch(rows=10))
    lab.run()
    later = (replace(A, rows=15), B)
    lab.format.drop("a")
    reports = lab.run(*later)
    expect(reports["a"], lab.table("a").name, "is gone since rows of 'a' were published to it")
    assert reports["b"].status == "held"


def test_rows_that_are_in_another_table_are_not_left_there(table_lab: NewLab) -> None:
    lab = table_lab(A)
    lab.run()
    before = lab.table("a").name
    lab.rename("{dataset}2")
    expect(lab.run(replace(A, rows=16))["a"], f"the published rows of 'a' are in {before}", "Name that table")


def test_a_staged_file_that_is_gone_is_named_and_the_other_datasets_are_done(table_lab: NewLab) -> None:
    lab = table_lab(A, B)
    opened, plan = lab.decide(A, B)
    token = lab.journal.history("a").slot(1).decision.token
    lake = lab.lake("a")
    kept = {path: lake.read(path) for path in lab.staged("a", token)}
    assert kept
    for path in kept:
        lake.unlink(path)
    reports = {report.urn: report for pack in plan.packs for report in execute_commit_steps(opened, plan, pack)}
    assert "a data file staged for it, or a list of these, is gone" in reports["a"].detail
    assert "abandon the slot" in reports["a"].detail
    assert lab.table_rows("a") == {}
    assert lab.table_rows("b") == B.all_rows()
    for path, content in kept.items():
        write(lake, path, content)
    lab.run()
    assert lab.table_rows("a") == A.all_rows()


@formats("postgres", "iceberg_rest")
def test_a_server_that_can_not_be_reached_is_named(table_lab: NewLab) -> None:
    lab = table_lab(A, B)
    reached, lab.connections = lab.connections, unreachable(lab)
    with pytest.raises(TableError) as caught:
        lab.run()
    for text in (lab.table("a").name, "See that the", "can be reached"):
        assert text in str(caught.value)
    assert "secret" not in str(caught.value)
    assert lab.journal.history("a").state.head == 0
    lab.connections = reached
    lab.run()
    assert lab.table_rows("a") == A.all_rows()


@formats("postgres", "iceberg_rest")
def test_a_server_that_goes_away_before_the_commit_leaves_it_to_the_next_run(table_lab: NewLab) -> None:
    lab = table_lab(A)
    _, plan = lab.decide(A)
    reached, lab.connections = lab.connections, unreachable(lab)
    for pack in plan.packs:
        (report,) = execute_commit_steps(lab.opened(), plan, pack)
        assert report.status != "committed"
        assert lab.table("a").name in report.detail
    lab.connections = reached
    assert lab.table_rows("a") == {}
    lab.run()
    assert lab.table_rows("a") == A.all_rows()


def test_a_catalog_that_may_not_be_written_to_is_named(tmp_path: Path, postgres_database: str) -> None:
    lab = TableLab(tmp_path / "work", Iceberg({"lake_catalog": catalog_of(postgres_database, tmp_path)}), A, B)
    lab.run(replace(A, urn="c"))  # makes the catalog's tables
    Postgres(postgres_database).sql(
        "DROP ROLE IF EXISTS catalog_reader; CREATE ROLE catalog_reader LOGIN PASSWORD 'secret';"
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO catalog_reader"
    )
    may = lab.connections
    lab.connections = SparkConnections(
        {"lake_catalog": catalog_of(as_user("catalog_reader", postgres_database), tmp_path)}
    )
    with pytest.raises(TableError) as caught:
        lab.run(A, B)
    for text in (lab.table("a").name, "permission denied", "that their connections may do this"):
        assert text in str(caught.value)
    assert "secret" not in str(caught.value)
    lab.connections = may
    lab.run()
    assert lab.table_rows("a") == A.all_rows()


def test_a_table_that_may_not_be_written_to_is_named_and_the_other_datasets_are_done(
    tmp_path: Path, postgres_database: str
) -> None:
    database = Postgres(postgres_database)
    lab = TableLab(tmp_path / "work", database, A, B)
    database.sql("DROP ROLE IF EXISTS writer_of_b")
    database.sql("CREATE ROLE writer_of_b LOGIN PASSWORD 'secret'")
    lab.run(replace(A, urn="c"))  # makes the tables of marks
    database.sql("GRANT USAGE, CREATE ON SCHEMA raw TO writer_of_b; GRANT USAGE ON SCHEMA _gobblin TO writer_of_b")
    database.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA _gobblin TO writer_of_b")
    database.sql("CREATE TABLE raw.a (row text NOT NULL); GRANT SELECT ON raw.a TO writer_of_b")
    lab.connections = SparkConnections({"warehouse": as_user("writer_of_b", postgres_database)})
    reports = lab.run(A, B)
    for text in ('table "raw"."a" of connection', "permission denied", "Grant its user that"):
        assert text in reports["a"].detail
    assert reports["b"].status == "committed"
    assert lab.table_rows("b") == B.all_rows()
    assert lab.table_rows("a") == {}


@pytest.mark.parametrize("denied", ["data", "metadata"])
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_in_a_bucket_that_may_not_be_written_to_is_named_and_the_other_datasets_are_done(
    request: pytest.FixtureRequest, tmp_path: Path, versitygw: S3Server, bucket: str, form: str, denied: str
) -> None:
    lab = TableLab(
        tmp_path / "work", format_of(f"{form} on versitygw", tmp_path / "tables", request.getfixturevalue), A, B
    )
    lab.run(replace(A, rows=4), replace(B, rows=2))
    may, puts = lab.connections, ["*/b/*"] if denied == "data" else ["*/b/*", "*/a/data/*"]
    clerk = versitygw.clerk(
        bucket, "s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject", below={"s3:PutObject": puts}
    )
    lab.connections = SparkConnections({**lab.format.uris, CONNECTION: clerk.connection})
    reports = lab.run(A, B)
    expect(
        reports["a"],
        lab.table("a").name,
        "Access Denied",
        "permission" if form == "delta" or denied == "data" else "may do this",
    )
    assert clerk.secret not in reports["a"].detail
    assert reports["b"].status == "committed"
    assert lab.table_rows("b") == B.all_rows()
    assert lab.table_rows("a") == replace(A, rows=4).all_rows()
    lab.connections = may
    lab.run()
    assert lab.table_rows("a") == A.all_rows()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_table_that_a_catalog_refuses_is_named_and_the_other_datasets_are_done(
    tmp_path: Path, iceberg_rest: IcebergRest, method: str
) -> None:
    with running_proxy(iceberg_rest.url) as proxy:
        lab = TableLab(tmp_path / "work", Iceberg({"lake_catalog": proxy.endpoint.replace("http", "iceberg")}), A, B)
        lab.run(replace(A, rows=4), replace(B, rows=2))
        proxy.harm(Fault.FORBIDDEN, method, "/tables/a$", times=float("inf"))
        reports = lab.run(A, B)
        expect(reports["a"], lab.table("a").name, "403 ForbiddenException", "that their connections may do this")
        assert reports["b"].status == "committed"
        assert lab.table_rows("b") == B.all_rows()
        proxy.heal()
        assert lab.table_rows("a") == replace(A, rows=4).all_rows()
        lab.run()
        assert lab.table_rows("a") == A.all_rows()


def test_a_folder_that_is_no_folder_is_named_and_the_other_datasets_are_done(tmp_path: Path) -> None:
    lab = TableLab(tmp_path / "work", Delta(tmp_path / "tables"), A, B)
    place = tmp_path / "tables" / "a"
    place.parent.mkdir()
    place.write_text("a file in the place of the table")
    only_b(lab, f"Delta table '{place}'")
    place.unlink()
    mended(lab)


@pytest.mark.parametrize("name", ["_gobblin_unit", "ctid"])
def test_a_column_of_a_reserved_name_is_named(tmp_path: Path, postgres_database: str, name: str) -> None:
    lab = TableLab(tmp_path / "work", Postgres(postgres_database), A, converters=(RenameColumns({"row": name}),))
    expect(lab.run()["a"], f"column {name!r}", "the name is reserved", "rename these columns")
    assert not lab.journal.history("a").state.live


@pytest.mark.parametrize(
    ("form", "options", "value", "cause"),
    [
        ("postgres", {}, "a\0b", "a text with the character NUL, which PostgreSQL can't hold"),
        ("delta", {"partition": ("c",)}, "", "Delta takes an empty text in a partition column for null"),
    ],
    ids=["postgres", "delta"],
)
def test_a_value_that_the_format_does_not_hold_is_named_before_anything_is_decided(
    tmp_path: Path, request: pytest.FixtureRequest, form: str, options: dict[str, Any], value: str, cause: str
) -> None:
    lab = TableLab(
        tmp_path / "work",
        format_of(form, tmp_path / "tables", request.getfixturevalue),
        A,
        B,
        converters=(ColumnOfA(value),),
    )
    lab.declare(**options)
    only_b(lab, "column 'c' of unit", cause, "leave such rows out by a check")
    lab.ingestion = replace(lab.ingestion, converters=(ColumnOfA("of a"),))
    mended(lab)


@pytest.mark.slow
@formats("delta", "iceberg")
def test_a_partition_that_the_format_lacks_is_named(table_lab: NewLab) -> None:
    lab = table_lab(A)
    lab.declare(partition=("day(row)",))
    expect(lab.run()["a"], "day(row)", "otherwise" if isinstance(lab.format, Delta) else "Use another transform")
    assert not lab.journal.history("a").state.live


def test_a_schema_that_postgresql_does_not_have_is_named(tmp_path: Path, postgres_database: str) -> None:
    database = Postgres(postgres_database)
    lab = TableLab(tmp_path / "work", database, A)
    database.sql("DROP SCHEMA raw")
    with pytest.raises(TableError, match='schema "raw" does not exist') as caught:
        lab.run()
    assert not isinstance(caught.value, TableMovedError)


def test_a_plan_that_is_only_shown_makes_no_table(table_lab: NewLab) -> None:
    lab = table_lab(A)
    (shown,) = would_plan(lab.opened(), RunRequest("shown")).datasets
    assert shown.status == "planned", shown
    assert lab.open("a").look(lab.owner("a")).id == ""
    lab.run()
    assert lab.table_rows("a") == A.all_rows()
