"""The page of the proofs, and the parts in which they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import proofs
from tests.proofs import Page, PartRun, Proof, expect_none_broken, keep, proof_of
from tests.services.environment import ROOT, TEMPORARY

MATRIX, HISTORIES = (f"{proofs.PARTS[part][0]}::test_it" for part in ("matrix", "histories"))


def add(path: Path, *some: Proof) -> None:
    for proof in some:
        keep(partial(Page.with_proof, proof=proof), path)


def begin(path: Path, part: str) -> PartRun:
    run = PartRun(part, "2026-11-23 20:00", "abc1234", "a machine")
    keep(lambda page: page.begun(run), path)
    return run


def rows(path: Path) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in path.with_suffix(".md").read_text().splitlines() if "::" in line]


def test_a_proof_takes_the_place_of_its_last_run(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    add(path, proof_of("matrix", "9 points", "all", 2.0, MATRIX))
    add(path, *(proof_of("histories", f"{number} played", "some seeds", 1.0, HISTORIES) for number in (4, 8)))
    histories, matrix = rows(path)
    today = f"{proof_of('', '', '', 0, '').date}"
    assert matrix == ["matrix", "matrix", "9 points", "all", "2", today, proofs.commit(), f"`{MATRIX}`"]
    assert histories[:3] == ["histories", "histories", "8 played"]


def test_a_part_begins_without_its_proofs_and_those_that_are_in_no_part(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    add(path, *(proof_of("it", "1", "all", 1.0, test) for test in (MATRIX, HISTORIES, "tests/gone.py::test_it")))
    begin(path, "matrix")
    assert [row[0] for row in rows(path)] == ["histories"]


def test_the_page_shows_when_each_part_ran(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    run = begin(path, "matrix")
    page = path.with_suffix(".md")
    assert "| matrix | 2026-11-23 20:00 | abc1234 | 0 | not finished | a machine |" in page.read_text()
    missing = ", ".join(part for part in proofs.PARTS if part != "matrix")
    assert f"Parts that have not run: {missing}.\n" in page.read_text()
    keep(lambda page: page.with_run(PartRun(run.part, run.started, run.commit, run.machine, 3.5, "all held")), path)
    assert "| matrix | 2026-11-23 20:00 | abc1234 | 3.5 | all held | a machine |" in page.read_text()


def test_several_processes_keep_proofs_at_once(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    some = [proof_of("it", "1", "all", 1.0, f"{MATRIX}[{number}]") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(partial(add, path), some)]
    assert len(rows(path)) == 40


PROOF = """
import pytest

from tests.proofs import Proved, some_and_whole

@pytest.mark.parametrize("size", some_and_whole([1], [2]))
@pytest.mark.parametrize("holds", [True, False])
def test_it(size: int, holds: bool, proved: Proved) -> None:
    proved("it", f"{size} tried", "all")
    assert holds
"""


@pytest.fixture
def page_of_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page of a part "it", which has `PROOF`. In the checkout, as all parts are: pytest takes its settings from there."""
    TEMPORARY.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=TEMPORARY) as folder:
        (Path(folder) / "test_it.py").write_text(PROOF)
        monkeypatch.setattr(proofs, "PARTS", {"it": [str(Path(folder).relative_to(ROOT))]})
        monkeypatch.setenv("PYTEST_PLUGINS", "tests.proofs")
        yield Path(folder) / "proofs.json"


@pytest.mark.slow
def test_of_the_wholes_that_run_only_what_held_is_kept(page_of_it: Path) -> None:
    path = page_of_it
    assert not proofs.play("it", path)
    page = json.loads(path.read_text())
    assert [run["result"] for run in page["runs"]] == ["FAILED"]
    (held,) = page["proofs"]
    assert held["figures"] == "2 tried"
    assert held["test"].endswith("test_it.py::test_it[True-whole]")


@pytest.mark.slow
def test_the_rest_of_a_part_is_without_what_held_on_the_same_commit(
    page_of_it: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = page_of_it
    assert not proofs.play("it", path)
    (held,) = proofs.page_in(path).proofs
    monkeypatch.setattr(proofs, "commit", lambda: "abc1234")
    fails = held.test.replace("[True-", "[False-")
    add(path, replace(held, test=fails, commit="abc1234"))
    keep(lambda page: page.with_run(PartRun("it", "2026-11-23 20:00", "abc1234", "a machine", 30.0)), path)
    assert proofs.play("it", path, rest=True)
    (run,) = proofs.page_in(path).runs
    assert (run.started, run.result) == ("2026-11-23 20:00", "all held")
    assert run.minutes >= 30
    assert {proof.test for proof in proofs.page_in(path).proofs} == {held.test, fails}
    add(path, replace(held, commit="abc1234"))
    assert proofs.play("it", path, rest=True), "nothing is left to play"
    monkeypatch.setattr(proofs, "commit", lambda: "def5678")
    assert not proofs.play("it", path, rest=True), "on another commit nothing is valid"


@pytest.mark.parametrize("commit", [proofs.UNKNOWN, f"abc1234{proofs.CHANGES}", "def5678"])
def test_a_proof_counts_for_the_rest_only_on_a_commit_without_changes(commit: str) -> None:
    run = PartRun("matrix", "2026-11-23 20:00", commit, "a machine")
    proof = replace(proof_of("matrix", "9 points", "all", 2.0, MATRIX), commit="abc1234")
    same = replace(proof, test=f"{MATRIX}[same]", commit=commit)
    page = Page([], [proof, same])
    assert [*page.valid_proofs(run)] == ([same] if commit == "def5678" else [])
    assert page.begun(run, page.valid_proofs(run)).proofs == page.valid_proofs(run)
    assert page.begun(run).proofs == []


CASES = """
import pytest

from tests import proofs
from tests.proofs import one_in

pytestmark = [pytest.mark.slow, one_in(2, "place")]

@pytest.mark.parametrize("place", "abcd")
@pytest.mark.parametrize("kind", "xyz")
def test_every_kind(kind, place): ...

@one_in(3)
class TestSome:
    @pytest.mark.parametrize("number", range(9))
    def test_it(self, number): ...

    @pytest.mark.soak
    def test_long(self): ...

def test_alone(): ...
"""
HOOK = """
from tests import proofs

def pytest_collection_modifyitems(config, items):
    proofs.leave_to_soak(items, config.option.markexpr)
"""


@pytest.mark.slow
def test_some_cases_are_left_to_soak_by_chance_and_none_for_good(tmp_path: Path) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    (tmp_path / "conftest.py").write_text(HOOK)

    def collected(marks: str, seed: int) -> set[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marks, str(tmp_path)]
        environment = {**os.environ, proofs.SEED: str(seed)}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
        return {name for _, found, name in (line.partition("::") for line in done.stdout.splitlines()) if found}

    played, again, others = (collected("not soak", seed) for seed in (1, 1, 2))
    assert played == again
    assert played != others
    for some in (played, others):
        kinds = [name[-4] for name in some if name.startswith("test_every_kind")]
        assert sorted(kinds) == ["x", "x", "y", "y", "z", "z"], "each with half of the places"
        assert len([name for name in some if name.startswith("TestSome::")]) == 3
        assert "test_alone" in some
    left = collected("soak", 1)
    assert len(left) == 3 * 4 + 9 + 1, "all of them"
    assert collected("not other_size", 1) == left | {"test_alone"}


@pytest.mark.slow
def test_an_unknown_part_is_refused() -> None:
    command = [sys.executable, "-m", "tests.proofs", "matrix", "martix"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "there is no part martix; there are histories, matrix, " in refused.stderr


def test_every_proof_is_in_one_part() -> None:
    """But for those that `make soak` plays for as long as it is asked to."""
    files = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if "proved: Proved" in file.read_text() and file.name not in ("test_soak.py", Path(__file__).name)
    }
    for file in files:
        parts = [part for part, paths in proofs.PARTS.items() if any(Path(file).is_relative_to(p) for p in paths)]
        assert len(parts) == 1, f"{file} is to be in one part of tests/proofs.py, and is in {parts}"


def test_a_failure_begins_with_the_first_case_that_broke_a_promise() -> None:
    expect_none_broken([])
    with pytest.raises(AssertionError, match=r"\Ahistory 4: a row is lost\n[\s\S]*\n\n5 broke a promise"):
        expect_none_broken([f"history {n}: a row is lost\nits story" for n in range(4, 9)])
