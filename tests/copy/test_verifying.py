"""The target against its source: each difference is named once, and nothing else."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from airflow_gobblin.connections import GuardedConnections, NoConnections
from airflow_gobblin.copy.conversion.converters import Gunzip
from airflow_gobblin.copy.options import Delete, Keep
from tests.copy.mirrors import Trees


def found(trees: Trees, *, content: bool = True) -> dict[str, str]:
    """The differences: by path, with the detail, or the state where there is none."""
    connections = GuardedConnections(NoConnections())
    work = trees.mirror.work
    every = [
        one
        for dataset in work.datasets(connections)
        for one in work.verify(dataset, trees.opened().files, connections, content=content)
    ]
    assert len({one.path for one in every}) == len(every)
    return {one.path: one.detail or one.state.value for one in every}


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    trees = Trees(tmp_path, {"delete": Delete(1), "keep": Keep("tp")})
    for path in ("a/file", "a/deep/other"):
        trees.write(path)
    trees.run()
    assert found(trees) == found(trees, content=False) == {}
    return trees


def overwrite(path: Path, text: bytes) -> None:
    """Write other bytes, and put the time back."""
    before = path.stat()
    path.write_bytes(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_content_that_differs_is_found_by_reading_and_its_folder_is_not_named(trees: Trees) -> None:
    overwrite(trees.target / "a/file", b"A/FILE")
    assert found(trees) == {"a/file": "its content is not the source's"}
    assert found(trees, content=False) == {}


def test_a_permission_that_the_next_run_would_set_is_named(trees: Trees) -> None:
    (trees.source / "a/file").chmod(0o600)
    (trees.target / "a/file").chmod(0o644)
    assert found(trees) == {"a/file": "its permission is 644, and 600 in the source"}


def test_a_folder_with_another_time_or_permission_is_named(trees: Trees) -> None:
    os.utime(trees.target / "a/deep", ns=(1, 1))
    (trees.target / "a").chmod(0o700)
    assert set(found(trees)) == {"a", "a/deep"}
    assert found(trees)["a/deep"] == "a folder: its time is not the source's"
    assert found(trees)["a"].startswith("a folder: its permission is 700")


def test_what_is_missing_and_what_is_extra_is_named_with_its_folder(trees: Trees) -> None:
    times = (trees.target / "a").stat()
    shutil.rmtree(trees.target / "a/deep")
    trees.write("a/extra/file", at=trees.target)
    os.utime(trees.target / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found(trees) == {
        "a/deep": "a folder",
        "a/deep/other": "missing",
        "a/extra": "a folder",
        "a/extra/file": "extra",
    }
    assert "a/extra/file" not in found(trees.using(delete=None)), "a mirror that deletes nothing may share its target"


def test_a_converted_file_is_compared_by_what_its_source_becomes(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"convert": (Gunzip(),)})
    trees.write("a/file.gz").write_bytes(gzip.compress(b"content"))
    trees.run()
    assert found(trees) == {}
    overwrite(trees.target / "a/file", b"CONTENT")
    assert found(trees) == {"a/file": "its content is not the source's"}
