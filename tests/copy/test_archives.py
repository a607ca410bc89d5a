"""Archives that are unpacked on the way: what becomes of good ones, and that bad ones leave no trace."""

from __future__ import annotations

import bz2
import gzip
import os
import random
import shutil
import subprocess
import tarfile
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.conversion.archives import Unpack, folder_of, read_members
from airflow_gobblin.copy.conversion.converters import Gunzip
from airflow_gobblin.copy.finders import WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Keep
from airflow_gobblin.copy.planning import find_file_sets
from airflow_gobblin.copy.verifying import verify_copy
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.copy.hostile_archives import GOOD, GZIPS, HOSTILE, TEXT, WELL, info, tar, zipped
from tests.copy.mirrors import Trees, content, statuses
from tests.copy.test_mirror_s3 import OneConnection
from tests.services.s3 import S3Server

SET = "photos#files"
TIGHT = Unpack(most_files=50, most_bytes=30 << 20, most_ratio=20)
PACK: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tgz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """A tree with an archive and a file beside it."""
    trees = Trees(tmp_path, {"datasets": WholeTree(), "unpack": Unpack(), "delete": Delete(1)})
    trees.write("plain")
    return trees


def pack(trees: Trees, path: str, *parts: tuple[str, bytes]) -> Path:
    """Write an archive to the source."""
    data = zipped(*parts) if path.endswith(".zip") else PACK[path.partition(".")[2]](tar(*parts))
    file = trees.write(path)
    file.write_bytes(data)
    return file


def files(folder: Path) -> dict[str, bytes | str]:
    return {path: data for path, data in content(folder).items() if data != "/"}


PARTS = (("b", b"in the archive"), ("deep/er/c", b"more"), ("./d", b""), ("deep/a", b"x" * 3_000_000))
UNPACKED = {
    "x/b": b"in the archive",
    "x/deep/er/c": b"more",
    "x/d": b"",
    "x/deep/a": b"x" * 3_000_000,
    "plain": b"plain",
}


# Good ones


@pytest.mark.parametrize("extension", [*PACK, "zip"])
@pytest.mark.parametrize("compare", Compare)
def test_an_archive_becomes_a_folder_and_the_next_run_is_idle(trees: Trees, extension: str, compare: Compare) -> None:
    trees = trees.using(compare=compare)
    parts = tuple(part for part in PARTS if extension != "zip" or part[0] != "./d") + (("d", b""),) * (
        extension == "zip"
    )
    archive = pack(trees, f"x.{extension}", *parts)
    first = trees.run()
    assert statuses(first) == {SET: "committed"}, first
    assert files(trees.target) == UNPACKED
    assert statuses(trees.run()) == {SET: "idle"}
    assert (trees.target / "x/b").stat().st_mtime_ns == archive.stat().st_mtime_ns


@pytest.mark.slow
def test_a_real_tree_is_as_tar_and_unzip_unpack_it(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"unpack": Unpack(), "keep": Keep("p"), "empty_folders": True})
    tree = Path(os.__file__).parent / "email"
    trees.write("a/tar/placeholder")
    trees.write("a/zip/placeholder")
    subprocess.run(["tar", "-czf", trees.source / "a/tar/x.tar.gz", "-C", tree.parent, "email"], check=True)
    shutil.make_archive(str(trees.source / "a/zip/x"), "zip", tree.parent, "email")
    assert statuses(trees.run()) == {"a#files": "committed"}
    for kind in ("tar", "zip"):
        assert content(trees.target / f"a/{kind}/x/email") == content(tree)
        mode = (trees.target / f"a/{kind}/x/email/parser.py").stat().st_mode & 0o777
        assert mode == (tree / "parser.py").stat().st_mode & 0o777
    assert statuses(trees.run()) == {"a#files": "idle"}


def test_an_archive_that_changed_is_unpacked_again_and_what_it_lost_is_deleted(trees: Trees) -> None:
    pack(trees, "x.tar.gz", *PARTS)
    trees.run()
    pack(trees, "x.tar.gz", ("b", b"in the archivE"), ("new", b"n"))
    report = trees.run()[SET]
    assert (report.status.value, report.deleted, report.replaced) == ("committed", 3, 1)
    assert files(trees.target) == {"plain": b"plain", "x/b": b"in the archivE", "x/new": b"n"}
    assert "x/deep" not in content(trees.target)
    (trees.source / "x.tar.gz").unlink()
    trees.run()
    assert content(trees.target) == {"plain": b"plain"}


def test_an_archive_of_the_same_sizes_that_is_older_is_unpacked_again(trees: Trees) -> None:
    pack(trees, "x.tar", ("b", b"one"))
    trees.run()
    os.utime(pack(trees, "x.tar", ("b", b"two")), (1_000_000_000,) * 2)
    trees.run()
    assert files(trees.target)["x/b"] == b"two"


def test_by_checksum_only_members_with_another_content_are_replaced(trees: Trees) -> None:
    trees = trees.using(compare=Compare.CHECKSUM)
    pack(trees, "x.zip", ("a", b"one"), ("b", b"two"))
    trees.run()
    pack(trees, "x.zip", ("a", b"one"), ("b", b"TWO"))
    assert trees.run()[SET].replaced == 1
    assert files(trees.target)["x/b"] == b"TWO"


def test_a_member_that_somebody_changed_or_removed_is_put_right(trees: Trees) -> None:
    pack(trees, "x.tar.gz", *PARTS)
    trees.run()
    (trees.target / "x/b").unlink()
    trees.write("x/deep/er/c", "MORE", at=trees.target)
    assert {one.path: one.state.value for one in verified(trees)} == {"x/b": "missing", "x/deep/er/c": "changed"}
    trees.run()
    assert files(trees.target) == UNPACKED
    assert [*verified(trees)] == []


def verified(trees: Trees) -> Iterator[Any]:
    (dataset,) = find_file_sets(trees.mirror.work, NoConnections())
    return verify_copy(trees.mirror.work, dataset, trees.opened().files, NoConnections(), content=True)


def test_filters_match_archives_and_what_is_excluded_is_left_alone(trees: Trees) -> None:
    pack(trees, "deep/x.tar.gz", ("a", b"x"))
    pack(trees, "deep/y.zip", ("a", b"y"))
    including = trees.using(include=("*.tar.gz",))
    assert statuses(including.run()) == {SET: "committed"}
    assert files(trees.target) == {"deep/x/a": b"x"}
    assert statuses(including.run()) == {SET: "idle"}
    trees.run()
    assert files(trees.target) == {"deep/x/a": b"x", "deep/y/a": b"y", "plain": b"plain"}
    assert statuses(trees.using(exclude=("y.zip",)).run()) == {SET: "idle"}
    (trees.source / "deep/x.tar.gz").unlink()
    pack(trees, "z.tar.gz", ("a", b"z"))
    assert including.run()[SET].deleted == 1
    assert files(trees.target) == {"deep/y/a": b"y", "plain": b"plain", "z/a": b"z"}


def test_converters_come_before(trees: Trees) -> None:
    trees = trees.using(convert=(Gunzip(),))
    trees.write("x.tar.gz").write_bytes(gzip.compress(tar(("a.gz", b"as it is"))))
    trees.write("y.zip.gz").write_bytes(gzip.compress(zipped(("a", b"y"))))
    assert statuses(trees.run()) == {SET: "committed"}
    assert files(trees.target) == {"x/a.gz": b"as it is", "y/a": b"y", "plain": b"plain"}
    assert statuses(trees.run()) == {SET: "idle"}


def test_an_archive_in_an_archive_is_a_file(trees: Trees) -> None:
    pack(trees, "x.tar", ("inner.tar", GOOD))
    trees.run()
    assert files(trees.target)["x/inner.tar"] == GOOD


def test_folders_without_files_are_made_if_asked_for(trees: Trees) -> None:
    trees.write("x.tar").write_bytes(
        tar(info("empty/", type=tarfile.DIRTYPE), ("a", b"x"), info("./", type=tarfile.DIRTYPE))
    )
    trees.run()
    assert "x/empty" not in content(trees.target)
    trees.using(empty_folders=True).run()
    assert content(trees.target)["x/empty"] == "/"


@pytest.mark.parametrize(
    ("one", "other"), [("x.tar", "x.zip"), ("x.tar", "x/file"), ("x.tar.gz", "x"), ("x.tar", "x.tgz")]
)
def test_two_sources_of_one_folder_are_refused(trees: Trees, one: str, other: str) -> None:
    for path in (one, other):
        if folder_of(path):
            pack(trees, path, ("a", b"x"))
        else:
            trees.write(path)
    report = trees.run()[SET]
    assert report.status.value == "failed"
    assert "'x'" in report.text
    assert not (trees.target / "x").exists()


def test_an_archive_that_would_become_our_own_folder_is_refused(trees: Trees) -> None:
    pack(trees, "_gobblin.tar", ("claims/x", b"x"))
    report = trees.run()[SET]
    assert (report.status.value, "can't have this name" in report.text) == ("failed", True)


@pytest.mark.parametrize("extension", ["tar.gz", "zip"])
def test_an_archive_that_changes_meanwhile_fails(trees: Trees, extension: str) -> None:
    pack(trees, f"x.{extension}", *PARTS[:2])
    report = trees.run(between={"extract": lambda trees: pack(trees, f"x.{extension}", ("b", b"other"))})[SET]
    assert (report.status.value, "it changed since it was planned" in report.text) == ("failed", True)
    assert files(trees.target) == {}


def test_a_large_archive_is_one_unit_and_its_plan_lists_its_members(trees: Trees) -> None:
    pack(trees, "x.tar", *((f"{number % 7}/{number}", b"x") for number in range(1200)))
    opened = trees.opened()
    create_work_units(opened, RunRequest("one"))
    units = [u for _, plan in opened.staging.plans() for u in opened.staging.units(plan)]  # type: ignore[arg-type]
    assert sorted(sum(act.kind == "copy" for act in trees.mirror.work.acts(unit)) for unit in units) == [0, 1, 1200]


def test_archives_go_to_s3_and_come_from_there(versitygw: S3Server, tmp_path: Path) -> None:
    bucket, connections = versitygw.create_bucket(), OneConnection(versitygw.access.connection)
    trees = Trees(tmp_path)
    for path in ("x.zip", "y.tar.gz"):
        os.utime(pack(trees, path, ("deep/a", b"x" * 100_000)), (1_700_000_000,) * 2)
    plain = Mirror("plain", str(trees.source), f"s3://store@{bucket}/packed", "unused")
    back = Mirror("back", f"s3://store@{bucket}/packed", str(tmp_path / "copy"), "unused", unpack=Unpack())
    there = Mirror("there", str(trees.source), f"s3://store@{bucket}/unpacked", "unused", unpack=Unpack())
    expected = {"x/deep/a": b"x" * 100_000, "y/deep/a": b"x" * 100_000}
    jobs = [inprocess.open_job(mirror, connections) for mirror in (plain, back, there)]
    for job in jobs:
        assert [*statuses(inprocess.run(job)).values()] == ["committed"]
    assert files(tmp_path / "copy") == expected
    assert {path: jobs[2].files.read(path) for path in jobs[2].files.walk(".") if "_gobblin" not in path} == expected
    for job in jobs[1:]:
        assert [*statuses(inprocess.run(job)).values()] == ["idle"]


# Hostile ones


def test_there_are_many_kinds() -> None:
    kinds = Counter(name.partition(":")[0] for name in HOSTILE)
    assert {*kinds} == {"tar", "gzip", "bzip2", "zstd", "zip"}
    assert min(kinds["tar"], kinds["zip"], len(GZIPS)) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_leaves_its_file_set_unpublished(tmp_path: Path, kind: str) -> None:
    trees = Trees(tmp_path / "here", {"unpack": TIGHT})
    extension, make, why = HOSTILE[kind]
    trees.write(f"bad/x.{extension}").write_bytes(make())
    pack(trees, "bad/good.tar", ("a", b"x"))
    pack(trees, "good/x.zip", ("a", b"x"))
    before = content(trees.source)
    reports = trees.run()
    assert statuses(reports) == {"bad#files": "failed", "good#files": "committed"}
    assert f"can't unpack file '{trees.source}/bad/x.{extension}'" in reports["bad#files"].text
    assert why in reports["bad#files"].text
    assert files(trees.target) == {"good/x/a": b"x"}
    assert content(trees.source) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_when_it_is_read_too(kind: str) -> None:
    """By Spark's tasks: a planned archive may be another one by then."""
    extension, make, _ = HOSTILE[kind]
    data = make()
    tracemalloc.start()
    error = refusal(f"x.{extension}", data)
    assert error is not None
    assert tracemalloc.get_traced_memory()[1] < len(data) + (32 << 20)
    tracemalloc.stop()


@pytest.mark.parametrize("kind", GZIPS)
def test_a_hostile_gzip_is_refused_around_a_tar_and_a_file(kind: str) -> None:
    data = GZIPS[kind]()
    assert refusal("x.tar.gz", data) is not None
    with pytest.raises((ValueError, zlib.error)):
        b"".join(Gunzip().convert(iter([data])))


@pytest.mark.slow
def test_hostile_gzips_leave_their_file_sets_unpublished(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"convert": (Gunzip(),)})
    for number, make in enumerate(GZIPS.values()):
        trees.write(f"{number}/x.gz").write_bytes(make())
        trees.write(f"{number}/well.gz").write_bytes(WELL)
    trees.write("well/x.gz").write_bytes(WELL)
    reports = trees.run()
    assert {urn for urn, status in statuses(reports).items() if status == "committed"} == {"well#files"}
    assert all("x.gz" in report.text for urn, report in reports.items() if urn != "well#files")
    assert files(trees.target) == {"well/x": TEXT}


def refusal(path: str, data: bytes) -> Exception | None:
    """Read an archive to its end.

    :return: why it is refused.
    """
    try:
        for member, blocks in read_members(path, iter([data]), len(data), TIGHT):
            assert member.path == os.path.normpath(member.path)
            assert not member.path.startswith(("/", ".."))
            assert member.folder or sum(map(len, blocks)) == member.size
    except (AssertionError, MemoryError, RecursionError):
        raise
    except Exception as error:  # of the modules that read archives, too
        return error
    return None


@pytest.mark.slow
def test_many_members_take_little_memory() -> None:
    data = gzip.compress(tar(*((f"a/folder/file {number}", b"x" * 100) for number in range(8_000))))
    tracemalloc.start()
    assert sum(1 for _ in read_members("x.tar.gz", iter([data]), len(data), Unpack())) == 8_000
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("option", ["most_files", "most_bytes", "most_ratio", "most_depth"])
def test_a_limit_of_nothing_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option}=0"):
        Unpack(**{option: 0})


@pytest.mark.parametrize("extension", ["tar", "tar.gz", "zip"])
def test_whatever_bytes_change_in_an_archive_it_is_refused_or_has_plain_members(extension: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    good = zipped(*PARTS[:2]) if extension == "zip" else PACK[extension](GOOD)
    assert refusal(f"x.{extension}", good) is None
    refused = 0
    for _ in range(300):
        data = bytearray(good)
        for _ in range(chosen.randrange(1, 4)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        refused += refusal(f"x.{extension}", bytes(data)) is not None
    assert refused > 0
