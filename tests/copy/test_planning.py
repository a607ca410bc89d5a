"""The plan of a file set: applied to the target it gives the source, and anything that forbids it is named."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gobblin.connections import GuardedConnections, NoConnections
from airflow_gobblin.copy import bundles
from airflow_gobblin.copy.bundles import Bundle, BundleKind
from airflow_gobblin.copy.diff import Change, Difference, differences
from airflow_gobblin.copy.entries import Entry, EntryKind
from airflow_gobblin.copy.finders import EachFolder, FileSet, Manifest, WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.planning import find_file_sets, plan_copy
from airflow_gobblin.copy.work import CopyBinding, CopyWork
from airflow_gobblin.errors import ConfigurationError, DifferenceError, GobblinError, SourceError, TargetError
from airflow_gobblin.job import WorkRequest
from airflow_gobblin.model import wire
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.storage.files import LocalFiles
from tests.copy.trees import Folder, folders, on_disk, read
from tests.services.environment import ROOT

NOW: Any = None


def work_on(root: Path, **options: Any) -> CopyWork:
    """The work of a mirror from `source` to `target` below a folder."""
    finder = options.pop("finder", WholeTree())
    return CopyWork("photos", f"{root}/source", f"{root}/target", f"{root}/target", finder, **options)


def planned(work: CopyWork, dataset: FileSet | None = None) -> list[WorkUnit] | None:
    """The units of a plan; `None` if there is nothing to do."""
    dataset = dataset or find_file_sets(work, NoConnections())[0]
    files, connections = LocalFiles(work.target), GuardedConnections(NoConnections())
    found = plan_copy(work, dataset, {}, WorkRequest(NOW), files, connections)
    if found is None:
        return None
    assert isinstance(found.binding, CopyBinding)
    assert found.binding.source_folder == dataset.source_folder
    assert found.folder == dataset.folder
    return [*found.units]


def planned_bundles(work: CopyWork) -> list[Bundle]:
    return [Bundle.of(unit) for unit in planned(work) or ()]


def paths(work: CopyWork, kind: BundleKind = BundleKind.COPY) -> list[str]:
    """The paths that are copied, deleted, or whose folders are made."""
    return [
        path
        for bundle in planned_bundles(work)
        if bundle.acts is kind
        for path in (
            *(file.entry.path for file in bundle.files),
            *(gone.path for gone in bundle.deletes),
            *(folder.path for folder in bundle.folders),
        )
    ]


def carry_out(work: CopyWork) -> None:
    """Carry out a plan on the disk, in the order of phases, looking at every identity that it names."""
    found = planned_bundles(work)
    source, target = os.fsencode(work.source), os.fsencode(work.target)
    for folder in (folder for bundle in found for folder in bundle.folders):
        os.makedirs(target + b"/" + os.fsencode(folder.path), exist_ok=True)
    for bundle in found:
        for file in bundle.files:
            at = os.fsencode(file.entry.path)
            there = LocalFiles(work.target).identity(file.entry.path)
            assert there == file.replaces
            with open(source + b"/" + at, "rb") as one, open(target + b"/" + at, "wb") as other:
                other.write(one.read())
        for gone in bundle.deletes:
            assert LocalFiles(work.target).identity(gone.path) == gone.identity
            os.unlink(target + b"/" + os.fsencode(gone.path))
    for path in (path for bundle in found for path in bundle.gone_folders):
        os.rmdir(target + b"/" + os.fsencode(path))


def without_empty(folder: Any) -> dict[bytes, Any]:
    """A folder's content without folders that hold no file."""
    inner = {name: of if isinstance(of, bytes) else without_empty(of) for name, of in folder.items()}
    return {name: of for name, of in inner.items() if of != {}}


@pytest.mark.slow
@settings(max_examples=50)
@given(folders, folders, st.booleans())
def test_the_difference_applied_to_the_target_gives_the_source(one: Folder, other: Folder, empty: bool) -> None:
    with on_disk(source=one, target=other) as root:
        work = work_on(root, existing=Existing.UPDATE, compare=Compare.CHECKSUM, delete=Delete(1), empty_folders=empty)
        if not without_empty(one) and without_empty(other):
            with pytest.raises(DifferenceError, match="the source has no files"):
                planned(work)
            return
        if clash(one, other):
            with pytest.raises(DifferenceError, match="a folder in the"):
                planned(work)
            return
        carry_out(work)
        if empty:
            assert read(os.fsencode(root / "target")) == one
        else:
            assert without_empty(read(os.fsencode(root / "target"))) == without_empty(one)
        assert planned(work) is None, "there is nothing left to do"


def clash(one: Folder, other: Folder) -> bool:
    """Whether a name is a folder on one side and a file on the other."""
    for name in one.keys() & other.keys():
        mine, theirs = one[name], other[name]
        if isinstance(mine, bytes) is not isinstance(theirs, bytes):
            return True
        if not isinstance(mine, bytes) and not isinstance(theirs, bytes) and clash(mine, theirs):
            return True
    return False


@pytest.mark.slow
@settings(max_examples=50)
@given(folders, folders)
def test_without_delete_the_target_only_grows(one: Folder, other: Folder) -> None:
    with on_disk(source=one, target=other) as root:
        work = work_on(root, existing=Existing.SKIP)
        if not clash(one, other):
            before = {os.path.join(at, n) for at, _, names in os.walk(os.fsencode(root / "target")) for n in names}
            found = planned_bundles(work)
            assert not [b for b in found if b.deletes or b.gone_folders or any(f.replaces for f in b.files)]
            at = os.fsencode(root / "target") + b"/"
            assert not {at + os.fsencode(f.entry.path) for b in found for f in b.files} & before


@pytest.mark.slow
@settings(max_examples=20)
@given(folders)
def test_a_plan_survives_its_wire(one: Folder) -> None:
    with on_disk(source=one, target={}) as root:
        for unit in planned(work_on(root, keep=Keep("tpug"))) or ():
            again = wire.from_json(WorkUnit, wire.to_json(unit), "unit")
            assert again == unit
            assert Bundle.of(again) == Bundle.of(unit)


def fill(root: Path, source: dict[str, str], target: dict[str, str]) -> None:
    """Write files to both sides, all of one time."""
    for side, files in (("source", source), ("target", target)):
        (root / side).mkdir(exist_ok=True)
        for path, content in files.items():
            (root / side / path).parent.mkdir(parents=True, exist_ok=True)
            (root / side / path).write_text(content)
            os.utime(root / side / path, ns=(10**18, 10**18))


def test_a_file_is_unchanged_by_size_and_time(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {"same": "a", "older": "a", "newer": "a", "longer": "ab"},
        dict.fromkeys(("same", "older", "newer", "longer"), "b"),
    )
    os.utime(tmp_path / "source" / "newer", ns=(10**18 + 10**9, 10**18 + 10**9))
    os.utime(tmp_path / "source" / "older", ns=(10**18 - 1, 10**18 - 1))
    work = work_on(tmp_path, existing=Existing.UPDATE)
    assert paths(work) == ["longer", "newer"]
    assert paths(replace(work, keep=Keep("t"))) == ["longer", "newer", "older"]
    assert paths(replace(work, compare=Compare.CHECKSUM)) == ["longer", "newer", "older", "same"]


def test_times_are_compared_as_exactly_as_the_target_keeps_them(tmp_path: Path) -> None:
    fill(tmp_path, dict.fromkeys("abc", "x"), dict.fromkeys("abc", "x"))
    for name, theirs in {
        "a": 1_000_000_001_000_000_000,
        "b": 1_000_000_001_123_456_000,
        "c": 1_000_000_000_000_000_000,
    }.items():
        os.utime(tmp_path / "source" / name, ns=(1_000_000_001_123_456_789,) * 2)
        os.utime(tmp_path / "target" / name, ns=(theirs, theirs))
    assert paths(work_on(tmp_path, existing=Existing.UPDATE, keep=Keep("t"))) == ["c"]


def test_a_file_in_the_way_fails_the_file_set_unless_it_may_be_replaced_or_left(tmp_path: Path) -> None:
    fill(tmp_path, {"one": "longer", "two": "longer"}, {"one": "x", "two": "x"})
    with pytest.raises(DifferenceError, match=r"2 files of the target differ .* 'one', 'two'"):
        planned(work_on(tmp_path))
    assert paths(work_on(tmp_path, existing=Existing.UPDATE)) == ["one", "two"]
    assert planned(work_on(tmp_path, existing=Existing.SKIP)) is None


def test_too_many_deletions_are_refused_with_their_names(tmp_path: Path) -> None:
    files = {f"{number:02}": "x" for number in range(40)}
    fill(tmp_path, {"00": "x"}, files)
    with pytest.raises(
        DifferenceError, match=r"39 files of the target's 40 would be deleted: '01', .*'20' and 19 more"
    ):
        planned(work_on(tmp_path, delete=Delete(0.9)))
    assert len(paths(work_on(tmp_path, delete=Delete(0.975)), BundleKind.DELETE)) == 39


def test_nothing_is_deleted_for_a_source_that_is_empty_or_missing(tmp_path: Path) -> None:
    fill(tmp_path, {}, {"file": "x"})
    with pytest.raises(DifferenceError, match="the source has no files"):
        planned(work_on(tmp_path, delete=Delete(1)))
    (tmp_path / "source").rmdir()
    with pytest.raises(SourceError, match="no folder is there"):
        planned(work_on(tmp_path, delete=Delete(1)))


def test_nothing_is_planned_by_a_part_of_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, {"a/1": "x", "b/1": "x", "c/1": "x"}, {"a/1": "x", "b/1": "x", "c/1": "x"})
    scandir, broken = os.scandir, f"{tmp_path}/source/b".encode()

    def refusing(at: Any) -> Any:
        if at == broken:
            raise PermissionError(13, "Permission denied", at)
        return scandir(at)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(SourceError, match=r"source for .* Permission denied: .*/b"):
        planned(work_on(tmp_path, delete=Delete(1)))
    broken = f"{tmp_path}/target/b".encode()
    with pytest.raises(TargetError, match=r"target for .* Permission denied: .*/b"):
        planned(work_on(tmp_path, delete=Delete(1)))


def test_what_the_filter_excludes_is_neither_copied_nor_deleted(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {"a.jpg": "x", "b.png": "x", "tmp/c.jpg": "x"},
        {"d.jpg": "x", "e.png": "x", "tmp/f.jpg": "x", "g/h.png": "x"},
    )
    work = work_on(tmp_path, include=("*.jpg",), exclude=("tmp/**",), delete=Delete(1))
    assert paths(work) == ["a.jpg"]
    assert paths(work, BundleKind.DELETE) == ["d.jpg"]
    assert [b.gone_folders for b in planned_bundles(work) if b.gone_folders] == []


def test_a_filter_file_is_read_where_it_is_planned(tmp_path: Path) -> None:
    fill(tmp_path, {"a.jpg": "x", "b.png": "x"}, {})
    (tmp_path / "filter").write_text("# images\n- *.png\n")
    assert paths(work_on(tmp_path, filter_file=f"{tmp_path}/filter")) == ["a.jpg"]
    with pytest.raises(ConfigurationError, match=r"filter file .*none"):
        planned(work_on(tmp_path, filter_file=f"{tmp_path}/none"))


def test_a_folder_goes_only_if_nothing_in_it_stays(tmp_path: Path) -> None:
    fill(tmp_path, {"keep": "x"}, {"keep": "x", "a/b/c": "x", "d/e": "x", "d/f.tmp": "x"})
    (tmp_path / "target" / "empty").mkdir()
    work = work_on(tmp_path, delete=Delete(1), exclude=("*.tmp",))
    assert [b.gone_folders for b in planned_bundles(work) if b.gone_folders] == [("a/b", "a", "empty")]
    carry_out(work)
    assert planned(work) is None


def test_folders_are_made_where_something_comes_into_them(tmp_path: Path) -> None:
    fill(tmp_path, {"a/b/file": "x", "c/other.txt": "x"}, {})
    (tmp_path / "source" / "empty" / "er").mkdir(parents=True)
    assert paths(work_on(tmp_path, include=("file",)), BundleKind.FOLDERS) == ["a/b", "a"]
    every = paths(work_on(tmp_path, empty_folders=True), BundleKind.FOLDERS)
    assert every == ["a/b", "a", "c", "empty/er", "empty"]


def test_folders_get_the_attributes_that_are_kept(tmp_path: Path) -> None:
    fill(tmp_path, {"a/file": "x", "b/file": "x"}, {"a/file": "x", "b/file": "x"})
    (tmp_path / "source" / "a").chmod(0o750)
    for side in ("source", "target"):
        for folder in ("a", "b", "."):
            os.utime(tmp_path / side / folder, ns=(10**18, 10**18))
    assert planned(work_on(tmp_path)) is None
    assert planned(work_on(tmp_path, keep=Keep("t"))) is None
    (folders_,) = planned_bundles(work_on(tmp_path, keep=Keep("p")))
    assert [(f.path, f.attributes.mode, f.attributes.owner, f.modified) for f in folders_.folders] == [
        ("a", 0o750, None, 0)
    ]
    os.utime(tmp_path / "target" / "b", ns=(1, 1))
    (folders_,) = planned_bundles(work_on(tmp_path, keep=Keep("t")))
    assert [(f.path, f.attributes.mode, f.modified) for f in folders_.folders] == [("b", None, 10**18)]


def test_a_folder_in_which_something_changes_gets_its_time_again(tmp_path: Path) -> None:
    fill(tmp_path, {"a/file": "longer"}, {"a/file": "x"})
    for side in ("source", "target"):
        os.utime(tmp_path / side / "a", ns=(10**18, 10**18))
    assert paths(work_on(tmp_path, keep=Keep("t"), existing=Existing.UPDATE), BundleKind.FOLDERS) == ["a"]


@pytest.mark.parametrize(
    ("source", "target"),
    [({"a": "x"}, {"a/b": "x"}), ({"a/b": "x"}, {"a": "x"}), ({"a": "x", "a.b": "x"}, {"a/b": "x"})],
)
def test_a_folder_where_a_file_should_be_is_named(
    source: dict[str, str], target: dict[str, str], tmp_path: Path
) -> None:
    fill(tmp_path, source, target)
    with pytest.raises(DifferenceError, match=r"'a': it is a (file|folder) in the"):
        planned(work_on(tmp_path, existing=Existing.UPDATE, delete=Delete(1)))


def test_links_are_skipped_copied_or_followed(tmp_path: Path) -> None:
    fill(tmp_path, {"file": "x", "folder/inner": "x"}, {"skipped": "y", "folder/old": "x"})
    for name, to in {"skipped": "file", "to": "folder"}.items():
        (tmp_path / "source" / name).symlink_to(to)
    work = work_on(tmp_path, existing=Existing.UPDATE, delete=Delete(1))
    assert (paths(work), paths(work, BundleKind.DELETE)) == (["file", "folder/inner"], ["folder/old"])
    as_links = replace(work, links=Links.COPY)
    found = {f.entry.path: (f.entry.kind, f.entry.link) for b in planned_bundles(as_links) for f in b.files}
    assert (found["skipped"], found["to"]) == ((EntryKind.LINK, "file"), (EntryKind.LINK, "folder"))
    assert paths(replace(work, links=Links.FOLLOW)) == ["file", "folder/inner", "to/inner"]
    (tmp_path / "target" / "skipped").unlink()
    (tmp_path / "target" / "skipped").symlink_to("file")
    assert "skipped" not in paths(as_links)
    (tmp_path / "source" / "out").symlink_to("/etc/passwd")
    with pytest.raises(DifferenceError, match=r"'out' of .*a link to '/etc/passwd'"):
        planned(replace(work, links=Links.FOLLOW))
    assert planned(replace(work, links=Links.FOLLOW, exclude=("out",))) is not None


def test_a_link_of_the_target_is_never_written_through(tmp_path: Path) -> None:
    fill(tmp_path, {"a/file": "x"}, {"elsewhere/file": "y"})
    (tmp_path / "target" / "a").symlink_to("elsewhere")
    with pytest.raises(DifferenceError, match="'a': it is a link in the target and a folder in the source"):
        planned(work_on(tmp_path, existing=Existing.UPDATE))


def test_each_file_set_is_a_folder_of_both_sides(tmp_path: Path) -> None:
    fill(tmp_path, {"alice/x": "x", "bob/y": "x", "bob/tmp/z": "x"}, {"bob/old": "x"})
    work = work_on(tmp_path, finder=EachFolder(), exclude=("/bob/tmp/**",), delete=Delete(1))
    alice, bob = find_file_sets(work, NoConnections())
    assert (alice.urn, bob.urn) == ("alice#files", "bob#files")
    (folder, copy) = (Bundle.of(u) for u in planned(work, alice) or ())
    assert [f.path for f in folder.folders] == ["."]
    assert [f.entry.path for f in copy.files] == ["x"]
    (copy, gone) = (Bundle.of(u) for u in planned(work, bob) or ())
    assert ([f.entry.path for f in copy.files], [d.path for d in gone.deletes]) == (["y"], ["old"])


def test_bundles_are_of_about_equal_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MOST_FILES", 3)
    monkeypatch.setattr(bundles, "MOST_BYTES", 10)
    fill(tmp_path, {"a": "1234", "b": "1234", "c": "1234", "d": "1" * 10, "e": "1", "f": "1", "g": "1"}, {})
    found = [([f.entry.path for f in b.files], b.bytes) for b in planned_bundles(work_on(tmp_path))]
    assert found == [(["a", "b"], 8), (["d"], 10), (["c", "e", "f"], 6), (["g"], 1)]
    units = planned(work_on(tmp_path))
    assert units is not None
    assert [unit.id for unit in units] == ["copy_000001", "copy_000002", "copy_000003", "copy_000004"]
    assert units[0].weight == 8 + 2 * (64 << 10)


def test_a_unit_without_a_bundle_is_named() -> None:
    with pytest.raises(GobblinError, match="unit 'u' of 'd'"):
        Bundle.of(WorkUnit("u", "d"))


def many_entries(count: int, start: int = 0) -> Iterator[Entry]:
    for number in range(start, start + count):
        yield Entry(f"{number:09}", EntryKind.FILE, 1, 1, "1", number)


@pytest.mark.slow
def test_a_long_difference_is_in_little_memory() -> None:
    tracemalloc.start()
    found = differences(many_entries(10_000), many_entries(10_000, 5_000), lambda one, other: True)
    count = dict.fromkeys(Change, 0)
    for one in found:
        count[one.change] += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == {Change.NEW: 5_000, Change.CHANGED: 0, Change.SAME: 5_000, Change.GONE: 5_000}
    assert peak < 200_000


def test_a_listing_out_of_order_is_an_error() -> None:
    with pytest.raises(DifferenceError, match="'a': its tree lists it after 'b'"):
        assert [*differences([Entry("b", EntryKind.FILE), Entry("a", EntryKind.FILE)], [], lambda one, other: True)]
    assert Difference(Change.NEW, Entry("b", EntryKind.FILE), None).path == "b"


COUNTING = """
import os, resource, sys
from pathlib import Path
from tests.copy.test_planning import planned_lazily, work_on
from airflow_gobblin.copy.options import Delete, Existing
from tests.peak_memory import peak_bytes
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
work = work_on(Path(sys.argv[1]), existing=Existing.UPDATE, delete=Delete(1))
before = peak_bytes()
units = sum(1 for _ in planned_lazily(work))
grown = peak_bytes() - before
print(units, grown >> 20, os.times().user)
"""


def planned_lazily(work: CopyWork) -> Iterator[WorkUnit]:
    """The units of a plan of the whole tree, as they come."""
    connections = GuardedConnections(NoConnections())
    (dataset,) = find_file_sets(work, connections)
    found = plan_copy(work, dataset, {}, WorkRequest(NOW), LocalFiles(work.target), connections)
    return iter(()) if found is None else found.units


def fill_with(root: Path, folders: int, count: int) -> None:
    """Make folders of many empty files on both sides, half of them new and half of them gone."""
    for side, name in (("source", "new"), ("target", "gone")):
        for folder in range(folders):
            (root / side / f"{folder}").mkdir(parents=True)
            for number in range(count):
                os.mknod(root / side / f"{folder}" / f"{name}{number}")


def counted(root: Path) -> tuple[int, int, float]:
    """Plan in a process that is held to 1 GB.

    :return: the units, the memory in MB, and the seconds of its own CPU time; the kernel's grows when the entries of a
        large folder no longer fit into its caches.
    """
    command = [sys.executable, "-c", COUNTING, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    units, megabytes, seconds = done.stdout.split()
    return int(units), int(megabytes), float(seconds)


@pytest.mark.slow
@pytest.mark.parametrize(("folders", "count"), [(50, 1000), (1, 50_000)], ids=["many folders", "one folder"])
def test_100000_files_are_planned_in_little_memory(tmp_path: Path, folders: int, count: int) -> None:
    fill_with(tmp_path, folders, count)
    units, megabytes, _ = counted(tmp_path)
    assert units == 100 + 100
    assert megabytes < 15, "all entries would take 60 MB"


@pytest.mark.soak
@pytest.mark.parametrize(("folders", "count"), [(500, 1000), (1, 500_000)], ids=["many folders", "one folder"])
def test_a_million_files_are_planned_in_1_gb_and_linear_time(tmp_path: Path, folders: int, count: int) -> None:
    fill_with(tmp_path / "few", max(1, folders // 10), count if folders > 1 else count // 10)
    seconds = statistics.median(counted(tmp_path / "few")[2] for _ in range(3))
    fill_with(tmp_path / "many", folders, count)
    units, megabytes, more_seconds = counted(tmp_path / "many")
    assert units == 1000 + 1000
    assert megabytes < 150, "the names in one folder are sorted"
    assert more_seconds < 13 * seconds


def test_a_manifest_lists_the_files_that_there_are(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {"a/b/c": "x", "a/d": "x", "a.e": "x", "f": "x", "list": "a.e\na/d\n\na/b/c\na/d"},
        {"a.e": "x", "old/g": "x"},
    )
    work = work_on(tmp_path, finder=Manifest("list"), delete=Delete(1))
    assert paths(work) == ["a/b/c", "a/d"]
    assert paths(work, BundleKind.DELETE) == ["old/g"]
    carry_out(work)
    assert planned(work) is None
    (tmp_path / "source" / "list").write_text("a/d\na/none")
    with pytest.raises(SourceError, match="'list' names 'a/none': no file is there"):
        planned(work)
    (tmp_path / "source" / "link").symlink_to("a/d")
    (tmp_path / "source" / "list").write_text("a/d\nlink")
    with pytest.raises(SourceError, match="'list' names 'link': a link, and `links` has these skipped"):
        planned(work)
    followed = work_on(tmp_path, finder=Manifest("list"), links=Links.FOLLOW)
    assert paths(followed) == ["link"]
    (tmp_path / "source" / "list").unlink()
    with pytest.raises(SourceError, match="No such file"):
        planned(work)
    (tmp_path / "source" / "list").write_text("../outside")
    with pytest.raises(ConfigurationError, match="plain relative path"):
        planned(work)
