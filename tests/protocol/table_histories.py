"""Random histories of datasets in tables: several runs at once, late tasks, crashes, errors and lost answers at any call of the
journal, the workspace and the tables; people who abandon, rewind and replace; another ingestion that takes tables over, and its
former owner that takes them back; and what somebody else does to a table: rows that are added or deleted, compaction, expiry,
other columns, a table that is set back or dropped, an old copy of the journal.

At every moment a table has just what it must have by the journal of its owner, in multisets, and of what somebody else did
nothing is lost; while a table is set back or gone, nobody changes it, nor does an ingestion that has lost it to another owner; at
rest everything in the source is published, once.

    $ .venv/bin/python -m tests.protocol.table_histories SEED

plays one again. Each attempt of a task is a greenlet that may pause at any call, also within a commit.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar, cast
from unittest import mock

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.table import Mark
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess, memory_table
from airflow_gobblin.testing.memory_table import MemoryTable
from tests.faults import Call, Effect, Fault
from tests.protocol.attempts import Attempt, deterministic
from tests.protocol.table_world import FLIGHTS, PLANES, ColumnRows, TableWorld, source
from tests.protocol.watched_tables import watching

T = TypeVar("T")
_EVENTS = {
    "run": 5,
    "task": 3,
    "grow": 3,
    "person": 2,
    "outsider": 2,
    "kill": 1,
    "gone": 0.7,
    "copy": 0.7,
    "old_copy": 1,
    "take_over": 1.5,
    "go_on": 24,
}
_BY_PEOPLE = ("abandon", "rewind", "take over")
_AT_ONCE = 4
"""The most attempts at once."""


class Broken(AssertionError):
    """A promise is broken."""


class Turn(Attempt):
    """An attempt.

    :param left: how many calls it may make before it pauses.
    :param frozen: for how many events it is held up.
    """

    left = 0
    frozen = 0
    tokens: frozenset[str] = frozenset()
    """Of the plans that it works on."""

    def works_on(self, plan: RunPlan) -> None:
        self.tokens = frozenset(ref.token for pack in plan.packs for ref in pack.datasets)


class TableHistory:
    """One history. Everything that happens follows from its seed.

    :param location: a folder for data files; empty: tables take rows.
    """

    def __init__(self, seed: int, location: str = "") -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.world = TableWorld(f"history {seed}", location)
        self.worlds = [self.world, self.world.heir()] if seed % 2 else [self.world]
        """The ingestions into the tables."""
        self.rows, self.version, self.theirs = 3, 0, 0
        self.attempts: list[Turn] = []
        self.plans: list[tuple[TableWorld, RunPlan, ColumnRows]] = []
        self.copies: list[TableWorld] = []
        self.saved: dict[str, list[memory_table._State]] = {urn: [] for urn in self.world.urns}
        """Copies of tables, the newest last: one after each act."""
        self.copied_tokens: set[str] = set()
        """The tokens of copies, whose journals are thrown away."""
        self.log: list[str] = []
        self.calls = self.crashes = self.decided = 0
        self.peace = self.unwatched = False
        self.broken: BaseException | None = None

    @property
    def source(self) -> ColumnRows:
        """The source as it is now."""
        return source(self.world.urns, self.rows, self.version)

    # Events

    def play(self, events: int = 60) -> None:
        """Play the history.

        :raises AssertionError: a promise is broken.
        """
        with deterministic() as determined, watching(MemoryTable):
            determined.begin(self.seed)
            try:
                first = self.source
                self._start("run 0", lambda attempt: self._carry_out(attempt, self.world, RunRequest("run 0"), first))
                for _ in range(events):
                    self._something()
                    self._expect_whole()
                self._make_peace()
            finally:
                for attempt in self.attempts:
                    attempt.end()
                self.world.forget_tables()

    def _something(self) -> None:
        for attempt in self.attempts:
            attempt.frozen = max(0, attempt.frozen - 1)
        (event,) = self.chance.choices([*_EVENTS], [*_EVENTS.values()])
        getattr(self, f"_{event}")()

    def _grow(self) -> None:
        self.rows += self.chance.randint(1, 4)
        self.version += self.chance.randint(0, 1)
        self.log.append(f"the source has {self.rows} rows, of version {self.version}")

    def _run(self) -> None:
        """A run, of everything that is open or of a range that it replaces."""
        if len(self._awake()) >= _AT_ONCE:
            return
        name, request = f"run {len(self.log)}", RunRequest(f"run {len(self.log)}")
        if self.chance.random() < 0.3:
            start = self.chance.randrange(self.rows)
            end = self.chance.choice([None, self.chance.randint(start + 1, self.rows)])
            request = RunRequest(name, end, (FLIGHTS,), start, True)
        of, world = self.source, self.chance.choice([*map(self._owner, self.world.urns), self.worlds[-1]])
        name = f"{name}{self._whose(world)} {request.start, request.end}"
        self._start(name, lambda attempt: self._carry_out(attempt, world, request, of))

    def _carry_out(self, attempt: Turn, world: TableWorld, request: RunRequest, of: ColumnRows) -> None:
        opened = world.opened(of, attempt)
        verify_recover(opened, request)
        plan = create_work_units(opened, request)
        self.plans.append((world, plan, of))
        attempt.works_on(plan)
        inprocess.extract(opened, plan, NoConnections())
        for pack in plan.packs:
            write_commit_steps(opened, plan, pack)
        for pack in plan.packs:
            execute_commit_steps(opened, plan, pack)
        self._finish(opened, plan)

    def _finish(self, opened: OpenJob, plan: RunPlan) -> None:
        tokens = {ref.urn: ref.token for pack in plan.packs for ref in pack.datasets}
        for report in finish(opened, plan):
            slot = opened.journal.history(report.urn).by_token(tokens.get(report.urn, ""))
            if slot is not None and slot.done and report.status not in ("committed", "partial", "failed"):
                raise AssertionError(f"{report} of slot {slot.decision.slot}, which is done")

    def _run_as_far_as_its_plan(self) -> int:
        """Mostly, a run plans just before something happens to a table.

        :return: the number of attempts before.
        """
        before = len(self.attempts)
        if self.chance.random() < 0.6:
            self._run()
        for attempt in self.attempts[before:]:
            while not (attempt.tokens or attempt.ended):
                self._let_go_on(attempt, 1)
        return before

    def _go_on_to_a_decision(self, first: int) -> None:
        """Let a run that is planned decide a slot.

        :param first: the number of its attempt, if there is one.
        """
        decided = self.decided
        for attempt in self.attempts[first:]:
            while not attempt.ended and self.decided == decided:
                self._let_go_on(attempt, 1)

    def _task(self) -> None:
        """A task of an earlier run, which is cleared or tried again."""
        if not self.plans or len(self._awake()) >= _AT_ONCE:
            return
        world, plan, of = self.chance.choice(self.plans[-4:])
        task = self.chance.choice(["extract", "write_commit_steps", "execute_commit_steps", "finish"])
        name = f"{task} of {plan.run}{self._whose(world)}"
        self._start(name, lambda attempt: self._carry_out_task(attempt, task, world.opened(of, attempt), plan))

    def _carry_out_task(self, attempt: Turn, task: str, opened: OpenJob, plan: RunPlan) -> None:
        attempt.works_on(plan)
        if task == "extract":
            inprocess.extract(opened, plan, NoConnections())
        elif task == "finish":
            self._finish(opened, plan)
        else:
            for pack in plan.packs:
                (write_commit_steps if task == "write_commit_steps" else execute_commit_steps)(opened, plan, pack)

    def _person(self) -> None:
        """A person abandons what is pending or planned of a dataset; or rewinds the one that can be."""
        pending = self._pending()
        world, urn = self.chance.choice(pending or [(self._owner(urn), urn) for urn in self.world.urns])
        if pending or self.chance.random() < 0.4:
            name = f"abandon {urn}{self._whose(world)}"
            self._start(name, lambda attempt: self._abandon(attempt, world, urn))
        else:
            to, owner = LongWatermark(self.chance.randrange(self.rows)), self._owner(FLIGHTS)
            self._start(f"rewind to {to}", lambda attempt: self._rewind(attempt, owner, to))

    def _pending(self) -> list[tuple[TableWorld, str]]:
        """The datasets of which a slot is pending."""
        datasets = ((world, urn) for world in self.worlds for urn in world.urns)
        return [(world, urn) for world, urn in datasets if world.journal().history(urn).pending is not None]

    def _abandon(self, attempt: Attempt | None, world: TableWorld, urn: str) -> None:
        world.person(attempt).abandon(urn, "for the test")

    def _rewind(self, attempt: Attempt, world: TableWorld, to: LongWatermark) -> None:
        world.person(attempt).rewind(FLIGHTS, to, "for the test")

    def _take_over(self) -> None:
        """A table is taken over by the ingestion that hasn't got it."""
        choices = ((world, urn) for world in self.worlds for urn in world.urns if world is not self._owner(urn))
        there = [(world, urn) for world, urn in choices if self.world.state(urn) is not None]
        if there and len(self._awake()) < _AT_ONCE:
            world, urn = self.chance.choice(there)
            table = world.table(urn)
            self._start(
                f"take over {urn}{self._whose(world)}",
                lambda attempt: world.person(attempt).take_over(urn, table, "for the test"),
            )

    def _owner(self, urn: str) -> TableWorld:
        """The ingestion that has the table of a dataset; the first, if there is none."""
        return next((world for world in self.worlds if world.owns(urn)), self.world)

    def _whose(self, world: TableWorld) -> str:
        return "" if world is self.world else " of the heir"

    def _outsider(self) -> None:
        """Somebody else does something to a table."""
        urn = self.chance.choice([urn for urn in self.world.urns if self.world.state(urn) is not None] or [""])
        if not urn:
            return
        ours = sorted(row for row in self.world.rows(FLIGHTS) if row[1] != "theirs") if urn == FLIGHTS else []
        act = self.chance.choice(["add", "add", "compact", "expire", "expire", "column", "delete"])
        if act == "column":
            if self.chance.random() < 0.7:
                return
            self._run_as_far_as_its_plan()
        self.log.append(f"somebody else's {act}: {urn}")
        match act:
            case "add":
                self.theirs += 1
                self._owner(urn).add_theirs(urn, self.theirs)
            case "compact":
                self.world.table(urn).compact()
            case "expire":
                self.world.table(urn).expire()
            case "column":
                with suppress(ValueError):
                    self._add_column(urn)
            case _ if ours:
                self.world.delete(urn, self.chance.choice(ours))

    def _add_column(self, urn: str) -> None:
        state = self.world.state(urn)
        assert state is not None
        self.world.table(urn).add_column(f"theirs_{len(state.schema)}")

    def _gone(self) -> None:
        """A table is set back, restored from a copy, or dropped, for some time: nobody publishes to it then. People act before or
        after.
        """
        planned = self._run_as_far_as_its_plan()
        if self.chance.random() < 0.6:
            self._go_on_to_a_decision(planned)
        urns = [urn for urn in self.world.urns if (state := self.world.state(urn)) is not None and state.marks]
        if not urns:
            return
        decided = [urn for world, urn in self._pending() if urn in urns and world.owns(urn)]
        urn = self.chance.choice(decided if decided and self.chance.random() < 0.7 else urns)
        table, state, before = self.world.table(urn), self.world.state(urn), self._owner(urn).mark(urn)
        assert state is not None
        if any(world is not self._owner(urn) for world, pending in self._pending() if pending == urn):
            return  # it may be a take-over, which doesn't mind
        how = self._take_away(urn, state)
        if not how:
            return
        self.log.append(f"{urn} is {how}")
        left = memory_table._tables.get(table.table)
        self.unwatched = True
        # A copy lacks the fences since, so that a process that is at a commit just then may make it: that is stated.
        before_it = planned if how == "restored" else 0
        if self.chance.random() < 0.7 and len(self._awake()) < _AT_ONCE:
            self._run()
        tasks = (attempt for attempt in self.attempts[before_it:] if not attempt.ended)
        for attempt in [one for one in tasks if not one.name.startswith(_BY_PEOPLE)]:
            self._let_go_on(attempt, self.chance.choice([5, 60, 2000]))
        self.unwatched = False
        found = memory_table._tables.get(table.table)
        created = left is None and found is not None and not found.marks  # by a run that looked before there was one
        self._expect(found is left or created, f"{urn} was {how}, and somebody changed it")
        memory_table._tables[table.table] = replace(state, versions={**state.versions})
        self._expect(self._owner(urn).mark(urn) == before, "it is as it was")
        self.log.append(f"{urn} is as it was")
        self._check()

    def _take_away(self, urn: str, state: memory_table._State) -> str:
        """Let a table not be as it has to be.

        :return: how; empty: it is left as it is.
        """
        table, before = self.world.table(urn), self.saved[urn][-4:]
        copies = [old for old in before if old.owner == state.owner and old.marks != state.marks]
        histories = [world.journal().history(urn) for world in self.worlds]
        how = self.chance.choice(["set back", "restored", "dropped"])
        if how == "set back" and state.versions[state.head].ancestors & {*state.versions}:
            table.roll_back()
            if not self._mark_is_in_history(urn):
                return how
            memory_table._tables[table.table] = replace(state)  # only what somebody else did since was undone
        elif how == "restored" and copies:
            old = self.chance.choice(copies)
            if all(self._is_too_old(old, world, urn) for world in self.worlds):
                memory_table._tables[table.table] = replace(old)
                return how
        elif how == "dropped" and all(history.state.live for history in histories):
            table.drop()
            return how
        return ""

    def _is_too_old(self, state: memory_table._State, world: TableWorld, urn: str) -> bool:
        """Return whether nothing that an ingestion has decided may be carried out in an old state of a table: its mark is neither
        the one that a pending slot needs, nor one that this slot left.
        """
        history = world.journal().history(urn)
        if history.pending is None:
            return True
        number, token = history.pending.decision.slot, history.pending.decision.token
        mark, _ = state.marks.get(world.owner(urn).key, (None, 0))
        return mark not in (
            history.mark_before(number, state.id),
            Mark(number, token, True),
            Mark(number, token, False),
        )

    def _mark_is_in_history(self, urn: str) -> bool:
        """Return whether the version with the mark of its owner is in the history of a table, without asking the product."""
        state = self.world.state(urn)
        assert state is not None
        assert state.owner is not None
        _, number = state.marks.get(state.owner.key, (None, 0))
        return number in state.versions[state.head].ancestors | {state.head}

    def _copy(self) -> None:
        """Somebody makes a copy of the journal and the workspace."""
        self.copies.append(self.world.copied())
        self.log.append(f"copy {len(self.copies) - 1} of journal and workspace")

    def _old_copy(self) -> None:
        """Somebody runs the ingestion on a copy that has fallen behind: that changes no table."""
        for copy in self.copies:
            heads = {urn: copy.journal().history(urn).state.head for urn in copy.urns}
            behind = tuple(
                urn for urn, head in heads.items() if (mark := self.world.mark(urn)) is not None and mark.slot > head
            )
            if not behind:
                continue
            self.log.append(f"copy {self.copies.index(copy)} runs {behind}, its heads are {heads}")
            before = {urn: self.world.state(urn) for urn in behind}
            opened = copy.opened(self.source)
            with suppress(GobblinError, OSError):
                inprocess.run(opened, NoConnections(), RunRequest(f"run {len(self.log)}", datasets=behind))
            self.copied_tokens |= {token for token, _ in opened.staging.plans()}
            for urn in behind:
                self._expect(self.world.state(urn) is before[urn], f"an old copy of the journal changed {urn}")
                done = {slot.decision.token for slot in self._done(self.world, urn)}
                strange = [slot for slot in self._done(copy, urn) if slot.decision.token not in done]
                self._expect(not strange, f"{urn}: slots {strange} are done in an old copy, and in no table")
        self.copies = self.copies[-3:]

    def _done(self, world: TableWorld, urn: str) -> list[Slot]:
        history = world.journal().history(urn)
        return [slot for slot in history.newest_first if slot.done and slot.decision.table is not None]

    def _kill(self) -> None:
        if awake := self._awake():
            attempt = self.chance.choice(awake)
            self.log.append(f"{attempt.name} is killed")
            self.crashes += 1
            attempt.end()

    # The baton

    def _start(self, name: str, work: Callable[[Turn], object]) -> None:
        self.attempts.append(Turn(f"{name} at {len(self.attempts)}", self, cast(Any, work)))
        self.log.append(f"{self.attempts[-1].name} starts")

    def _awake(self) -> list[Turn]:
        return [attempt for attempt in self.attempts if not attempt.ended]

    def _go_on(self) -> None:
        if awake := [attempt for attempt in self._awake() if not attempt.frozen]:
            self._let_go_on(self.chance.choice(awake), 1 + int(self.chance.expovariate(1 / 40)))

    def _let_go_on(self, attempt: Turn, calls: int) -> None:
        attempt.left = calls
        attempt.go_on()
        if attempt.ended:
            self.log.append(f"{attempt.name} ended{'' if attempt.error is None else f': {attempt.error!r}'}")
            if attempt.failed:
                self.broken = self.broken or attempt.error

    def before(self, attempt: Attempt, call: Call) -> Fault | None:
        """Pause, if it is time, mostly before a commit; and return what goes wrong."""
        assert isinstance(attempt, Turn)
        commits_now = (call.place, call.operation) == ("table", "commit")
        if commits_now and not self.peace and self.chance.random() < 0.35:
            attempt.frozen, attempt.left = self.chance.choice([1, 3, 8, 30]), 0
            self.log.append(f"  {attempt.name} is held up before its commit")
        while attempt.left <= 0 and not attempt.dead:
            attempt.pause()
        attempt.left -= 1
        self.calls += 1
        if attempt.dead or self.peace:
            return None
        often = {"table": 8, "store": 2}.get(call.place, 1) if call.effect is Effect.PUT else 1
        if self.chance.random() >= 0.003 * often:
            return None
        fault = self.chance.choice([f for f in call.faults if f not in (Fault.POWER_LOSS, Fault.PARTIAL_POWER_LOSS)])
        self.log.append(f"  {attempt.name}: {fault} at {call.place} {call.operation} {call.subject}")
        self.crashes += fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN)
        return fault

    def observe(self, call: Call, do: Callable[[], T]) -> T:
        """Make a call, and check the world after each record of a slot and each commit."""
        result = do()
        put = call.place == "store" and call.operation == "put"
        self.decided += put and "/d/" in call.subject
        slot = put and ("/d/" in call.subject or "/o/" in call.subject)
        commit = call.place == "table" and call.effect is Effect.PUT
        if commit or (slot and not self.unwatched):
            try:
                if commit:
                    self._note_act(call)
                if not self.unwatched:
                    self._check()
            except BaseException as error:
                self.broken = self.broken or error
        return result

    def _note_act(self, call: Call) -> None:
        """Take note of what was done to a table just now."""
        (urn,) = (urn for urn in self.world.urns if self.world.table(urn).name == call.subject)
        owner = self._owner(urn)
        if call.operation == "take over":
            owner.inherit(urn)
        state, mark = self.world.state(urn), owner.mark(urn)
        assert state is not None
        if not self.unwatched:
            self.saved[urn].append(replace(state, versions={**state.versions}))
        _, marked = state.marks.get(owner.owner(urn).key, (None, 0))
        if self.unwatched or mark is None or not mark.done or marked != state.head:  # by the fence of another one
            return
        slot = owner.journal().history(urn).by_token(mark.token)
        if slot is not None and slot.decision.action is Action.COMMIT:
            assert slot.decision.table is not None
            self._expect(
                slot.decision.table.form == state.form, f"{urn} has other columns than slot {mark} was made for"
            )

    # The end

    def _make_peace(self) -> None:
        """No more faults. Everybody comes to an end, and further runs publish everything missing."""
        self.peace = True
        self.log.append("peace")
        while awake := self._awake():
            self._let_go_on(self.chance.choice(awake), 1 + int(self.chance.expovariate(1 / 40)))
        self._expect_whole()
        for number in range(8):
            idle = [self._rest(world, RunRequest(f"rest {number}")) for world in self.worlds]
            pending = self._pending()
            if all(idle) and not pending:
                break
            for world, urn in pending:  # the rows that it would take out were changed, or the table is another's
                self._abandon(None, world, urn)
        self._check()
        killed = (attempt.tokens for attempt in self.attempts if attempt.error is not None)
        tokens = self.copied_tokens.union(*killed)
        for world in self.worlds:
            world.check_complete(self.source, tokens)

    def _rest(self, world: TableWorld, request: RunRequest) -> bool:
        """Carry out a run of an ingestion.

        :return: whether there was nothing to do in the tables that it has.
        """
        idle: list[bool] = []
        self._start(f"rest{self._whose(world)}", lambda attempt: idle.append(self._is_idle(attempt, world, request)))
        self._let_go_on(self.attempts[-1], sys.maxsize)
        self._expect_whole()
        return idle == [True]

    def _is_idle(self, attempt: Turn, world: TableWorld, request: RunRequest) -> bool:
        """Carry out a run; one that finds a slot of a table that its ingestion has lost fails: a person has to abandon it."""
        opened = world.opened(self.source, attempt)
        verify_recover(opened, request)
        reports = inprocess.go_on(opened, create_work_units(opened, request), NoConnections())
        reported = ", ".join(f"{urn} {report.status.value} {report.detail}" for urn, report in reports.items())
        self.log.append(f"rest{self._whose(world)}: {reported}")
        found = ((urn, report) for urn, report in reports.items() if world.owns(urn))
        return all(report.status == ("committed" if urn == PLANES else "idle") for urn, report in found)

    # Checks

    def _check(self) -> None:
        for world in self.worlds:
            world.check()

    def _expect(self, holds: bool, message: str) -> None:
        if not holds:
            raise AssertionError(message)

    def _expect_whole(self) -> None:
        if self.broken is not None:
            raise self.broken
        self._check()


@contextmanager
def _place(seed: int) -> Iterator[str]:
    """A folder for data files, for every third history."""
    if seed % 3:
        yield ""
        return
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        with mock.patch("os.fsync"):
            yield f"{folder}/lake"
    finally:
        shutil.rmtree(folder)


def play(seed: int) -> TableHistory:
    """Play one history.

    :raises Broken: a promise is broken.
    """
    with _place(seed) as location:
        history = TableHistory(seed, location)
        try:
            history.play()
        except Exception as error:
            message = f"history {seed}: {type(error).__name__}: {error}"
            raise Broken("\n".join((message, *history.log))) from error
        return history


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print("\n".join(play(int(text)).log))
