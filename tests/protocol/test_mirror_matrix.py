"""The crash matrix of mirrors. `mirror_matrix` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from tests.proofs import Proved, chosen_by, expect_none_broken, fresh_seed, one_in, sampled, shares
from tests.protocol import mirror_matrix
from tests.protocol.matrix import Pool, carrying_out
from tests.protocol.mirror_matrix import KINDS, Kind, MirrorStart, MirrorTrial
from tests.protocol.test_mirror_histories import MUTANTS


@pytest.mark.timeout(3600)
@one_in(3, "kind")
@shares(450)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_call_of_a_mirror_with_every_fault(
    kind: Kind, share: int, pool: Pool, tmp_path: Path, proved: Proved
) -> None:
    seed = fresh_seed()
    start = pool.call(mirror_matrix.start, tmp_path, kind)
    trials = [*mirror_matrix.trials(start.calls)]
    pauses = [*mirror_matrix.pauses(start.calls)]
    tally = pool.run(start, tmp_path, [*sampled(trials, share, seed), *sampled(pauses, share, seed)])
    proved(
        f"crash matrix of a mirror, {kind.name}",
        f"{len(start.calls)} calls, {len(trials)} faults and ways to go on, {len(pauses)} pauses, {tally.trials} tried; "
        f"{len(tally.broken)} broke a promise",
        chosen_by(share, seed),
    )
    assert len(start.calls) >= 600
    seen = {call.operation for call in start.calls}
    assert {"copy", "replace", "move_folder", "set_folder", "set_file", "link" if kind.linked else "rename_new"} <= seen
    expect_none_broken(tally.broken)


CAUGHT = (
    "replacing_whatever_is_there",
    "trash_that_is_thrown_away",
    "outcome_before_the_trash_is_closed",
    "abandoning_without_fences",
    "file_unlinked_where_it_is",
    "backup_that_is_forgotten",
    "fence_that_leaves_the_staged_file",
)
"""The mutants of the histories that need no outsider. Where folders are placed, `mirror_acts` is stricter."""


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CAUGHT)
def test_the_matrix_catches(name: str, pool: Pool, tmp_path: Path) -> None:
    start = pool.call(mirror_matrix.start, tmp_path, KINDS[1])
    first, _ = carrying_out(start.calls)
    cases = [case for case in mirror_matrix.trials(start.calls) if case.point.at >= first]
    assert pool.call(first_caught, name, start, tmp_path / "w", sampled(cases, 8, 1))


def first_caught(name: str, start: MirrorStart, folder: Path, cases: Sequence[MirrorTrial]) -> str:
    """The first of some cases that notices a mutant; empty if none does."""
    folder.mkdir()
    patch = MUTANTS[name]()
    with mock.patch.object(patch.owner, patch.name, patch.value):
        for case in cases:
            try:
                case.run(start, folder / "case")
            except AssertionError as broken:
                if "was recorded, there was now" not in str(broken):
                    return f"{case}: {broken}"
    return ""
