"""Random histories of mirrors, and faults in the product that they catch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.journal.records import Decision
from airflow_gobblin.steps import deleting
from airflow_gobblin.steps.base import StepContext
from airflow_gobblin.steps.deleting import CloseTrashStep
from airflow_gobblin.steps.placing import PlaceStep, ReplaceStep
from airflow_gobblin.storage.files import FileIdentity, Files
from tests.proofs import Proved, fresh_seed
from tests.protocol.mirror_histories import Broken, play
from tests.protocol.mutants import Patch

# A process that dies closes none of its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("known", "fresh"), [pytest.param(25, 25, id="some"), pytest.param(5_000, 5_000, id="many", marks=pytest.mark.soak)]
)
def test_random_histories_of_mirrors_keep_every_promise(known: int, fresh: int, proved: Proved) -> None:
    first = fresh_seed()
    seeds = [*range(known), *range(first, first + fresh)]
    calls = crashes = 0
    for seed in seeds:
        history = play(seed)
        calls, crashes = calls + history.calls, crashes + history.crashes
    proved(
        "random histories of mirrors",
        f"{len(seeds)} histories with {calls:,} calls and {crashes} crashes; 0 broke a promise",
        f"seeds 0 to {known - 1}, and {first} to {seeds[-1]}",
    )
    assert crashes > len(seeds) // 4
    assert calls > 100 * len(seeds)


def replacing_whatever_is_there() -> Patch:
    """A file is replaced without a look at what it replaces."""

    def execute(self: ReplaceStep, context: StepContext) -> None:
        context.files.replace(self.source, self.target)

    return Patch(ReplaceStep, "execute", execute)


def placing_over_whatever_is_there() -> Patch:
    """A new file is placed by a rename that overwrites."""

    def execute(self: PlaceStep, context: StepContext) -> None:
        context.files.replace(self.source, self.target)

    return Patch(PlaceStep, "execute", execute)


def trash_that_is_thrown_away() -> Patch:
    """What was taken by mistake is not put back."""

    def close(files: Files, trash: str, closing: str, path: str, identity: FileIdentity) -> None:
        files.remove_tree(trash)

    return Patch(deleting, "_close", close)


def outcome_before_the_trash_is_closed() -> Patch:
    """A trash stays open when its slot is done."""
    return Patch(CloseTrashStep, "execute", lambda self, context: None)


def abandoning_without_fences() -> Patch:
    """A slot is abandoned, and its steps are not shut out."""

    def shut_out(self: Committer, decision: Decision) -> bool:
        return True

    return Patch(Committer, "_shut_out", shut_out)


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    mutant.__name__: mutant
    for mutant in (
        replacing_whatever_is_there,
        placing_over_whatever_is_there,
        trash_that_is_thrown_away,
        outcome_before_the_trash_is_closed,
        abandoning_without_fences,
    )
}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = MUTANTS[name]()
    monkeypatch.setattr(patch.owner, patch.name, patch.value)
    for seed in range(300):
        try:
            play(seed)
        except Broken:
            return
    raise AssertionError(f"{name}: no history notices it")
