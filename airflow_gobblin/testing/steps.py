"""The contracts of commit steps that publish below the target root: any process may carry one out, any number of times.

A step without a fence is taken back by `undo`; a step with one takes something over or away, and is possible once only.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from airflow_gobblin.errors import StepError
from airflow_gobblin.model import wire
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus
from airflow_gobblin.steps.execution import carry_out, fence
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.files.local import LocalFiles
from airflow_gobblin.testing.files import write
from airflow_gobblin.testing.interrupted_files import InterruptedFiles
from airflow_gobblin.testing.threads import together

__all__ = ["FencedStepContract", "StepContract"]

EXECUTORS = 4
MAKING_NAMES = ("create", "link", "move_folder", "rename_new", "replace")
"""The calls of `Files` whose last path is a name that they make."""

Bench = tuple[CommitStep, Files]
"""A step that can be carried out, and the files that it is carried out on."""
Slots = tuple[tuple[CommitStep, CommitStep], Files]
"""The steps of two slots of one dataset, and their files."""


class _Prepared:
    """The fixtures of both suites."""

    @pytest.fixture
    def new_files(self, tmp_path: Path) -> Callable[[], Files]:
        """Return a function that returns files under a root of their own, without any files, each time."""
        numbers = count()
        return lambda: LocalFiles(tmp_path / f"target-{next(numbers)}")

    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        """Return a function that stages what a step needs, and returns the step, always with the same results."""
        raise NotImplementedError("override the fixture `make_step`")

    @pytest.fixture
    def new_bench(
        self, make_step: Callable[[Files], CommitStep], new_files: Callable[[], Files]
    ) -> Callable[[], Bench]:
        """Return a function that prepares a step on files of its own each time."""

        def prepare() -> Bench:
            assert callable(make_step), "make_step returns a function of files"
            files = new_files()
            return make_step(files), files

        return prepare

    @pytest.fixture
    def bench(self, new_bench: Callable[[], Bench]) -> Bench:
        """Prepare a step."""
        return new_bench()


class StepContract(_Prepared):
    """The suite of commit steps without a fence. Override the fixtures `make_step` and `make_next_step`, and `new_files` for
    another storage.
    """

    @pytest.fixture
    def make_next_step(self) -> Callable[[Files], CommitStep]:
        """Return a function as `make_step` does, for the next slot of the same dataset: its plan has another token."""
        raise NotImplementedError("override the fixture `make_next_step`")

    @pytest.fixture
    def new_slots(
        self,
        make_step: Callable[[Files], CommitStep],
        make_next_step: Callable[[Files], CommitStep],
        new_files: Callable[[], Files],
    ) -> Callable[[], Slots]:
        """Return a function that prepares the steps of two slots of a dataset, on new files each time."""

        def prepare() -> Slots:
            assert callable(make_step), "make_step returns a function of files"
            assert callable(make_next_step), "make_next_step returns a function of files"
            files = new_files()
            return (make_step(files), make_next_step(files)), files

        return prepare

    @pytest.fixture
    def results(self, new_bench: Callable[[], Bench]) -> dict[str, bytes]:
        """Carry out a step elsewhere; return the files that it publishes, with their contents."""
        step, files = new_bench()
        before = contents(files)
        step.execute(StepContext(files))
        results = {path: data for path, data in contents(files).items() if path not in before}
        assert results, (
            "`execute` leaves nothing below the target; a step that publishes nothing there needs a suite of its own"
        )
        return results

    def test_it_is_to_do_and_then_done(self, bench: Bench, results: dict[str, bytes]) -> None:
        step, files = bench
        before = contents(files)
        assert step.verify(StepContext(files)) is StepStatus.TODO
        assert contents(files) == before, "to verify changes nothing"
        step.execute(StepContext(files))
        after = contents(files)
        assert step.verify(StepContext(files)) is StepStatus.DONE
        assert contents(files) == after, "to verify changes nothing"
        assert {path: after.get(path) for path in results} == results

    def test_it_has_a_phase_and_is_undone_without_a_fence(self, bench: Bench) -> None:
        step, _ = bench
        assert step.phase in [*Phase]
        assert step.fence is None, "this suite is for steps that `undo` takes back: use FencedStepContract"

    def test_it_crosses_processes(self, bench: Bench) -> None:
        step, files = bench
        again = wire.loads(wire.dumps(step), type(step), "the step")
        assert again == step
        step.execute(StepContext(files))
        assert again.verify(StepContext(files)) is StepStatus.DONE

    def test_a_late_executor_changes_nothing(self, bench: Bench, results: dict[str, bytes]) -> None:
        step, files = bench
        step.execute(StepContext(files))
        found = {path: files.identity(path) for path in results}
        with suppress(OSError):  # it may report that it is done already
            step.execute(StepContext(files))
        assert step.verify(StepContext(files)) is StepStatus.DONE
        assert {path: files.identity(path) for path in results} == found

    def test_many_carry_it_out_at_once(self, new_bench: Callable[[], Bench], results: dict[str, bytes]) -> None:
        for _ in range(EXECUTORS):
            step, files = new_bench()
            together(lambda _, step=step, files=files: try_out(step, files), EXECUTORS)  # type: ignore[misc]
            assert step.verify(StepContext(files)) is StepStatus.DONE
            after = contents(files)
            assert {path: after.get(path) for path in results} == results

    def test_another_file_where_it_publishes_is_a_conflict_and_stays(
        self, new_bench: Callable[[], Bench], results: dict[str, bytes]
    ) -> None:
        """Try even a part of the right content, as a copy that was cut off leaves it: a file's existence proves nothing."""
        for path, content in results.items():
            for other in {b"", content[: len(content) // 2], content[:-1] + b"\0", b"somebody else's"} - {content}:
                step, files = new_bench()
                theirs = write(files, path, other)
                assert step.verify(StepContext(files)) is StepStatus.CONFLICT
                with pytest.raises(StepError):
                    try_out(step, files)
                step.undo(StepContext(files))
                assert (files.identity(path), files.read(path)) == (theirs, other)

    def test_nothing_of_others_is_touched(self, bench: Bench, results: dict[str, bytes]) -> None:
        step, files = bench
        folders = {posixpath.dirname(path) for path in results}
        others = ["theirs", *(posixpath.join(folder, "..", "theirs") for folder in folders)]
        others += [f"{path}.theirs" for path in results if posixpath.dirname(path) in step.folders()]
        theirs = {path: write(files, path) for path in {posixpath.normpath(path) for path in others}}
        for act in (step.execute, step.undo, step.undo):
            act(StepContext(files))
            assert {path: files.identity(path) for path in theirs} == theirs

    def test_undo_takes_back_what_it_did(self, bench: Bench, results: dict[str, bytes]) -> None:
        step, files = bench
        step.execute(StepContext(files))
        for _ in range(2):
            step.undo(StepContext(files))
            assert not results.keys() & contents(files).keys()

    def test_undo_is_harmless_where_nothing_was_done(self, bench: Bench, results: dict[str, bytes]) -> None:
        step, files = bench
        write(files, "theirs")
        step.undo(StepContext(files))
        assert not results.keys() & contents(files).keys()
        assert files.read("theirs") == b"data"

    def test_what_another_slots_step_did_does_not_make_it_done(self, new_slots: Callable[[], Slots]) -> None:
        """See that two slots of a dataset share no name: else the second would be in conflict, or be done without having run."""
        (one, other), files = new_slots()
        context = StepContext(files)
        one.execute(context)
        found = other.verify(context)
        assert found is StepStatus.TODO, f"{other.subject}: {found} before it ran; is its name the slot's own?"
        other.execute(context)
        assert [step.verify(context) for step in (one, other)] == [StepStatus.DONE, StepStatus.DONE]

    def test_undo_leaves_what_another_slots_step_did(self, new_slots: Callable[[], Slots]) -> None:
        """The leftovers of a slot are cleaned up at any time after it was abandoned, even when later slots have published."""
        for undone in (0, 1):
            steps, files = new_slots()
            context, step, kept = StepContext(files), steps[undone], steps[1 - undone]
            before = contents(files)
            kept.execute(context)
            made = {path: files.identity(path) for path in contents(files).keys() - before.keys()}
            with suppress(OSError):  # it may find that its name is taken
                step.execute(context)
            step.undo(context)
            after = {path: files.identity(path) for path in made}
            assert after == made, f"undo of {step.subject}: it took away what the step of another slot made"
            assert kept.verify(context) is StepStatus.DONE

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    def test_after_an_error_at_any_call_it_is_carried_out_again(
        self, new_bench: Callable[[], Bench], results: dict[str, bytes], answer_lost: bool
    ) -> None:
        """Include calls that took effect though their answers were lost, and a process that died in the middle of a write."""
        for step, files, interrupted in interruptions(new_bench, lambda step: step.execute, answer_lost):
            with suppress(OSError):
                step.execute(StepContext(interrupted))
            assert step.verify(StepContext(files)) in (StepStatus.TODO, StepStatus.DONE), interrupted.calls
            try_out(step, files)
            after = contents(files)
            assert {path: after.get(path) for path in results} == results, interrupted.calls

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    def test_after_an_error_at_any_call_it_is_undone_again(
        self, new_bench: Callable[[], Bench], results: dict[str, bytes], answer_lost: bool
    ) -> None:
        def done() -> Bench:
            step, files = new_bench()
            step.execute(StepContext(files))
            return step, files

        for step, files, interrupted in interruptions(done, lambda step: step.undo, answer_lost):
            with suppress(OSError):
                step.undo(StepContext(interrupted))
            step.undo(StepContext(files))
            assert not results.keys() & contents(files).keys(), interrupted.calls

    def test_without_its_source_it_is_lost_or_needs_none(self, bench: Bench, results: dict[str, bytes]) -> None:
        step, files = bench
        for path in contents(files):
            files.unlink(path)
        for target, upload in [] if files.uploads is None else [*files.uploads.open_below(".")]:
            assert files.uploads is not None
            files.uploads.abort(target, upload)
        status = step.verify(StepContext(files))
        assert status in (StepStatus.LOST, StepStatus.TODO), "neither its source nor its result is there"
        if status is StepStatus.TODO:
            try_out(step, files)
            return
        with pytest.raises(StepError):
            try_out(step, files)
        assert contents(files) == {}, "nothing is published in its place"

    def test_it_names_the_folders_in_which_it_makes_names(self, bench: Bench, results: dict[str, bytes]) -> None:
        """See that these have all names to sync before the outcome is written; an object is durable when it exists."""
        step, files = bench
        seen = InterruptedFiles(files)
        step.execute(StepContext(seen))
        made = {call[-1] for call in seen.calls if call[0] in MAKING_NAMES}
        made = {name for name in made if any(path == name or path.startswith(f"{name}/") for path in results)}
        if files.moves_folders:
            assert {posixpath.dirname(name) for name in made} <= {*step.folders()}
        for folder in step.folders():
            files.sync_folder(folder)

    def test_content_is_durable_before_its_name_is(self, bench: Bench) -> None:
        """A file that it writes is synced before it gets its name, or before the step ends: the outcome comes next."""
        step, files = bench
        seen = InterruptedFiles(files)
        step.execute(StepContext(seen))
        for number, (act, *paths) in enumerate(seen.calls):
            if act != "create" or not files.moves_folders or ("unlink", *paths) in seen.calls[number:]:
                continue  # objects are durable at once, and what is taken away needn't be
            later = [
                call for call in seen.calls[number:] if call[:2] == ("sync_file", paths[0]) or paths[0] in call[1:-1]
            ]
            assert later, f"nothing syncs {paths[0]!r}: call `files.sync_file` once it is closed"
            assert later[0][0] == "sync_file", f"{later[0][0]} gives {paths[0]!r} its name before its content is synced"

    def test_it_describes_its_files_as_they_are(self, bench: Bench, results: dict[str, bytes]) -> None:
        step, _ = bench
        assert all((step.subject, step.conflict, step.lost)), "its errors need words"
        for file in step.files():
            assert file.size == len(results[file.path])
            assert file.checksum == hashlib.sha256(results[file.path]).hexdigest()


class FencedStepContract(_Prepared):
    """The suite of commit steps with a fence. Override the fixture `make_step`, and `new_files` for another storage.

    Only files outside `_gobblin/` count as done: inside, the step may stage, keep and consume what it needs.
    """

    @pytest.fixture
    def before(self, new_bench: Callable[[], Bench]) -> dict[str, bytes]:
        """Return what can be seen before the step is carried out."""
        return visible(new_bench()[1])

    @pytest.fixture
    def after(self, new_bench: Callable[[], Bench], before: dict[str, bytes]) -> dict[str, bytes]:
        """Carry out a step elsewhere; return what can be seen then."""
        step, files = new_bench()
        step.execute(StepContext(files))
        assert visible(files) != before, "this suite is for steps that change files below the target root"
        return visible(files)

    def test_it_is_to_do_and_then_done(self, bench: Bench, after: dict[str, bytes]) -> None:
        step, files = bench
        found = contents(files)
        assert step.verify(StepContext(files)) is StepStatus.TODO
        assert contents(files) == found, "to verify changes nothing"
        step.execute(StepContext(files))
        found = contents(files)
        assert step.verify(StepContext(files)) is StepStatus.DONE
        assert contents(files) == found, "to verify changes nothing"
        assert visible(files) == after

    def test_it_has_a_phase_and_a_fence(self, bench: Bench) -> None:
        step, _ = bench
        assert step.phase in [*Phase]
        assert step.fence is not None, "this suite is for acts that are possible once only: use StepContract"

    def test_it_crosses_processes(self, bench: Bench) -> None:
        step, files = bench
        again = wire.loads(wire.dumps(step), type(step), "the step")
        assert again == step
        step.execute(StepContext(files))
        assert again.verify(StepContext(files)) is StepStatus.DONE

    def test_a_late_executor_changes_nothing(self, bench: Bench) -> None:
        step, files = bench
        step.execute(StepContext(files))
        found = identities(files)
        late(step, files)
        assert step.verify(StepContext(files)) is StepStatus.DONE
        assert identities(files) == found

    def test_many_carry_it_out_at_once(self, new_bench: Callable[[], Bench], after: dict[str, bytes]) -> None:
        for _ in range(EXECUTORS):
            step, files = new_bench()
            together(lambda _, step=step, files=files: try_out(step, files), EXECUTORS)  # type: ignore[misc]
            assert step.verify(StepContext(files)) is StepStatus.DONE
            assert visible(files) == after

    def test_a_fence_holds_whoever_comes_late(self, bench: Bench, before: dict[str, bytes]) -> None:
        step, files = bench
        for _ in range(2):
            assert shut_out(step, files) is FenceResult.HOLDS
            assert visible(files) == before, "the fence itself does nothing that can be seen"
            late(step, files)
            assert visible(files) == before
        assert step.verify(StepContext(files)) in (StepStatus.FENCED, StepStatus.LOST)
        with pytest.raises(StepError):
            try_out(step, files)

    def test_a_fence_after_the_act_finds_it_done(self, bench: Bench, after: dict[str, bytes]) -> None:
        step, files = bench
        step.execute(StepContext(files))
        results = {shut_out(step, files) for _ in range(2)}
        assert results in ({FenceResult.DONE}, {FenceResult.WHOLE})
        assert visible(files) == after, "there is no undo of an act"
        assert step.verify(StepContext(files)) is StepStatus.DONE

    def test_of_executors_and_fences_at_once_all_agree(
        self, new_bench: Callable[[], Bench], before: dict[str, bytes], after: dict[str, bytes]
    ) -> None:
        for _ in range(2 * EXECUTORS):
            step, files = new_bench()
            found: list[FenceResult] = []

            def act(
                number: int, step: CommitStep = step, files: Files = files, found: list[FenceResult] = found
            ) -> None:
                if number % 2:
                    found.append(shut_out(step, files))
                    return
                with suppress(StepError):
                    try_out(step, files)

            together(act, EXECUTORS)
            found.append(shut_out(step, files))
            assert len({answer is FenceResult.HOLDS for answer in found}) == 1, f"the fences found {found}"
            late(step, files)
            assert visible(files) == (before if FenceResult.HOLDS in found else after)

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    def test_after_an_error_at_any_call_it_is_carried_out_again(
        self, new_bench: Callable[[], Bench], after: dict[str, bytes], answer_lost: bool
    ) -> None:
        """Include calls that took effect though their answers were lost, and a process that died in the middle of a write."""
        for step, files, interrupted in interruptions(new_bench, lambda step: step.execute, answer_lost):
            with suppress(OSError):
                step.execute(StepContext(interrupted))
            assert step.verify(StepContext(files)) in (StepStatus.TODO, StepStatus.DONE), interrupted.calls
            try_out(step, files)
            assert visible(files) == after, interrupted.calls

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    def test_after_an_error_at_any_call_it_is_fenced(
        self, new_bench: Callable[[], Bench], before: dict[str, bytes], after: dict[str, bytes], answer_lost: bool
    ) -> None:
        for step, files, interrupted in interruptions(new_bench, lambda step: step.execute, answer_lost):
            with suppress(OSError):
                step.execute(StepContext(interrupted))
            holds = shut_out(step, files) is FenceResult.HOLDS
            late(step, files)
            assert visible(files) == (before if holds else after), interrupted.calls

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    @pytest.mark.parametrize("done", [False, True], ids=["to do", "done"])
    def test_after_an_error_at_any_call_its_fence_is_set_again(
        self,
        new_bench: Callable[[], Bench],
        before: dict[str, bytes],
        after: dict[str, bytes],
        answer_lost: bool,
        done: bool,
    ) -> None:
        def begun() -> Bench:
            step, files = new_bench()
            if done:
                step.execute(StepContext(files))
            return step, files

        for step, files, interrupted in interruptions(begun, fence_of, answer_lost):
            with suppress(OSError):
                fence_of(step)(StepContext(interrupted))
            assert (shut_out(step, files) is FenceResult.HOLDS) is not done, interrupted.calls
            late(step, files)
            assert visible(files) == (after if done else before), interrupted.calls

    def test_another_file_in_its_place_stays(
        self, new_bench: Callable[[], Bench], before: dict[str, bytes], after: dict[str, bytes]
    ) -> None:
        """Find a conflict; or find it done, if the file to be taken away isn't there."""
        for path in {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}:
            for acts in ((late, shut_out, undo), (shut_out, late, undo)):
                step, files = new_bench()
                if path in before:
                    files.unlink(path)
                theirs = write(files, path, b"somebody else's")
                assert step.verify(StepContext(files)) in (StepStatus.CONFLICT, StepStatus.DONE)
                for act in acts:
                    act(step, files)
                    assert (files.identity(path), files.read(path)) == (theirs, b"somebody else's"), act

    def test_nothing_of_others_is_touched(
        self, bench: Bench, before: dict[str, bytes], after: dict[str, bytes]
    ) -> None:
        step, files = bench
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        others = {"theirs", *(posixpath.join(posixpath.dirname(path), "theirs") for path in changed)}
        others |= {f"{path}.theirs" for path in changed}
        theirs = {path: write(files, path) for path in others}
        for act in (late, shut_out, undo, undo):
            act(step, files)
            assert {path: files.identity(path) for path in theirs} == theirs

    @pytest.mark.parametrize("done", [False, True], ids=["fenced", "done"])
    def test_undo_removes_no_more_than_its_fence_left(self, bench: Bench, done: bool) -> None:
        step, files = bench
        if done:
            step.execute(StepContext(files))
        shut_out(step, files)
        found = identities(files)
        for _ in range(2):
            step.undo(StepContext(files))
            assert identities(files) == found

    def test_without_what_it_consumes_it_is_lost(self, bench: Bench, before: dict[str, bytes]) -> None:
        step, files = bench
        files.remove_tree("_gobblin")
        for target, upload in [] if files.uploads is None else [*files.uploads.open_below(".")]:
            assert files.uploads is not None
            files.uploads.abort(target, upload)
        assert step.verify(StepContext(files)) is StepStatus.LOST
        with pytest.raises(StepError):
            try_out(step, files)
        assert visible(files) == before, "no step makes what it consumes"

    def test_it_names_folders_that_can_be_synced_and_words_for_its_errors(self, bench: Bench) -> None:
        step, files = bench
        assert all((step.subject, step.conflict, step.lost)), "its errors need words"
        step.execute(StepContext(files))
        for folder in step.folders():
            files.sync_folder(folder)
        for file in step.files():
            assert file.size == len(files.read(file.path))
            assert file.checksum in ("", files.checksum(file.path))


def contents(files: Files) -> dict[str, bytes]:
    """Return all files with their contents."""
    return {path: files.read(path) for path in files.walk(".")}


def visible(files: Files) -> dict[str, bytes]:
    """Return all files outside of `_gobblin/`, with their contents."""
    return {path: files.read(path) for path in files.walk(".") if not path.startswith("_gobblin/")}


def identities(files: Files) -> dict[str, object]:
    """Return all files outside of `_gobblin/`, with their identities."""
    return {path: files.identity(path) for path in visible(files)}


def late(step: CommitStep, files: Files) -> None:
    """Carry out a step without looking, as a process that looked long ago does."""
    with suppress(OSError):
        step.execute(StepContext(files))


def undo(step: CommitStep, files: Files) -> None:
    """Take a step back."""
    step.undo(StepContext(files))


def shut_out(step: CommitStep, files: Files) -> FenceResult:
    """Set the fence of a step as the package does.

    :raises StepError: it can't be set.
    """
    return fence(step, StepContext(files), "main.orders", 1)


def fence_of(step: CommitStep) -> Callable[[StepContext], FenceResult]:
    """Return the fence of a step that has one."""
    assert step.fence is not None
    return step.fence


def try_out(step: CommitStep, files: Files) -> None:
    """Carry out a step as the package does.

    :raises StepError: it can't be done.
    """
    carry_out(step, StepContext(files), "main.orders", 1)


def interruptions(
    new_bench: Callable[[], Bench], act: Callable[[CommitStep], Callable[[StepContext], object]], answer_lost: bool
) -> Iterator[tuple[CommitStep, Files, InterruptedFiles]]:
    """Prepare a step for each call of an act, with files on which that call fails."""
    step, files = new_bench()
    healthy = InterruptedFiles(files)
    act(step)(StepContext(healthy))
    assert healthy.calls, "a step acts on the files of its context"
    for at in range(len(healthy.calls)):
        step, files = new_bench()
        yield step, files, InterruptedFiles(files, at, answer_lost=answer_lost)
