"""The crash matrix of tables. `table_matrix` describes it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proofs import Proved, chosen_by, expect_none_broken, fresh_seed, one_in, sampled, shares
from tests.protocol.table_matrix import KINDS, Kind, Pause, Way, begun, cases, play_all
from tests.tables.test_mutants import fence_without_a_new_head, retry_of_the_library, undo_of_a_standing_commit

# A process that dies closes none of its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.timeout(3600)
@one_in(2, "kind")
@shares(90)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_call_of_a_run_to_tables_with_every_fault(
    kind: Kind, share: int, tmp_path: Path, proved: Proved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    seed = fresh_seed()
    start = begun(kind, uuid.uuid4().hex, str(tmp_path / "lake") if kind.location else "")
    every = [*cases(start.calls)]
    some = sampled(every, share, seed)
    broken = play_all(start, some)
    proved(
        f"crash matrix of tables, {kind.name}",
        f"{len(start.calls)} calls, {len(every)} faults and pauses with the ways to go on, {len(some)} tried; "
        f"{len(broken)} broke a promise",
        chosen_by(share, seed),
    )
    assert {"look", "commit"} <= {call.operation for call in start.calls}
    expect_none_broken(broken)


CAUGHT = (
    (retry_of_the_library, Way.RETRY),
    (fence_without_a_new_head, Way.ABANDON),
    (undo_of_a_standing_commit, Way.ABANDON),
)


@one_in(3)
@pytest.mark.parametrize(("mutate", "way"), CAUGHT, ids=lambda one: getattr(one, "__name__", ""))
def test_the_matrix_catches(
    mutate: Callable[[pytest.MonkeyPatch], None], way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the run is held up at a commit, or after one."""
    start = begun(KINDS[0], uuid.uuid4().hex)
    at = {number for number, call in enumerate(start.calls) if call.operation == "commit"}
    every = (case for case in cases(start.calls) if isinstance(case, Pause) and case.way is way)
    some = [case for case in every if any(0 <= case.at - commit < 12 for commit in at)]
    assert not play_all(start, some)
    mutate(monkeypatch)
    assert play_all(start, some)
