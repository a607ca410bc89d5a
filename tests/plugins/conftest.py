"""A real API server with users of different rights, ingestions whose datasets are in every state, and a real browser."""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.options import Delete
from airflow_gobblin.journal.journal import Journal, slot_name
from airflow_gobblin.journal.records import Action, Decision, now
from airflow_gobblin.model import wire
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.coverage import Coverage
from airflow_gobblin.model.progress import Progress
from airflow_gobblin.model.watermark import LongWatermark, TimestampWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores import open_store
from airflow_gobblin.storage.stores.sql import TABLE
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import Trees
from tests.lab import Lab, stick
from tests.plugins import rights
from tests.protocol.rows import EvenRows, Table
from tests.services.airflow import Airflow, running_airflow
from tests.services.processes import free_port
from tests.stages.diamond import Diamond

PASSWORDS = {name: secrets.token_hex(8) for name in ("ann", "vera", "nemo")}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MANY = 10_000
RIVER = tuple(f"river.{name}" for name in ("raw", "one", "two", "both"))
"""The DAGs of a pipeline."""
EVIL = "<script>document.title='owned'</script>\"'& {{ 7*7 }}"
"""A URN that is code in every language of the page."""
HIDDEN = "silver\u202egpj\u3164"
"""A URN that is shown from right to left, and ends in an invisible character."""
LONG = "warehouse." + "a_very_long_name_without_any_space_in_it_" * 8

DAGS = """
from datetime import datetime

from airflow.sdk import DAG, BaseOperator

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin import Frame, GobblinMirror, Mirror, Pipeline, Stage
from airflow_gobblin.operators import GobblinIngestion
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.model.work import ExtractKind

tables = (SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id"),)
for name, (target, journal) in {places!r}.items():
    with DAG(name, schedule=None):
        GobblinIngestion(Ingestion("lab", SqlSource("shop_db", tables), ParquetSink(target), journal=journal))

with DAG("gallery", schedule=None):
    GobblinMirror(Mirror("photos", "{gallery}/source", "{gallery}/target", "{gallery}/journal"))

raw = Ingestion("raw", SqlSource("shop_db", tables), ParquetSink("{river}/raw"), journal="file://{river}/journal")
names = dict(one=("a",), two=("a", "b"))
stages = [
    Stage(name, Frame("acme." + name), {{urn: raw[urn] for urn in urns}}, ParquetSink("{river}/" + name))
    for name, urns in names.items()
]
both = Stage("both", Frame("acme.both"), dict(zip(names, stages)), ParquetSink("{river}/both"))
for dag in Pipeline("river", (raw, *stages, both), raw.journal).dags(schedule="@daily", start_date=datetime(2026, 1, 1)):
    globals()[dag.dag_id] = dag

with DAG("bakery", schedule=None):
    BaseOperator(task_id="bread")
"""


@dataclass(frozen=True)
class Site:
    """A running Airflow with this package's page.

    :param folder: what is below it: an ingestion's folder for each DAG.
    :param swamp: the port of the journal of DAG `swamp`, where nobody listens.
    """

    airflow: Airflow
    folder: Path
    swamp: int

    def client(self, user: str | None = None) -> httpx.Client:
        """A client of a user, who sends a token; or of nobody."""
        headers = {}
        if user is not None:
            headers["Authorization"] = f"Bearer {self.airflow.token((user, PASSWORDS[user]))}"
        return httpx.Client(base_url=self.airflow.url, headers=headers, timeout=60)

    def journal(self, dag_id: str = "shop") -> Journal:
        """The journal of a DAG's ingestion, as it is now."""
        return Journal.create(open_store(str(self.folder / dag_id / "journal")), "lab")


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An Airflow that runs nothing: it has users, DAGs and the datasets of their ingestions."""
    folder, ingestions = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("ingestions")
    places = {
        dag_id: (str(ingestions / dag_id / "lake"), str(ingestions / dag_id / "journal"))
        for dag_id in ("shop", "vault", "forge")
    }
    places["mall"] = (str(ingestions / "mall"), f"sqlite:///{ingestions}/mall.db")
    fill_shop(ingestions / "shop")
    fill_vault(ingestions / "vault")
    places["garden"] = (str(ingestions / "garden"), str(ingestions / "never"))
    port = free_port()
    places["swamp"] = (str(ingestions / "swamp"), f"postgresql://frog@127.0.0.1:{port}/swamp")
    fill_mall(ingestions / "mall.db")
    fill_gallery(ingestions / "gallery")
    fill_river(ingestions / "river")
    config = folder / "home" / "config"
    config.mkdir(parents=True)
    shutil.copy(Path(rights.__file__), config / "rights.py")
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps(PASSWORDS))
    environment = {
        "AIRFLOW__CORE__AUTH_MANAGER": "rights.RightsPerDag",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:admin" for name in PASSWORDS),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
    }
    components = ("api-server", "dag-processor")
    login = ("ann", PASSWORDS["ann"])
    with running_airflow(folder, environment, components=components, login=login) as airflow:
        text = DAGS.format(places=places, gallery=ingestions / "gallery", river=ingestions / "river")
        airflow.add_dag("ingestions.py", text, *places, "gallery", *RIVER, "bakery")
        yield Site(airflow, ingestions, port)


def made(folder: Path, *tables: Table) -> Lab:
    """An ingestion below a folder."""
    return Lab(folder / "lake", *tables, store=open_store(str(folder / "journal")))


def fill_shop(folder: Path) -> None:
    """Datasets in every state: `orders` with a history, `stock` quarantined, `prices` pending, and others."""
    lab = made(folder)
    for rows in range(3, 40, 3):
        lab.run(Table("orders", ExtractKind.APPEND_ONLY, rows), Table(EVIL, ExtractKind.APPEND_ONLY, 2 * rows))
    lab.run(Table("countries", ExtractKind.SNAPSHOT_ONLY, 7))
    hours = TimestampWatermark(now() - timedelta(hours=5, minutes=12))
    lab.admin.set_watermark("public.visits", hours, "moved from another tool")
    lab.run(Table("prices", ExtractKind.APPEND_ONLY, 9))
    stick(lab, Table("stock", ExtractKind.APPEND_ONLY, 8))
    lab.ingestion = replace(lab.ingestion, attempts=3)
    lab.decide(Table("prices", ExtractKind.APPEND_ONLY, 30))
    for urn in ("countries", "prices"):
        lab.admin.pause(urn, "its source moves")


def fill_vault(folder: Path) -> None:
    """`gold`, others with odd names, `torn`, whose record is no record, `coins`, half of which are dead letters, and two that
    are held."""
    lab = made(folder, *(Table(urn, ExtractKind.APPEND_ONLY, 5) for urn in ("gold", HIDDEN, LONG, "torn")))
    lab.run()
    checked = Lab(folder / "lake", store=lab.store, checks=(EvenRows(),))
    checked.run(Table("coins", ExtractKind.APPEND_ONLY, 6))
    held = Lab(folder / "lake", store=lab.store, batch=Batch(rows=100))
    held.run(*(Table(urn, ExtractKind.APPEND_ONLY, 7) for urn in ("tin", EVIL)))
    key = lab.journal.key("torn", "d", slot_name(1))
    lab.store.delete(key)
    lab.store.put_if_absent(key, b"{")


def fill_mall(database: Path) -> None:
    """Ten thousand datasets, every second with a name that is no key; in one transaction, as no journal would write them."""
    journal = Journal.create(open_store(f"sqlite:///{database}"), "lab")
    records = []
    for number in range(MANY):
        urn = f"Mall.Shop {number:05d}" if number % 2 else f"mall.stall_{number:05d}"
        origin = Coverage().starting_at(LongWatermark(number))
        decision = Decision(1, Action.SET, urn, f"{number:x}", "", 1, "", now(), coverage=origin, actor="ann")
        records.append((journal.key(urn, "d", slot_name(1)), wire.dumps(decision)))
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(f"INSERT INTO {TABLE} (key, data) VALUES (?, ?)", records)


def fill_gallery(folder: Path) -> None:
    """A mirror: of its file sets, `album` has a history and a file that could not be put back, `kept` is paused, and a slot of
    `late` is pending.
    """
    trees = Trees(folder, {"delete": Delete(1)}, open_store(str(folder / "journal")))
    for name in ("album", "kept", "late"):
        trees.write(f"{name}/first")
    trees.run()
    (trees.source / "album/first").unlink()
    for path in ("album/second", "album/third", "late/second", "late/first"):
        trees.write(path, "1234")
    trees.run(RunRequest("second", datasets=("album#files",)))
    trees.write("_gobblin/kept/0123abcd/album/nobody's", "abc", at=trees.target)
    trees.admin.pause("kept#files", "its camera is away")
    opened = trees.opened()
    plan = create_work_units(opened, RunRequest("third", datasets=("late#files",)))
    inprocess.extract(opened, plan, NoConnections())
    for number, files in enumerate((1, 3), 1):
        progress = Progress(files, 1_200_000 * files, 4, 4_800_000, 2.0 * files, now())
        opened.staging.put_progress(plan.run, 0, "driver", number, progress)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)


def fill_river(folder: Path) -> None:
    """A pipeline: `one` and `two` read `raw`, and `both` reads these. `two` has yet to follow a rewind; `both` waits for it."""
    diamond = Diamond(folder)
    for rows in (6, 4):
        diamond.grow(rows)
        diamond.rest()
    diamond.rewind("a", 8)
    diamond.grow(2)
    for name in ("one", "both"):
        diamond.run(name)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """A real browser: the machine's Chromium."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.fail(f"none of {', '.join(BROWSERS)} is on the path: install one (Debian: apt-get install chromium)")
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browse(site: Site, chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Sign a user in, in a window of their own. Any complaint of a page's scripts fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_window(user: str, *, dark: bool = False) -> Page:
        context = chromium.new_context(
            base_url=site.airflow.url, color_scheme="dark" if dark else "light", viewport={"width": 1360, "height": 900}
        )
        context.set_default_timeout(60_000)
        contexts.append(context)
        token = site.airflow.token((user, PASSWORDS[user]))
        assert token is not None
        context.add_cookies([{"name": "_token", "value": token, "url": site.airflow.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield open_window
    for context in contexts:
        context.close()
    assert complaints == []
