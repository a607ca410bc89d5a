"""Every order of the calls that some processes make to the world that they share.

A process is the product's own code, in a greenlet: it waits at each call for its answer, and meanwhile others go on. Its next
call is decided by the answers that it got so far, and by nothing else. So the code runs once for each sequence of answers
(`Places`). From then on a state is a world and a place for each process, and the state after a call is found without running
anything again. An order isn't followed any further where it leads to a state that was seen.

Cf. stateful model checking of code, as in Godefroid's "Model Checking for Programming Languages using VeriSoft" (POPL 1997) and
CMC (Musuvathi et al., OSDI 2002): here the state of a process is a digest of its answers, not of its memory.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, Generic, Protocol, Self, TypeVar
from unittest import mock

from greenlet import getcurrent, greenlet


class BrokenPromise(BaseException):
    """An order of calls broke a promise. The product catches no such error."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a process waits to make.

    :param at_once: whether it is made together with the call before, so that nobody comes in between.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the world to a call.

    :param digest: everything about it that matters to what the process does next.
    :param notes: what the process saw by it, for judging its later calls.
    :param held: what the process holds open until its next call is answered.
    """

    value: Any = None
    digest: Hashable = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[int, ...] = ()
    error: OSError | None = None


class World(Protocol):
    """All that processes share."""

    def copy(self) -> Self:
        """Return another one in the same state."""

    def digest(self) -> Hashable:
        """Return all of its state: two worlds with the same one are alike in all that can happen next."""

    def holds(self, held: tuple[int, ...]) -> Hashable:
        """Return all of the state of what a process holds that decides what can happen next."""

    def changes(self, call: Call) -> bool:
        """Whether a call may change it."""

    def answer(self, call: Call, notes: Mapping[str, Any], held: tuple[int, ...]) -> Answer:
        """Carry out a call of a process.

        :param notes: all notes of the process since it began its step.
        :raises BrokenPromise: the call breaks a promise.
        """


W = TypeVar("W", bound=World)


class Process:
    """A process: some work of the product's that waits at each of its calls.

    :param work: it calls `ask` for everything that it needs of the world.
    :param expected: the errors by which it may end.
    """

    def __init__(self, work: Work, expected: tuple[type[BaseException], ...] = ()) -> None:
        self.digest = 0
        """Of its answers since it began its step: all that matters to what it does next."""
        self.notes: dict[str, Any] = {}
        self.held: tuple[int, ...] = ()
        self.error: BaseException | None = None
        self._work = work
        self._expected = expected
        self._own = greenlet(self._run)
        self._own.process = self
        self.call: Call | None = self._go(())
        """The call that it waits to make; `None` if it ended."""

    def _run(self) -> None:
        try:
            self._work(self)
        except self._expected as error:
            self.error = error

    def go_on(self, answer: Answer) -> None:
        """Answer its call, and let it run to its next one."""
        self.held = answer.held
        self.call = self._go((answer,))

    def _go(self, given: tuple[Answer, ...]) -> Call | None:
        call: Call | None = self._own.switch(*given)
        return call

    def die(self) -> None:
        """Let it end where it is: a greenlet that waits would stay in memory."""
        if not self._own.dead:
            self._own.throw()

    def state(self) -> int:
        """Return a digest of where it is, and of its notes."""
        ended = self.call is None
        return hash((self._work,) if ended else (self._work, self.digest, *sorted(self.notes.items())))

    def begin(self, *what: object) -> None:
        """Begin a step, whatever was before."""
        self.digest = hash((what, *map(type, what)))  # data classes of the same values have the same hash
        self.notes = {}

    def ask(self, name: str, *arguments: Any, at_once: bool = False) -> Any:
        """Make a call, once it is its turn.

        :raises OSError: the world answered with it.
        """
        parent = self._own.parent
        assert parent is not None
        answer = parent.switch(Call(name, arguments, at_once))
        self.digest = hash((self.digest, name, answer.digest))
        self.notes |= answer.notes
        if answer.error is not None:
            raise type(answer.error)(*answer.error.args)
        return answer.value


Work = Callable[[Process], None]


@contextmanager
def alive(process: Process) -> Iterator[Process]:
    """Let a process die at the end."""
    try:
        yield process
    finally:
        process.die()


def make_call(process: Process, world: World) -> None:
    """Let a process make its next call, and those that it makes at once with it.

    :raises BrokenPromise: it breaks a promise.
    """
    call = process.call
    while call is not None:
        process.go_on(world.answer(call, process.notes, process.held))
        call = process.call if process.call is not None and process.call.at_once else None


def _acting() -> Process | None:
    """The process whose code runs just now; `None` for the world's."""
    return getattr(getcurrent(), "process", None)


def _new_name(otherwise: Callable[[], uuid.UUID]) -> uuid.UUID:
    """Return a new unique name.

    :param otherwise: makes those of the world's own.
    """
    process = _acting()
    return otherwise() if process is None else uuid.UUID(int=process.ask("new_name", at_once=True))


@contextmanager
def named_in_turn() -> Iterator[None]:
    """Let the world give processes their unique names, so that they are the same each time."""
    with mock.patch.object(uuid, "uuid4", partial(_new_name, uuid.uuid4)):
        yield


@contextmanager
def forgetting(*owners: Any) -> Iterator[None]:
    """Let processes forget how a function came to its result, once it returned.

    That leaves fewer states apart, and none out: of a function that calls the world and changes nothing else, its caller knows
    the result alone.

    :param owners: the modules and classes that have these functions.
    """
    with ExitStack() as patched:
        for owner in owners:
            for name, function in [*vars(owner).items()]:
                if isfunction(function) and not name.startswith("__") and not isgeneratorfunction(function):
                    patched.enter_context(mock.patch.object(owner, name, _forgets(function)))
        yield


def _forgets(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        process = _acting()
        if process is None:
            return function(*args, **kwargs)
        before = process.digest
        result = function(*args, **kwargs)
        if result is None or isinstance(result, bool | Enum):
            process.digest = hash((before, function.__qualname__, result))
        return result

    return call


class Place:
    """A place in some work where a process waits.

    :param process: one that is there.
    :param answers: those by which it came there: the last one, and the answers before it.
    """

    __slots__ = ("answers", "call", "digest", "error", "following", "notes", "work")

    def __init__(self, work: Work, process: Process, answers: _Chain) -> None:
        self.work = work
        self.call = process.call
        self.error = process.error
        self.notes = process.notes
        self.answers = answers
        self.following: dict[Hashable, Place] = {}
        self.digest = process.state()


_Chain = tuple[Any, Any] | None
"""The last one of some, and the chain of those before it."""


class Places:
    """The places of all works. The code runs only to find new ones."""

    def __init__(self, expected: tuple[type[BaseException], ...]) -> None:
        self._expected = expected
        self._known: dict[int, Place] = {}

    def first(self, work: Work) -> Place:
        """Return the place where some work begins."""
        return self._place(work, None)

    def after(self, place: Place, answer: Answer) -> Place:
        """Return the place after a call was answered."""
        found = place.following.get(answer.digest)
        if found is None:
            found = place.following[answer.digest] = self._place(place.work, (answer, place.answers))
        return found

    def _place(self, work: Work, answers: _Chain) -> Place:
        with alive(Process(work, self._expected)) as process:
            for answer in _in_turn(answers):
                process.go_on(answer)
            new = Place(work, process, answers)
        place = new if new.call is None else self._known.setdefault(new.digest, new)
        assert place.call == new.call, "the digest of its answers doesn't decide what it calls next"
        return place


def _in_turn(chain: _Chain) -> list[Any]:
    backwards = []
    while chain is not None:
        last, chain = chain
        backwards.append(last)
    return backwards[::-1]


@dataclass
class Tally:
    """The results of a scenario.

    :param states: how many different ones.
    :param recovered: how many worlds a new process brought to their ends alone.
    """

    orders: int = 0
    states: int = 0
    recovered: int = 0
    broken: str = ""


_Standing = tuple[Place, tuple[int, ...]]
"""The place of a process, and what it holds."""


@dataclass(frozen=True, slots=True)
class _State(Generic[W]):
    """A state of all.

    :param digest: the world's.
    :param order: the calls by which it was reached: the process of the last one, and the order before it.
    """

    world: W
    digest: int
    processes: tuple[_Standing, ...]
    order: _Chain = None

    @property
    def able(self) -> list[int]:
        """The processes that can go on."""
        return [number for number, (place, _) in enumerate(self.processes) if place.call is not None]

    def whole(self, *, last: bool) -> int:
        """Return a digest of all that decides what can happen next.

        :param last: whether it matters which process made the last call.
        """
        each = [_with_held(self.world, place.digest, held) for place, held in self.processes]
        return _whole(self.digest, each, each[self.order[0]] if last and self.order else 0)


def _with_held(world: World, state: int, held: tuple[int, ...]) -> int:
    return hash((state, world.holds(held))) if held else state


def _whole(world: int, processes: Sequence[int], last: int = 0) -> int:
    return hash((world, last, *sorted(processes)))  # of two that do the same, it doesn't matter which


class Explorer(Generic[W]):
    """All orders of the calls of some processes, those with the fewest changes first.

    :param works: what each process does.
    :param recovery: what a process does that comes when all others have died.
    :param check: raises `BrokenPromise` unless a world is as it should be once the recovery ended, with or without an error.
    :param expected: the errors by which works may end.
    :param changes: how many times at the most another process goes on although the former one could; `None`: any number.
    """

    def __init__(
        self,
        works: Sequence[Work],
        recovery: Work,
        check: Callable[[W, BaseException | None], None],
        expected: tuple[type[BaseException], ...],
        changes: int | None = None,
    ) -> None:
        self._works = works
        self._check = check
        self._changes = changes
        self._places = Places(expected)
        self._recovery = self._places.first(recovery)
        self._seen: set[int] = set()
        self._recovered: set[int] = set()
        self._following: dict[tuple[int, Place, tuple[int, ...]], tuple[W, int, _Standing]] = {}
        """The world after the call of a process from a place, and the process: many states have the same ones."""
        self._waiting: deque[tuple[int, _State[W], int | None]] = deque()
        """How many changes there were, a state, and the process that goes on from there."""
        self.tally = Tally()

    def explore(self, world: W) -> Tally:
        """Try all orders, or until a promise is broken."""
        processes = tuple((self._places.first(work), ()) for work in self._works)
        self._waiting.append((0, _State(world, hash(world.digest()), processes), None))
        while self._waiting and not self.tally.broken:
            self._follow(*self._waiting.popleft())
        return self.tally

    def found(self, world: W, processes: Sequence[Process]) -> bool:
        """Whether a state of processes that are played themselves is among those that were found, without a bound."""
        states = [_with_held(world, process.state(), process.held) for process in processes]
        return _whole(hash(world.digest()), states) in self._seen

    def _follow(self, changed: int, state: _State[W], number: int | None) -> None:
        """Follow an order to a state that was seen, or to its end, and note the other ways to go."""
        self.tally.orders += 1
        try:
            if number is not None:
                state = self._after(state, number)
            while (whole := state.whole(last=self._changes is not None)) not in self._seen:
                self._seen.add(whole)
                self.tally.states += 1
                self._recover(state)
                able = state.able
                if not able:
                    return
                last = state.order[0] if state.order else None
                goes = last if last is not None and last in able else able[0]
                self._note(changed, state, [number for number in able if number != goes], free=goes != last)
                state = self._after(state, goes)
        except BrokenPromise as broken:
            self.tally.broken = str(broken)

    def _note(self, changed: int, state: _State[W], others: Sequence[int], *, free: bool) -> None:
        """Note the processes that could go on instead.

        :param free: whether that is no change: the one before can't go on.
        """
        if free or self._changes is None:
            self._waiting.extendleft((changed, state, other) for other in others)
        elif changed < self._changes:
            self._waiting.extend((changed + 1, state, other) for other in others)

    def _after(self, state: _State[W], number: int) -> _State[W]:
        """Return the state after the next call of a process."""
        order = (number, state.order)
        place, held = state.processes[number]
        found = self._following.get((state.digest, place, held))
        if found is None:
            try:
                found = self._called(state.world, state.digest, place, held)
            except BrokenPromise as broken:
                raise BrokenPromise(f"{broken}, in the order {_in_turn(order)}") from None
            self._following[state.digest, place, held] = found
        world, digest, stands = found
        return _State(world, digest, (*state.processes[:number], stands, *state.processes[number + 1 :]), order)

    def _called(self, world: W, digest: int, place: Place, held: tuple[int, ...]) -> tuple[W, int, _Standing]:
        """Return the world and the process after its call, and those that it makes at once with it."""
        while True:
            assert place.call is not None
            if world.changes(place.call):
                world, digest = world.copy(), 0
            answer = world.answer(place.call, place.notes, held)
            place, held = self._places.after(place, answer), answer.held
            if place.call is None or not place.call.at_once:
                return world, digest or hash(world.digest()), (place, held)

    def _recover(self, state: _State[W]) -> None:
        """Let everybody die, and a new process bring the world to its end.

        :raises BrokenPromise: it isn't as it should be then.
        """
        if self._has_recovered(state.digest, self._recovery):
            return
        self.tally.recovered += 1
        world, digest, place = state.world.copy(), state.digest, self._recovery
        held: tuple[int, ...] = ()
        try:
            while place.call is not None:
                answer = world.answer(place.call, place.notes, held)
                digest = hash(world.digest()) if world.changes(place.call) else digest
                place, held = self._places.after(place, answer), answer.held
                if not held and self._has_recovered(digest, place):
                    return
            self._check(world, place.error)
        except BrokenPromise as broken:
            raise BrokenPromise(f"{broken}, alone after the order {_in_turn(state.order)}") from None

    def _has_recovered(self, digest: int, place: Place) -> bool:
        """Whether that is known from another state, or will be: it is found out just now."""
        state = hash((digest, id(place)))
        known = state in self._recovered
        self._recovered.add(state)
        return known
