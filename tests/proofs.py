"""Reports of what the long proofs tried, made as they run, and kept on a page: `make proofs` writes `tests/benchmarks/proofs.md`.

The proofs are played in parts, one after the other, each in a process of pytest; `make proofs PART=matrix` plays one of them.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from tests.benchmarks.results import lines, machine
from tests.services.environment import ROOT

T = TypeVar("T")

PAGE = "GOBBLIN_PROOFS"
"""The environment variable that names the page's JSON file; without it nothing is kept."""
SEED = "GOBBLIN_SEED"
"""The environment variable that has the seed of `one_in`; without it, that is a fresh one."""
JSON = ROOT / "tests" / "benchmarks" / "proofs.json"
PARTS: Mapping[str, Sequence[str]] = {
    "histories": ["tests/protocol/test_histories.py"],
    "matrix": ["tests/protocol/test_crash_matrix.py"],
    "mutants": ["tests/protocol/test_mutants.py"],
    "interleavings": ["tests/protocol/test_interleavings.py"],
    "processes": ["tests/protocol/test_killed_tasks.py"],
    "pipelines": ["tests/protocol/pipelines"],
    "stages": ["tests/spark/test_pipeline_history.py", "tests/airflow/test_pipeline_history.py"],
    "mirrors": [
        "tests/protocol/test_mirror_histories.py",
        "tests/protocol/test_mirror_reuse.py",
        "tests/protocol/test_object_histories.py",
        "tests/copy/test_changing_sources.py",
    ],
    "mirror-acts": ["tests/protocol/test_mirror_acts.py"],
    "mirror-matrix": ["tests/protocol/test_mirror_matrix.py"],
    "airflow": [
        "tests/airflow/test_killing.py",
        "tests/airflow/test_clearing.py",
        "tests/airflow/test_clearing_anything.py",
    ],
    "kafka": ["tests/spark/test_kafka_history.py"],
    "tables": [
        "tests/protocol/test_lake_histories.py",
        "tests/protocol/test_table_histories.py",
        "tests/protocol/test_table_matrix.py",
        "tests/tables/test_many_files.py",
        "tests/tables/test_merge_histories.py",
    ],
}
"""Files and folders of tests, by part. The long runs of `make soak` are in none."""
TWO_AT_ONCE = frozenset(["mirrors", "mirror-acts", "tables"])
"""The parts whose proofs take one core each; the others use both."""
MOST_SECONDS = 7200
"""A proof that runs for so long fails: on a busy machine it takes several times as long as on a free one."""
UNKNOWN, CHANGES = "unknown", " and changes"
"""The name of the commit outside of a checkout, and the addition to a name where there are further changes."""
_FRESH = range(1_000_000, 1_000_000_000)
"""The range of fresh seeds: beyond those that are played each time."""


def fresh_seed() -> int:
    """A seed that was hardly ever used before; print it, so that its results can be reproduced."""
    return random.SystemRandom().choice(_FRESH)


def sampled(cases: Sequence[T], share: int, seed: int) -> list[T]:
    """One case in `share`, in their order: all of them for a share of one."""
    if share == 1:
        return [*cases]
    chosen = random.Random(seed).sample(range(len(cases)), -(-len(cases) // share))
    return [cases[n] for n in sorted(chosen)]


def some_and_whole(some: Sequence[object], whole: Sequence[object], of: str = "") -> list[Any]:
    """The two sizes of a proof, as parameters: `make test` plays some of it, `make proofs` the whole.

    :param of: the beginning of their ids, where a test has several proofs.
    """
    before = f"{of}-" if of else ""
    return [
        pytest.param(*some, id=f"{before}some", marks=pytest.mark.other_size),
        pytest.param(*whole, id=f"{before}whole", marks=pytest.mark.soak),
    ]


def shares(share: int) -> pytest.MarkDecorator:
    """Give a test its `share` for `sampled`: `make test` tries one case in so many, `make proofs` all of them."""
    return pytest.mark.parametrize("share", some_and_whole([share], [1]))


def one_in(share: int, of: str = "") -> pytest.MarkDecorator:
    """Let `make test` play one case in `share`, by chance; `make soak` and `make proofs` play all. Quick cases are always played.

    For what is tried whole elsewhere too, such as a suite that other storage passes, and for deliberate faults.

    :param of: the parameter of whose values one in so many is played, with each of the others; without it, cases are those of
        the class or of the test that is marked.
    """
    return pytest.mark.one_in(share, of)


def case_seed() -> int:
    """The seed by which cases are chosen, a fresh one each time; also in the processes that this one starts."""
    return int(os.environ.setdefault(SEED, str(fresh_seed())))


def pytest_report_header() -> str:
    return f"{SEED}={case_seed()} chooses the cases of tests that are played in part"


def leave_to_soak(items: Sequence[pytest.Item], markexpr: str) -> None:
    """Mark the slow cases that aren't chosen as `soak`.

    :param markexpr: of pytest; none is chosen if it asks for `soak`.
    """
    groups: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is None or item.get_closest_marker("soak") is not None:
            continue
        callspec = getattr(item, "callspec", None)
        values = {} if callspec is None else dict(callspec.params)
        for node, mark in item.iter_markers_with_node("one_in"):
            share, of = mark.args
            if not of:
                groups[_without_values(node.nodeid), share].append(item)
            elif of in values:
                others = {name: value for name, value in values.items() if name != of}
                groups[f"{_without_values(item.nodeid)} {others}", share].append(item)
    chance = random.Random(case_seed())
    for (_, share), cases in groups.items():
        chosen = sampled(cases, share, chance.randrange(1 << 30)) if "not soak" in markexpr else []
        for item in {*cases}.difference(chosen):
            item.add_marker(pytest.mark.soak)


def _without_values(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def expect_none_broken(broken: Sequence[str]) -> None:
    """Fail with the first of the cases that broke a promise. The first line names one: the summary at a log's end has no more.

    :param broken: what broke, as text, each with its case first.
    :raises AssertionError: there is one.
    """
    assert not broken, "\n\n".join([*broken[:3], f"{len(broken)} broke a promise"])


def chosen_by(share: int, seed: int) -> str:
    """How `sampled` chose, for the page."""
    return "all" if share == 1 else f"one in {share}, seed {seed}"


class Proved(Protocol):
    """Report what a proof tried."""

    def __call__(self, what: str, figures: str, seeds: str, *, details: Sequence[str] = ()) -> None:
        """:param figures: how much was tried, and how much of it broke a promise.
        :param details: for the reader of the log.
        """


@dataclass(frozen=True)
class Proof:
    """A line of the page.

    :param seeds: of chance, or how the cases are chosen without any.
    :param test: pytest's id of it.
    :param commit: of the code that it ran on.
    """

    what: str
    figures: str
    seeds: str
    seconds: float
    test: str
    date: str
    commit: str

    @property
    def part(self) -> str:
        """The part that the test is in; empty if it is in none."""
        file = Path(self.test.partition("::")[0])
        return next((part for part, paths in PARTS.items() if any(file.is_relative_to(path) for path in paths)), "")


@dataclass(frozen=True)
class PartRun:
    """The last run of a part.

    :param started: when it was, in UTC.
    :param result: in words.
    """

    part: str
    started: str
    commit: str
    machine: str
    minutes: float = 0.0
    result: str = "not finished"


@dataclass(frozen=True)
class Page:
    """The last run of each part, and the proofs that held in it."""

    runs: Sequence[PartRun] = ()
    proofs: Sequence[Proof] = ()

    def with_proof(self, proof: Proof) -> Page:
        """The page with a proof in the place of the one of the same test."""
        return replace(self, proofs=[*(p for p in self.proofs if p.test != proof.test), proof])

    def with_run(self, run: PartRun) -> Page:
        """The page with a run in the place of the one of the same part."""
        return replace(self, runs=[*(r for r in self.runs if r.part != run.part), run])

    def begun(self, run: PartRun, valid: Sequence[Proof] = ()) -> Page:
        """The page when a part begins: without its proofs, lest one stay that breaks now or whose test is gone.

        :param valid: those that stay, as they aren't played again.
        """
        kept = [p for p in self.proofs if p.part not in (run.part, "") or p in valid]
        return Page([r for r in self.runs if r.part in PARTS], kept).with_run(run)

    def valid_proofs(self, run: PartRun) -> Sequence[Proof]:
        """The proofs of a run's part that held on its commit, if that is all that they ran on."""
        is_exact = run.commit != UNKNOWN and not run.commit.endswith(CHANGES)
        return [p for p in self.proofs if is_exact and (p.part, p.commit) == (run.part, run.commit)]

    def going_on(self, run: PartRun) -> PartRun:
        """A run as the rest of the one before, if that was on the same commit."""
        before = next((r for r in self.runs if (r.part, r.commit) == (run.part, run.commit)), run)
        return replace(run, started=before.started, minutes=before.minutes)


def proof_of(what: str, figures: str, seeds: str, seconds: float, test: str) -> Proof:
    """A proof of today.

    :param test: pytest's id of it.
    """
    return Proof(what, figures, seeds, round(seconds, 1), test, f"{datetime.now(UTC):%Y-%m-%d}", commit())


@cache
def commit() -> str:
    """The commit of this checkout when it was first asked for, and whether anything but the page was changed since."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return UNKNOWN
    status = [*git, "status", "--porcelain", "--", ".", f":!{JSON.relative_to(ROOT).with_suffix('.*')}"]
    changes = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    return head.stdout.strip() + (CHANGES if changes else "")


def keep(change: Callable[[Page], Page], path: Path) -> None:
    """Change the page in a JSON file, and the one for readers beside it. Several processes may do so at once."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        page = change(_page(file.read()))
        order = {part: number for number, part in enumerate(PARTS)}
        page = Page(
            sorted(page.runs, key=lambda run: order.get(run.part, -1)),
            sorted(page.proofs, key=lambda proof: (order.get(proof.part, -1), proof.test)),
        )
        file.truncate(0)
        file.write(json.dumps(asdict(page), indent=1) + "\n")
        path.with_suffix(".md").write_text(_markdown(page))


def page_in(path: Path) -> Page:
    """The page in a JSON file; an empty one, if there is no file."""
    return _page(path.read_text() if path.exists() else "")


def _page(text: str) -> Page:
    found = json.loads(text or "{}")
    runs, proofs = (found.get(name, []) for name in ("runs", "proofs"))
    return Page([PartRun(**run) for run in runs], [Proof(**proof) for proof in proofs])


def _markdown(page: Page) -> str:
    missing = ", ".join(part for part in PARTS if part not in {run.part for run in page.runs})
    runs = [("part", "started (UTC)", "commit", "minutes", "result", "machine")]
    runs += [(r.part, r.started, r.commit, f"{r.minutes:g}", r.result, r.machine) for r in page.runs]
    proofs = [("part", "what was tried", "figures", "seeds", "seconds", "date", "commit", "test")]
    proofs += [
        (p.part, p.what, p.figures, p.seeds, f"{p.seconds:g}", p.date, p.commit, f"`{p.test}`") for p in page.proofs
    ]
    return (
        "# Proofs\n\nCases that the proofs of exactly-once tried, and how they ended: written by `make proofs`. The promises\n"
        "that are checked after each case are in the README. A proof that broke has no line. To play one again:\n"
        "`.venv/bin/python -m pytest -m '' --timeout=0 TEST`.\n"
        f"{f'Parts that have not run: {missing}.{chr(10)}' if missing else ''}\n{lines(runs)}\n{lines(proofs)}"
    )


_HELD = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_HELD] = report.passed
    return report


@pytest.fixture
def proved(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator[Proved]:
    """Report what a proof tried, and keep it if it held and a page is requested."""
    started = time.monotonic()
    found: list[Proof] = []
    commit()  # the code as it is now, before the proof runs

    def report(what: str, figures: str, seeds: str, *, details: Sequence[str] = ()) -> None:
        proof = proof_of(what, figures, seeds, time.monotonic() - started, request.node.nodeid)
        with capsys.disabled():
            print(f"\n{what}: {figures}; {seeds}; in {proof.seconds:.0f} s", *details, sep="\n  ")
        found.append(proof)

    yield report
    if (page := os.environ.get(PAGE)) and request.node.stash.get(_HELD, False):
        for proof in found:
            keep(partial(Page.with_proof, proof=proof), ROOT / page)


def play(part: str, path: Path, *, rest: bool = False) -> bool:
    """Play a part in a process of pytest, and keep how it ended.

    :param rest: whether proofs that have a line of this commit count, and aren't played again.
    :return: whether all of it held.
    """
    run = PartRun(part, f"{datetime.now(UTC):%Y-%m-%d %H:%M}", commit(), machine())
    before = page_in(path)
    valid = before.valid_proofs(run) if rest else []
    run = before.going_on(run) if valid else run
    keep(lambda page: page.begun(run, valid), path)
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-m", "not other_size", *PARTS[part]]
    command += [f"--deselect={proof.test}" for proof in valid]
    command += ["-n", "2", "--dist", "worksteal"] if part in TWO_AT_ONCE else []
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, PAGE: str(path)}, check=False).returncode
    held = code == 0 or (bool(valid) and code == pytest.ExitCode.NO_TESTS_COLLECTED)
    minutes = round(run.minutes + (time.monotonic() - started) / 60, 1)
    ended = replace(run, minutes=minutes, result="all held" if held else "FAILED")
    keep(lambda page: page.with_run(ended), path)
    return held


def main() -> int:
    """Play the proofs, all parts or those that are named, and write the page."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--rest", action="store_true", help="without the proofs that have a line of this commit")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    failed = [part for part in asked.parts or PARTS if not play(part, JSON, rest=asked.rest)]
    print(f"proofs: {', '.join(failed)} failed" if failed else "proofs: all held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
