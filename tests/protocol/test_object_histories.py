"""Random histories of a mirror to S3, and faults in the product that they catch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_gobblin.steps.base import FenceResult, StepContext
from airflow_gobblin.steps.placing import PlaceUploadStep, PutStep
from tests.proofs import Proved, some_and_whole
from tests.protocol.mirror_histories import play_all
from tests.protocol.mutants import Patch
from tests.protocol.object_histories import Broken, ObjectHistory
from tests.services.s3 import S3Server

# A process that dies closes none of its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def play(versitygw: S3Server, bucket: str, tmp_path: Path) -> Callable[[int], ObjectHistory]:
    """Play a history, in a place of its own."""

    def play(seed: int) -> ObjectHistory:
        history = ObjectHistory(versitygw.access, f"{bucket}/{seed}", tmp_path / f"{seed}", seed)
        history.play()
        return history

    return play


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("known", "fresh"), some_and_whole((2, 2), (100, 100)))
def test_random_histories_of_mirrors_to_s3_keep_every_promise(
    known: int, fresh: int, play: Callable[[int], ObjectHistory], proved: Proved
) -> None:
    calls, _ = play_all(play, known, fresh, "random histories of mirrors to S3", proved)
    assert calls > 20 * (known + fresh)


def putting_over_whatever_is_there() -> Patch:
    """A new object is put over whatever is there."""
    execute = PutStep.execute

    def over(self: PutStep, context: StepContext) -> None:
        if context.files.identity(self.target) is not None:
            context.files.unlink(self.target)
        execute(self, context)

    return Patch(PutStep, "execute", over)


def fence_that_leaves_the_upload() -> Patch:
    """A slot is abandoned, and a late process can still complete its uploads."""
    return Patch(PlaceUploadStep, "fence", lambda self, context: FenceResult.HOLDS)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "mutant", [putting_over_whatever_is_there, pytest.param(fence_that_leaves_the_upload, marks=pytest.mark.soak)]
)
def test_a_fault_is_caught(
    mutant: Callable[[], Patch], play: Callable[[int], ObjectHistory], monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = mutant()
    monkeypatch.setattr(patch.owner, patch.name, patch.value)
    for seed in range(60):
        try:
            play(seed)
        except Broken:
            return
    raise AssertionError("no history notices it")
