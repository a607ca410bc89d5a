"""Steps with one fault each, and the case of their suite that notices it. Collected by `test_suites.py` only."""

from __future__ import annotations

import posixpath
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from airflow_gobblin.model.wire import record
from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
from airflow_gobblin.steps.deleting import DeleteStep
from airflow_gobblin.steps.placing import PlaceStep
from airflow_gobblin.storage.files import Files
from airflow_gobblin.testing import FencedStepContract, StepContract
from airflow_gobblin.testing.files import write

PATH = "orders/marker"


class BrokenStep(StepContract):
    broken: ClassVar[type[Marker]]

    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: self.broken(PATH)

    @pytest.fixture
    def make_next_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: self.broken(f"{PATH}-1")


@record("test.marker")
@dataclass(frozen=True)
class Marker:
    """Writes a small file; this one is right."""

    path: str
    content: ClassVar[bytes] = b"complete\n"
    phase: ClassVar[Phase] = Phase.PUBLISH
    fence: ClassVar[None] = None
    subject: ClassVar[str] = "a marker"
    conflict: ClassVar[str] = "another file has its name"
    lost: ClassVar[str] = "it needs no source"

    def verify(self, context: StepContext) -> StepStatus:
        found = self.records(context).get(posixpath.basename(self.path))
        if found is None:
            return StepStatus.TODO
        return StepStatus.DONE if found == self.content else StepStatus.CONFLICT

    def execute(self, context: StepContext) -> None:
        if not self.records(context).put_if_absent(posixpath.basename(self.path), self.content):
            raise FileExistsError(self.path)

    def undo(self, context: StepContext) -> None:
        if self.verify(context) is StepStatus.DONE:
            self.records(context).delete(posixpath.basename(self.path))

    def records(self, context: StepContext) -> Any:
        return context.files.records(posixpath.dirname(self.path))

    def files(self) -> tuple[TargetFile, ...]:
        return ()

    def folders(self) -> tuple[str, ...]:
        return (posixpath.dirname(self.path),)


class TestAStepThatVerifiesByExistence(BrokenStep):
    caught_by = "test_another_file_where_it_publishes_is_a_conflict_and_stays"

    @record("test.existing")
    @dataclass(frozen=True)
    class broken(Marker):
        def verify(self, context: StepContext) -> StepStatus:
            return StepStatus.DONE if context.files.identity(self.path) else StepStatus.TODO


class TestAStepThatOverwrites(BrokenStep):
    caught_by = "test_another_file_where_it_publishes_is_a_conflict_and_stays"

    @record("test.overwriting")
    @dataclass(frozen=True)
    class broken(Marker):
        def verify(self, context: StepContext) -> StepStatus:
            found = super().verify(context)
            return StepStatus.TODO if found is StepStatus.CONFLICT else found

        def execute(self, context: StepContext) -> None:
            with suppress(FileNotFoundError):
                context.files.unlink(self.path)
            super().execute(context)


class TestAStepThatUndoesWhateverIsThere(BrokenStep):
    caught_by = "test_another_file_where_it_publishes_is_a_conflict_and_stays"

    @record("test.undoing")
    @dataclass(frozen=True)
    class broken(Marker):
        def undo(self, context: StepContext) -> None:
            with suppress(FileNotFoundError):
                context.files.unlink(self.path)


class TestAStepThatRemovesTheFolder(BrokenStep):
    caught_by = "test_nothing_of_others_is_touched"

    @record("test.removing")
    @dataclass(frozen=True)
    class broken(Marker):
        def undo(self, context: StepContext) -> None:
            context.files.remove_tree(posixpath.dirname(self.path))


class TestAStepThatWritesInPlace(BrokenStep):
    """A process that dies between `create` and `write` leaves a file that nobody completes."""

    caught_by = "test_after_an_error_at_any_call_it_is_carried_out_again"

    @record("test.in_place")
    @dataclass(frozen=True)
    class broken(Marker):
        def execute(self, context: StepContext) -> None:
            with context.files.create(self.path) as out:
                out.write(self.content)


class TestAStepThatPublishesOnceMoreEachTime(BrokenStep):
    caught_by = "test_it_is_to_do_and_then_done"

    @record("test.random")
    @dataclass(frozen=True)
    class broken(Marker):
        def execute(self, context: StepContext) -> None:
            context.files.records(posixpath.dirname(self.path)).put_if_absent(uuid.uuid4().hex, self.content)


class TestAStepThatForgetsItsFolder(BrokenStep):
    caught_by = "test_it_names_the_folders_in_which_it_makes_names"

    @record("test.folderless")
    @dataclass(frozen=True)
    class broken(Marker):
        def execute(self, context: StepContext) -> None:
            with context.files.create(self.path) as out:
                out.write(self.content)

        def folders(self) -> tuple[str, ...]:
            return ()


class RenamedMarker(Marker):
    """Writes its file under another name first; this one is right."""

    def execute(self, context: StepContext) -> None:
        staged = f"_gobblin/{uuid.uuid4().hex}"
        with context.files.create(staged) as out:
            out.write(self.content)
        self.sync(context.files, staged)
        context.files.make_folder(posixpath.dirname(self.path))
        context.files.rename_new(staged, self.path)

    def sync(self, files: Files, path: str) -> None:
        files.sync_file(path)


class UnsyncedMarker(RenamedMarker):
    """Leaves out that its content must be durable."""

    def sync(self, files: Files, path: str) -> None:
        pass


class TestAStepThatForgetsTheFolderThatItRenamesTo(BrokenStep):
    caught_by = "test_it_names_the_folders_in_which_it_makes_names"

    @record("test.folderless_rename")
    @dataclass(frozen=True)
    class broken(RenamedMarker):
        def folders(self) -> tuple[str, ...]:
            return ()


class TestAStepThatRenamesWhatIsNotDurable(BrokenStep):
    caught_by = "test_content_is_durable_before_its_name_is"

    @record("test.unsynced_rename")
    @dataclass(frozen=True)
    class broken(UnsyncedMarker):
        pass


class TestAStepThatSyncsTooLate(BrokenStep):
    caught_by = "test_content_is_durable_before_its_name_is"

    @record("test.synced_late")
    @dataclass(frozen=True)
    class broken(UnsyncedMarker):
        def execute(self, context: StepContext) -> None:
            super().execute(context)
            context.files.sync_file(self.path)


class TestAStepThatCannotBeUndone(BrokenStep):
    caught_by = "test_undo_takes_back_what_it_did"

    @record("test.lasting")
    @dataclass(frozen=True)
    class broken(Marker):
        def undo(self, context: StepContext) -> None:
            pass


class TestAStepWhoseNameIsThatOfAllSlots(BrokenStep):
    """The second slot finds it done, and takes away the first one's if it is abandoned."""

    caught_by = "test_what_another_slots_step_did_does_not_make_it_done"

    @pytest.fixture
    def make_next_step(self, make_step: Callable[[Files], CommitStep]) -> Callable[[Files], CommitStep]:
        return make_step

    @record("test.name_of_all_slots")
    @dataclass(frozen=True)
    class broken(Marker):
        pass


class TestAStepWhoseNameIsThatOfAllSlotsWithOtherContents(BrokenStep):
    caught_by = "test_what_another_slots_step_did_does_not_make_it_done"

    @pytest.fixture
    def make_next_step(self) -> Callable[[Files], CommitStep]:
        return lambda files: self.broken(PATH, slot=2)

    @record("test.shared_contents")
    @dataclass(frozen=True)
    class broken(Marker):
        slot: int = 1

        def execute(self, context: StepContext) -> None:
            if not self.records(context).put_if_absent(posixpath.basename(self.path), b"%d" % self.slot):
                raise FileExistsError(self.path)

        def verify(self, context: StepContext) -> StepStatus:
            found = self.records(context).get(posixpath.basename(self.path))
            if found is None:
                return StepStatus.TODO
            return StepStatus.DONE if found == b"%d" % self.slot else StepStatus.CONFLICT


class TestAStepThatUndoesThoseOfAllSlots(BrokenStep):
    caught_by = "test_undo_leaves_what_another_slots_step_did"

    @record("test.undoing_all")
    @dataclass(frozen=True)
    class broken(Marker):
        def undo(self, context: StepContext) -> None:
            for path in [*context.files.walk(posixpath.dirname(self.path))]:
                if path.startswith(PATH):
                    context.files.unlink(path)


class TestAStepThatVerifiesByWriting(BrokenStep):
    caught_by = "test_it_is_to_do_and_then_done"

    @record("test.writing")
    @dataclass(frozen=True)
    class broken(Marker):
        def verify(self, context: StepContext) -> StepStatus:
            with context.files.create(f"_gobblin/{uuid.uuid4().hex}") as out:
                out.write(b"look")
            return super().verify(context)


class TestAStepThatDescribesAnotherFile(BrokenStep):
    caught_by = "test_it_describes_its_files_as_they_are"

    @record("test.describing")
    @dataclass(frozen=True)
    class broken(Marker):
        def files(self) -> tuple[TargetFile, ...]:
            from airflow_gobblin.storage.files import FileIdentity

            return (TargetFile(self.path, "u0", FileIdentity(0, len(self.content), ""), "0" * 64, 1),)


class TestAStepInNoPhase(BrokenStep):
    caught_by = "test_it_has_a_phase_and_is_undone_without_a_fence"

    @record("test.phaseless")
    @dataclass(frozen=True)
    class broken(Marker):
        phase: ClassVar[Any] = "cleanup"


class BrokenAct(FencedStepContract):
    broken: ClassVar[type[PlaceStep]]

    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        def make(files: Files) -> CommitStep:
            files.make_folder("photos")
            staged = write(files, "_gobblin/s/0123/a0/u0/a.jpg", b"new")
            return self.broken("_gobblin/s/0123/a0/u0/a.jpg", "photos/a.jpg", "u0", staged)

        return make


class TestAFenceThatDoesNothing(BrokenAct):
    caught_by = "test_a_fence_holds_whoever_comes_late"

    @record("test.fence_of_nothing")
    @dataclass(frozen=True)
    class broken(PlaceStep):
        def fence(self, context: StepContext) -> FenceResult:
            done = context.files.identity(self.target) == self.identity
            return FenceResult.DONE if done else FenceResult.HOLDS


class TestAFenceThatFindsNothingDone(BrokenAct):
    caught_by = "test_a_fence_after_the_act_finds_it_done"

    @record("test.blind_fence")
    @dataclass(frozen=True)
    class broken(PlaceStep):
        def fence(self, context: StepContext) -> FenceResult:
            PlaceStep.fence(self, context)
            return FenceResult.HOLDS


class TestAFenceThatTakesBack(BrokenAct):
    caught_by = "test_a_fence_after_the_act_finds_it_done"

    @record("test.taking_back")
    @dataclass(frozen=True)
    class broken(PlaceStep):
        def fence(self, context: StepContext) -> FenceResult:
            found = PlaceStep.fence(self, context)
            with suppress(FileNotFoundError):
                context.files.unlink(self.target)
            return found


class TestAnActThatIsUndone(BrokenAct):
    caught_by = "test_undo_removes_no_more_than_its_fence_left"

    @record("test.undone_act")
    @dataclass(frozen=True)
    class broken(PlaceStep):
        def undo(self, context: StepContext) -> None:
            with suppress(FileNotFoundError):
                context.files.unlink(self.target)


class TestAnActThatOverwrites(BrokenAct):
    caught_by = "test_another_file_in_its_place_stays"

    @record("test.overwriting_act")
    @dataclass(frozen=True)
    class broken(PlaceStep):
        def execute(self, context: StepContext) -> None:
            context.files.replace(self.source, self.target)


class TestAnActThatCanBeDoneTwice(BrokenAct):
    """It consumes nothing: a copy of the staged file is placed, each time."""

    caught_by = "test_of_executors_and_fences_at_once_all_agree"

    @record("test.copying_act")
    @dataclass(frozen=True)
    class broken(PlaceStep):
        def verify(self, context: StepContext) -> StepStatus:
            there = context.files.identity(self.target) is not None
            return StepStatus.DONE if there else StepStatus.TODO

        def execute(self, context: StepContext) -> None:
            time.sleep(0.02)  # so that a fence comes before the act now and then, however few processors there are
            with context.files.create(self.target) as out:
                out.write(b"new")

        def fence(self, context: StepContext) -> FenceResult:
            PlaceStep.fence(self, context)
            return FenceResult.DONE if self.verify(context) is StepStatus.DONE else FenceResult.HOLDS


class TestAnActThatMakesWhatItConsumes(FencedStepContract):
    caught_by = "test_without_what_it_consumes_it_is_lost"

    @record("test.making_its_trash")
    @dataclass(frozen=True)
    class broken(DeleteStep):
        def verify(self, context: StepContext) -> StepStatus:
            found = DeleteStep.verify(self, context)
            return StepStatus.TODO if found is StepStatus.LOST else found

        def execute(self, context: StepContext) -> None:
            context.files.make_folder(self.trash)
            DeleteStep.execute(self, context)

    @pytest.fixture
    def make_step(self) -> Callable[[Files], CommitStep]:
        def make(files: Files) -> CommitStep:
            old = write(files, "photos/a.jpg", b"old")
            files.make_folder("_gobblin/s/0123/trash/0")
            return self.broken("photos/a.jpg", old, "_gobblin/s/0123/trash/0")

        return make
