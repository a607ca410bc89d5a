"""The contract of tables: `TableCommitStep` on a format's real library, with what others do to the table meanwhile."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import (
    GobblinError,
    NotFoundError,
    StepDamagedError,
    StepError,
    StepFencedError,
    StepLostError,
    TableError,
    TableMovedError,
)
from airflow_gobblin.model import wire
from airflow_gobblin.model.schema import encode
from airflow_gobblin.model.table import DataFile, Mark, Owner, SlotOfStep, TableTarget, TableUnit
from airflow_gobblin.steps.base import FenceResult, Phase, StepContext, StepStatus
from airflow_gobblin.steps.execution import carry_out, fence
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.commit import TableCommitStep
from airflow_gobblin.tables.lists import write_lists
from airflow_gobblin.tables.port import Change, Count, Look, Merge, OpenTable, PartitionField, Table
from airflow_gobblin.testing.threads import together

__all__ = ["FOREIGN_ROW", "SCHEMA", "ForeignAct", "TableBench", "TableContract"]

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("changed", pa.int64()), ("position", pa.int64())])
"""The columns of the table that the suite makes."""
MERGE = Merge(keys=("id",), delta="changed", positions=("position",))
URN = "shop.orders"
OWNER = Owner("0" * 32, "shop", URN)
OTHER = Owner("1" * 32, "shop", URN)
EXECUTORS = 3

Row = Mapping[str, Any]


def row(number: int, text: str = "", changed: int = 0, position: int = 0) -> Row:
    """Return a row of the suite's table."""
    return {"id": number, "text": text or f"row {number}", "changed": changed, "position": position}


FOREIGN_ROW = row(1000, "theirs")
"""The row that `ForeignAct.APPEND` adds."""


class ForeignAct(StrEnum):
    """An act of somebody else on a table."""

    APPEND = "append"
    """Adds `FOREIGN_ROW`."""
    DELETE = "delete"
    """Deletes the rows whose id is 1."""
    COMPACT = "compact"
    """Rewrites the rows of all files."""
    EXPIRE = "expire"
    """Forgets all versions but the newest."""
    ROLL_BACK = "roll back"
    """Sets it back to the version before the newest."""
    DROP = "drop"
    ADD_COLUMN = "add column"
    """Adds a nullable column of text, `theirs`."""


HARMLESS = (ForeignAct.APPEND, ForeignAct.DELETE, ForeignAct.COMPACT, ForeignAct.EXPIRE)
"""The acts that a commit merges with."""


class TableBench(Protocol):
    """A table of a format for one test, which doesn't exist yet, and what is done to it from outside.

    :param table: names it.
    :param files: the file system of the workspace.
    :param acts: what others can do to a table of this format: at least APPEND, DELETE, DROP and ADD_COLUMN.
    :param merges: whether the format merges.
    """

    @property
    def table(self) -> Table: ...

    @property
    def files(self) -> Files: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def acts(self) -> frozenset[ForeignAct]: ...

    @property
    def merges(self) -> bool: ...

    def stage(self, target: TableTarget, token: str, unit: str, rows: Sequence[Row], schema: pa.Schema) -> DataFile:
        """Write a data file as a Spark task does, under a name that is never made twice."""

    def rows(self) -> Iterable[Row]:
        """Return the table's rows, as an outside reader gets them, with all columns."""

    def act(self, act: ForeignAct) -> None:
        """Do to the table what somebody else would."""


@dataclass
class _Chain:
    """A dataset that publishes to a bench's table, slot by slot.

    :param previous: the mark of the newest slot that marked the table.
    """

    bench: TableBench
    owner: Owner = OWNER
    slots: int = 0
    previous: Mark | None = None
    units: dict[int, TableUnit] = field(default_factory=dict)

    def create(self) -> _Chain:
        """Create the table."""
        self.open().create(self.owner, SCHEMA, ())
        assert self.look().owner in (None, self.owner)
        return self

    def open(self) -> OpenTable:
        """Open the table."""
        return self.bench.table.open(self.bench.connections, self.bench.files)

    def look(self) -> Look:
        """Look at the table."""
        return self.open().look(self.owner)

    def decide(self, *rows: Row, **how: Any) -> _Decided:
        """Decide the next slot, which adds rows in files of two units."""
        look, token, schema = self.look(), uuid.uuid4().hex, how.pop("files_schema", SCHEMA)
        target = TableTarget(self.bench.table, *look.target_at)
        staged = [
            self.bench.stage(target, token, unit, some, schema)
            for unit, some in (("0", rows[::2]), ("1", rows[1::2]))
            if some
        ]
        folder = f"_gobblin/s/{token}/lists"
        lists = tuple(write_lists(self.bench.files, folder, staged))
        self.slots += 1
        slot = SlotOfStep(self.owner, self.slots, token, self.previous)
        return _Decided(self, TableCommitStep(target, folder, lists, **how), slot, tuple(staged))

    def publish(self, *rows: Row, **how: Any) -> _Decided:
        """Decide the next slot and finish it."""
        decided = self.decide(*rows, **how)
        decided.carry_out()
        return decided.ended(done=True)


@dataclass(frozen=True)
class _Decided:
    """A slot, decided."""

    chain: _Chain
    step: TableCommitStep
    slot: SlotOfStep
    staged: tuple[DataFile, ...]

    @property
    def context(self) -> StepContext:
        bench = self.chain.bench
        return StepContext(bench.files, GuardedConnections(bench.connections), slot=self.slot)

    @property
    def units(self) -> tuple[TableUnit, ...]:
        """Its units, as a later slot takes them away."""
        return tuple(TableUnit(self.slot.token, file.unit, 1, file.rows) for file in self.staged)

    def carry_out(self) -> bool:
        return carry_out(self.step, self.context, URN, self.slot.slot)

    def verify(self) -> StepStatus:
        return self.step.verify(self.context)

    def fence(self) -> FenceResult:
        return fence(self.step, self.context, URN, self.slot.slot)

    def ended(self, *, done: bool) -> _Decided:
        """Note how it ended."""
        self.chain.previous = self.slot.done if done else self.slot.abandoned
        return self

    def asked(self) -> _Decided:
        """Return it as a slot that a person abandons."""
        return replace(self, slot=replace(self.slot, asked=True))

    def through(self, table: Table) -> _Decided:
        """Return it with another way to its table."""
        return replace(self, step=replace(self.step, target=replace(self.step.target, table=table)))


class _Cut(OSError):
    """A connection that broke."""


class _Interrupted:
    """A table whose connection breaks at one call, or that somebody else changes just before one.

    :param at: the number of the call, from 1.
    :param answer_lost: whether the call takes effect first.
    :param instead: what happens before the call instead of breaking it.
    :param then: what happens after the call instead.
    """

    def __init__(
        self,
        table: Table,
        at: int,
        *,
        answer_lost: bool = False,
        instead: Callable[[], None] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self._table, self._at, self._answer_lost, self._instead, self._then = table, at, answer_lost, instead, then
        self.name, self.connection_ids = table.name, table.connection_ids
        self.calls: list[str] = []

    @property
    def reached(self) -> bool:
        """Whether that many calls were made."""
        return len(self.calls) >= self._at

    def open(self, connections: Connections, files: Files) -> OpenTable:
        return _InterruptedOpen(self, self._table.open(connections, files))

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if len(self.calls) != self._at:
            return do()
        if self._instead is not None:
            self._instead()
            return do()
        if self._then is not None:
            done = do()
            self._then()
            return done
        if self._answer_lost:
            do()
        raise _Cut(f"the connection broke at call {self._at}, {name}")


class _InterruptedOpen:
    def __init__(self, interrupted: _Interrupted, table: OpenTable) -> None:
        self._interrupted, self._table = interrupted, table

    def look(self, owner: Owner) -> Look:
        look: Look = self._interrupted.call("look", lambda: self._table.look(owner))
        return look

    def create(self, owner: Owner, schema: pa.Schema, partition: tuple[PartitionField, ...]) -> None:
        self._interrupted.call("create", lambda: self._table.create(owner, schema, partition))

    def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        self._interrupted.call("commit", lambda: self._table.commit(look, change, owner, mark))

    def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
        self._interrupted.call("take_over", lambda: self._table.take_over(look, owner, mark))

    def count(self, units: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Count]:
        return self._table.count(units)

    def total(self) -> Count:
        return self._table.total()

    def read(self, version: str = "") -> ds.Dataset:
        return self._table.read(version)

    def files(self) -> Iterator[str]:
        return self._table.files()


class TableContract:
    """The suite of tables. Override the fixture `new_bench`."""

    @pytest.fixture
    def new_bench(self) -> Callable[[], TableBench]:
        """Return a function that returns a bench with a table of its own each time, which doesn't exist yet."""
        raise NotImplementedError("override the fixture `new_bench`")

    @pytest.fixture
    def new_chain(self, new_bench: Callable[[], TableBench]) -> Callable[[], _Chain]:
        """Return a function that makes a table, and a dataset that publishes to it, each time."""
        return lambda: _Chain(new_bench()).create()

    @pytest.fixture
    def chain(self, new_chain: Callable[[], _Chain]) -> _Chain:
        """Make a table, and a dataset that publishes to it."""
        return new_chain()

    # The table

    def test_there_is_no_table_before_it_is_created_once(self, new_bench: Callable[[], TableBench]) -> None:
        chain = _Chain(new_bench())
        assert chain.look() == Look("")
        chain.create()
        first = chain.look()
        assert first.id
        assert first.form
        assert first.mark is None
        assert first.in_history
        assert first.schema is not None
        assert first.schema.names == SCHEMA.names
        chain.publish(row(1), row(2))
        chain.open().create(OWNER, SCHEMA, ())
        assert_rows(chain, row(1), row(2))
        assert chain.look().target_at == first.target_at, "neither a commit nor a second creation changes these"

    def test_its_record_crosses_processes(self, chain: _Chain) -> None:
        decided = chain.decide(row(1), row(2), removes_all=True, merge=MERGE, schema=encode(SCHEMA))
        assert wire.loads(wire.dumps(decided.step), TableCommitStep, "the step") == decided.step
        assert decided.step.phase is Phase.SETTLE
        assert decided.step.subject
        assert chain.bench.table.name

    def test_it_counts_what_units_have_there(self, chain: _Chain) -> None:
        one, other = chain.publish(row(1), row(2), row(3)), chain.publish(row(4))
        names = [(unit.token, unit.unit) for decided in (one, other) for unit in decided.units]
        counts = chain.open().count([*names, (one.slot.token, "none")])
        assert [(counts[name].files or 1, counts[name].rows) for name in names] == [(1, 2), (1, 1), (1, 1)]
        assert (one.slot.token, "none") not in counts
        assert chain.open().total().rows == 4

    # The act

    def test_it_is_to_do_and_then_done(self, chain: _Chain) -> None:
        decided = chain.decide(row(1), row(2))
        assert decided.verify() is StepStatus.TODO
        assert_rows(chain)
        assert decided.carry_out()
        assert decided.verify() is StepStatus.DONE
        assert_rows(chain, row(1), row(2))
        look = chain.look()
        assert (look.mark, look.in_history, look.owner) == (decided.slot.done, True, OWNER)

    def test_a_slot_without_rows_moves_the_mark(self, chain: _Chain) -> None:
        chain.publish(row(1))
        before = chain.look()
        empty = chain.publish()
        assert_rows(chain, row(1))
        assert chain.look().mark == empty.slot.done
        assert chain.look().version != before.version

    def test_units_leave_and_come_in_one_commit(self, chain: _Chain) -> None:
        first = chain.publish(row(1), row(2), row(3))
        chain.publish(row(4))
        chain.publish(row(10), removes=first.units[:1])
        assert_rows(chain, row(2), row(4), row(10))
        chain.publish(removes=first.units[1:])
        assert_rows(chain, row(4), row(10))

    def test_all_rows_leave_also_those_of_others(self, chain: _Chain) -> None:
        chain.publish(row(1), row(2))
        chain.bench.act(ForeignAct.APPEND)
        chain.publish(row(3), removes_all=True)
        assert_rows(chain, row(3))
        chain.publish(removes_all=True)
        assert_rows(chain)

    def test_units_that_somebody_changed_do_not_leave(self, new_chain: Callable[[], _Chain]) -> None:
        for act in (ForeignAct.DELETE, ForeignAct.COMPACT):
            chain = new_chain()
            if act not in chain.bench.acts:
                continue
            first = chain.publish(row(1), row(2), row(3))
            chain.publish(row(4))
            chain.bench.act(act)
            if act is ForeignAct.COMPACT and all(
                found.rows == unit.rows
                for unit in first.units
                if (found := chain.open().count([(unit.token, unit.unit)]).get((unit.token, unit.unit))) is not None
            ):
                found_all = chain.open().count([(unit.token, unit.unit) for unit in first.units])
                if len(found_all) == len(first.units):
                    continue  # a format whose rows keep their unit
            before = rows_of(chain)
            replacing = chain.decide(row(10), removes=first.units)
            with pytest.raises(StepError):
                replacing.carry_out()
            assert rows_of(chain) == before
            assert replacing.fence() is FenceResult.HOLDS

    def test_columns_are_added_in_the_commit(self, chain: _Chain) -> None:
        chain.publish(row(1))
        wide = SCHEMA.append(pa.field("more", pa.string()))
        form = chain.look().form
        widened = chain.publish({**row(2), "more": "more"}, schema=encode(wide), files_schema=wide)
        look = chain.look()
        assert look.schema is not None
        assert look.schema.names == wide.names
        assert look.form != form
        assert widened.verify() is StepStatus.DONE
        assert_rows(chain, {**row(1), "more": None}, {**row(2), "more": "more"})

    def test_a_merge_equals_a_dict(self, new_chain: Callable[[], _Chain]) -> None:
        """The newest version of each key stays; position decides ties; a late row that is older changes nothing."""
        for seed in range(3):
            chain, chance, oracle = new_chain(), random.Random(seed), dict[int, Row]()
            if not chain.bench.merges:
                return
            positions = iter(range(1000))
            for _ in range(4):
                new = [
                    row(chance.randrange(8), f"{seed}", chance.randrange(4), next(positions))
                    for _ in range(chance.randrange(1, 9))
                ]
                chance.shuffle(new)
                for one in new:
                    old = oracle.get(one["id"])
                    if old is None or (one["changed"], one["position"]) > (old["changed"], old["position"]):
                        oracle[one["id"]] = one
                chain.publish(*new, merge=MERGE)
                assert_rows(chain, *oracle.values())

    # Late ones, and many

    def test_a_late_executor_changes_nothing(self, chain: _Chain) -> None:
        """Try it after DONE, after ABANDONED, and after later slots."""
        done = chain.publish(row(1), row(2))
        assert not done.carry_out()
        given_up = chain.decide(row(3))
        assert given_up.fence() is FenceResult.HOLDS
        with pytest.raises(StepFencedError):
            given_up.carry_out()
        given_up.ended(done=False)
        later = chain.publish(row(4))
        for late in (done, given_up):
            with pytest.raises(StepError):
                late.carry_out()
            with pytest.raises(StepError):
                late.fence()
        assert later.verify() is StepStatus.DONE
        assert_rows(chain, row(1), row(2), row(4))

    @pytest.mark.parametrize("other", ["commit", "fence", "fence and later slot", "later slots", "taken over"])
    def test_a_commit_on_an_old_look_does_nothing(self, chain: _Chain, other: str) -> None:
        """A process looks, stops for a while, and goes on where it was."""
        chain.publish(row(1))
        decided = chain.decide(row(2))
        late = chain.open()
        look = late.look(OWNER)
        if other in ("commit", "later slots"):
            decided.carry_out()
            decided.ended(done=True)
        elif other.startswith("fence"):
            decided.fence()
            decided.ended(done=False)
        else:
            chain.open().take_over(chain.look(), OTHER)
        if "later" in other:
            chain.publish(row(3))
        before, mark = rows_of(chain), chain.look().mark
        with pytest.raises(TableMovedError):
            late.commit(look, decided.step._change(chain.bench.files), OWNER, decided.slot.done)
        assert (rows_of(chain), chain.look().mark) == (before, mark)

    def test_many_carry_it_out_at_once(self, chain: _Chain) -> None:
        for number in range(3):
            decided = chain.decide(row(number), row(100 + number))
            together(lambda _, decided=decided: tried(decided.carry_out), EXECUTORS)  # type: ignore[misc]
            assert decided.carry_out() is False
            decided.ended(done=True)
        assert_rows(chain, *(row(base + number) for base in (0, 100) for number in range(3)))

    def test_it_is_carried_out_and_abandoned_at_once(self, chain: _Chain) -> None:
        expected = []
        for number in range(4):
            decided = chain.decide(row(number))
            acts = (decided.carry_out, decided.fence, decided.carry_out)
            together(lambda at, acts=acts: tried(acts[at]), len(acts))  # type: ignore[misc]
            done = decided.fence() is FenceResult.WHOLE
            assert decided.verify() is (StepStatus.DONE if done else StepStatus.FENCED)
            decided.ended(done=done)
            expected += [row(number)] if done else []
        assert_rows(chain, *expected)

    def test_the_fence_of_a_slot_that_is_done_finds_the_whole(self, chain: _Chain) -> None:
        decided = chain.publish(row(1))
        assert decided.fence() is FenceResult.WHOLE
        assert decided.asked().fence() is FenceResult.WHOLE
        assert_rows(chain, row(1))

    def test_a_fence_is_a_new_version_and_holds_any_number_of_times(self, chain: _Chain) -> None:
        chain.publish(row(1))
        before, decided = chain.look(), chain.decide(row(2))
        for _ in range(2):
            assert decided.fence() is FenceResult.HOLDS
        assert chain.look().mark == decided.slot.abandoned
        assert chain.look().version != before.version, "a late commit on the old head must fail"
        assert decided.verify() is StepStatus.FENCED

    # Errors

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    def test_after_an_error_at_any_call_it_is_carried_out_again(self, chain: _Chain, answer_lost: bool) -> None:
        expected = []
        for number, decided, interrupted in interruptions(chain, answer_lost):
            tried(decided.through(interrupted).carry_out)
            assert decided.verify() in (StepStatus.TODO, StepStatus.DONE), interrupted.calls
            decided.carry_out()
            decided.ended(done=True)
            expected.append(row(number))
            assert_rows(chain, *expected)
        assert len(expected) > 2, "it looks and commits"

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    def test_after_an_error_at_any_call_it_is_abandoned(self, chain: _Chain, answer_lost: bool) -> None:
        """See that the fence finds it done, or that nothing ever comes, whatever the call did."""
        expected = []
        for number, decided, interrupted in interruptions(chain, answer_lost):
            tried(decided.through(interrupted).carry_out)
            found = decided.fence()
            assert found is (FenceResult.WHOLE if row(number) in [*chain.bench.rows()] else FenceResult.HOLDS)
            decided.ended(done=found is FenceResult.WHOLE)
            tried(decided.carry_out)
            expected += [row(number)] if found is FenceResult.WHOLE else []
            assert_rows(chain, *expected)

    @pytest.mark.parametrize("answer_lost", [False, True], ids=["error", "lost answer"])
    def test_after_an_error_at_any_call_of_the_fence_it_is_set_again(self, chain: _Chain, answer_lost: bool) -> None:
        for _, decided, interrupted in interruptions(chain, answer_lost):
            with suppress(GobblinError):
                decided.through(interrupted).fence()
            assert decided.fence() is FenceResult.HOLDS
            with pytest.raises(StepFencedError):
                decided.carry_out()
            decided.ended(done=False)
        assert_rows(chain)

    def test_a_staged_file_that_is_gone_is_lost_by_name(self, chain: _Chain) -> None:
        decided = chain.decide(row(1), row(2))
        where = decided.step.target.location
        files = open_files(where, chain.bench.connections) if where else chain.bench.files
        files.unlink(decided.staged[-1].path)
        with pytest.raises(StepLostError):
            decided.carry_out()
        assert_rows(chain)
        assert decided.fence() is FenceResult.HOLDS

    def test_a_staged_file_that_goes_while_it_is_committed_is_reported_by_name(self, chain: _Chain) -> None:
        decided = chain.decide(row(1), row(2))
        where, staged = decided.step.target.location, decided.staged[-1].path
        if not where:
            return  # the table has copies of the rows
        files = open_files(where, chain.bench.connections)
        third = _Interrupted(chain.bench.table, 3, then=lambda: files.unlink(staged))
        with pytest.raises(StepDamagedError, match=f"went while.*{staged}"):
            decided.through(third).carry_out()
        assert third.calls == ["look", "look", "commit"]
        assert decided.verify() is StepStatus.DONE
        assert not decided.carry_out()

    # Acts of others

    def test_the_bench_can_do_what_others_do(self, chain: _Chain) -> None:
        least = {ForeignAct.APPEND, ForeignAct.DELETE, ForeignAct.DROP, ForeignAct.ADD_COLUMN}
        assert least <= chain.bench.acts

    def test_commits_of_others_are_merged_with(self, new_chain: Callable[[], _Chain]) -> None:
        for act in HARMLESS:
            for call in (0, 1, 2, 3):  # before all, and before each call of the step
                chain = new_chain()
                if act not in chain.bench.acts:
                    continue
                chain.publish(row(1), row(2))
                decided = chain.decide(row(3), row(4))
                if call == 0:
                    chain.bench.act(act)
                    decided.carry_out()
                else:
                    bench = chain.bench
                    table = _Interrupted(bench.table, call, instead=lambda bench=bench, act=act: bench.act(act))  # type: ignore[misc]
                    decided.through(table).carry_out()
                expected = [row(2), row(3), row(4)] + ([] if act is ForeignAct.DELETE else [row(1)])
                assert_rows(chain, *expected, *([FOREIGN_ROW] if act is ForeignAct.APPEND else []))
                assert decided.verify() is StepStatus.DONE
                decided.ended(done=True)
                chain.publish(row(5))

    def test_what_others_do_afterwards_leaves_it_done(self, new_chain: Callable[[], _Chain]) -> None:
        chain = new_chain()
        decided = chain.publish(row(1), row(2))
        for act in HARMLESS:
            if act in chain.bench.acts:
                chain.bench.act(act)
                assert decided.verify() is StepStatus.DONE, act
                assert not decided.carry_out()
        assert_rows(chain, row(2), FOREIGN_ROW)

    def test_a_table_that_was_set_back_stops_by_name(self, chain: _Chain) -> None:
        if ForeignAct.ROLL_BACK not in chain.bench.acts:
            return
        chain.publish(row(1))
        gone = chain.publish(row(2))
        chain.bench.act(ForeignAct.ROLL_BACK)
        assert not chain.look().in_history
        with pytest.raises(TableError, match="set back"):
            gone.verify()
        following = chain.decide(row(3))
        with pytest.raises(StepError, match="set back"):
            following.carry_out()
        assert_rows(chain, row(1))
        with pytest.raises(StepError):
            following.fence()
        assert following.asked().fence() is FenceResult.HOLDS
        with pytest.raises(StepFencedError):
            following.carry_out()
        assert_rows(chain, row(1))

    @pytest.mark.parametrize("act", [ForeignAct.ROLL_BACK, ForeignAct.DROP])
    def test_a_table_that_was_set_back_or_dropped_between_look_and_commit_stops_by_name(
        self, chain: _Chain, act: ForeignAct
    ) -> None:
        if act not in chain.bench.acts:
            return
        chain.publish(row(1))
        chain.publish(row(2))
        decided = chain.decide(row(3))
        third = _Interrupted(chain.bench.table, 3, instead=lambda: chain.bench.act(act))
        with pytest.raises(StepError):  # a catalog may report it in its own words
            decided.through(third).carry_out()
        assert third.calls[:3] == ["look", "look", "commit"]
        with pytest.raises(StepError, match="gone" if act is ForeignAct.DROP else "set back"):
            decided.carry_out()
        if act is not ForeignAct.DROP:
            assert_rows(chain, row(1))

    @pytest.mark.parametrize("anew", [False, True], ids=["dropped", "made anew"])
    def test_a_dropped_table_stops_by_name(self, chain: _Chain, anew: bool) -> None:
        chain.publish(row(1))
        decided = chain.decide(row(2))
        chain.bench.act(ForeignAct.DROP)
        if anew:
            chain.create()
        with pytest.raises(StepError, match="anew" if anew else "gone"):
            decided.carry_out()
        with pytest.raises(StepError):
            decided.fence()
        assert decided.asked().fence() is FenceResult.HOLDS
        if anew:
            assert_rows(chain)

    def test_columns_that_somebody_changed_stop_it_by_name(self, chain: _Chain) -> None:
        decided = chain.decide(row(1))
        chain.bench.act(ForeignAct.ADD_COLUMN)
        with pytest.raises(StepError, match="columns"):
            decided.carry_out()
        assert decided.fence() is FenceResult.HOLDS
        assert_rows(chain)

    def test_columns_changed_between_look_and_commit_stop_it_by_name(self, chain: _Chain) -> None:
        decided = chain.decide(row(1))
        looked = chain.open()
        look = looked.look(OWNER)
        chain.bench.act(ForeignAct.ADD_COLUMN)
        with pytest.raises(TableMovedError):
            looked.commit(look, decided.step._change(chain.bench.files), OWNER, decided.slot.done)
        assert_rows(chain)

    # Other journals, and copies of this one

    def test_an_old_copy_of_the_journal_stops_by_name(self, chain: _Chain) -> None:
        """Let a copy that has forgotten the newest slots decide them anew."""
        copy = replace(chain)
        first = chain.publish(row(1))
        again = copy.decide(row(2))
        assert again.slot.slot == first.slot.slot
        with pytest.raises(StepError, match="copies"):
            again.carry_out()
        with pytest.raises(StepError):
            again.fence()
        chain.publish(row(3))
        with pytest.raises(StepError, match="later"):
            again.carry_out()
        assert_rows(chain, row(1), row(3))

    def test_a_mark_that_is_too_old_stops_by_name(self, chain: _Chain) -> None:
        """The journal knows of a slot that the table doesn't know: somebody restored the table, and its marks too."""
        chain.publish(row(1))
        chain.slots += 1
        chain.previous = Mark(chain.slots, uuid.uuid4().hex, done=True)
        decided = chain.decide(row(2))
        with pytest.raises(StepError, match="must have"):
            decided.carry_out()
        with pytest.raises(StepError):
            decided.fence()
        assert decided.asked().fence() is FenceResult.HOLDS
        assert_rows(chain, row(1))

    def test_a_table_of_another_dataset_stops_by_name(self, chain: _Chain) -> None:
        chain.publish(row(1))
        other = _Chain(chain.bench, OTHER)
        with pytest.raises(StepError, match="belongs to"):
            other.decide(row(2)).carry_out()
        assert_rows(chain, row(1))

    def test_a_table_that_is_taken_over_shuts_out_its_former_owner(self, chain: _Chain) -> None:
        chain.publish(row(1))
        pending = chain.decide(row(2))
        heir = _Chain(chain.bench, OTHER)
        heir.open().take_over(heir.look(), OTHER)
        with pytest.raises(StepError, match="belongs to"):
            pending.carry_out()
        assert pending.fence() is FenceResult.HOLDS
        heir.publish(row(3))
        assert_rows(chain, row(1), row(3))

    def test_a_take_over_moves_the_mark_of_the_heir_in_its_commit(self, chain: _Chain) -> None:
        """A former owner that takes the table back does so by a new slot: its earlier decision never takes hold."""
        first = chain.publish(row(1))
        pending = chain.decide(row(2))
        for new in (_Chain(chain.bench, OTHER), replace(chain, slots=chain.slots + 1)):
            new.slots += 1
            mark = Mark(new.slots, uuid.uuid4().hex, done=True)
            before = new.look()
            new.open().take_over(before, new.owner, mark)
            look = new.look()
            assert (look.owner, look.mark, look.in_history, look.id) == (new.owner, mark, True, before.id)
            assert look.version != before.version
            with pytest.raises(TableMovedError):
                new.open().take_over(before, new.owner, mark)
            with pytest.raises(StepError):
                pending.carry_out()
        with pytest.raises(StepError):
            first.fence()
        assert_rows(chain, row(1))

    def test_a_mark_without_a_change_leaves_a_table_to_its_owner(self, chain: _Chain) -> None:
        chain.publish(row(1))
        other = _Chain(chain.bench, OTHER)
        mark = Mark(1, uuid.uuid4().hex, done=False)
        other.open().commit(look := other.look(), Change(form=look.form), OTHER, mark)
        assert (other.look().owner, other.look().mark) == (OWNER, mark)
        chain.publish(row(2))
        assert_rows(chain, row(1), row(2))

    # Reading

    def test_it_is_read_as_it_is_and_as_a_mark_left_it(self, chain: _Chain) -> None:
        chain.publish(row(1), row(2))
        left = chain.look().left
        chain.publish(row(3))
        names = SCHEMA.names
        assert_read(chain.open().read().to_table(columns=names), row(1), row(2), row(3))
        if left:
            assert chain.look().left != left
            assert_read(chain.open().read(left).to_table(columns=names), row(1), row(2))
        with pytest.raises(NotFoundError):
            chain.open().read("987654321")
        files = [*chain.open().files()]
        assert len(files) == len({*files})
        location = chain.look().location
        if location:
            place = open_files(location, chain.bench.connections)
            assert [path for path in files if place.identity(path) is None] == []
            assert len(files) == 3


def rows_of(chain: _Chain) -> Counter[str]:
    """Return the rows of a chain's table, as a multiset."""
    return Counter(_text(one) for one in chain.bench.rows())


def assert_rows(chain: _Chain, *rows: Row) -> None:
    """Make sure that a table has just these rows."""
    assert rows_of(chain) == Counter(map(_text, rows))


def assert_read(found: pa.Table, *rows: Row) -> None:
    """Make sure that just these rows were read."""
    assert Counter(map(_text, found.to_pylist())) == Counter(map(_text, rows))


def _text(one: Row) -> str:
    return str(sorted(item for item in one.items() if item[1] is not None))


def tried(do: Callable[[], object]) -> None:
    """Try something that may fail."""
    with suppress(GobblinError):
        do()


def interruptions(chain: _Chain, answer_lost: bool) -> Iterator[tuple[int, _Decided, _Interrupted]]:
    """Yield a slot for each call that it makes, with a way to its table on which this call fails."""
    number = 0
    while True:
        number += 1
        decided, table = chain.decide(row(number)), _Interrupted(chain.bench.table, number, answer_lost=answer_lost)
        yield number, decided, table
        if not table.reached:
            return
