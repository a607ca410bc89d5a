"""A mirror on a real Spark: bundles are copied by Spark tasks, and rsync finds no difference afterwards."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from email import __path__ as email
from pathlib import Path
from threading import Barrier
from xml import __path__ as xml

import pytest
from pyspark.sql import SparkSession

from airflow_gobblin.copy.bundles import LEAST_PART, MOST_BYTES, Bundle
from airflow_gobblin.copy.checks import AtLeastFiles
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import Gunzip
from airflow_gobblin.copy.options import Delete, Keep
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import GROUPS_PER_CORE, run_pack
from airflow_gobblin.workspace.staging import Staging
from tests.copy.hostile_archives import tar
from tests.copy.mirrors import Trees, content, statuses


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Files of installed packages, with names and links of all kinds."""
    trees = Trees(tmp_path, {"delete": Delete(0.5), "keep": Keep("tp"), "links": "copy", "empty_folders": True})
    for name, (folder, *_) in (("email", email), ("xml", xml)):
        shutil.copytree(folder, trees.source / name)
    trees.write("email/a name\nin two lines ü")
    (trees.source / "email" / os.fsdecode(b"no utf-8 \xff")).write_bytes(b"")
    (trees.source / "xml/link").symlink_to("dom/minidom.py")
    (trees.source / "xml/empty/folder").mkdir(parents=True)
    return trees


@dataclass(frozen=True)
class OnSpark:
    """Runs of a mirror whose bundles are copied by Spark tasks."""

    spark: SparkSession
    trees: Trees

    def run(self) -> dict[str, str]:
        opened, request = self.trees.opened(), RunRequest(os.urandom(4).hex())
        verify_recover(opened, request)
        plan = create_work_units(opened, request)
        for pack in plan.packs:
            staging = opened.staging
            report = run_pack(
                self.spark, staging.files.root, staging.folder, plan.run, pack.index, (), SparkConnections({})
            )
            assert report.failures == ()
            plans = [staging.plan(ref.token) for ref in pack.datasets]
            copied = sum(unit.files for one in plans if one is not None for unit in staging.units(one))
            progress = staging.progress(plan.run, pack.index)
            assert (0 if progress is None else progress.files) == copied
            assert progress is None or progress.left == 0
            write_commit_steps(opened, plan, pack)
            execute_commit_steps(opened, plan, pack)
        return statuses({report.urn: report for report in finish(opened, plan)})


def differences(trees: Trees) -> str:
    """Return what rsync would do to make the target equal to the source, by the content of the files and what is kept of them."""
    command = ["rsync", "-n", "-rltp", "--delete", "--checksum", "--itemize-changes", "--exclude=/_gobblin"]
    done = subprocess.run(
        [*command, f"{trees.source}/", f"{trees.target}/"], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_real_tree_is_mirrored_and_rsync_finds_nothing_to_do(
    shipped_spark: SparkSession, trees: Trees, caplog: pytest.LogCaptureFixture
) -> None:
    on_spark = OnSpark(shipped_spark, trees)
    assert differences(trees) != "", "there is something to do"
    with caplog.at_level("INFO", "airflow_gobblin.spark.pack"):
        assert on_spark.run() == {"email#files": "committed", "xml#files": "committed"}
    assert re.search(r": ([1-9]\d*) of \1 files, ([\d.]+ [kM]B) of \2, [\d.]+ [kMG]?B/s", caplog.text), (
        "the progress is logged"
    )
    assert differences(trees) == root_only(trees)
    assert on_spark.run() == {"email#files": "idle", "xml#files": "idle"}

    shutil.rmtree(trees.source / "xml/dom")
    trees.write("email/parser.py", "it has changed")
    assert differences(trees) != root_only(trees)
    assert on_spark.run() == {"email#files": "committed", "xml#files": "committed"}
    assert differences(trees) == root_only(trees)


def test_files_are_converted_and_unpacked_by_spark_tasks(shipped_spark: SparkSession, tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"convert": (Gunzip(),), "unpack": Unpack(), "checks": (AtLeastFiles(2),)})
    trees.write("a/x.csv.gz").write_bytes(gzip.compress(b"x" * 100_000))
    trees.write("a/y.tar").write_bytes(tar(("deep/b", b"b"), ("c", b"c")))
    trees.write("b/y.tar.gz").write_bytes(gzip.compress(tar(("deep/b", b"b"))))
    on_spark = OnSpark(shipped_spark, trees)
    assert on_spark.run() == {"a#files": "committed", "b#files": "failed"}
    made = {path: data for path, data in content(trees.target).items() if data != "/"}
    assert made == {"a/x.csv": b"x" * 100_000, "a/y/deep/b": b"b", "a/y/c": b"c"}
    trees.write("b/z")
    assert on_spark.run() == {"a#files": "idle", "b#files": "committed"}


def root_only(trees: Trees) -> str:
    """The root itself is in no file set: its time may differ."""
    return ".d..t...... ./\n" if differences(trees).startswith(".d..t...... ./") else ""


@pytest.mark.parametrize(("worth", "of_a_core"), [(1, GROUPS_PER_CORE), (MOST_BYTES, 1)])
def test_a_file_set_of_many_bundles_is_copied_by_as_many_spark_tasks_as_it_is_worth(
    shipped_spark: SparkSession, trees: Trees, monkeypatch: pytest.MonkeyPatch, worth: int, of_a_core: int
) -> None:
    monkeypatch.setattr("airflow_gobblin.copy.bundles.MOST_FILES", 5)
    monkeypatch.setattr(CopyWork, "task_weight", worth)
    opened = trees.opened()
    plan = create_work_units(opened, RunRequest("many"))
    units = [u for _, of in opened.staging.plans() for u in opened.staging.units(of)]  # type: ignore[arg-type]
    assert len(units) > 10
    assert {len(Bundle.of(unit).files) for unit in units} <= set(range(6))
    for pack in plan.packs:
        report = run_pack(
            shipped_spark, opened.files.root, opened.staging.folder, plan.run, pack.index, (), SparkConnections({})
        )
        bundles = sum(group.units for group in report.groups)
        assert len(report.groups) == min(bundles, of_a_core * report.cores)
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)
    assert trees.equal()


def test_the_results_of_a_spark_task_are_written_at_once(
    shipped_spark: SparkSession, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_gobblin.copy.bundles.MOST_FILES", 5)
    some, first, put = Barrier(5, timeout=60), iter(range(5)), Staging.put_result

    def waiting(staging: Staging, token: str, result: UnitResult) -> UnitResult:
        if next(first, None) is not None:
            some.wait()
        return put(staging, token, result)

    monkeypatch.setattr(Staging, "put_result", waiting)
    assert set(OnSpark(shipped_spark, trees).run().values()) == {"committed"}
    assert next(first, None) is None
    assert not some.broken


def test_a_large_file_is_copied_in_parts_and_joined(shipped_spark: SparkSession, tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"split_above": LEAST_PART, "keep": Keep("t")})
    (trees.source / "a").mkdir(parents=True)
    (trees.source / "a/large").write_bytes(os.urandom(2 * LEAST_PART + 5))
    trees.write("a/small")
    on_spark = OnSpark(shipped_spark, trees)
    assert on_spark.run() == {"a#files": "committed"}
    assert trees.equal()
    assert trees.staged() == []
    assert on_spark.run() == {"a#files": "idle"}
