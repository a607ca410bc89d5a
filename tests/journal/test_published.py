"""The exactly-once view: what `read_dataset` and the manifests show, and when."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, NeverPublishedError, NotFoundError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.history import take_snapshot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import PublishedDataset
from airflow_gobblin.journal.records import Decision, now
from airflow_gobblin.model import schema
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.manifests import manifest_path, put_manifests
from tests.lab import Lab, published_paths
from tests.protocol.rows import SCHEMA, Table
from tests.rows.sources.databases import SqliteDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = Table("a", ExtractKind.APPEND_ONLY, 10)
SNAPSHOT = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)


def test_it_shows_the_files_of_finished_slots_and_only_these(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.decide(replace(A, rows=14))
    (tmp_path / "a" / "planted.txt").write_text("a/99\n")
    found = lab.journal.read_dataset("a")
    assert (found.urn, found.slot, found.watermark, found.rows) == ("a", 1, LongWatermark(10), 10)
    assert [(f.slot, f.unit, f.rows) for f in found.files] == [(1, "u0", 4), (1, "u1", 4), (1, "u2", 2)]
    assert all(Path(f.path).stat().st_size == f.bytes for f in found.files)
    assert lab.rows("a") == A.all_rows()
    lab.run()
    assert lab.journal.read_dataset("a").slot == 2
    assert lab.rows("a") == replace(A, rows=14).all_rows()


def test_what_is_being_published_is_not_seen(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    opened, plan = lab.decide(replace(A, rows=16))
    seen: list[int] = []

    def look(decision: Decision, k: int, n: int) -> None:
        seen.append(len(lab.reopened().read_dataset("a").paths))

    opened.committer.after_step = look
    execute_commit_steps(opened, plan, plan.packs[0])
    assert seen == [3, 3]
    assert len(lab.journal.read_dataset("a").paths) == 5


def test_a_target_that_was_moved_is_read_where_it_is_now(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "old", A)
    lab.run()
    shutil.move(tmp_path / "old", tmp_path / "new")
    found = lab.journal.read_dataset("a", f"{tmp_path}/new/")
    assert Counter(Path(path).parent.parent for path in found.paths) == {tmp_path / "new": 3}
    lines = [line.rstrip() for path in found.paths for line in Path(path).read_text().splitlines()]
    assert Counter(lines) == A.all_rows()


def parquet(lab: Lab, *tables: Table) -> None:
    lab.ingestion = replace(lab.ingestion, sink=ParquetSink(str(lab.folder)))
    opened = OpenJob(lab.opened(*tables).job, lab.journal, NoConnections())
    inprocess.run(opened, NoConnections())


@pytest.mark.slow
def test_a_process_that_has_imported_nothing_else_reads_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "target", A)
    ingestion = replace(lab.ingestion, sink=ParquetSink(str(lab.folder)))
    url = f"file://{tmp_path}/journal"
    inprocess.run(OpenJob(ingestion, Journal.create(url, ingestion.name), NoConnections()), NoConnections())
    program = (
        "import sys; from airflow_gobblin import Journal\n"
        "found = Journal.open(*sys.argv[1:]).read_dataset('a')\n"
        "print(len(found.files), found.to_arrow().count_rows())"
    )
    read = [sys.executable, "-c", program, url, ingestion.name]
    assert subprocess.check_output(read, text=True).split() == ["3", "10"]


def test_as_an_arrow_dataset(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    parquet(lab, A)
    (tmp_path / "a" / "planted.parquet").write_bytes(b"no Parquet")
    found = lab.journal.read_dataset("a").to_arrow()
    assert found.schema.equals(SCHEMA)
    assert Counter(found.to_table().column("row").to_pylist()) == A.all_rows()
    assert found.count_rows() == 10


def test_files_in_another_format_are_left_to_a_library_for_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    parquet(lab, A)
    found = lab.journal.read_dataset("a")
    others = replace(found, files=tuple(replace(file, path=f"{file.path}.jsonl") for file in found.files))
    for read in (others.to_arrow, partial(others.to_spark, None)):
        with pytest.raises(ConfigurationError, match=r"only Parquet is read here.*parquet\.jsonl'.*`paths`"):
            read()


def test_files_from_before_a_new_column_have_nulls_in_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    parquet(lab, A)
    grown = SCHEMA.append(pa.field("more", pa.int64()))
    found = replace(lab.journal.read_dataset("a"), schema=schema.encode(grown)).to_arrow()
    assert found.to_table().column("more").null_count == 10


def test_what_was_published_and_has_no_files_is_an_empty_dataset(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    parquet(lab, A)
    lab.admin.rewind("a", LongWatermark(0), "anew")
    found = lab.journal.read_dataset("a")
    assert found.paths == []
    assert found.to_arrow().to_table().num_rows == 0
    assert found.to_arrow().schema.equals(SCHEMA)


# Things that don't exist


def test_a_misspelt_dataset_or_ingestion_is_reported_with_what_is_like_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(A, urn="orders"), replace(A, urn="stock"))
    lab.run()
    before = lab.records()
    with pytest.raises(NotFoundError, match=r"dataset 'order' of ingestion 'lab'.*2 datasets.*Did you mean 'orders'\?"):
        lab.journal.read_dataset("order")
    with pytest.raises(NotFoundError, match=r"ingestion 'labb' in the journal at memory://.*Did you mean 'lab'\?"):
        Journal.open(lab.store, "labb").read_dataset("orders")
    with pytest.raises(NotFoundError, match=r"the journal at memory://: there is none"):
        Journal.open(MemoryStore(), "lab").read_dataset("orders")
    assert lab.records() == before


def test_what_was_never_published_is_something_else_than_empty(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.admin.set_watermark("set", LongWatermark(5), "the rest is elsewhere")
    lab.run(A, replace(A, urn="c"), unplannable=("a",))
    opened, plan = lab.decide(replace(A, urn="b"))
    with pytest.raises(NeverPublishedError, match=r"'a'.*the last failure: can't plan table 'a': it is gone"):
        lab.journal.read_dataset("a")
    with pytest.raises(NeverPublishedError, match=r"'b'.*its first slot, 1, is decided and not finished"):
        lab.journal.read_dataset("b")
    with pytest.raises(NeverPublishedError, match=r"'set'.*it was set, imported or given up"):
        lab.journal.read_dataset("set")
    lab.admin.pause("set", "to look at it")
    with pytest.raises(NeverPublishedError, match=r"'set'.*it is paused by ann: to look at it"):
        lab.journal.read_dataset("set")
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert lab.journal.read_dataset("b").rows == 10


@pytest.mark.parametrize("delete", [False, True], ids=["files stay", "files go"])
@pytest.mark.parametrize("trimmed", [False, True], ids=["", "trimmed"])
def test_what_was_dropped_is_something_else_than_empty(tmp_path: Path, delete: bool, trimmed: bool) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.admin.drop("a", "the shop was closed.", delete_files=delete)
    if trimmed:  # the newest slot never is
        lab.admin.set_watermark("a", LongWatermark(0), "from its start")
        history = lab.journal.history("a")
        lab.journal.put_snapshot(take_snapshot(history, 2, now()))
        lab.reopened()
    with pytest.raises(
        NeverPublishedError,
        match=r"'a': slot 2 \(drop by ann: the shop was closed\) forgot it, and no run has published",
    ):
        lab.journal.read_dataset("a")
    lab.run(A, replace(A, urn="c"), unplannable=("a",))
    with pytest.raises(
        NeverPublishedError, match=r"'a'.*\) forgot it, .*; the last failure: can't plan table 'a': it is gone"
    ):
        lab.journal.read_dataset("a")
    lab.run(A)
    assert lab.journal.read_dataset("a").rows == 10


# As a DataFrame

SESSION_ZONE = "America/New_York"


@pytest.fixture
def far_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark whose session is in a zone of its own."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", SESSION_ZONE)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("root", ["lake", "la[k]e {a,b} *?", "back\\slash"])
def test_as_a_dataframe_with_timestamps_of_both_kinds_and_a_new_column(
    far_spark: SparkSession, tmp_path: Path, root: str
) -> None:
    database = SqliteDatabase(tmp_path / "shop.db")
    database.run("CREATE TABLE visits (id INTEGER, wall TIMESTAMP, at TIMESTAMP)")
    database.insert("visits", [(1, "2026-01-01 08:00:00", "2026-01-01 08:00:00")])
    casts = {"wall": "timestamp", "at": "timestamp[UTC]"}
    source = SqlSource("db", (SqlTable("visits", ExtractKind.APPEND_ONLY, delta="id", casts=casts),))
    ingestion = Ingestion("shop", source, ParquetSink(str(tmp_path / root)), "unused")
    journal = Journal.create(MemoryStore(), "shop")
    inprocess.run(OpenJob(ingestion, journal, database), database)
    database.run("ALTER TABLE visits ADD COLUMN more REAL")
    database.insert("visits", [(2, "2026-07-01 08:00:00", "2026-07-01 08:00:00", 1.5)])
    inprocess.run(OpenJob(ingestion, journal, database), database)
    published = journal.read_dataset("visits")
    assert len(published.paths) == 2

    found = published.to_spark(far_spark).orderBy("id")

    assert dict(found.dtypes) == {"id": "bigint", "wall": "timestamp_ntz", "at": "timestamp", "more": "double"}
    shown = found.selectExpr("id", "cast(wall as string)", "cast(at as string)", "unix_seconds(at)", "more").collect()
    utc = [int(datetime(2026, month, 1, 8, tzinfo=UTC).timestamp()) for month in (1, 7)]
    assert [tuple(row) for row in shown] == [
        (1, "2026-01-01 08:00:00", "2026-01-01 03:00:00", utc[0], None),
        (2, "2026-07-01 08:00:00", "2026-07-01 04:00:00", utc[1], 1.5),
    ]
    assert found.toArrow().cast(published.to_arrow().schema).equals(published.to_arrow().to_table().sort_by("id"))


@pytest.mark.parametrize("known", [True, False])
def test_an_empty_dataframe(far_spark: SparkSession, known: bool) -> None:
    columns = pa.schema([("wall", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))])
    found = PublishedDataset("d", 0, None, schema.encode(columns) if known else None, ()).to_spark(far_spark)
    assert found.count() == 0
    assert found.dtypes == ([("wall", "timestamp_ntz"), ("at", "timestamp")] if known else [])


# Manifests


def manifests(lab: Lab, urn: str) -> list[dict[str, object]]:
    folder = (lab.folder / manifest_path(lab.journal, urn, 1)).parent
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]


def folded(lab: Lab, urn: str) -> set[str]:
    """The files by manifests, as a reader of these finds them: all that were added without all that were retired."""
    found = manifests(lab, urn)
    added = {file["path"] for one in found for file in one["added"]}  # type: ignore[attr-defined]
    return added - {path for one in found for path in one["retired"]}  # type: ignore[attr-defined]


def live(lab: Lab, urn: str) -> set[str]:
    return {str(Path(path).relative_to(lab.folder)) for path in published_paths(lab.journal, urn)}


def test_a_slots_manifest_names_what_it_added(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    (one,) = manifests(lab, "a")
    assert (one["dataset"], one["slot"], one["retired"]) == ("a", 1, [])
    files = [(f.path, f.bytes, f.rows, f.checksum) for f in lab.journal.read_dataset("a").files]
    assert [
        (f"{tmp_path}/{f['path']}", f["bytes"], f["rows"], f["sha256"])
        for f in one["added"]  # type: ignore[attr-defined]
    ] == files


def test_manifests_show_what_the_journal_shows_after_whatever_happens(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, SNAPSHOT)
    steps = (
        lab.run,
        lambda: lab.run(replace(A, rows=12), replace(SNAPSHOT, version=1)),
        lambda: lab.admin.rewind("a", LongWatermark(5), "wrong"),
        lambda: lab.run(replace(A, rows=14), replace(SNAPSHOT, version=2)),
        lambda: lab.admin.drop("a", "not wanted"),
        lambda: lab.admin.drop("s", "not wanted", delete_files=True),
        lab.run,
    )
    for step in steps:
        step()
        for urn in ("a", "s"):
            assert folded(lab, urn) == live(lab, urn)
    assert lab.rows("a") == replace(A, rows=14).all_rows()


def test_a_pending_slot_has_no_manifest(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.decide()
    put_manifests(lab.opened().files, lab.journal, lab.journal.history("a"))
    assert manifests(lab, "a") == []


def test_missing_manifests_are_written_by_whoever_comes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    for rows in (10, 11, 12):
        lab.run(replace(A, rows=rows))
    for slot in (2, 3):
        (tmp_path / manifest_path(lab.journal, "a", slot)).unlink()
    lab.run()
    assert [m["slot"] for m in manifests(lab, "a")] == [1, 2, 3]
    assert folded(lab, "a") == live(lab, "a")


def test_another_journals_manifests_are_not_taken_for_ours(tmp_path: Path) -> None:
    Lab(tmp_path, A).run()
    lab = Lab(tmp_path, replace(A, rows=14), store=MemoryStore())
    lab.admin.release_claim("a", "the journal is lost")
    lab.admin.set_watermark("a", LongWatermark(10), "as published")
    lab.run()
    assert folded(lab, "a") == live(lab, "a")
    assert len(live(lab, "a")) == 1


@pytest.mark.parametrize("lost", [1, 3])
def test_lost_slots_are_noticed_before_their_rows_are_published_again(tmp_path: Path, lost: int) -> None:
    lab = Lab(tmp_path, A, Table("b", ExtractKind.APPEND_ONLY, 3))
    for rows in (10, 12, 14):
        lab.run(replace(A, rows=rows), Table("b", ExtractKind.APPEND_ONLY, rows))
    published = lab.published()
    last = sorted(key for key in lab.store.list("lab/a/d/"))[-lost:]
    for key in (*last, *(key.replace("/d/", "/o/") for key in last)):
        lab.store.delete(key)
    for key in [*lab.store.list("lab/a/n/")]:
        lab.store.delete(key)
    lab.reopened()
    reports = lab.run(replace(A, rows=20), Table("b", ExtractKind.APPEND_ONLY, 20))
    assert reports["a"].status == "failed"
    assert (
        f"its journal has {many(3 - lost, 'slot')}, and a manifest knows more: records are gone" in reports["a"].detail
    )
    assert "Restore the journal's records from a copy" in reports["a"].detail
    assert reports["b"].status == "committed"
    assert {k: v for k, v in lab.published().items() if k.startswith("a/")} == {
        k: v for k, v in published.items() if k.startswith("a/")
    }


def test_lost_slots_are_noticed_behind_one_without_a_manifest(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    copy = lab.records()
    lab.admin.set_watermark("a", LongWatermark(12), "two rows were not wanted")
    lab.run(replace(A, rows=20))
    for key in lab.records().keys() - copy.keys():
        lab.store.delete(key)
    lab.reopened()
    report = lab.run(replace(A, rows=20))["a"]
    assert report.status == "failed"
    assert "its journal has 1 slot, and a manifest knows more" in report.detail
