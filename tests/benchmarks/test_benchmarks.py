"""The smallest benchmark runs, checks that its contenders did the same work, and writes its rows. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.contenders.reporting import begin
from tests.benchmarks.contenders.spark_commit import committer_of
from tests.benchmarks.measure import Contender, Figures, Once, alternately, program
from tests.benchmarks.results import (
    JSON,
    README,
    Limit,
    Target,
    keep,
    merge,
    readme_table,
    rows_of,
    table_in,
    write_pages,
)
from tests.benchmarks.workload import TABLE, create_orders
from tests.services.environment import ROOT

ROWS = 2000


@pytest.fixture
def figures(postgres_database: str, tmp_path: Path) -> list[Figures]:
    create_orders(postgres_database, ROWS)
    python = Path(sys.executable)
    return alternately(
        [
            program("us", python, "gobblin", postgres_database, table=TABLE, key="updated_at", spark="no"),
            program("a loop", python, "adbc_loop", postgres_database, query=f"SELECT * FROM {TABLE}"),
        ],
        rounds=2,
        folder=tmp_path / "rounds",
    )


def test_a_benchmark_writes_its_rows(figures: list[Figures], tmp_path: Path) -> None:
    assert {once.facts["rows"] for f in figures for once in f.rounds} == {ROWS}
    results = tmp_path / "results.json"
    for work in ("small", "other", "small"):
        targets, limits = [Target("a loop", 0)], [Limit("us", "peak_mb", 1)]
        keep(rows_of(work, figures, "a command", ours="us", targets=targets, limits=limits), results)
    rows = json.loads(results.read_text())
    assert [(row["work"], row["who"]) for row in rows] == [
        ("other", "us"),
        ("other", "a loop"),
        ("small", "us"),
        ("small", "a loop"),
    ]
    assert rows[0]["ratio"] == 1
    assert rows[1]["ratio"] == pytest.approx(rows[1]["seconds"] / rows[0]["seconds"], rel=0.1)
    assert rows[0]["phases"].keys() >= {"planning", "data", "commit"}
    assert all(row["peak_mb"] > 10 for row in rows)
    page = results.with_suffix(".md").read_text()
    assert "| a loop |" in page
    assert [line.split(" | ")[4] for line in page.splitlines() if line.startswith("| small | ")] == ["missed", "met"]


def test_a_target_is_compared_with_what_was_measured(tmp_path: Path) -> None:
    figures = [Figures("us", (Once(1.0),)), Figures("close", (Once(1.99996),)), Figures("enough", (Once(2.0),))]
    results = tmp_path / "results.json"
    keep(rows_of("w", figures, "c", ours="us", targets=[Target("close", 2), Target("enough", 2)]), results)
    found = [
        line.split(" | ")[2:5:2] for line in results.with_suffix(".md").read_text().splitlines() if "| w |" in line
    ]
    assert found == [["1.99996 x", "missed"], ["2.00 x", "met"]]


def test_a_program_replaces_all_of_its_rows_and_no_others(tmp_path: Path) -> None:
    whole, own = tmp_path / "results.json", tmp_path / "own.json"
    figures = [Figures("us", (Once(1.0),))]
    for work, name in (("old", "publish"), ("kept", "publish_more"), ("other", "scale")):
        keep(rows_of(work, figures, f"python -m tests.benchmarks.{name} --rounds 1", ours="us"), whole)
    keep(rows_of("new", figures, "python -m tests.benchmarks.publish --rounds 1", ours="us"), own)
    merge(own, "publish", whole)
    assert [row["work"] for row in json.loads(whole.read_text())] == ["kept", "other", "new"]


def test_a_program_that_fails_keeps_its_rows_of_the_works_that_it_did_not_come_to(tmp_path: Path) -> None:
    whole, own = tmp_path / "results.json", tmp_path / "own.json"
    command = "python -m tests.benchmarks.publish --rounds 1"
    for work, seconds, path in (("first", 1.0, whole), ("second", 1.0, whole), ("first", 2.0, own)):
        keep(rows_of(work, [Figures("us", (Once(seconds),))], command, ours="us"), path)
    merge(own, "publish", whole, ended=False)
    assert [(row["work"], row["seconds"]) for row in json.loads(whole.read_text())] == [("second", 1), ("first", 2)]


def test_the_table_is_written_into_a_readme(tmp_path: Path) -> None:
    results, readme = tmp_path / "results.json", tmp_path / "README.md"
    work, command = (
        "Publishing 200 files on an S3-like server (versitygw), from …",
        "python -m tests.benchmarks.publish",
    )
    figures = [Figures("airflow_gobblin", (Once(2.0),)), Figures("Hadoop's magic committer over s3a", (Once(3.0),))]
    keep(rows_of(work, figures, command, ours="airflow_gobblin"), results)
    readme.write_text(README.read_text())
    write_pages(results, readme)
    assert table_in(readme.read_text()).splitlines()[2:] == [
        "| publishing 200 files on an S3-like server | 2.0 s | Hadoop's magic committer 1.5 |"
    ]
    assert readme.read_text().replace(table_in(readme.read_text()), table_in(README.read_text())) == README.read_text()


def test_a_committer_is_known_by_what_it_left() -> None:
    magic = b'{"name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1", "success": true, "committer": "magic"}'
    assert [committer_of(magic), committer_of(b"")] == ["magic", "file"]


def test_the_readme_s_table_is_made_of_the_results() -> None:
    assert table_in(README.read_text()) == readme_table(json.loads(JSON.read_text()))


def test_what_a_contender_made_stays_until_the_next_one_begins(tmp_path: Path) -> None:
    found = []

    def run(own: Path) -> Once:
        found.append([path.name for path in own.rglob("*.bin")])
        begin(own, str(tmp_path))
        found.append([path.name for path in own.rglob("*.bin")])
        (own / f"{len(found)}.bin").touch()
        return Once(1.0, facts={"rows": 10})

    alternately([Contender("one", run), Contender("other", run)], 2, tmp_path, former=True)
    assert found == [[], [], ["2.bin"], [], ["4.bin"], [], ["6.bin"], []]


def test_contenders_that_differ_in_what_they_did_are_not_compared(tmp_path: Path) -> None:
    once = Once(1.0, facts={"rows": 10})
    pair = [Contender("one", lambda _: once), Contender("other", lambda _: replace(once, facts={"rows": 9}))]
    with pytest.raises(AssertionError, match="not done the same work"):
        alternately(pair, 1, tmp_path)


@pytest.mark.slow
def test_a_part_of_a_program_is_measured_alone(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    # In a process of its own: a benchmark gives its environment a user's Java options, and this one has those of tests.
    words = ["--only", "backlog", "--rounds", "1", "--versions", "10", "--results", str(kept)]
    subprocess.run([sys.executable, "-m", "tests.benchmarks.pipelines", *words], cwd=ROOT, check=True)
    assert {row["work"] for row in json.loads(kept.read_text())} == {"A version of a backlog, one stage without Spark"}
