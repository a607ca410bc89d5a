"""The code blocks of the README and of the pages that have no test of their own, run unchanged except for their folder and
their database; and the links between the pages."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import sqlite3
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from airflow.cli.cli_parser import get_parser
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, NoteKind
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.testing import inprocess
from tests.services.environment import ROOT
from tests.services.s3 import S3Server
from tests.test_import_direction import ROOMS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HERE = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("authoring", "extending", "operations"))]
BLOCK = re.compile(r"<!-- test: (.+?) -->\n```python\n(.*?)```", re.DOTALL)
BLOCKS = {name: code for page in HERE for name, code in BLOCK.findall(page.read_text())}
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
ANCHOR = re.compile(r"\]\((?!https?://)([^)#]*)#([^)]+)\)")
DESIGN, TESTING = ROOT / "docs" / "design.md", ROOT / "docs" / "testing.md"
EXAMPLES = dict(BLOCK.findall(TESTING.read_text()))
CITED = re.compile(r"\b(?:[Rr]ules? (?P<rule>\d+)(?: and (?P<other>\d+))?|I(?P<promise>\d{1,2}))\b")
"""How comments and docstrings cite the rules and the promises of the design."""


class Shop:
    """The connection `shop_db`, and others."""

    def __init__(self, database: Path, **others: str) -> None:
        self._uris = {"shop_db": f"sqlite:///{database}", **others}

    def uri(self, conn_id: str) -> str:
        return self._uris[conn_id]


def block(name: str, lake: Path, **names: Any) -> dict[str, Any]:
    """Run a block in `lake`.

    :return: what it defines.
    """
    defined = dict(names)
    exec(compile(BLOCKS[name].replace("/lake/", f"{lake}/"), name, "exec"), defined)
    return defined


def test_an_ingestion_on_s3(tmp_path: Path, versitygw: S3Server) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        database.execute("INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bo')")
    database.close()
    code = BLOCKS["s3"].replace("@lake/", f"@{versitygw.create_bucket()}/")
    defined: dict[str, Any] = {}
    exec(compile(code, "s3", "exec"), defined)
    ingestion: Ingestion = defined["lake"]
    shop = Shop(tmp_path / "shop.db", lake_s3=versitygw.access.connection)
    opened = OpenJob(ingestion, Journal.create(ingestion.journal, ingestion.name, shop), shop)
    assert inprocess.run(opened, shop)["customers"].rows == 2
    published = opened.journal.read_dataset("customers").to_arrow(shop, "lake_s3")
    assert sorted(published.to_table().column("name").to_pylist()) == ["Ann", "Bo"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_run(page: Path) -> None:
    """Each block names its test; those of other pages are run beside the tests of their subject."""
    text = page.read_text()
    assert text.count("```python") == len(BLOCK.findall(text))
    if page in HERE:
        assert {name for name, _ in BLOCK.findall(text)} <= RUN | SUITES


AUTHORS = [
    *(page for page in PAGES if page.name != "testing.md"),
    *ROOT.glob("dags/*.py"),
    *ROOT.glob("docker/dags/*.py"),
]
"""Everything that shows how something is imported, except the page on the tests, which look into modules."""


@pytest.mark.parametrize("page", AUTHORS, ids=lambda page: page.name)
def test_authors_import_from_the_package_itself(page: Path) -> None:
    assert re.findall(r"(?:from|import) airflow_gobblin\.(?!testing import)\S+", page.read_text()) == []


RUN = {
    "administration",
    "authoring",
    "dag",
    "flights",
    "module acme_log",
    "module acme_name",
    "photos",
    "read",
    "s3",
    "tables",
}
"""The blocks that the tests of this file run."""
SUITES = {"suite test_acme_log", "suite test_acme_name"}
"""The suites of those, which are run by `tests/testing/test_page.py`."""


def test_ingestions_into_tables(tmp_path: Path, postgres_database: str) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER, updated_at INTEGER NOT NULL)")
        database.execute("CREATE TABLE prices (id INTEGER PRIMARY KEY, cents INTEGER)")
        database.execute("INSERT INTO orders VALUES (1, 500, 10), (2, 700, 11)")
        database.execute("INSERT INTO prices VALUES (1, 5)")
    with psycopg.connect(postgres_database) as warehouse:
        warehouse.execute("CREATE SCHEMA raw")
    defined = block("tables", tmp_path)
    tables = quote(f"file://{tmp_path}/iceberg", safe="")
    shop = Shop(
        tmp_path / "shop.db",
        warehouse=postgres_database,
        lake_catalog=f"sqlite://{tmp_path}/catalog.db?warehouse={tables}",
    )

    def run() -> None:
        for name in ("to_catalog", "to_lake", "to_warehouse"):
            ingestion: Ingestion = defined[name]
            opened = OpenJob(ingestion, Journal.create(ingestion.journal, ingestion.name, shop), shop)
            assert {report.status for report in inprocess.run(opened, shop).values()} == {"committed"}

    run()
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("UPDATE orders SET cents = 600, updated_at = 12 WHERE id = 1")
        database.execute("UPDATE prices SET cents = 6")
    database.close()
    run()
    with psycopg.connect(postgres_database) as warehouse:
        assert warehouse.execute("SELECT id, cents FROM raw.orders ORDER BY id").fetchall() == [(1, 600), (2, 700)]
        assert warehouse.execute("SELECT id, cents FROM raw.prices").fetchall() == [(1, 6)]
    with closing(load_catalog("lake_catalog", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")) as catalog:
        by_pyiceberg = catalog.load_table("raw.orders").scan().to_arrow()
    by_deltalake = DeltaTable(str(tmp_path / "delta" / "orders")).to_pyarrow_table()
    for read in (by_pyiceberg, by_deltalake):
        assert sorted((row["id"], row["cents"]) for row in read.to_pylist()) == [(1, 600), (2, 700)]


def test_a_mirror_of_files(tmp_path: Path) -> None:
    (tmp_path / "camera" / "2026").mkdir(parents=True)
    (tmp_path / "camera" / "2026" / "one.jpg").write_bytes(b"a photo")
    opened = inprocess.open_job(block("photos", tmp_path)["photos"])
    assert [report.files for report in inprocess.run(opened).values()] == [1]
    assert (tmp_path / "photos" / "2026" / "one.jpg").read_bytes() == b"a photo"


def test_a_chain_of_stages(tmp_path: Path) -> None:
    """It has the jobs of the pipeline whose stages `tests/spark/test_stages.py` runs."""
    defined = block("flights", tmp_path)
    assert [job.name for job in defined["flights"].bound] == ["raw", "joined", "delays"]
    assert {"flights.raw", "flights.joined", "flights.delays"} <= defined.keys()


def test_commands_are_known_as_they_are_written() -> None:
    """To Airflow's own parser; their effects are tested beside their subject."""
    parser = get_parser()
    written = [words for page in PAGES for words in commands(page) if words[0] == "airflow"]
    assert len(written) > 20
    for _, *words in written:
        assert parser.parse_args(words).subcommand


def test_the_readme_installs_what_is_tested() -> None:
    (_, _, package, pinned), (*_, spark) = (words for words in commands(ROOT / "README.md") if words[0] == "pip")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert package.startswith(".["), (
        "it is typed in the checkout, where this README is; tests/test_installed.py types it"
    )
    _, _, extra = package.removesuffix("]").partition("[")
    assert extra in project["optional-dependencies"]
    assert spark == pinned
    assert spark in (ROOT / ".setup" / "pins.txt").read_text().splitlines()


def commands(page: Path) -> Iterator[list[str]]:
    """The commands of the console blocks of a page."""
    for console in CONSOLE.findall(page.read_text()):
        for line in console.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                yield shlex.split(line.removeprefix("$ "), comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_heading(page: Path) -> None:
    links = ANCHOR.findall(page.read_text())
    assert [f"{to}#{name}" for to, name in links if name not in anchors((page.parent / to) if to else page)] == []


def anchors(page: Path) -> set[str]:
    """The targets of links into a page: its headings, as GitHub spells them, and the ids that it gives itself."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | {
        *re.findall(r'<a id="([^"]+)">', text)
    }


def test_each_rule_and_promise_that_is_cited_is_in_the_design() -> None:
    known = anchors(DESIGN)
    cited = {
        (f"i{found['promise']}" if found["promise"] else f"rule-{number}"): f"{module.relative_to(ROOT)}: {found[0]}"
        for folder in ("airflow_gobblin", "spark_jobs", "tests")
        for module in (ROOT / folder).rglob("*.py")
        for found in CITED.finditer(module.read_text())
        for number in (found["rule"], found["other"])
        if number or found["promise"]
    }
    assert {"i5", "i12", "i16", "rule-3", "rule-4", "rule-5", "rule-10"} <= cited.keys()
    lost = [where for name, where in cited.items() if not any(f"{one}-".startswith(f"{name}-") for one in known)]
    assert lost == []


def test_the_design_has_all_rules_and_promises_each_once() -> None:
    text = DESIGN.read_text()
    assert sorted(map(int, re.findall(r"^### Rule (\d+): ", text, re.MULTILINE))) == [*range(1, 16)]
    assert re.findall(r'^\| <a id="i(\d+)"></a>I\1 \| .+ \| .+ \|$', text, re.MULTILINE) == [
        str(n) for n in range(1, 17)
    ]


def test_the_design_has_the_rooms_and_the_records_of_the_code() -> None:
    text = " ".join(DESIGN.read_text().split())
    assert " < ".join(", ".join(rooms) for rooms in ROOMS) in text
    assert [kind.value for kind in NoteKind if kind.value not in text] == []
    assert [action.name for action in Action if action.name not in text] == []


@pytest.mark.parametrize("page", [DESIGN, TESTING], ids=lambda page: page.name)
def test_the_tests_and_modules_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    tests = re.findall(r"`((?:tests|airflow_gobblin)/[\w/]+\.py)::(\w+)`", text)
    assert len(tests) > 15 or page == TESTING
    assert [
        name for file, name in tests if f" def {name}(" not in f" {(ROOT / file).read_text()}".replace("\n", " ")
    ] == []
    files = {*re.findall(r"`((?:[a-z]\w*/)+\w*(?:\.py)?)`", text)}
    assert len(files) > 5
    assert sorted(f for f in files if not any((r / f).exists() for r in (ROOT, ROOT / "airflow_gobblin"))) == []


def example_id(name: str) -> str:
    """Its name and its fixtures, by which `make quick` knows what to leave out."""
    asked = re.search(r"def test_\w+\((.*)\)", EXAMPLES[name])
    assert asked, f"{name} is no test"
    return "-".join((name, *re.findall(r"(\w+):", asked[1])))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES, ids=example_id)
def test_an_example_of_a_test_helper(name: str, request: pytest.FixtureRequest) -> None:
    defined: dict[str, Any] = {}
    exec(compile(EXAMPLES[name], f"docs/testing.md, {name}", "exec"), defined)
    (example,) = (value for key, value in defined.items() if key.startswith("test_"))
    example(**{asked: request.getfixturevalue(asked) for asked in inspect.signature(example).parameters})


def test_an_ingestion_with_all_that_an_author_may_say(tmp_path: Path) -> None:
    rows = [
        (1, "paid", 250, "2026-01-01 10:00:00"),
        (2, "draft", 100, "2026-01-01 11:00:00"),  # left out by `where`
        (3, "paid", -5, "2026-01-01 12:00:00"),  # dropped by a check
        (4, "sent", 300, "2024-12-31 23:59:59"),  # before `start`
    ]
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute(
            "CREATE TABLE orders (id INTEGER NOT NULL, state TEXT, cents INTEGER, updated_at TIMESTAMP NOT NULL)"
        )
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE prices (id INTEGER PRIMARY KEY, state TEXT, cents INTEGER)")
        database.executemany("INSERT INTO prices VALUES (?, 'new', 1)", [(n,) for n in range(1500)])
    database.close()
    defined = block("authoring", tmp_path)
    assert "shop.pack.extract" in defined["dag"].task_ids
    ingestion: Ingestion = defined["shop"]
    shop = Shop(tmp_path / "shop.db")
    opened = OpenJob(ingestion, Journal.create(ingestion.journal, ingestion.name), shop)
    assert inprocess.run(opened, shop)["orders"].status == "committed"
    (order,) = opened.journal.read_dataset("orders").to_arrow().to_table().to_pylist()
    assert (order["order_id"], order["cents"], order["shop"], "state" in order) == (1, 250, "web", False)
    prices = opened.journal.read_dataset("prices").to_arrow().to_table()
    assert sorted(prices["order_id"].to_pylist()) == [*range(500)]  # the newest 1,000 wait


def test_the_dag_the_reading_and_the_administration(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount REAL, updated_at TIMESTAMP NOT NULL)")
        database.executemany("INSERT INTO customers VALUES (?, ?)", [(1, "Ann"), (2, "Bo")])
        hours = [(n, n / 4, (now - timedelta(hours=n + 1)).strftime("%Y-%m-%d %H:%M:%S")) for n in range(10)]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", hours)
    database.close()
    defined = block("dag", tmp_path)
    assert {"shop.verify_recover", "shop.pack.extract", "shop.finish"} <= set(defined["dag"].task_ids)
    ingestion: Ingestion = defined["shop"]
    shop = Shop(tmp_path / "shop.db")
    opened = OpenJob(ingestion, Journal.create(ingestion.journal, ingestion.name), shop)
    assert {r.status for r in inprocess.run(opened, shop).values()} == {"committed"}

    orders = block("read", tmp_path)["orders"]
    assert sorted(orders.to_arrow().to_table()["id"].to_pylist()) == list(range(10))

    block("administration", tmp_path, since=now - timedelta(hours=3))
    assert len(Journal.open(ingestion.journal, "shop").read_dataset("orders").paths) < len(orders.paths)
    reports = inprocess.run(opened, shop)
    assert reports["orders"].status == "committed"
    again = Journal.open(ingestion.journal, "shop").read_dataset("orders").to_arrow().to_table()
    assert sorted(again["id"].to_pylist()) == list(range(10))


def test_an_authors_own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_log.py").write_text(BLOCKS["module acme_log"])
    monkeypatch.syspath_prepend(tmp_path)
    acme = importlib.import_module("acme_log")
    log = tmp_path / "app.log"
    log.write_text("one  \ntwo\nthr")
    ingestion = Ingestion(
        name="logs",
        source=acme.Log(str(log)),
        sink=acme.LabelledParquet(str(tmp_path / "lake")),
        journal=str(tmp_path / "journal"),
        converters=(acme.Trim(),),
        code=("acme_log",),
    )
    opened = OpenJob(ingestion, Journal.create(ingestion.journal, "logs"), Shop(log))
    assert inprocess.run(opened, Shop(log))["log"].rows == 2
    log.write_text("one  \ntwo\nthree \n")
    assert inprocess.run(opened, Shop(log))["log"].slot == 2
    published = opened.journal.read_dataset("log")
    assert sorted(published.to_arrow().to_table()["line"].to_pylist()) == ["one", "three", "two"]
    assert len(list((tmp_path / "lake" / "log").glob("_*.label"))) == 2
    assert replace(ingestion, name="other").work.code == ("acme_log",)
    del sys.modules["acme_log"]
