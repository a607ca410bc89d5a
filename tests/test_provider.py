"""This distribution as Airflow knows it: metadata, connection types with forms and tests, configuration, asset URIs."""

from __future__ import annotations

import importlib
import json
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG, Asset, Connection, conf
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.events.assets import asset_uri, dataset_asset
from airflow_gobblin.get_provider_info import get_provider_info
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.ingestion import open_job
from airflow_gobblin.hooks.journal import GobblinJournalHook
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from tests.services.environment import ROOT
from tests.services.s3 import S3Server

SECRET = "p@ss/w:rd"
INFO = get_provider_info()
CONNECTION_TYPES = [kind["connection-type"] for kind in INFO["connection-types"]]


def connect(monkeypatch: pytest.MonkeyPatch, url: str | None, **fields: Any) -> None:
    """Give Airflow a connection `shop_journal` of our type."""
    extra = {} if url is None else {"url": url}
    monkeypatch.setenv(
        "AIRFLOW_CONN_SHOP_JOURNAL", json.dumps({"conn_type": "gobblin_journal", "extra": extra, **fields})
    )


def test_airflow_knows_the_provider_and_has_no_fault_to_find() -> None:
    manager, runtime = ProvidersManager(), ProvidersManagerTaskRuntime()  # type: ignore[no-untyped-call]
    info = manager.providers["airflow-gobblin"]
    assert info.data | INFO == info.data
    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)
    assert {runtime.hooks[kind].hook_class_name for kind in CONNECTION_TYPES} == {  # type: ignore[union-attr]
        kind["hook-class-name"] for kind in INFO["connection-types"]
    }
    assert {"gobblin"} <= set(runtime.asset_uri_handlers) & set(runtime.asset_factories)
    assert "gobblin" in runtime.asset_to_openlineage_converters
    assert dict(manager.provider_configs)["airflow-gobblin"].keys() == {"gobblin"}
    assert set(INFO["extra-links"]) <= {*manager.extra_links_class_names}
    assert set(INFO["notifications"]) <= {*manager.notification}


def names(info: Any) -> list[str]:
    """Everything in the metadata that names something in this package."""
    if isinstance(info, dict):
        return [name for value in info.values() for name in names(value)]
    if isinstance(info, list):
        return [name for value in info for name in names(value)]
    return [info] if isinstance(info, str) and info.startswith("airflow_gobblin.") else []


@pytest.mark.parametrize("name", names(INFO))
def test_what_the_metadata_names_is_there(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(module), attribute)


def test_every_option_is_read_by_the_code_and_described_in_the_docs() -> None:
    code = "".join(
        path.read_text() for path in (ROOT / "airflow_gobblin").rglob("*.py") if path.stem != "get_provider_info"
    )
    page = (ROOT / "docs" / "airflow.md").read_text()
    for name, option in INFO["config"]["gobblin"]["options"].items():
        assert f'"gobblin", "{name}"' in code
        assert f"`{name}`" in page
        assert conf.get("gobblin", name) == option["default"]


def test_the_forms_ask_for_what_the_hooks_read() -> None:
    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    forms = {ui.connection_type: ui for ui in manager.iter_connection_type_hook_ui_metadata()}
    journal, webhook = (forms[kind] for kind in CONNECTION_TYPES)
    assert (journal.hook_name, webhook.hook_name) == ("Gobblin journal", "Gobblin webhook")
    shown = {kind: {"host", "port", "schema", "login", "password", "extra"} for kind in CONNECTION_TYPES}
    for kind, fields in shown.items():
        fields -= {*manager._field_behaviours_from_metadata[kind]["hidden_fields"]}
    assert shown == {"gobblin_journal": {"login", "password"}, "gobblin_webhook": {"password"}}
    assert "extra__gobblin_journal__url" in manager._connection_form_widgets_from_metadata


def test_the_button_shows_what_is_in_a_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    connect(monkeypatch, url)
    worked, message = Connection.get("shop_journal").test_connection()
    assert worked
    assert message.startswith(f"There is no journal at {tmp_path}/journal.db yet. It is made by the first run")
    assert message.endswith("is its disk mounted here?")
    assert not list(tmp_path.iterdir())

    Journal.create(url, "shop").store.close()
    assert Connection.get("shop_journal").test_connection() == (
        True,
        f"sqlite:///{tmp_path}/journal.db can be relied on. It holds no ingestion yet.",
    )
    store = GobblinJournalHook("shop_journal").get_conn()
    for n in range(12):
        store.put_if_absent(f"shop{n:02}/orders/d/0000000001", b"")
    store.close()
    worked, message = Connection.get("shop_journal").test_connection()
    assert worked
    assert "It holds the ingestions shop00, shop01," in message
    assert message.endswith("shop09 and 2 more.")


def test_the_button_shows_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    messages = {}
    for url in (None, "", "mysql://host/db", f"postgresql://ann:{SECRET.replace('@', '%40')}@host/db", "lake/journal"):
        connect(monkeypatch, url)
        worked, messages[url] = Connection.get("shop_journal").test_connection()
        assert not worked
        assert "ss/w" not in messages[url]
    assert "connection 'shop_journal': it has no URL. Fill in the field 'Journal URL'" in messages[None]
    assert messages[""] == messages[None]
    assert "Put it into the field 'Password'" in messages[f"postgresql://ann:{SECRET.replace('@', '%40')}@host/db"]
    (tmp_path / "journal.db").write_text(
        "no database, but longer than the head of one, which is of a hundred bytes" * 9
    )
    connect(monkeypatch, f"sqlite:///{tmp_path}/journal.db")
    worked, text = Connection.get("shop_journal").test_connection()
    assert not worked
    assert "not a database" in text


def test_a_journal_by_a_connection_of_our_type(
    monkeypatch: pytest.MonkeyPatch, postgres_database: str, tmp_path: Path
) -> None:
    head, _, tail = postgres_database.partition("://")
    credentials, _, place = tail.rpartition("@")
    login, _, password = credentials.partition(":")
    connect(monkeypatch, f"{head}://{place}", login=login, password=password)
    assert password
    worked, message = Connection.get("shop_journal").test_connection()
    assert worked, message
    assert password not in message.replace(place, "")
    source = SqlSource("db", (SqlTable("orders", ExtractKind.SNAPSHOT_ONLY),))
    opened = open_job(Ingestion("shop", source, ParquetSink(str(tmp_path)), "shop_journal"))
    assert opened.journal.store.name.startswith("postgresql+psycopg://")
    opened.journal.store.close()


def test_a_journal_in_s3_by_a_connection_of_our_type(monkeypatch: pytest.MonkeyPatch, versitygw: S3Server) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_S3", versitygw.access.connection)
    connect(monkeypatch, f"s3://lake_s3@{versitygw.create_bucket()}/journal")
    assert Connection.get("shop_journal").test_connection()[0]
    Journal.create(AirflowConnections().uri("shop_journal"), "shop", AirflowConnections()).store.close()


def test_the_fields_of_the_form_come_through_an_uri(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The button of the UI hands the connection over as a URI in the environment."""
    made = Connection(
        conn_id="made",
        conn_type="gobblin_journal",
        password=SECRET,
        extra=json.dumps({"url": "postgresql://ann@host:5433/db"}),
    )
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_JOURNAL", made.get_uri())
    assert AirflowConnections().uri("shop_journal") == "postgresql+psycopg://ann:p%40ss%2Fw%3Ard@host:5433/db"


# Assets


@pytest.mark.parametrize("urn", ["orders", "public.Orders", "a/b ?#%", "größe", "x" * 400])
def test_the_asset_of_a_dataset_has_one_name(urn: str) -> None:
    asset = dataset_asset(ingestion="shop", urn=urn)
    assert asset.name == asset.uri == asset_uri("shop", urn)
    assert Asset(asset.uri) == asset
    with DAG("report", schedule=asset) as dag:
        pass
    assert dag.timetable.asset_condition == asset


@pytest.mark.parametrize(
    "uri",
    [
        "gobblin://shop",
        "gobblin://shop/Orders",
        "gobblin:///orders",
        "gobblin://shop/a/b",
        "gobblin://shop/a?b=c",
        "gobblin://S/a",
    ],
)
def test_what_can_be_no_datasets_asset_is_refused(uri: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"is not the asset of a dataset: expected gobblin://<ingestion>/<dataset's key>.*dataset_asset",
    ):
        Asset(uri)


def test_an_asset_of_an_impossible_dataset_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ingestion name 'Shop'"):
        dataset_asset(ingestion="Shop", urn="orders")
    with pytest.raises(ConfigurationError, match="dataset URN ''"):
        dataset_asset(ingestion="shop", urn="")


# The wheel


def test_the_wheel_declares_that_it_is_typed_and_has_all_that_the_metadata_names(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert "airflow_gobblin/py.typed" in held
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "airflow_gobblin").rglob("*.py")}
    assert sources <= held
