"""The crash matrix of mirrors. `mirror_matrix` describes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs import Proved, chosen_by, fresh_seed, sampled, shares
from tests.protocol import mirror_matrix
from tests.protocol.matrix import Pool
from tests.protocol.mirror_matrix import KINDS, Kind


@pytest.mark.timeout(3600)
@shares(300)
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
    assert not tally.broken, f"{len(tally.broken)} of {tally.trials}:\n" + "\n".join(tally.broken[:5])
