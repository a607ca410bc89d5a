"""The refusals on an Airflow task's way to its ingestion, the earlier the better, and how connections become URIs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import DAG
from sqlalchemy import make_url

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.connections import SECRETS, AirflowConnections
from airflow_gobblin.hooks.ingestion import check_job, check_journal, open_job
from airflow_gobblin.hooks.spark import driver_environment, watch_output
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.operators import ExtractOperator, GobblinIngestion, VerifyRecoverOperator
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.spark.report import SPARK_UI
from airflow_gobblin.spark.session import JVM_OPTIONS, LOG_SETTINGS
from airflow_gobblin.storage.files import check_target, open_files
from airflow_gobblin.storage.parsed_connection import ParsedConnection
from airflow_gobblin.storage.stores import open_store

SECRET = "s3cret"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test know the secrets of another one's connections: a short one withholds whatever might show it."""
    monkeypatch.setattr(SECRETS, "_secrets", set())
    monkeypatch.setattr(SECRETS, "_patterns", None)


SOURCE = SqlSource("db", (SqlTable("orders", ExtractKind.SNAPSHOT_ONLY),))


def ingestion(journal: str = "/lake/journal", target: str = "/lake/tables") -> Ingestion:
    return Ingestion("shop", SOURCE, ParquetSink(target), journal)


@pytest.mark.parametrize(
    "journal",
    [
        "file:///lake/journal",
        "file://localhost/lake/journal",
        "/lake/journal",
        "sqlite:////lake/journal.db",
        "postgresql://ann@host/db",
        "postgresql://host/db?sslmode=require&passfile=/etc/pgpass",
        "postgres://ann@host:5432/db",
        "journal_db",
    ],
)
def test_places_of_a_journal(journal: str) -> None:
    check_journal(journal)


@pytest.mark.parametrize(
    ("journal", "expected"),
    [
        (f"postgresql://ann:{SECRET}@host/db", "holds a password.*an Airflow connection"),
        (f"postgresql://ann:{SECRET}#@host/db", "holds a password"),
        (f"postgresql+psycopg://host/db?user=ann&password={SECRET}", "holds a password"),
        (f"postgresql://host/db?%70assword={SECRET}", "holds a password"),
        (f"postgres://ann@host/db?sslpassword={SECRET}", "holds a password"),
        (f"postgresql://ann:{SECRET}@host:po/db", "URL can't be read"),
        (f"postgresql://ann:p@rt:{SECRET}@host/db", "URL can't be read"),
        ("sqlite:///journal.db", "its path is relative.*four slashes"),
        ("sqlite://", "every task of a run is a process of its own"),
        ("file://lake/journal", "'lake' in it is a host.*three slashes"),
        ("file://./journal", "'.' in it is a host"),
        (f"mysql://ann:{SECRET}@host/db", "scheme 'mysql': no backend has it"),
        ("lake/journal", "neither a URL, an absolute path, nor the id of a connection"),
        ("./journal", "neither a URL"),
        ("", "neither a URL"),
    ],
)
def test_what_can_be_no_journal_is_refused_without_showing_its_password(journal: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        check_journal(journal)
    assert caught.value.hint
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("lake/tables", "not an absolute path"),
        ("file:lake/tables", "not an absolute path"),
        ("hdfs://lake/tables", "not an absolute path on a local or mounted file system"),
        ("s3://", "must name a bucket"),
        ("s3://lake/../tables", "a plain prefix"),
        ("file://lake/shop", "'lake' in it is a host.*three slashes, 'file:///lake/shop'"),
    ],
)
def test_what_can_be_no_target_is_refused(target: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        check_target(target)
    assert target in str(caught.value)
    with pytest.raises(ConfigurationError, match=expected):
        check_job(ingestion(target=target))


def test_targets() -> None:
    assert open_files("file:///lake/a%20b").root == open_files("file://localhost/lake/a%20b").root == "/lake/a b"
    assert open_files("/lake/a%20b").root == "/lake/a%20b"


@pytest.mark.parametrize("bad", [{"journal": "sqlite:///journal.db"}, {"target": "hdfs://lake/tables"}])
def test_what_cannot_work_is_refused_when_the_dag_is_parsed(bad: dict[str, str]) -> None:
    broken, whole = ingestion(**bad), ingestion()
    with DAG("shop", schedule=None), pytest.raises(ConfigurationError):
        GobblinIngestion(broken)
    with pytest.raises(ConfigurationError):
        VerifyRecoverOperator(task_id="verify_recover", job=broken)
    with pytest.raises(ConfigurationError):
        ExtractOperator(task_id="extract", job=broken, pack={})
    with DAG("shop", schedule=None):
        GobblinIngestion(whole)


def test_the_name_of_a_store_shows_no_secret(postgres_database: str) -> None:
    url = make_url(postgres_database)
    assert url.password
    for opened in (
        postgres_database,
        f"postgresql://{url.username}@{url.host}:{url.port}/{url.database}?password={url.password}",
    ):
        store = open_store(opened)
        store.close()
        assert store.name == f"postgresql+psycopg://{url.username}@{url.host}:{url.port}/{url.database}"


def test_a_journal_by_the_id_of_a_connection(
    postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_JOURNAL_DB", postgres_database)
    opened = open_job(ingestion("journal_db", str(tmp_path / "tables")))
    assert opened.journal.store.name.startswith("postgresql+psycopg://")
    opened.journal.store.close()
    with pytest.raises(ConfigurationError, match="connection 'nowhere': Airflow has no connection of this id"):
        open_job(ingestion("nowhere"))


@pytest.mark.parametrize(
    ("connection", "uri"),
    [
        ("postgresql://ann:a%2Fb%40c@host:5433/db", "postgresql://ann:a%2Fb%40c@host:5433/db"),
        ("postgresql://host/db?sslmode=require&hook_option=1", "postgresql://host/db?sslmode=require"),
        ("sqlite:////lake/shop.db", "sqlite:////lake/shop.db"),
        ("sqlite:////c.db?warehouse=s3%3A%2F%2Flake&x=1", "sqlite:////c.db?warehouse=s3%3A%2F%2Flake"),
        ("postgresql://host/db?warehouse=s3%3A%2F%2Flake", "postgresql://host/db?warehouse=s3%3A%2F%2Flake"),
        ("iceberg://id:secret@host/?scope=x", "iceberg://id:secret@host/?scope=x"),
        ("kafka://ann:secret@broker:9092", "kafka://ann:secret@broker:9092"),
        ("sftp://ann:secret@host:22", "sftp://ann:secret@host:22"),
        ("http://ann:secret@host", "http://ann:secret@host"),
        ("webhdfs://ann@host", "webhdfs://ann@host"),
        ("hive-metastore://host:9083", "hive-metastore://host:9083"),
    ],
)
def test_a_connection_becomes_a_uri(connection: str, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DB", connection)
    assert AirflowConnections().uri("db") == uri


@pytest.mark.parametrize(
    ("connection", "expected"),
    [("mysql://host/db", "of type 'mysql'"), ("sqlite://shop.db", "'shop.db' is not absolute")],
)
def test_a_connection_that_can_be_no_uri_is_named(
    connection: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DB", connection)
    with pytest.raises(ConfigurationError, match=f"connection 'db': .*{expected}"):
        AirflowConnections().uri("db")


def test_a_connection_of_no_type_may_have_keys_of_openpgp_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"conn_type": "generic", "password": "p&q=r", "extra": {"keys": "-----BEGIN PGP…\n=x\n"}}
    monkeypatch.setenv("AIRFLOW_CONN_KEYS", json.dumps(given))
    found = ParsedConnection("keys", AirflowConnections().uri("keys"))
    assert (found.password, found.extra) == (given["password"], given["extra"])
    assert SECRETS.redact("its passphrase is p&q=r") == "its passphrase is ***"
    monkeypatch.setenv("AIRFLOW_CONN_KEYS", '{"conn_type": "generic", "extra": {"other": "x"}}')
    with pytest.raises(ConfigurationError, match="as one whose provider isn't installed"):
        AirflowConnections().uri("keys")


def test_a_connection_to_kafka_keeps_the_client_s_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "a:9092,b:9092", "sasl.password": "p&q=r", "ssl.ca.pem": "-----BEGIN\n…\n"}
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", json.dumps({"conn_type": "kafka", "extra": extra}))
    uri = AirflowConnections().uri("broker")
    assert ParsedConnection("broker", uri).extra == extra
    assert SECRETS.redact("p&q=r at a:9092") == "*** at a:9092"


def test_the_jvm_of_a_driver_takes_options_of_the_environment_after_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=4")
    assert driver_environment("local[2]")["SPARK_SUBMIT_OPTS"].split()[-1] == "-XX:TieredStopAtLevel=4"
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    quiet = f"{JVM_OPTIONS} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    assert driver_environment("local[2]")["SPARK_SUBMIT_OPTS"] == quiet
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = info\n")
    assert driver_environment("local[2]")["SPARK_SUBMIT_OPTS"] == JVM_OPTIONS


def test_the_launchers_jvm_starts_as_the_drivers_and_what_somebody_set_comes_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=4")
    assert driver_environment("local[2]")["SPARK_LAUNCHER_OPTS"] == f"{JVM_OPTIONS} -XX:TieredStopAtLevel=4"
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS")
    assert driver_environment("local[2]")["SPARK_LAUNCHER_OPTS"] == JVM_OPTIONS


def test_a_connection_whose_provider_is_not_installed_shows_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "generic", "host": "/shop.db"}')
    with pytest.raises(ConfigurationError, match=r"as one whose provider isn't installed.*--conn-uri"):
        AirflowConnections().uri("shop")


@pytest.mark.parametrize(
    ("printed", "noticed"),
    [
        (["http://worker-3:4040", "http://evil"], ["http://worker-3:4040"]),  # the second is of what runs in the driver
        (["https://[::1]:8443/proxy/app-1/"], ["https://[::1]:8443/proxy/app-1/"]),
        (["javascript:alert(1)", "http://evil"], []),
        ([f"http://ann:{SECRET}@host:4040"], []),
        ([f"http://host:4040/?token={SECRET}"], []),
        (["http://host:4040/\"onclick=''"], []),
        (["http://" + "a" * 300], []),
        (["http://host:port\ufffd"], []),
        (["none", "http://evil"], []),
        ([], []),
    ],
)
def test_the_ui_of_a_driver_is_noticed_once_and_only_if_it_can_be_a_link(
    printed: list[str], noticed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    hook, found = SparkSubmitHook(conn_id="spark_here"), list[str]()
    watch_output(hook, found.append)
    lines = [
        "it starts",
        f"not at its beginning {SPARK_UI}http://other",
        *(f"{SPARK_UI}{address}" for address in printed),
    ]
    hook._process_spark_submit_log(iter(f"{line}\n" for line in lines))
    assert found == noticed
    logged = [line.replace("ann:s3cret@", "***@") for line in lines]
    assert list(hook._last_submit_log_lines) == logged  # whatever it is, it is logged, without a password
