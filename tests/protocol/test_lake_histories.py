"""Histories of real tables with kills, read by others after every run."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from tests.proofs import Proved, fresh_seed, one_in, some_and_whole
from tests.protocol.lake_formats import FORMATS, open_format
from tests.protocol.lake_histories import Lake

# A process that dies closes none of its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("runs", "at_once", "real_kills"), some_and_whole((7, 7, 0.3), (70, 14, 0.2)))
@one_in(3, "of")
@pytest.mark.parametrize("of", FORMATS)
def test_every_reader_finds_the_rows_of_the_journal(
    of: str, runs: int, at_once: int, real_kills: float, tmp_path: Path, proved: Proved, request: pytest.FixtureRequest
) -> None:
    """:param at_once: how many runs a history has.
    :param real_kills: the share that processes of their own carry out.
    """
    first, kills = fresh_seed(), 0
    readers: tuple[str, ...] = ()
    for seed in range(first, first + runs // at_once):
        print(f"seed {seed}")
        if of == "postgres":
            opened = open_format(of, request.getfixturevalue("new_database")())
        else:
            opened = open_format(of, str(tmp_path / f"{seed}" / "tables"), request.getfixturevalue("spark_of_tables"))
        lake = Lake(opened, tmp_path / f"{seed}", seed)
        with mock.patch("os.fsync"):
            lake.play(at_once, real_kills)
        kills, readers = kills + lake.kills, tuple(lake.of.readers)
    proved(
        f"histories of tables with kills, {of}",
        f"{runs} runs, {kills} of which died; read after each by {', '.join(readers)}: all agree with the journal",
        f"seeds {first} to {first + runs // at_once - 1}",
    )
