"""Random histories of mirrors, and faults in the product that they catch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.journal.records import Decision
from airflow_gobblin.steps import deleting
from airflow_gobblin.steps.base import FenceResult, StepContext
from airflow_gobblin.steps.deleting import CloseTrashStep, DeleteStep
from airflow_gobblin.steps.placing import PlaceFolderStep, PlaceStep
from airflow_gobblin.storage.files import Files
from tests.proofs import Proved, one_in, some_and_whole
from tests.protocol.mirror_histories import Broken, play, play_all
from tests.protocol.mutants import Patch

# A process that dies closes none of its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("known", "fresh"), some_and_whole((10, 20), (2_000, 2_000)))
def test_random_histories_of_mirrors_keep_every_promise(known: int, fresh: int, proved: Proved) -> None:
    calls, crashes = play_all(play, known, fresh, "random histories of mirrors", proved)
    assert crashes > (known + fresh) // 4
    assert calls > 100 * (known + fresh)


_place = PlaceStep.execute


def replacing_whatever_is_there() -> Patch:
    """A file is replaced without a look at what it replaces."""

    def execute(self: PlaceStep, context: StepContext) -> None:
        if self.replaces is None:
            _place(self, context)
        else:
            context.files.replace(self.source, self.target)

    return Patch(PlaceStep, "execute", execute)


def placing_over_whatever_is_there() -> Patch:
    """A new file is placed by a rename that overwrites."""

    def execute(self: PlaceStep, context: StepContext) -> None:
        if self.replaces is not None:
            _place(self, context)
        else:
            context.files.replace(self.source, self.target)

    return Patch(PlaceStep, "execute", execute)


def trash_that_is_thrown_away() -> Patch:
    """Files that were taken by mistake are not put back."""

    def close(files: Files, trash: str, *rest: object) -> None:
        files.remove_tree(trash)

    return Patch(deleting, "close_trash", close)


def outcome_before_the_trash_is_closed() -> Patch:
    """A trash stays open when its slot is done."""
    return Patch(CloseTrashStep, "execute", lambda self, context: None)


def abandoning_without_fences() -> Patch:
    """A slot is abandoned, and its steps are not shut out."""

    def shut_out(self: Committer, decision: Decision, *, asked: bool = False) -> bool:
        return True

    return Patch(Committer, "_shut_out", shut_out)


def file_unlinked_where_it_is() -> Patch:
    """A file to be deleted is verified, and then unlinked."""

    def execute(self: DeleteStep, context: StepContext) -> None:
        if context.files.identity(self.path) == self.identity:
            context.files.unlink(self.path)

    return Patch(DeleteStep, "execute", execute)


def backup_that_is_forgotten() -> Patch:
    """Files that were replaced or deleted are removed, though they are to be kept."""

    def discard(files: Files, taken: str, backup: str) -> None:
        with suppress(FileNotFoundError):
            files.unlink(taken)

    return Patch(deleting, "discard", discard)


def fence_that_leaves_the_staged_file() -> Patch:
    """A slot is abandoned, and a late executor finds the staged file."""
    return Patch(PlaceStep, "fence", lambda self, context: FenceResult.HOLDS)


def fence_that_leaves_the_staged_folder() -> Patch:
    """A slot is abandoned, and a late executor finds the staged folder."""
    return Patch(PlaceFolderStep, "fence", lambda self, context: FenceResult.HOLDS)


def adopting_without_abort() -> Patch:
    """Finished copies are taken from a plan that can still be decided."""
    return Patch(Committer, "give_up", lambda self, plan, run, reason: True)


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    mutant.__name__: mutant
    for mutant in (
        replacing_whatever_is_there,
        placing_over_whatever_is_there,
        trash_that_is_thrown_away,
        outcome_before_the_trash_is_closed,
        abandoning_without_fences,
        file_unlinked_where_it_is,
        backup_that_is_forgotten,
        fence_that_leaves_the_staged_file,
        fence_that_leaves_the_staged_folder,
        adopting_without_abort,
    )
}


RARE = {adopting_without_abort.__name__}


@one_in(4)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name",
    # The rare one, which history 71 catches, is caught at less cost in `test_mirror_reuse.py`.
    [pytest.param(name, marks=pytest.mark.soak if name in RARE else ()) for name in MUTANTS],
)
def test_a_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = MUTANTS[name]()
    monkeypatch.setattr(patch.owner, patch.name, patch.value)
    for seed in range(300):
        try:
            play(seed)
        except Broken:
            return
    raise AssertionError(f"{name}: no history notices it")
