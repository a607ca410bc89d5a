"""The shipped finders pass the contract of finders."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin.copy import finders
from airflow_gobblin.copy.finders import (
    DatasetFinder,
    DatePartitions,
    EachFolder,
    Glob,
    Manifest,
    NewestVersions,
    Ready,
    WholeTree,
)
from airflow_gobblin.copy.trees import Tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.testing import FinderContract

NOW = datetime(2026, 3, 1, 0, 0, 1, tzinfo=UTC)
PATHS = [
    "a/x",
    "a/_SUCCESS",
    "b/daily/x",
    "b/2026/03/01/x",
    "b/2026/02/28/x",
    "b/2026-02-28/x",
    "b/2026-03-01/x",
    "2026/03/01/_SUCCESS",
    "no text \udcff/x",
    "_gobblin/s/x",
    "list",
    "_SUCCESS",
]
FINDERS: list[DatasetFinder] = [
    WholeTree(),
    EachFolder(),
    EachFolder("b"),
    Glob("*/daily"),
    Glob("{a,b}"),
    Manifest("list"),
    DatePartitions(days=1),
    DatePartitions("."),
    NewestVersions(count=2),
    NewestVersions("b", "%Y"),
    Ready(EachFolder()),
    Ready(WholeTree()),
    Ready(DatePartitions(".")),
]


class TestFinders(FinderContract):
    @pytest.fixture(params=FINDERS, ids=str)
    def finder(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DatasetFinder:
        monkeypatch.setattr(finders, "_now", NOW.astimezone)
        found: DatasetFinder = request.param
        return found

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Tree:
        for path in PATHS:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("a/x\n")
        return LocalTree(tmp_path)


def test_each_shipped_finder_is_tried() -> None:
    classes = [one for one in vars(finders).values() if isinstance(one, type) and not issubclass(one, str)]
    shipped = {one.__name__ for one in classes if hasattr(one, "find")} - {"DatasetFinder"}
    assert shipped == {type(finder).__name__ for finder in FINDERS}
