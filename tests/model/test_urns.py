"""URNs of any kind from plan to published files: each dataset has its own folder and its own journal, or is refused by name."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.naming import MAX_URN_BYTES, dataset_key
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.storage.stores.sql import SqlStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.staging import ROOT
from tests.protocol.rows import RowSource, Table

NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
TWINS = tuple(unicodedata.normalize(form, "가") for form in ("NFC", "NFD"))
"""Only their hash distinguishes one key from the other."""
URNS = (
    "/", "a/b", "a//b", "/etc/passwd", ".", "..", "../../etc", "a/../b", "a\\b", "%2e%2e%2f", "~", "_gobblin", "_x", ".x", "-x",
    "a\nb", "a\r", "\x1b[31m", "\x7f", "\u202e", " ", " a", "a ", "*", "{}", "$HOME", "'; DROP TABLE x; --",
    "d/0000000001", NFC, NFD, *TWINS, "ß", "ss", "flights", "Flights", "FLIGHTS",
    "x" * 1024, "x" * 1023 + "y", "é" * 512, dataset_key("Flights"), dataset_key("a/b"),
)  # fmt: skip
SPOILED = "Flights"


@pytest.fixture(params=["memory", "local", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "local":
        made = LocalStore(LocalFiles(tmp_path / "journal"))
    else:
        made = SqlStore(f"sqlite:///{tmp_path}/journal.db")
    yield made
    made.close()


def ingestion(target: Path, urns: tuple[str, ...], rows: int) -> Ingestion:
    source = RowSource(tuple(Table(urn, ExtractKind.APPEND_ONLY, rows) for urn in urns))
    return Ingestion("urns", source, ParquetSink(str(target)), "unused")


def rows_of(journal: Journal, urn: str) -> Counter[str]:
    return Counter(journal.read_dataset(urn).to_arrow().to_table().column("row").to_pylist())


@pytest.mark.slow
def test_each_has_its_own_folder_and_its_own_journal(store: Store, tmp_path: Path) -> None:
    assert len(set(URNS)) == len(URNS)
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if "journal" not in path.name and "journal" not in path.parent.name}
    opened = OpenJob(ingestion(target, URNS, 2), Journal.create(store, "urns"), NoConnections())
    reports = inprocess.run(opened, NoConnections())
    assert {urn: r.status for urn, r in reports.items()} == dict.fromkeys(URNS, "committed")

    journal = Journal.create(store, "urns")
    assert set(journal.datasets()) == set(URNS)
    folders = set()
    for urn in URNS:
        published = journal.read_dataset(urn)
        (path,) = (Path(p) for p in published.paths)
        assert path.parent.parent == target
        assert not path.parent.name.startswith(("_", "."))
        folders.add(path.parent.name.lower())
        assert rows_of(journal, urn) == Table(urn, ExtractKind.APPEND_ONLY, 2).all_rows()
    assert len(folders) == len(URNS), "apart also where case is folded"
    assert {p.name.lower() for p in target.iterdir()} == folders | {ROOT}
    outside = {
        p
        for p in tmp_path.rglob("*")
        if target not in (p, *p.parents) and "journal" not in str(p.relative_to(tmp_path))
    }
    assert outside <= before, "nothing was written elsewhere"


@pytest.mark.slow
def test_a_bad_journal_of_one_twin_stops_no_other(store: Store, tmp_path: Path) -> None:
    twins = ("flights", "Flights", "FLIGHTS", dataset_key("Flights"), NFC, NFD, *TWINS, "a\nb")
    target = tmp_path / "target"
    for rows in (2, 3):
        opened = OpenJob(ingestion(target, twins, rows), Journal.create(store, "urns"), NoConnections())
        inprocess.run(opened, NoConnections())
    record = f"urns/{dataset_key(SPOILED)}/d/0000000002"
    data = store.get(record)
    assert data is not None
    store.delete(record)
    store.put_if_absent(record, data[:-1])
    journal = Journal.create(store, "urns")
    reports = inprocess.run(OpenJob(ingestion(target, twins, 4), journal, NoConnections()), NoConnections())
    assert {urn for urn, r in reports.items() if r.status == "failed"} == {SPOILED}
    for urn in set(twins) - {SPOILED}:
        assert rows_of(journal, urn) == Table(urn, ExtractKind.APPEND_ONLY, 4).all_rows()


@pytest.mark.parametrize("urn", ["", "x" * (MAX_URN_BYTES + 1), "\ud800", "a\udfff", "\0", "a\0b"])
def test_what_can_be_no_urn_is_refused_by_name_before_anything_is_written(tmp_path: Path, urn: str) -> None:
    store = MemoryStore()
    journal = Journal.create(store, "urns")
    before = list(store.list(""))
    source = replace(ingestion(tmp_path / "target", ("good",), 2))
    source = replace(
        source, source=RowSource((Table("good", ExtractKind.APPEND_ONLY, 2), Table(urn, ExtractKind.APPEND_ONLY, 2)))
    )
    with pytest.raises(ConfigurationError, match="dataset URN") as caught:
        create_work_units(OpenJob(source, journal, NoConnections()), RunRequest("run"))
    assert caught.value.hint
    str(caught.value).encode(errors="strict")
    assert list(store.list("")) == before
    assert not (tmp_path / "target").exists()


def test_two_datasets_of_one_urn_are_refused_by_name(tmp_path: Path) -> None:
    opened = OpenJob(
        ingestion(tmp_path / "target", ("a", "b", "a"), 2), Journal.create(MemoryStore(), "urns"), NoConnections()
    )
    with pytest.raises(ConfigurationError, match=r"dataset 'a': the source names it twice. Give each dataset"):
        create_work_units(opened, RunRequest("run"))
