"""How a command finds its ingestion: in Airflow's serialized DAGs, without running their code, or by its options."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from sqlalchemy import NullPool, create_engine, text

from airflow_gobblin.errors import ConfigurationError, NotFoundError
from airflow_gobblin.hooks.registry import Registered, location_of, open_administration, open_journal, registered
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.operators import GobblinIngestion
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from tests.cli.command import Commands, Done
from tests.cli.conftest import CommandLine, on_disk
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.services.environment import ROOT
from tests.services.postgres import Postgres

ORDERS = Table("orders", ExtractKind.APPEND_ONLY, 10)
SECRET = "s3cret"
WHY = ("--yes", "--reason", "to begin there")
MARKS = ("--module", "tests.cli.marks")

pytestmark = pytest.mark.slow

DAG_FILE = """
import os
from airflow.sdk import DAG
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.operators import GobblinIngestion
from tests.protocol.rows import LineSink, RowSource

assert "PARSING" in os.environ, "a DAG's code ran"

with DAG("shop", schedule=None):
    GobblinIngestion(Ingestion("lab", RowSource(()), LineSink({target!r}), {journal!r}))
    GobblinIngestion(Ingestion("by_connection", RowSource(()), LineSink({target!r}), "journal_db"))
with DAG("marked", schedule=None):
    GobblinIngestion(Ingestion("marked", RowSource(()), LineSink({target!r}), {journal!r}, code=("tests.cli.marks",)))
with DAG("other", schedule=None):
    GobblinIngestion(Ingestion("lab", RowSource(()), LineSink({target!r}), {journal!r}))
"""


def sql_ingestion(journal: str = "/lake/journal", target: str = "s3://aws_here@bucket/lake") -> Ingestion:
    tables = (SqlTable("orders", ExtractKind.SNAPSHOT_ONLY),)
    return Ingestion("shop", SqlSource("db", tables), ParquetSink(target), journal, code=("acme.marks",))


def test_a_serialized_dag_records_where_its_ingestion_is() -> None:
    with DAG("shop_dag", schedule=None) as dag:
        GobblinIngestion(sql_ingestion("journal_db"), group_id="load")
    serialized = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    assert [*registered("shop_dag", serialized)] == [
        Registered(
            "shop_dag",
            "load.create_work_units",
            "shop",
            "journal_db",
            "s3://aws_here@bucket/lake",
            ("acme.marks",),
            "sql_source db",
            "s3://aws_here@bucket/lake",
        )
    ]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (replace(sql_ingestion(), sink=ParquetSink("/sea")), "with target 's3://aws_here@bucket/lake' and not '/sea'"),
        (replace(sql_ingestion(), source=SqlSource("crm", ())), "with source 'sql_source db' and not 'sql_source crm'"),
    ],
)
def test_one_name_for_two_ingestions_of_a_dag_is_refused_when_it_is_parsed(other: Ingestion, expected: str) -> None:
    with DAG("shop_dag", schedule=None):
        GobblinIngestion(sql_ingestion(), group_id="load")
        GobblinIngestion(replace(sql_ingestion(), max_packs=2), group_id="again")
        with pytest.raises(ConfigurationError, match=expected) as caught:
            GobblinIngestion(other, group_id="other")
    assert "task 'load.create_work_units' has one of this name and journal" in str(caught.value)


def test_a_location_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DB", "AWS_HERE", "JOURNAL_DB"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", f"postgres://ann:{SECRET}@host/db")
    location = location_of(sql_ingestion("journal_db"))
    assert SECRET not in json.dumps(location)


@pytest.mark.parametrize(
    ("journal", "target"),
    [
        (f"postgresql://ann:{SECRET}@host/db", "/lake"),
        (f"postgresql://ann@host/db?password={SECRET}", "/lake"),
        (f"postgresql://ann@host/db?sslpassword={SECRET}", "/lake"),
        (f"s3://key:{SECRET}@bucket/journal", "/lake"),
        (f"s3://bucket/journal?secret={SECRET}", "/lake"),
        (f"file://ann:{SECRET}@host/journal", "/lake"),
        (f"hdfs://ann:{SECRET}@host/journal", "/lake"),
        ("/journal", f"s3://key:{SECRET}@bucket/lake"),
        ("/journal", f"s3://bucket/lake?secret={SECRET}"),
        ("/journal", f"file://ann:{SECRET}@host/lake"),
        ("/journal", f"hdfs://ann:{SECRET}@host/lake"),
        ("/journal", f"abfs://container@account:{SECRET}@host/lake"),
    ],
)
def test_a_url_with_a_secret_never_comes_into_a_serialized_dag(
    command: CommandLine, tmp_path: Path, journal: str, target: str
) -> None:
    with pytest.raises(ConfigurationError), DAG("shop", schedule=None):
        GobblinIngestion(sql_ingestion(journal, target))
    command.where = ("--journal", journal, "--name", "lab", "--target", target)
    made = on_disk(tmp_path)
    made.run(ORDERS)
    if journal == "/journal":
        command.where = ("--journal", str(tmp_path / "journal"), "--name", "lab", "--target", target)
    assert command("verify", "orders").status == 1


def test_another_tasks_field_of_this_name_is_none_of_ours() -> None:
    tasks = [{"__var": {"task_id": "t", "location": location}} for location in ("here", {"ingestion": "x"}, None, 5)]
    assert [*registered("d", {"dag": {"tasks": tasks}})] == []


@pytest.mark.parametrize("where", ["file:///{}/none", "/{}/none", "sqlite:////{}/none.db"])
def test_to_look_for_a_journal_makes_none(tmp_path: Path, where: str) -> None:
    there = Registered("", "", "lab", where.format(str(tmp_path).lstrip("/")), str(tmp_path))
    with pytest.raises(NotFoundError, match=r"there is none.*is its disk mounted"):
        open_journal(there)
    with pytest.raises(NotFoundError, match=r"there is none"):
        open_administration(there, "ann")
    assert [*tmp_path.iterdir()] == []
    assert open_administration(there, "ann", new=True).journal.datasets() == ()


def test_a_place_must_be_given_whole(command: CommandLine) -> None:
    command.where = ("--journal", "/somewhere")
    assert "--name is not given" in command("datasets").err
    assert "--name and --target are not given" in command("audit").err


def test_a_module_that_is_not_there(lab: Lab, command: CommandLine) -> None:
    lab.run(ORDERS)
    done = command("datasets", "--module", "acme.nowhere")
    assert done.status == 1
    assert "can't import module 'acme.nowhere'" in done.err


# A real metadata database


class Deployment:
    """An Airflow that has a metadata database and a folder of DAGs: four ingestions, two of which are one."""

    def __init__(self, folder: Path, metadata: str) -> None:
        self.metadata = metadata
        self.environment = {
            **os.environ,
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata.replace("sqlite:", "sqlite+aiosqlite:"),
            "PYTHONPATH": str(ROOT),
        }
        on_disk(folder).run(ORDERS)
        (folder / "dags").mkdir()
        code = DAG_FILE.format(target=str(folder / "lake"), journal=str(folder / "journal"))
        (folder / "dags" / "shop.py").write_text(code)
        self.commands = Commands(self.environment)
        for done in self.run(
            ("db", "migrate"),
            ("dags", "reserialize"),
            ("connections", "add", "journal_db", "--conn-uri", f"sqlite:///{folder}/by_connection.db"),
            (
                "gobblin",
                "set-watermark",
                "letters",
                "-d",
                "marked",
                "--to",
                '"xxx"',
                "--kind",
                "test.mark",
                *MARKS,
                *WHY,
            ),
            PARSING="1",
        ):
            assert done.status == 0, done

    def run(self, *commands: Sequence[str], **more: str) -> list[Done]:
        """Run commands, all in one new process.

        :param more: of its environment.
        """
        return self.commands.run(commands, more)


@pytest.fixture(scope="module", params=[pytest.param("sqlite", marks=pytest.mark.soak), "postgres"])
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    url = f"sqlite:///{folder}/airflow.db"
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres_server")
        url = server.create_database(f"commands_{uuid.uuid4().hex}").replace("postgresql://", "postgresql+psycopg://")
    made = Deployment(folder, url)
    yield made
    made.commands.close()


def test_the_ingestion_is_found_in_the_metadata_database(deployment: Deployment) -> None:
    """As it is typed. The DAG's code doesn't run: it would fail."""
    words = ["airflow", "gobblin", "datasets", "--dag-id", "other", "-o", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=deployment.environment)
    assert done.returncode == 0, done.stderr
    assert [(row["urn"], row["rows"]) for row in json.loads(done.stdout)] == [("orders", 10)]


def test_which_ingestion_is_meant(deployment: Deployment) -> None:
    several, two, misnamed, none, misspelt, twice, verified, skipped, by_connection = deployment.run(
        ("gobblin", "datasets"),
        ("gobblin", "datasets", "-d", "shop"),
        ("gobblin", "datasets", "-d", "shop", "-i", "stock"),
        ("gobblin", "datasets", "-d", "nowhere"),
        ("gobblin", "datasets", "-d", "shp"),
        ("gobblin", "datasets", "-i", "lab", "-o", "json"),
        ("gobblin", "verify", "orders", "-d", "shop", "-i", "lab", "-o", "json"),
        ("gobblin", "set-watermark", "stock", "--to", "7", "--kind", "long", "-i", "by_connection", *WHY),
        ("gobblin", "datasets", "-i", "by_connection", "-o", "json"),
    )
    assert {(done.status, done.out) for done in (several, two, misnamed, none)} == {(1, "")}
    named = "'marked' of DAG 'marked', 'lab' of DAG 'other', 'by_connection' of DAG 'shop', 'lab' of DAG 'shop'"
    assert f"it has 4. Name one by --dag-id and --ingestion: {named}" in several.err
    assert "it has 2. Name one" in two.err
    assert "there is none of this name. There are 'by_connection'" in misnamed.err
    assert "no serialized DAG of this id has one" in none.err
    assert "Is the DAG processor running" in none.err
    assert "no serialized DAG of this id has one. Did you mean 'shop'?" in misspelt.err
    assert [row["urn"] for row in twice.json] == ["orders"], "it is one, though two DAGs have it"
    assert {row["state"] for row in verified.json} == {"ok"}
    assert skipped.status == 0, skipped.err
    assert [row["watermark"] for row in by_connection.json] == ["7"], "the connection is in the metadata database"


def test_an_authors_own_watermarks_are_read_with_their_module(deployment: Deployment) -> None:
    """The error names it, and it is never imported because a DAG names it."""
    words = ("gobblin", "datasets", "-d", "marked", "-o", "json")
    without, with_module = deployment.run(words, (*words, *MARKS))
    assert [row["status"] for row in without.json] == ["unreadable"]
    assert without.err == "To read what the author's own classes wrote, add --module tests.cli.marks\n"
    assert [(row["urn"], row["watermark"]) for row in with_module.json] == [("letters", '"xxx"')]


def test_a_secret_on_the_command_line_is_refused_before_airflow_logs_it(deployment: Deployment) -> None:
    words = ("--journal", f"postgresql://ann:{SECRET}@host/db", "--name", "lab")
    (refused,) = deployment.run(("gobblin", "datasets", *words))
    assert refused.status == 1
    assert "holds a password" in refused.err
    metadata = create_engine(deployment.metadata, poolclass=NullPool)
    with metadata.connect() as connection:
        logged = [str(row) for row in connection.execute(text("SELECT event, extra FROM log"))]
    assert any("set_watermark" in row for row in logged), "the act is in Airflow's log"
    assert not any(SECRET in row for row in logged)
