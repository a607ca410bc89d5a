"""Files that are placed where nothing is, or in place of the file that the plan saw."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_gobblin.errors import StepConflictError, StepLostError
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.steps.base import CommitStep, StepContext, StepStatus, publishes_files
from airflow_gobblin.steps.execution import carry_out, carry_out_all
from airflow_gobblin.steps.placing import ForgetStep, PlaceFolderStep, PlaceStep, place_file, place_folder
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.files import local as module

STAGED, PATH = "_gobblin/s/0123/a0/u0/a.jpg", "photos/a.jpg"


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(tmp_path / "root")
    files.make_folder("photos")
    return files


def staged(files: LocalFiles, checksum: str = "") -> StagedFile:
    with files.create(STAGED) as out:
        out.write(b"new")
    found = files.identity(STAGED)
    assert found is not None
    return StagedFile(STAGED, found.size, checksum, 0, found.stamp)


def replacing(files: LocalFiles) -> PlaceStep:
    old = Path(files.root) / PATH
    old.write_bytes(b"old")
    (step,) = place_file(staged(files), PATH, "u0", files, files.identity(PATH))
    assert isinstance(step, PlaceStep)
    return step


def test_a_new_file_is_renamed_where_that_never_overwrites(files: LocalFiles) -> None:
    (step,) = place_file(staged(files), PATH, "u0", files)
    assert isinstance(step, PlaceStep)
    assert carry_out(step, StepContext(files), "photos", 1)
    assert not carry_out(step, StepContext(files), "photos", 1)
    assert [*files.walk(".")] == [PATH]


def test_elsewhere_it_is_linked_and_its_staged_name_goes_in_a_later_phase(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_renameat2", lambda: None)
    place, forget = place_file(staged(files), PATH, "u0", files)
    assert isinstance(forget, ForgetStep)
    assert place.phase < forget.phase
    context = StepContext(files)
    for step in (place, forget):
        assert step.verify(context) is StepStatus.TODO
        assert carry_out(step, context, "photos", 1)
        assert not carry_out(step, context, "photos", 1)
    assert [*files.walk(".")] == [PATH]
    assert place.verify(context) is StepStatus.DONE


def test_the_file_that_is_to_be_replaced_may_be_gone(files: LocalFiles) -> None:
    step = replacing(files)
    files.unlink(PATH)
    assert step.verify(StepContext(files)) is StepStatus.TODO
    carry_out(step, StepContext(files), "photos", 1)
    assert files.read(PATH) == b"new"


@pytest.mark.parametrize("how", ["written to", "another one"])
def test_a_file_that_was_changed_since_the_plan_is_not_replaced(files: LocalFiles, how: str) -> None:
    step = replacing(files)
    at = Path(files.root) / PATH
    if how == "another one":
        at.unlink()
    with at.open("ab") as out:
        out.write(b"theirs")
    with pytest.raises(StepConflictError, match="another file is there than the one that is to be replaced"):
        carry_out(step, StepContext(files), "photos", 1)
    assert at.read_bytes().endswith(b"theirs")
    assert files.read(STAGED) == b"new"


def test_without_a_checksum_only_its_identity_proves_a_file(files: LocalFiles) -> None:
    (step,) = place_file(staged(files), PATH, "u0", files)
    at = Path(files.root) / PATH
    shutil.copy2(at.parent.parent / STAGED, at)
    assert step.verify(StepContext(files)) is StepStatus.CONFLICT
    at.unlink()
    (with_checksum,) = place_file(
        StagedFile(
            STAGED, 3, hashlib.sha256(b"new").hexdigest(), 0, str(os.stat(f"{files.root}/{STAGED}").st_mtime_ns)
        ),
        PATH,
        "u0",
        files,
    )
    shutil.copy2(at.parent.parent / STAGED, at)
    assert with_checksum.verify(StepContext(files)) is StepStatus.DONE


def test_a_link_is_placed_as_a_link(files: LocalFiles) -> None:
    files.make_folder(os.path.dirname(STAGED))
    os.symlink("nowhere", f"{files.root}/{STAGED}")
    found = files.identity(STAGED)
    assert found is not None
    carry_out(PlaceStep(STAGED, PATH, "u0", found), StepContext(files), "photos", 1)
    assert os.readlink(f"{files.root}/{PATH}") == "nowhere"


def test_what_is_lost_is_reported_by_name(files: LocalFiles) -> None:
    file = staged(files)
    (step,) = place_file(file, PATH, "u0", files)
    files.unlink(STAGED)
    with pytest.raises(StepLostError, match=f"neither it nor its staged file '{STAGED}'"):
        carry_out(step, StepContext(files), "photos", 1)
    with pytest.raises(StepLostError, match="it is gone, or was changed"):
        place_file(file, PATH, "u0", files)


def test_a_place_whose_folder_is_gone_is_still_to_do(files: LocalFiles) -> None:
    """The next try begins with the phase that makes it."""
    (step,) = place_file(staged(files), PATH, "u0", files)
    (Path(files.root) / "photos").rmdir()
    with pytest.raises(Exception, match="No such file"):
        carry_out(step, StepContext(files), "photos", 1)
    assert step.verify(StepContext(files)) is StepStatus.TODO


def test_names_that_are_not_utf_8_are_renamed(files: LocalFiles) -> None:
    with files.create("\udcff") as out:
        out.write(b"x")
    files.rename_new("\udcff", "photos/\udcfe\n")
    assert os.listdir(os.fsencode(f"{files.root}/photos")) == [b"\xfe\n"]


def test_a_folder_is_placed_without_a_list_of_its_files(files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have 20,000, and each look at its kind would make one of each."""
    file = staged(files)
    step = place_folder(os.path.dirname(STAGED), "photos/new", {"a.jpg": file}, files)
    assert step is not None
    assert publishes_files(step) == bool(step.files())
    monkeypatch.setattr(PlaceFolderStep, "files", lambda self: pytest.fail("it was asked for a list of its files"))
    assert [*carry_out_all([step], files, lambda one: carry_out(one, StepContext(files), "photos", 1))] == [True]
    assert files.read("photos/new/a.jpg") == b"new"


def test_a_folder_of_many_files_is_no_reason_for_threads(files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long as it takes many calls, each of which is as short as ever: threads would wait for one another."""
    monkeypatch.setattr(LocalFiles, "parallel", 2)
    clocks: defaultdict[threading.Thread, float] = defaultdict(float)  # no thread waits for what others do
    clock = SimpleNamespace(perf_counter=lambda: clocks[threading.current_thread()])
    monkeypatch.setattr("airflow_gobblin.storage.files.base.time", clock)
    steps, threads = [], []
    for number in range(20):
        paths = [f"{number}/{name}" for name in range(50)]
        for path in paths:
            files.create(f"_gobblin/s/0123/a0/{path}").close()
        found = {path: files.identity(f"_gobblin/s/0123/a0/{path}") for path in paths}
        of = {
            path.partition("/")[2]: StagedFile(f"_gobblin/s/0123/a0/{path}", 0, "", 0, one.stamp)
            for path, one in found.items()
            if one is not None
        }
        step = place_folder(f"_gobblin/s/0123/a0/{number}", f"photos/{number}", of, files)
        assert step is not None
        steps.append(step)

    def slowly(step: CommitStep) -> bool:
        threads.append(threading.current_thread())
        clocks[threading.current_thread()] += 1e-3  # ten times what is worth a thread, for a step with one call
        return True

    assert all(carry_out_all(steps, files, slowly))
    assert {*threads[8:]} == {threading.current_thread()}
    threads.clear()
    (one,) = place_file(staged(files), PATH, "u0", files)
    assert all(carry_out_all([one] * 20, files, slowly))
    assert threading.current_thread() not in threads
