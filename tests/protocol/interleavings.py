"""All interleavings of two attempts within a bound, with a crash of one of them at every call, or none.

Two attempts of the commit stages work on one dataset: of one plan, of two plans that compete, or one of them against a person.
At each call of a store or of the file system the other one may take over. Within the bounds of `BOUNDS` every order is tried,
and in some of them every crash; after each, all promises hold, and a last run finds and publishes everything missing (once from
each state that the two may leave: many orders leave the same one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.journal import journal
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.rows.sinks.base import Layout
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing.memory_files import MemoryFiles, MemoryObjects
from airflow_gobblin.testing.memory_table import MemoryTable
from tests.faults import Call, Effect, Fault, FaultyFiles, FaultyStore
from tests.proofs import sampled
from tests.protocol import table_places
from tests.protocol.acts import Fences
from tests.protocol.attempts import Attempt, Determined, deterministic
from tests.protocol.mutants import mutated
from tests.protocol.rows import RowSource, Table
from tests.protocol.table_places import TablePlace
from tests.protocol.watched_tables import watching
from tests.protocol.world import NAME, Look, Process, Run

T = TypeVar("T")
Choose = Callable[[list["Scenario"]], list["Scenario"]]
WORKERS = 2
URN = "flights"
_MOST = 10_000
"""More calls than any attempt makes."""


@dataclass(frozen=True)
class Bound:
    """How many times the running attempt may change before one of them ends, and whether one of them crashes."""

    switches: int
    crash: bool


BOUNDS = (Bound(3, crash=False), Bound(2, crash=True))
FEW = (Bound(2, crash=False),)
"""For attempts that make many calls."""
FEW_WITH_CRASH = (Bound(1, crash=False), Bound(1, crash=True))
ACTS_BOUNDS = (Bound(2, crash=False), Bound(2, crash=True))
"""For attempts that make more calls than others."""


def source(rows: int) -> RowSource:
    return RowSource((Table(URN, ExtractKind.APPEND_ONLY, rows, unit_rows=4),))


@dataclass
class Place:
    """A store and a target in memory.

    :param layout: how the files of a dataset lie in its folder.
    :param acts: as of a `LineSink`.
    :param sources: what the source was until now.
    """

    store: MemoryStore
    files: MemoryFiles
    layout: Layout = Layout.FLAT
    acts: Fences | None = None
    sources: list[RowSource] = field(default_factory=list)

    def copy(self) -> Place:
        store = MemoryStore()
        for key in self.store.list(""):
            store.put_if_absent(key, self.store.get(key) or b"")
        return Place(store, self.files.copy(), self.layout, self.acts, [*self.sources])

    def state(self) -> int:
        """The state of the world, as a number that is equal for equal states."""
        records = ((key, self.store.get(key)) for key in self.store.list(""))
        return hash((*records, *self.files.content()))

    def process(self, rows: int, attempt: Attempt | None = None) -> Process:
        """A process of the product, whose calls an attempt makes."""
        if attempt is None:
            return Process(self.store, self.files, source(rows), self.layout, acts=self.acts)
        store, files = FaultyStore(self.store, attempt), FaultyFiles(self.files, attempt)
        return Process(store, files, source(rows), self.layout, acts=self.acts)

    def look(self) -> Look:
        return Look(Journal.create(self.store, NAME), self.files)

    def grow(self, rows: int) -> None:
        """Let the source have so many rows from now on."""
        self.sources.append(source(rows))


AnyPlace = Place | TablePlace
Work = Callable[[Any, Attempt], None]


@dataclass(frozen=True)
class Scenario:
    """The place that two attempts work on, and what each of them does."""

    name: str
    place: AnyPlace
    works: tuple[Work, Work]
    bounds: tuple[Bound, ...] = BOUNDS


def scenarios() -> Iterator[Scenario]:
    """The scenarios. Each begins with two rows published, and two or more that are extracted and not yet decided."""
    for kind, files, layout in (
        ("files", MemoryFiles(), Layout.FLAT),
        ("folders", MemoryFiles(), Layout.FOLDER_PER_UNIT),
        ("objects", MemoryObjects(), Layout.FLAT),
    ):
        place = begun(files, layout)
        plan = planned(place, "run 2", 4)
        rival = planned(place, "run 3", 6)
        mine, other = committing(plan, 4), committing(rival, 6)
        yield Scenario(f"one plan, twice ({kind})", place, (mine, mine))
        yield Scenario(f"two plans that compete ({kind})", place, (mine, other))
        decided = place.copy()
        decide(decided, plan, 4)
        yield Scenario(f"execute against abandon ({kind})", decided, (mine, abandon))
        yield Scenario(f"execute against finish of a rival ({kind})", decided, (mine, finishing(rival, 6)))
        yield Scenario(f"commit against rewind ({kind})", place, (mine, rewind))
        if kind == "files":  # a pause touches none
            yield Scenario("commit against pause", place, (mine, pause))
            yield Scenario("execute against pause, and then a rival", decided, (other, pause))
            yield Scenario("pause against pause", decided, (pause, pause))
            yield Scenario("commit against resume", paused(place), (mine, resume))
        yield Scenario(f"execute against abandon, runs and trimming ({kind})", decided, (mine, abandon_and_trim), FEW)
    yield from of_acts()
    yield from of_tables()


def of_acts() -> Iterator[Scenario]:
    """As the others, with steps in all phases and an act that is possible once only."""
    place = begun(MemoryFiles(), Layout.FLAT, acts=Fences.MARK)
    plan = planned(place, "run 2", 4)
    mine, decided = committing(plan, 4), place.copy()
    decide(decided, plan, 4)
    yield Scenario("acts of one plan, twice", decided, (mine, mine), ACTS_BOUNDS)
    yield Scenario("acts against abandon", decided, (mine, abandon), ACTS_BOUNDS)
    yield Scenario("acts abandoned twice", decided, (abandon, abandon), ACTS_BOUNDS)
    removing = begun(MemoryFiles(), Layout.FLAT, acts=Fences.REMOVAL)
    plan = planned(removing, "run 2", 4)
    decide(removing, plan, 4)
    yield Scenario("acts against abandon, by a removal", removing, (committing(plan, 4), abandon), FEW_WITH_CRASH)


def of_tables() -> Iterator[Scenario]:
    """As the others, with rows that are committed to a table in memory, whose calls are calls like all."""
    place = table_places.begun("interleavings")
    plan, rival = planned(place, "run 2", 4), planned(place, "run 3", 6)
    mine, other, decided = committing(plan, 4), committing(rival, 6), place.copy()
    decide(decided, plan, 4)
    yield Scenario("table: one plan, twice", decided, (mine, mine), ACTS_BOUNDS)
    yield Scenario("table: two plans that compete", place, (mine, other), FEW_WITH_CRASH)
    yield Scenario("table: execute against abandon", decided, (mine, abandon), ACTS_BOUNDS)
    yield Scenario("table: executed and abandoned, not cleaned up", decided, (mine, abandon_and_die), FEW_WITH_CRASH)
    yield Scenario("table: abandoned twice", decided, (abandon, abandon), ACTS_BOUNDS)
    yield Scenario("table: commit against rewind", place, (mine, rewind), FEW_WITH_CRASH)


def begun(files: MemoryFiles, layout: Layout, *, acts: Fences | None = None) -> Place:
    place = Place(MemoryStore(), files, layout, acts)
    place.store.put_if_absent(journal._ID, b"0" * 32)
    place.look().plant([URN])
    place.grow(2)
    Run("run 1").carry_out(lambda: place.process(2))
    return place


def planned(place: AnyPlace, name: str, rows: int) -> RunPlan:
    """A run up to its extract."""
    place.grow(rows)
    process, run = place.process(rows), Run(name)
    plan = create_work_units(process.opened, run.request)
    process.extract(plan, plan.packs[0], name[-1])
    return plan


def decide(place: AnyPlace, plan: RunPlan, rows: int) -> None:
    write_commit_steps(place.process(rows).opened, plan, plan.packs[0])


# The works of attempts


def committing(plan: RunPlan, rows: int) -> Work:
    def commit(place: AnyPlace, attempt: Attempt) -> None:
        opened = place.process(rows, attempt).opened
        write_commit_steps(opened, plan, plan.packs[0])
        for report in execute_commit_steps(opened, plan, plan.packs[0]):
            history = place.look().journal.history(URN)
            slot = history.by_token(plan.packs[0].datasets[0].token)
            committed = report.status == "committed"
            assert committed == (slot is not None and slot.done), f"it reports {report}, and its slot is {slot}"

    return commit


def finishing(plan: RunPlan, rows: int) -> Work:
    def end(place: AnyPlace, attempt: Attempt) -> None:
        finish(place.process(rows, attempt).opened, plan)

    return end


def person(place: AnyPlace, attempt: Attempt) -> Administration:
    return Administration(
        Journal.create(FaultyStore(place.store, attempt), NAME), FaultyFiles(place.files, attempt), "somebody"
    )


def abandon(place: AnyPlace, attempt: Attempt) -> None:
    person(place, attempt).abandon(URN, "for the test")


def abandon_and_die(place: AnyPlace, attempt: Attempt) -> None:
    """Abandon what is pending, and die before it is cleaned up."""
    opened = place.process(6, attempt).opened
    pending = opened.journal.history(URN).pending
    if pending is not None:
        opened.committer.abandon(pending, "", "somebody", "for the test")


def abandon_and_trim(place: AnyPlace, attempt: Attempt) -> None:
    """Abandon what is pending, and run until its slot is trimmed."""
    abandon(place, attempt)
    for rows in (6, 8, 10):
        place.grow(rows)
        Run(f"run {rows}").carry_out(lambda rows=rows: place.process(rows, attempt))  # type: ignore[misc]


def rewind(place: AnyPlace, attempt: Attempt) -> None:
    person(place, attempt).rewind(URN, LongWatermark(1), "for the test")


def pause(place: AnyPlace, attempt: Attempt) -> None:
    person(place, attempt).pause(URN, "for the test")
    assert place.look().journal.state(URN).paused is not None, "a person was told that it is paused"


def resume(place: AnyPlace, attempt: Attempt) -> None:
    person(place, attempt).resume(URN, "for the test")


def paused(place: Place) -> Place:
    """The place with its dataset paused."""
    place = place.copy()
    Administration(place.look().journal, place.files, "somebody").pause(URN, "for the test")
    return place


# One case


@dataclass(frozen=True)
class Case:
    """An order of two attempts.

    :param first: which one begins.
    :param blocks: how many calls are made between one change of the running attempt and the next; after the last of them the
        running attempt finishes, and then the other one.
    :param crash: the attempt that crashes, and at which of its calls.
    """

    first: int
    blocks: tuple[int, ...] = ()
    crash: tuple[int, int] | None = None


class Play:
    """A case being played: the rules of its two attempts.

    :param recovered: states that a last run was tried from.
    """

    def __init__(self, scenario: Scenario, case: Case, recovered: set[int]) -> None:
        self.case = case
        self.recovered = recovered
        self.place = scenario.place.copy()
        self.look = self.place.look()
        self.records = self.look.records()
        self.made = [0, 0]
        self.block: int | None = None
        self.switches = 0
        self.crashed = False
        self.broken: BaseException | None = None
        self.story: list[str] = []
        self.attempts = [
            Attempt(str(n), self, lambda attempt, work=work: work(self.place, attempt))  # type: ignore[misc]
            for n, work in enumerate(scenario.works)
        ]

    def run(self) -> None:
        """:raises AssertionError: a promise is broken."""
        running = self.case.first
        for block in (*self.case.blocks, None):
            self.block = block
            self.attempts[running].go_on()
            if self.attempts[running].ended:
                break
            self.switches += 1
            running = 1 - running
        self.block = None
        for attempt in self.attempts:
            if not attempt.ended:
                attempt.go_on()
            self.broken = self.broken or (attempt.error if attempt.failed else None)
        if self.broken is not None:
            raise self.broken
        self.check()
        state = self.place.state()
        if state in self.recovered:
            return
        if self.look.journal.state(URN).paused is not None:
            Administration(self.look.journal, self.place.files, "somebody").resume(URN, "for the test")
        last = self.place.sources[-1].tables[0].rows
        Run("last run").carry_out(lambda: self.place.process(last))
        self.check()
        self.look.check_complete(self.place.sources)
        left = self.look.leftovers()
        assert not left, f"staging is left over: {left}"
        self.recovered.add(state)

    @property
    def happened(self) -> bool:
        """Whether all of the case happened, and nothing ended before."""
        return self.switches == len(self.case.blocks) and self.crashed == (self.case.crash is not None)

    def before(self, attempt: Attempt, call: Call) -> Fault | None:
        number = int(attempt.name)
        if self.block == 0:
            attempt.pause()
        if self.block is not None:
            self.block -= 1
        if self.case.crash == (number, self.made[number]):
            self.crashed = True
            self.story.append(f"{number} crashes before {call.place} {call.operation} {call.subject}")
            return Fault.CRASH_BEFORE
        self.made[number] += 1
        self.story.append(f"{number} {call.place} {call.operation} {call.subject}")
        return None

    def observe(self, call: Call, do: Callable[[], T]) -> T:
        result = do()
        record = "/d/" in call.subject or "/o/" in call.subject
        if call.place == "store" and call.effect is Effect.PUT and result is True and record:
            try:
                self.check()
            except BaseException as error:
                self.broken = self.broken or error
        return result

    def check(self) -> None:
        self.look.check(self.place.sources)
        self.records = self.look.check_records(self.records)


# All cases


@dataclass
class Tally:
    """The results of some cases.

    :param cases: how many, by scenario.
    :param states: from how many a last run was tried, counted anew by each process.
    :param broken: the cases that broke a promise, as text.
    """

    cases: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    crashes: int = 0
    states: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def played(self) -> int:
        """How many cases in all."""
        return sum(self.cases.values())

    def add(self, other: Tally) -> None:
        self.states += other.states
        for name, number in other.cases.items():
            self.cases[name] = self.cases.get(name, 0) + number
        self.calls += other.calls
        self.crashes += other.crashes
        self.broken += other.broken


class Explorer:
    """Play a part of all cases of a scenario within a bound.

    :param part: which, of `parts` about equal ones.
    """

    def __init__(self, scenario: Scenario, bound: Bound, determined: Determined, part: int, parts: int) -> None:
        self._scenario = scenario
        self._bound = bound
        self._determined = determined
        self._part = part
        self._parts = parts
        self.recovered: set[int] = set()
        self.tally = Tally({scenario.name: 0})

    def explore(self) -> None:
        for first in (0, 1):
            if first == self._part % 2:  # without a change: every other part plays one of the two
                self._with_crashes(Case(first))
            # If a block of some calls doesn't happen, no longer one does.
            for block in range(self._part or self._parts, _MOST, self._parts):
                if not self._deeper(Case(first, (block,))):
                    break

    def _reaches(self, case: Case) -> bool:
        """Whether a case happens. It isn't counted: another part plays it."""
        play = Play(self._scenario, case, self.recovered)
        self._determined.begin(1)
        with suppress(Exception):
            play.run()
        return play.happened

    def _deeper(self, case: Case) -> bool:
        """Play a case, and those that continue it.

        :return: whether it happened.
        """
        if not self._with_crashes(case):
            return False
        if len(case.blocks) + 1 < self._bound.switches:
            for block in range(1, _MOST):
                if not self._deeper(Case(case.first, (*case.blocks, block))):
                    break
        return True

    def _with_crashes(self, case: Case) -> bool:
        if not self._bound.crash:
            return self._play(case)
        happened = self._reaches(case)
        for attempt in (0, 1) if happened else ():
            for at in range(_MOST):
                if not self._play(Case(case.first, case.blocks, (attempt, at))):
                    break
        return happened

    def _play(self, case: Case) -> bool:
        play = Play(self._scenario, case, self.recovered)
        self._determined.begin(1)
        try:
            play.run()
        except Exception as error:
            story = "\n".join(play.story)
            self.tally.broken.append(f"{self._scenario.name}, {case}: {type(error).__name__}: {error}\n{story}")
        if play.happened:
            self.tally.cases[self._scenario.name] += 1
            self.tally.calls += sum(play.made)
            self.tally.crashes += play.crashed
        return play.happened


def explore_part(part: int, name: str = "", parts: int = WORKERS, choose: Choose = list) -> Tally:
    """Play a part of all cases.

    :param name: the beginning of the scenarios' names.
    :param choose: among those.
    """
    tally = Tally()
    with deterministic() as determined, watching(MemoryTable):
        determined.stop_clock()  # so that equal states are equal
        determined.begin(0)
        every = [*scenarios()]  # all begin before any is played, lest an id be given twice
        for scenario in choose([scenario for scenario in every if scenario.name.startswith(name)]):
            for bound in scenario.bounds:
                explorer = Explorer(scenario, bound, determined, part, parts)
                explorer.explore()
                tally.add(replace(explorer.tally, states=len(explorer.recovered)))
    return tally


def first_broken(mutant: str, name: str) -> str | None:
    """A promise that breaks when the product has a deliberate fault.

    :param name: as `explore_part`.
    :raises AssertionError: it does so without the fault, too.
    """
    with mutated(mutant):
        found = explore_part(0, name).broken
    assert not explore_part(0, name).broken
    return found[0] if found else None


def explore(share: int = 1, of_scenarios: int = 1, seed: int = 0) -> Tally:
    """One case in `share` of one scenario in `of_scenarios`, chosen by a seed and spread over some processes."""
    tally, first = Tally(), WORKERS * (seed % share)
    explore_its = partial(explore_part, parts=WORKERS * share, choose=partial(sampled, share=of_scenarios, seed=seed))
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for part in pool.map(explore_its, range(first, first + WORKERS)):
            tally.add(part)
    return tally
