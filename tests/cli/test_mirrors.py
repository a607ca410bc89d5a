"""The commands that look at a mirror of a DAG: what a run would do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.utils import yaml

from airflow_gobblin import Delete, EachFolder, Existing, Journal, Keep, Mirror
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.testing import inprocess
from tests.cli.deployment import Deployment
from tests.copy.mirrors import content

DAG_FILE = """
from airflow.sdk import DAG

from airflow_gobblin import Delete, EachFolder, Existing, GobblinMirror, Keep, Mirror

with DAG("photos", schedule=None):
    GobblinMirror(
        Mirror(
            "photos",
            "{folder}/source",
            "{folder}/target",
            "{folder}/journal",
            datasets=EachFolder(),
            existing=Existing.UPDATE,
            delete=Delete(0.9),
            keep=Keep("t"),
        )
    )
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two file sets that were mirrored and changed since, and one that can't be planned."""
    folder = tmp_path_factory.mktemp("photos")
    for path in ("a/same", "a/changes", "a/goes", "a/again", "b/deep/same", "full/1", "full/2"):
        write(folder / "source" / path, path)
    made = Deployment(folder, {"photos.py": DAG_FILE})
    mirror(folder)
    change(folder)
    yield made
    made.close()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def change(folder: Path) -> None:
    write(folder / "source/a/changes", "has changed")
    write(folder / "source/a/new/a name\nin two lines", "new")
    for number in range(150):
        write(folder / f"source/b/many/{number:03d}", "new")
    for gone in ("a/goes", "full/1", "full/2"):
        (folder / "source" / gone).unlink()


def mirror(folder: Path) -> None:
    """A run of it."""
    source, target, journal = (str(folder / name) for name in ("source", "target", "journal"))
    job = Mirror(
        "photos",
        source,
        target,
        journal,
        datasets=EachFolder(),
        existing=Existing.UPDATE,
        delete=Delete(0.9),
        keep=Keep("t"),
    )
    inprocess.run(OpenJob(job, Journal.create(journal, "photos"), NoConnections()))


def test_a_plan_lists_every_act_and_a_run_does_exactly_these(deployment: Deployment) -> None:
    target, before = deployment.folder / "target", deployment.seen()
    json_done, text_done, yaml_done, one = deployment.run(
        "gobblin plan -d photos --acts -o json",
        "gobblin plan -d photos --acts",
        "gobblin plan -d photos --acts -o yaml",
        "gobblin plan -d photos --acts --urn b#files -o json",
    )
    acts = json_done.json
    assert "full#files: failed" in json_done.err
    assert "the source has no files" in json_done.err
    assert (json_done.status, one.status) == (1, 0)
    assert yaml.safe_load(yaml_done.out) == acts
    assert one.json == [act for act in acts if act["dataset"] == "b#files"]
    assert text_done.out.splitlines()[0] == "folder\t0\ta#files\tnew"
    assert len(text_done.out.splitlines()) == len(acts), "a name in two lines is in one"
    assert deployment.seen() == before
    was = content(target)
    mirror(deployment.folder)
    is_now = content(target)
    done = {("delete", path) for path in was.keys() - is_now.keys()}
    done |= {("folder" if is_now[path] == "/" else "copy", path) for path in is_now.keys() - was.keys()}
    done |= {("replace", path) for path in is_now.keys() & was.keys() if is_now[path] != was[path]}
    listed = {(act["act"], os.path.normpath(f"{act['dataset'].removesuffix('#files')}/{act['path']}")) for act in acts}
    assert done <= listed
    assert listed - done == {("folder", "a"), ("folder", "b")}, "which get their times"
    assert len(listed) == len(acts) > 150


def test_verify_finds_no_difference_where_there_is_none(deployment: Deployment) -> None:
    mirror(deployment.folder)
    whole, quick = deployment.run("gobblin verify a#files", "gobblin verify b#files --quick -o json")
    assert (whole.status, whole.out, quick.status, quick.json) == (0, "", 0, [])
    assert "The target is as the source" in whole.err


def test_verify_names_what_differs_and_changes_nothing(deployment: Deployment) -> None:
    mirror(deployment.folder)
    target = deployment.folder / "target/a"
    same = (target / "same").stat()
    write(target / "same", "SAME..")
    write(target / "same", "A/SAME")
    os.utime(target / "same", ns=(same.st_atime_ns, same.st_mtime_ns))
    write(target / "changes", "longer than it was")
    os.utime(target / "again", ns=(1, 1))
    (target / "new/a name\nin two lines").unlink()
    write(target / "extra/file", "nobody's")
    before = content(deployment.folder / "target")
    whole, quick, unknown, without_dag = deployment.run(
        "gobblin verify a#files -o json",
        "gobblin verify a#files --quick -o json",
        "gobblin verify c#files",
        f"gobblin verify a#files --journal {deployment.folder}/journal --name photos --target {deployment.folder}/target",
    )
    assert whole.out, whole.err
    found = {row["file"]: (row["state"], row["detail"]) for row in whole.json if "folder" not in row["detail"]}
    expected = {
        "a/again": ("changed", "its time is not the source's"),
        "a/changes": ("changed", "it has 18 bytes, and 11 in the source"),
        "a/extra/file": ("extra", ""),
        "a/new/a name\nin two lines": ("missing", ""),
        "a/same": ("changed", "its content is not the source's"),
    }
    assert found == expected
    assert ("a/extra", "extra") in {(row["file"], row["state"]) for row in whole.json}
    assert {row["file"] for row in whole.json} - {row["file"] for row in quick.json} == {"a/same"}
    assert (whole.status, quick.status, unknown.status, without_dag.status) == (1, 1, 1, 1)
    assert "The target differs from the source: " in whole.err
    assert "b#files" in unknown.err or "not this one" in unknown.err
    assert "Name the DAG" in without_dag.err
    assert content(deployment.folder / "target") == before


def test_verify_of_a_whole_mirror_sums_up(deployment: Deployment) -> None:
    mirror(deployment.folder)
    write(deployment.folder / "target/b/nobody's", "")
    (deployment.folder / "target/b/many/000").unlink()
    (deployment.folder / "source/gone/x").parent.mkdir()
    write(deployment.folder / "source/gone/x", "x")
    mirror(deployment.folder)
    (deployment.folder / "target/b/many/001").unlink()
    (deployment.folder / "source/gone/x").unlink()
    (deployment.folder / "source/gone").rmdir()
    before = content(deployment.folder / "target")
    (done,) = deployment.run("gobblin verify --dag-id photos --quick -o json")
    assert done.status == 1, done
    different = {row["dataset"]: row["file"] for row in done.json if "folder" not in row["detail"]}
    assert different["b#files"] == "b/many/001"
    assert "The source has 1 file set no more, and the target keeps them: 'gone#files'" in done.err
    assert re.search(r"\d of 3 file sets differ", done.err)
    assert content(deployment.folder / "target") == before
