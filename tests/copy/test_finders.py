"""Finders: the datasets and file sets that a tree holds, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gobblin.copy import finders
from airflow_gobblin.copy.filters import Filter
from airflow_gobblin.copy.finders import (
    CopyableDataset,
    DatasetFinder,
    DatePartitions,
    EachFolder,
    FileSet,
    Glob,
    Manifest,
    NewestVersions,
    Ready,
    WholeTree,
    file_sets_of,
)
from airflow_gobblin.copy.trees import Tree
from airflow_gobblin.copy.trees.local import LocalTree
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.model import wire
from airflow_gobblin.model.holds import Holds


def make(root: Path, *paths: str) -> LocalTree:
    """A tree with these folders and, where a path doesn't end with a slash, files."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).mkdir(exist_ok=True) if path.endswith("/") else (root / path).touch()
    return LocalTree(root)


def urns(finder: DatasetFinder, tree: Tree, wanted: Filter | None = None) -> list[str]:
    again = wire.loads(wire.dumps(finder), type(finder), "finder")
    assert again == finder
    return [one.urn for one in file_sets_of(again, tree, "photos", wanted or Filter())]


def test_a_whole_tree_is_one_dataset_named_as_the_mirror(tmp_path: Path) -> None:
    (one,) = file_sets_of(WholeTree(), make(tmp_path, "a/b"), "photos", Filter())
    assert one == FileSet("photos", "files", ".", ".", str(tmp_path))
    assert (one.urn, one.origin, one.holds) == ("photos#files", str(tmp_path), Holds.DIFFERENCE)


def test_each_folder_is_a_dataset_named_by_its_path(tmp_path: Path) -> None:
    tree = make(tmp_path, "alice/x", "bob/", "file", "_gobblin/s", "deep/er/x")
    assert urns(EachFolder(), tree) == ["alice#files", "bob#files", "deep#files"]
    assert urns(EachFolder("deep"), tree) == ["deep/er#files"]
    assert urns(EachFolder(), tree, Filter.of(exclude=["/bob/"])) == ["alice#files", "deep#files"]
    origins = [one.origin for one in file_sets_of(EachFolder("deep"), tree, "photos", Filter())]
    assert origins == [f"{tmp_path}/deep/er"]


def test_folders_that_match_a_pattern_are_datasets(tmp_path: Path) -> None:
    tree = make(tmp_path, "a/daily/x", "a/hourly/x", "b/daily/y/daily/z", "c/x/daily/z", "daily/x")
    assert urns(Glob("*/daily"), tree) == ["a/daily#files", "b/daily#files"]
    assert urns(Glob("**/daily"), tree) == ["a/daily#files", "b/daily#files", "c/x/daily#files"]
    assert urns(Glob("{a,b}"), tree) == ["a#files", "b#files"]
    with pytest.raises(ConfigurationError, match="file pattern"):
        Glob("[")


def test_names_that_are_no_text_are_escaped_in_urns(tmp_path: Path) -> None:
    tree = make(tmp_path, "\udcff/x")
    assert urns(EachFolder(), tree) == ["\\xff#files"]
    (one,) = file_sets_of(EachFolder(), tree, "photos", Filter())
    assert one.source_folder == "\udcff"


def test_partitions_are_looked_back_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)
    monkeypatch.setattr(finders, "_now", now.astimezone)
    days = [f"{now - timedelta(days=back):%Y/%m/%d}" for back in (0, 1, 2, 5)]
    tree = make(
        tmp_path, *(f"clicks/{day}/x" for day in days), f"views/{days[1]}/x", "views/other/x", "old/2001/01/01/x"
    )
    finder = DatePartitions(days=2)
    assert sorted(urns(finder, tree)) == sorted([*(f"clicks#{day}" for day in days[:3]), f"views#{days[1]}"])
    (one,) = [s for s in file_sets_of(finder, tree, "photos", Filter()) if s.dataset == "views"]
    assert (one.source_folder, one.folder) == (f"views/{days[1]}",) * 2
    assert urns(DatePartitions("clicks", days=0), tree) == [f"clicks#{days[0]}"]
    assert urns(DatePartitions("old"), tree) == [], "a stream without a new partition has nothing to publish"


def test_partitions_may_be_of_hours_months_and_other_zones() -> None:
    now = datetime(2026, 3, 1, 1, 30, tzinfo=UTC)
    assert DatePartitions(partition="%Y%m%d-%H", days=1).names(now)[:2] == ["20260228-01", "20260228-02"]
    assert len(DatePartitions(partition="%Y%m%d-%H", days=1).names(now)) == 25
    assert DatePartitions(partition="month=%Y-%m", days=40).names(now) == [
        "month=2026-01",
        "month=2026-02",
        "month=2026-03",
    ]
    for hour in ("%-H", "%I%p", "%k"):
        assert len(DatePartitions(partition=f"%Y%m%d-{hour}", days=1).names(now)) == 25, "hours in other codes"
    with pytest.raises(ConfigurationError, match="time zone 'Mars'"):
        DatePartitions(zone="Mars")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: DatePartitions(days=-1), "it looks at no day"),
        (lambda: DatePartitions(partition="latest"), "it names no date"),
        (lambda: DatePartitions(partition="%Q"), "it names no date"),
        (lambda: DatePartitions(partition="%Y/%m/%d/%H%M"), "it names more than the hour"),
        (lambda: DatePartitions(partition="%s"), "it names more than the hour"),
        (lambda: NewestVersions(name="%-d-%m-%Y"), "shows a time by it"),
        (lambda: NewestVersions(name="%Y/%m"), "shows a time by it"),
        (lambda: NewestVersions(name="%Y%Y"), "shows a time by it"),
        (lambda: NewestVersions(name="100%"), "shows a time by it"),
        (lambda: NewestVersions(name="v1"), "shows a time by it"),
        (lambda: Ready(EachFolder), "not registered"),  # type: ignore[arg-type]
    ],
)
def test_a_finder_that_would_never_find_anything_is_refused(make: Callable[[], DatasetFinder], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        make()


def test_the_newest_versions_are_file_sets(tmp_path: Path) -> None:
    tree = make(tmp_path, "db/9-1-2026/x", "db/10-1-2026/x", "db/1-2-2025/x", "db/tmp/x", "empty/")
    assert urns(NewestVersions("db", "%d-%m-%Y"), tree) == ["db#10-1-2026"]
    assert urns(NewestVersions("*", "%d-%m-%Y", count=2), tree) == ["db#9-1-2026", "db#10-1-2026"]
    with pytest.raises(ConfigurationError, match="it leaves no version"):
        NewestVersions(count=0)


def test_a_file_set_without_its_marker_waits(tmp_path: Path) -> None:
    tree = make(tmp_path, "a/_SUCCESS", "b/x", "c/_SUCCESS/")
    assert urns(Ready(EachFolder()), tree) == ["a#files"]
    assert urns(Ready(Glob("b")), tree) == [], "that is no error: nothing is ready yet"


def test_a_manifest_is_one_dataset(tmp_path: Path) -> None:
    (one,) = file_sets_of(Manifest("lists/today"), make(tmp_path, "lists/today"), "photos", Filter())
    assert one == FileSet("photos", "files", ".", ".", str(tmp_path), "lists/today")


def test_a_source_without_datasets_is_an_error(tmp_path: Path) -> None:
    tree = make(tmp_path, "file")
    for finder in (EachFolder(), Glob("x*"), DatePartitions(), NewestVersions(), Ready(EachFolder())):
        with pytest.raises(SourceError, match=f"{type(finder).__name__}.* finds none there"):
            file_sets_of(finder, tree, "photos", Filter())
    make(tmp_path, "a/x")
    with pytest.raises(SourceError, match="none there that its filter includes"):
        file_sets_of(EachFolder(), tree, "photos", Filter.of(exclude=["a/**"]))
    with pytest.raises(SourceError, match="No such file or directory"):
        file_sets_of(EachFolder(), LocalTree(tmp_path / "none"), "photos", Filter())


@pytest.mark.parametrize("finder", [DatePartitions("."), Ready(WholeTree())])
def test_a_missing_source_is_never_one_with_nothing_to_publish_yet(finder: DatasetFinder, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no such folder\. Is it mounted"):
        file_sets_of(finder, LocalTree(tmp_path / "none"), "photos", Filter())
    assert file_sets_of(finder, make(tmp_path), "photos", Filter()) == ()


@wire.record("acme.pairs")
@dataclass(frozen=True)
class Pairs:
    """A user's own finder, whose datasets are given."""

    sets: tuple[tuple[str, str, str], ...]

    def find(self, tree: Tree, mirror: str) -> Iterable[CopyableDataset]:
        return [Pair(self.sets)]


@dataclass(frozen=True)
class Pair:
    """Its dataset."""

    sets: tuple[tuple[str, str, str], ...]
    urn: str = "pair"

    def file_sets(self, tree: Tree) -> Iterable[FileSet]:
        return [FileSet(self.urn, *one) for one in self.sets]


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ((("a", "x", "x"), ("a", "y", "y")), "have one URN"),
        ((("a", "x", "x"), ("b", "x", "y")), "have one folder"),
        ((("a", "x", "x"), ("b", "y", "x")), "have one folder"),
        ((("a", "x", "x"), ("b", "x/y/z", "y")), "lie in one another"),
        ((("a", "x", "x/y"), ("b", "y", "x")), "lie in one another"),
        ((("a", "x", "."), ("b", "y", "y")), "lie in one another"),
        ((("a", "../x", "x"),), "plain relative path"),
        ((("a", "x", "/x"),), "plain relative path"),
    ],
)
def test_file_sets_that_share_a_name_or_a_folder_are_refused(
    sets: tuple[tuple[str, str, str], ...], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        file_sets_of(Pairs(sets), LocalTree(tmp_path), "photos", Filter())


def test_a_finder_of_an_authors_own_may_place_datasets_elsewhere(tmp_path: Path) -> None:
    assert urns(Pairs((("a", "x", "lake/x"), ("b", "y", "lake/y"))), LocalTree(tmp_path)) == ["pair#a", "pair#b"]
