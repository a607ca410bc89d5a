"""Converters of files: what they make of bytes and of names, and mirrors that convert."""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.conversion import converting
from airflow_gobblin.copy.conversion.converters import Bunzip2, Bzip2, Chain, FileConverter, Gunzip, Gzip, Unzstd, Zstd
from airflow_gobblin.copy.entries import Entry, EntryKind, SourceFile, key_of
from airflow_gobblin.copy.finders import WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Keep
from airflow_gobblin.copy.planning import find_file_sets
from airflow_gobblin.copy.verifying import verify_copy
from airflow_gobblin.errors import ConfigurationError, GobblinError, MissingExtraError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.wire import record
from airflow_gobblin.testing import inprocess
from tests.copy.hostile_archives import BOMBS, zstd
from tests.copy.mirrors import Trees, content, statuses
from tests.copy.test_mirror_s3 import OneConnection
from tests.copy.test_mirror_s3 import write as write_old
from tests.services.s3 import S3Server

SET = "photos#files"
TEXT = b"some bytes, again and again\n" * 50_000


def unzstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


COMPRESS: dict[FileConverter, Callable[[bytes], bytes]] = {
    Gunzip(): gzip.compress,
    Bunzip2(): bz2.compress,
    Unzstd(): zstd,
}
DECOMPRESS: dict[FileConverter, Callable[[bytes], bytes]] = {
    Gzip(): gzip.decompress,
    Bzip2(): bz2.decompress,
    Zstd(): unzstd,
}


def converted(converter: FileConverter, data: bytes, block: int = 10_000) -> bytes:
    return b"".join(converter.convert(iter([data[at : at + block] for at in range(0, len(data), block)])))


# Bytes


@pytest.mark.slow
@pytest.mark.parametrize("converter", COMPRESS, ids=str)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, os.urandom(1_200_000)], ids=len)
def test_what_another_program_compressed_is_decompressed(converter: FileConverter, data: bytes) -> None:
    compress = COMPRESS[converter]
    assert converted(converter, compress(data)) == data
    assert converted(converter, compress(data), block=7 if len(data) < 10 else 10_000_000) == data
    assert converted(converter, compress(data) + compress(b"more")) == data + b"more", "of several members"


@pytest.mark.slow
@pytest.mark.parametrize("converter", DECOMPRESS, ids=str)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, os.urandom(1_200_000)], ids=len)
def test_what_we_compress_another_program_decompresses(converter: FileConverter, data: bytes) -> None:
    out = converted(converter, data)
    assert DECOMPRESS[converter](out) == data
    assert converted(converter, data) == out, "the same bytes become the same bytes"


BAD: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "cut off in the head": lambda good: good[:3],
    "cut off in the middle": lambda good: good[: len(good) // 2],
    "cut off at the end": lambda good: good[:-1],
    "changed": lambda good: good[:-200] + bytes([good[-200] ^ 0xFF]) + good[-199:],
    "another checksum": lambda good: good[:-6] + bytes([good[-6] ^ 1]) + good[-5:],
    "garbage behind": lambda good: good + b"garbage, which is no member",
    "zeros behind": lambda good: good + bytes(512),
    "a second member cut off": lambda good: good + good[: len(good) // 2],
    "plain": lambda good: b"this was never compressed",
}


@pytest.mark.parametrize("converter", COMPRESS, ids=str)
@pytest.mark.parametrize("bad", BAD)
def test_bad_bytes_are_refused(converter: FileConverter, bad: str) -> None:
    good = COMPRESS[converter](os.urandom(100_000))
    with pytest.raises((OSError, ValueError, zlib.error)):
        converted(converter, BAD[bad](good))


@pytest.mark.slow
@pytest.mark.parametrize("converter", COMPRESS, ids=str)
def test_a_bomb_takes_little_memory(converter: FileConverter) -> None:
    bomb = COMPRESS[converter](bytes(100 << 20))
    tracemalloc.start()
    size = sum(len(block) for block in converter.convert(iter([bomb])))
    assert (size, tracemalloc.get_traced_memory()[1] < 32 << 20) == (100 << 20, True)
    tracemalloc.stop()


@pytest.mark.parametrize(("kind", "level"), [(Gzip, 0), (Gzip, 10), (Bzip2, 0), (Zstd, 23), (Zstd, True)])
def test_a_level_that_isnt_there_is_refused(kind: Any, level: int) -> None:
    with pytest.raises(ConfigurationError, match="there is no such level"):
        kind(level=level)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"airflow-gobblin\[zstd\]"):
        converted(Zstd(), b"x")


# Names


@pytest.mark.parametrize(
    ("converters", "path", "target"),
    [
        ((Gunzip(),), "a/b.txt.gz", "a/b.txt"),
        ((Gunzip(),), "a/b.txt", "a/b.txt"),
        ((Gunzip(),), "a.gz/.gz", "a.gz/.gz"),
        ((Gunzip(),), ".gz", ".gz"),
        ((Gzip(),), "a", "a.gz"),
        ((Gzip(),), "a.gz", "a.gz"),
        ((Gunzip(), Zstd()), "a.gz", "a.zst"),
        ((Gunzip(), Zstd()), "a", "a.zst"),
        ((Gunzip(), Zstd()), "a.zst.gz", "a.zst"),
        ((Gunzip(), Gunzip()), "a.gz.gz", "a"),
    ],
)
def test_the_name_in_the_target_follows_from_that_in_the_source(converters: Any, path: str, target: str) -> None:
    assert Chain(converters).target(path) == target
    assert path in Chain(converters).sources(target)


NAMES = st.lists(st.sampled_from(["a", ".gz", ".zst", ".bz2", "/", ".", "gz"]), min_size=1, max_size=6).map("".join)
CHAINS = st.lists(st.sampled_from([*COMPRESS, *DECOMPRESS]), max_size=4).map(lambda some: Chain((*some,)))


@given(CHAINS, NAMES)
def test_the_sources_of_a_name_are_those_that_become_it(chain: Chain, path: str) -> None:
    assert path in chain.sources(chain.target(path))
    assert {chain.target(source) for source in chain.sources(path)} <= {path}


ENTRIES = st.builds(
    Entry,
    st.text("ab./-\udcff", min_size=1, max_size=6),
    st.sampled_from(EntryKind),
    st.integers(0, 9),
    made_from=st.none() | st.builds(SourceFile, st.text("ab"), st.integers(0, 9), st.text("12")),
)


@settings(max_examples=50)
@given(st.lists(ENTRIES, max_size=20), st.integers(1, 25))
def test_entries_are_put_in_order_whether_they_fit_in_memory_or_not(entries: list[Entry], most: int) -> None:
    before = converting.IN_MEMORY
    converting.IN_MEMORY = most
    try:
        assert [*converting.in_order(iter(entries))] == sorted(entries, key=key_of)
    finally:
        converting.IN_MEMORY = before


# Mirrors


@record("test.upper")
@dataclass(frozen=True)
class Upper:
    """A converter of one's own.

    :param bad: bytes that it refuses.
    """

    bad: str = "!"
    takes, gives = ".txt", ".TXT"

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            if self.bad.encode() in block:
                raise ValueError(f"there is a {self.bad!r}")
            yield block.upper()


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Files that are compressed, and one that isn't."""
    trees = Trees(tmp_path, {"datasets": WholeTree(), "convert": (Gunzip(),), "delete": Delete(1)})
    for path in ("a-b", "a.gz", "deep/er/c.txt.gz"):
        compress_to(trees, path)
    return trees


def compress_to(trees: Trees, path: str, text: str = "") -> None:
    file = trees.write(path)
    file.write_bytes(gzip.compress((text or path).encode()) if path.endswith(".gz") else (text or path).encode())


def files(folder: Path) -> dict[str, bytes | str]:
    return {path: data for path, data in content(folder).items() if data != "/"}


FIRST = {"a-b": b"a-b", "a": b"a.gz", "deep/er/c.txt": b"deep/er/c.txt.gz"}


def test_files_are_converted_and_the_next_run_is_idle(trees: Trees) -> None:
    assert statuses(trees.run()) == {SET: "committed"}
    assert files(trees.target) == FIRST
    assert statuses(trees.run()) == {SET: "idle"}
    assert (trees.target / "a").stat().st_mtime_ns == (trees.source / "a.gz").stat().st_mtime_ns


@pytest.mark.parametrize("compare", Compare)
def test_a_source_that_changed_is_converted_again(trees: Trees, compare: Compare) -> None:
    trees = trees.using(compare=compare)
    trees.run()
    compress_to(trees, "a.gz", "it has changed")
    assert statuses(trees.run()) == {SET: "committed"}
    assert files(trees.target) == {**FIRST, "a": b"it has changed"}
    assert statuses(trees.run()) == {SET: "idle"}


def test_a_source_that_was_replaced_by_an_older_file_is_converted_again(trees: Trees) -> None:
    trees.run()
    compress_to(trees, "a.gz", "an older one")
    os.utime(trees.source / "a.gz", (1_000_000_000,) * 2)
    assert statuses(trees.run()) == {SET: "committed"}
    assert files(trees.target) == {**FIRST, "a": b"an older one"}


def test_a_target_that_somebody_changed_is_put_right(trees: Trees) -> None:
    trees.run()
    trees.write("a", "somebody's", at=trees.target)
    failed = trees.using(existing="fail").run()[SET]
    assert (failed.status.value, "'a'" in failed.text) == ("failed", True)
    assert statuses(trees.run()) == {SET: "committed"}
    assert files(trees.target) == FIRST


def test_by_checksum_only_the_content_counts(trees: Trees) -> None:
    trees = trees.using(compare=Compare.CHECKSUM)
    trees.run()
    os.utime(trees.source / "a.gz", (1_000_000_000,) * 2)
    assert statuses(trees.run()) == {SET: "idle"}


@pytest.mark.parametrize("by_content", [False, True])
def test_verify_compares_what_files_become(trees: Trees, by_content: bool) -> None:
    trees.run()
    assert differing(trees, by_content=by_content) == {}
    found = (trees.target / "a").stat()
    trees.write("a", "A.GZ", at=trees.target)
    os.utime(trees.target / "a", ns=(found.st_mtime_ns, found.st_mtime_ns))
    (trees.target / "a-b").unlink()
    trees.write("extra", at=trees.target)
    changed = {"a": "changed"} if by_content else {}
    assert differing(trees, by_content=by_content) == {"a-b": "missing", "extra": "extra", **changed}


def differing(trees: Trees, *, by_content: bool) -> dict[str, str]:
    opened = trees.opened()
    (dataset,) = find_file_sets(trees.mirror.work, NoConnections())
    found = verify_copy(trees.mirror.work, dataset, opened.files, NoConnections(), content=by_content)
    return {one.path: one.state.value for one in found}


TIGHT: dict[str, FileConverter] = {
    "most_ratio=20 times": Gunzip(most_ratio=20),
    "most_bytes=15,000,000": Gunzip(most_bytes=15_000_000, most_ratio=10_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_leaves_its_file_set_unpublished(tmp_path: Path, kind: str) -> None:
    trees = Trees(tmp_path, {"convert": (Gunzip(most_ratio=20), Bunzip2(most_ratio=20), Unzstd(most_ratio=20))})
    extension, make = BOMBS[kind]
    trees.write(f"bad/x.{extension}").write_bytes(make())
    compress_to(trees, "good/x.gz", "good")
    reports = trees.run()
    assert statuses(reports) == {"bad#files": "failed", "good#files": "committed"}
    size = (trees.source / f"bad/x.{extension}").stat().st_size
    assert f"can't convert file '{trees.source}/bad/x.{extension}'" in reports["bad#files"].text
    assert f"its content has more than most_ratio=20 times its {size:,} bytes" in reports["bad#files"].text
    assert files(trees.target) == {"good/x": b"good"}


@pytest.mark.parametrize("limit", TIGHT)
def test_a_limit_is_named_and_what_is_within_it_passes(tmp_path: Path, limit: str) -> None:
    trees = Trees(tmp_path, {"convert": (TIGHT[limit],)})
    trees.write("bad/x.gz").write_bytes(gzip.compress(bytes(16 << 20)))
    trees.write("good/x.gz").write_bytes(gzip.compress(bytes(9 << 20)))
    reports = trees.run()
    assert statuses(reports) == {"bad#files": "failed", "good#files": "committed"}
    assert limit in reports["bad#files"].text


@pytest.mark.parametrize("limits", [{"most_bytes": 0}, {"most_ratio": 0}, {"most_ratio": True}])
@pytest.mark.parametrize("kind", [Gunzip, Bunzip2, Unzstd])
def test_a_limit_that_lets_nothing_through_is_refused(kind: Any, limits: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="no file has so little"):
        kind(**limits)


def test_delete_maps_names_back(trees: Trees) -> None:
    trees.run()
    (trees.source / "a.gz").unlink()
    (trees.source / "deep/er/c.txt.gz").unlink()
    report = trees.run()[SET]
    assert (report.status.value, report.deleted) == ("committed", 2)
    assert files(trees.target) == {"a-b": b"a-b"}


def test_filters_match_names_of_the_source(trees: Trees) -> None:
    trees = trees.using(include=("*.gz",))
    trees.write("mine", "somebody's own, which no file of the source would become", at=trees.target)
    trees.write("deep/er/other.txt.gz", "the filter includes nothing that would become it", at=trees.target)
    trees.run()
    expected = {path: FIRST[path] for path in ("a", "deep/er/c.txt")}
    (trees.source / "a.gz").unlink()
    trees.run()
    assert "a" not in files(trees.target)
    assert files(trees.target)["deep/er/c.txt"] == expected["deep/er/c.txt"]


def test_what_is_excluded_is_left_alone_under_its_other_name(trees: Trees) -> None:
    trees.run()
    excluding = trees.using(exclude=("a.gz",))
    assert statuses(excluding.run()) == {SET: "idle"}
    assert files(trees.target) == FIRST
    compress_to(trees, "x.gz")
    trees.write("x/y")  # which the excluded file isn't in the way of
    excluding = trees.using(exclude=("a.gz", "x.gz"))
    assert statuses(excluding.run()) == {SET: "committed"}
    assert files(trees.target) == {**FIRST, "x/y": b"x/y"}


def test_two_files_that_would_have_one_name_are_refused(trees: Trees) -> None:
    trees.write("a")
    report = trees.run()[SET]
    assert report.status.value == "failed"
    assert "'a' and 'a.gz' of the source would both have this name" in report.text
    assert files(trees.target) == {}
    assert statuses(trees.using(exclude=("/a",)).run()) == {SET: "committed"}
    assert files(trees.target) == FIRST


def test_a_file_and_a_folder_that_would_have_one_name_are_refused(trees: Trees) -> None:
    trees.write("a/in it")
    report = trees.run()[SET]
    assert (report.status.value, "a folder in the source" in report.text) == ("failed", True)


def test_a_bad_file_leaves_its_file_set_unpublished_by_name(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"convert": (Gunzip(),)})
    for path in ("bad/x.gz", "bad/y.gz", "good/x.gz"):
        compress_to(trees, path)
    trees.write("bad/y.gz", "not compressed")
    reports = trees.run()
    assert statuses(reports) == {"bad#files": "failed", "good#files": "committed"}
    assert f"can't convert file '{trees.source}/bad/y.gz'" in reports["bad#files"].text
    assert files(trees.target) == {"good/x": b"good/x.gz"}
    compress_to(trees, "bad/y.gz")
    assert statuses(trees.run()) == {"bad#files": "committed", "good#files": "idle"}


def test_a_source_that_changes_while_it_is_converted_fails(trees: Trees) -> None:
    report = trees.run(between={"extract": lambda trees: compress_to(trees, "a.gz", "changed")})[SET]
    assert (report.status.value, "it changed since it was planned" in report.text) == ("failed", True)


def test_a_chain_with_a_converter_of_ones_own(trees: Trees) -> None:
    trees = trees.using(convert=(Gunzip(), Upper(), Gzip(9)))
    assert statuses(trees.run()) == {SET: "committed"}
    expected = {"a-b.gz": b"a-b", "a.gz": b"a.gz", "deep/er/c.TXT.gz": b"DEEP/ER/C.TXT.GZ"}
    assert {path: gzip.decompress(data) for path, data in files(trees.target).items()} == expected  # type: ignore[arg-type]
    assert statuses(trees.run()) == {SET: "idle"}
    compress_to(trees, "deep/er/c.txt.gz", "no!")
    report = trees.run()[SET]
    assert f"can't convert file '{trees.source}/deep/er/c.txt.gz'" in report.text
    assert "ValueError: there is a '!'" in report.text


def test_attributes_are_kept_and_links_are_not_converted(trees: Trees) -> None:
    (trees.source / "a.gz").chmod(0o640)
    (trees.source / "l.gz").symlink_to("a.gz")
    trees = trees.using(keep=Keep("tp"), links="copy")
    trees.run()
    assert (trees.target / "a").stat().st_mode & 0o777 == 0o640
    assert (trees.target / "l.gz").readlink() == Path("a.gz")
    assert statuses(trees.run()) == {SET: "idle"}


def test_the_decompressed_tree_is_that_of_gunzip(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"convert": (Gunzip(),)})
    for number in range(30):
        compress_to(trees, f"a/{number % 3}/{number}.gz", str(number) * number)
    trees.run()
    subprocess.run(["cp", "-a", trees.source, tmp_path / "peer"], check=True)
    subprocess.run(["gunzip", "-r", tmp_path / "peer"], check=True)
    assert content(trees.target) == content(tmp_path / "peer")


def test_converted_files_go_to_s3_and_come_back(versitygw: S3Server, tmp_path: Path) -> None:
    bucket, connections = versitygw.create_bucket(), OneConnection(versitygw.access.connection)
    options: dict[str, Any] = {"existing": "update", "delete": Delete(1)}
    there = Mirror(
        "there", str(tmp_path / "source"), f"s3://store@{bucket}/tree", "unused", convert=(Zstd(),), **options
    )
    back = Mirror("back", f"s3://store@{bucket}/tree", str(tmp_path / "copy"), "unused", convert=(Unzstd(),), **options)
    up, down = inprocess.open_job(there, connections), inprocess.open_job(back, connections)
    for text in ("one", "two"):
        write_old(tmp_path / "source/deep/file", text)
        if text == "two":
            time.sleep(1.1)  # the store keeps times in seconds
            os.utime(tmp_path / "source/deep/file", (int(time.time()),) * 2)
        for job in (up, down):
            assert [*statuses(inprocess.run(job)).values()] == ["committed"]
        assert content(tmp_path / "copy") == content(tmp_path / "source")
    write_old(tmp_path / "source/other", "other")
    assert [*statuses(inprocess.run(up)).values()] == ["committed"]
    assert [*statuses(inprocess.run(up)).values()] == ["idle"]


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (Gunzip(), r"a Gunzip is not a tuple\. Write convert=\(…,\)"),
        ([Gunzip()], "not a tuple of converters"),
        (("gunzip",), "not a tuple of converters"),
    ],
)
def test_what_is_no_tuple_of_converters_is_refused(given: Any, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        Mirror("m", "/a", "/b", "unused", convert=given)


def test_a_converter_that_isnt_registered_is_refused() -> None:
    class Unknown(Upper):
        pass

    with pytest.raises(GobblinError, match="not registered"):
        Mirror("m", "/a", "/b", "unused", convert=(Unknown(),))
