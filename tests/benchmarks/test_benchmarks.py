"""The smallest benchmark runs, sees that its contenders did the same work, and writes its rows. No time is asserted."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.measure import Contender, Figures, Once, alternately, program
from tests.benchmarks.results import Limit, Target, keep, rows_of
from tests.benchmarks.workload import TABLE, create_orders

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


def test_contenders_that_differ_in_what_they_did_are_not_compared(tmp_path: Path) -> None:
    once = Once(1.0, facts={"rows": 10})
    pair = [Contender("one", lambda _: once), Contender("other", lambda _: replace(once, facts={"rows": 9}))]
    with pytest.raises(AssertionError, match="not done the same work"):
        alternately(pair, 1, tmp_path)
