"""Limits of a run: whole file sets are left out, are reported, and come next; some come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.limits import Load, RunLimits
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest
from tests.copy.mirrors import Trees, statuses

SIZES = {"a": 3, "b": 1, "c": 5, "d": 2}
"""How many files of ten bytes each file set has."""


def trees_of(folder: Path, **options: Any) -> Trees:
    trees = Trees(folder, options)
    for name, count in SIZES.items():
        for number in range(count):
            trees.write(f"{name}/{number}", "0123456789")
    return trees


def taken(trees: Trees) -> set[str]:
    """The file sets that a run publishes. Those that it leaves out wait, and it is green."""
    reports = trees.run()
    assert set(statuses(reports).values()) <= {"committed", "waiting", "idle"}
    assert all(report.ok for report in reports.values())
    return {urn.partition("#")[0] for urn, status in statuses(reports).items() if status == "committed"}


@pytest.mark.parametrize(
    ("limits", "first", "second"),
    [
        (RunLimits(file_sets=2), {"c", "a"}, {"d", "b"}),
        (RunLimits(datasets=3), {"c", "a", "d"}, {"b"}),
        (RunLimits(files=6), {"c", "b"}, {"a", "d"}),
        (RunLimits(bytes=50), {"c"}, {"a", "d"}),
        (RunLimits(files=1), {"c"}, {"a"}),
    ],
    ids=["file_sets", "datasets", "files", "bytes", "one file"],
)
def test_what_has_no_room_comes_next(tmp_path: Path, limits: RunLimits, first: set[str], second: set[str]) -> None:
    """The largest first, as long as all have waited equally long; the first always has room."""
    trees = trees_of(tmp_path, limits=limits)
    assert taken(trees) == first
    assert taken(trees) == second
    for _ in range(4):
        taken(trees)
    assert trees.equal()


def test_a_file_set_that_changes_in_every_run_does_not_keep_others_waiting(tmp_path: Path) -> None:
    trees = trees_of(tmp_path, limits=RunLimits(file_sets=1))
    seen: list[str] = []
    for number in range(6):
        for more in range(number + 1):
            trees.write(f"c/{number}-{more}")
        seen += taken(trees)
    assert set(seen[:4]) == {*"abcd"}


def test_what_is_left_out_is_reported_with_the_limit(tmp_path: Path) -> None:
    trees = trees_of(tmp_path, limits=RunLimits(files=6))
    dry = {one.urn: one.detail for one in would_plan(trees.opened(), RunRequest("dry")).datasets}
    reports = trees.run()
    why = "a run takes 6 files at the most, which leaves no room for its 3 files"
    expected = f"{why}: the next run takes it before those that had room"
    assert reports["a#files"].detail == dry["a#files"] == expected
    assert statuses(reports)["a#files"] == "waiting"
    assert trees.staged() == []


def test_patterns_decide_what_comes_first(tmp_path: Path) -> None:
    trees = trees_of(tmp_path, limits=RunLimits(file_sets=1), first=("b", "[ad]"))
    assert [taken(trees) for _ in range(4)] == [{"b"}, {"a"}, {"d"}, {"c"}]


def test_parts_of_one_dataset_count_as_one() -> None:
    loads = [Load("a#1", "a", 1, 5), Load("a#2", "a", 1, 5), Load("b#1", "b", 1, 5)]
    assert set(RunLimits(datasets=1).left_out(loads)) == {"b#1"}
    assert set(RunLimits(file_sets=1).left_out(loads)) == {"a#2", "b#1"}
    assert set(RunLimits().left_out(loads)) == set()
    assert RunLimits(bytes=9).left_out(loads)["a#2"].endswith("no room for its 5 bytes")


def test_what_only_deletes_takes_no_room_of_files() -> None:
    loads = [Load("a#1", "a", 10, 5), Load("b#1", "b")]
    assert RunLimits(files=3, bytes=3).left_out(loads) == {}
    assert set(RunLimits(file_sets=1).left_out(loads)) == {"b#1"}


@pytest.mark.parametrize("most", [0, -1, True, 1.5])
def test_a_limit_that_is_none_is_refused(most: Any) -> None:
    with pytest.raises(ConfigurationError, match="not a number of at least 1"):
        Mirror("photos", "/a", "/b", "/journal", limits=RunLimits(files=most))
