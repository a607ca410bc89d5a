"""Attempts that hand over to one another at any call of a store or of the file system, and the determinism that this needs.

An attempt is a greenlet: it runs until its rules let another one go on. So one thread plays many processes, in any
order, and that order alone determines what happens.
"""

from __future__ import annotations

import logging
import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any, Protocol, Self, TypeVar
from unittest import mock
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet

from airflow_gobblin.admin import actions
from airflow_gobblin.commit import cleanup, committer, homes
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal import journal, trimming
from airflow_gobblin.model import wire
from airflow_gobblin.run import announce, dataset_plan, notes
from airflow_gobblin.run import plan as planning
from airflow_gobblin.steps import execution
from airflow_gobblin.storage.files import contained
from airflow_gobblin.storage.stores import base
from airflow_gobblin.tables import commit as commits
from airflow_gobblin.testing import memory_files
from airflow_gobblin.workspace import claims
from tests.faults import Call, Crash, Fault, injected

T = TypeVar("T")


HOURS_APART = 12
"""How many hours the clock of a process is ahead or behind, at the most."""
_running: WeakKeyDictionary[greenlet, Attempt] = WeakKeyDictionary()
"""The attempt of a greenlet."""


class Rules(Protocol):
    """Decide what happens to the calls of attempts."""

    def before(self, attempt: Attempt, call: Call) -> Fault | None:
        """A call is about to be made: the attempt may pause here.

        :return: what goes wrong with it.
        """

    def observe(self, call: Call, do: Callable[[], T]) -> T:
        """Make the call."""


class Attempt:
    """One attempt of one task, or a person at work.

    :param work: what it does, whose calls are made by way of this attempt.
    """

    def __init__(self, name: str, rules: Rules, work: Callable[[Attempt], None]) -> None:
        self.name = name
        self.rules = rules
        self.work = work
        self.dead = False
        self.ended = False
        self.error: BaseException | None = None
        self.failed = False
        """Whether it found a bug, in the product or the tests: it ended otherwise than an attempt may."""
        self._others = getcurrent()
        self._own = greenlet(self._run)
        _running[self._own] = self

    def _run(self) -> None:
        try:
            self.work(self)
        except (GobblinError, OSError, Crash) as error:
            self.error = error
        except BaseException as error:
            self.error = error
            self.failed = True
        self.ended = True

    @cached_property
    def ahead(self) -> timedelta:
        """How far its clock is ahead, or behind."""
        return timedelta(hours=random.Random(self.name).uniform(-HOURS_APART, HOURS_APART))

    def go_on(self) -> None:
        """Let it go on until it pauses or ends."""
        self._own.switch()

    def pause(self) -> None:
        """Let another attempt go on. For its rules, which call this."""
        self._others.switch()

    def end(self) -> None:
        """Let it die where it is."""
        self.dead = True
        if not self.ended:
            self.go_on()

    def call(self, call: Call, do: Callable[[], T], tear: Callable[[], object] | None = None) -> T:
        """As `Faults.call`: make a call, or let it go wrong, by the rules."""
        if self.dead:
            raise Crash
        fault = self.rules.before(self, call)
        if self.dead:
            raise Crash
        if fault is None:
            return self.rules.observe(call, do)
        if fault in (Fault.CRASH_AFTER, Fault.ANSWER_LOST):
            self.rules.observe(call, do)
        elif fault is Fault.TORN and tear is not None:
            tear()
        if fault in (Fault.ERROR, Fault.ANSWER_LOST, Fault.NO_SPACE):
            raise injected(call, fault)
        self.dead = True
        raise Crash


class Determined:
    """The source of ids, names and times."""

    def __init__(self) -> None:
        self._chance = random.Random(0)
        self._steps: tuple[int, ...] = (-3600, -1, 0, 1, 1, 60)
        self._clock = datetime(2026, 1, 1, tzinfo=UTC)

    def begin(self, seed: int | str) -> None:
        """Derive everything from a seed from here on."""
        self._chance.seed(seed)
        self._clock = datetime(2026, 1, 1, tzinfo=UTC)

    def stop_clock(self) -> None:
        """Keep the same time from here on."""
        self._steps = (0,)

    def hexadecimal(self, size: int) -> str:
        return f"{self._chance.getrandbits(8 * size):0{2 * size}x}"

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._chance.getrandbits(128))

    def now(self) -> datetime:
        """A clock that nothing can rely on (I13): it goes back and forth, and each process has another one, hours apart."""
        self._clock += timedelta(seconds=self._chance.choice(self._steps))
        attempt = _running.get(getcurrent())
        if attempt is None or self._steps == (0,):
            return self._clock
        return self._clock + attempt.ahead


TELLING_TIME = (actions, announce, claims, cleanup, committer, dataset_plan, homes, journal, notes, planning, trimming)
"""The modules that ask for the time."""
_determined: Determined | None = None


@contextmanager
def deterministic() -> Iterator[Determined]:
    """No threads, no waiting, and ids, names and times that follow from a seed. Harmless within itself."""
    global _determined  # noqa: PLW0603 - what it patches is global, too
    if _determined is not None:
        yield _determined
        return
    _determined = Determined()
    try:
        with ExitStack() as stack:
            for target, name, value in _patches(_determined):
                stack.enter_context(mock.patch.object(target, name, value))
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
            yield _determined
    finally:
        _determined = None


def _patches(determined: Determined) -> Iterator[tuple[Any, str, Any]]:
    yield uuid, "uuid4", determined.uuid
    yield secrets, "token_hex", determined.hexadecimal
    for module in (base, journal):
        yield module, "time", SimpleNamespace(sleep=lambda seconds: None)
    for module in TELLING_TIME:
        yield module, "now", determined.now
    yield execution, "ThreadPoolExecutor", OneThread
    yield trimming, "KEPT", 1
    yield trimming, "TRIMMED_TOGETHER", 2
    known = _Known(wire.loads, wire.dumps)
    yield wire, "loads", known.loads
    yield wire, "dumps", known.dumps
    yield memory_files, "contained", cache(contained)
    yield commits, "_PAUSE", 0.0


class OneThread:
    """In place of a pool of threads."""

    def __init__(self, threads: int) -> None:
        self.map = map

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left running."""


class _Known:
    """Records are frozen, and many attempts read the same ones: each is decoded once, or never by the process that encoded it."""

    def __init__(self, loads: Callable[[bytes, Any, str], Any], dumps: Callable[[Any], bytes]) -> None:
        self._loads = loads
        self._dumps = dumps
        self._known: dict[tuple[bytes, Any], Any] = {}

    def dumps(self, value: Any) -> bytes:
        data = self._dumps(value)
        self._known[data, type(value)] = value
        return data

    def loads(self, data: bytes, expected: Any, subject: str) -> Any:
        found = self._known.get((data, expected))
        if found is None:
            if len(self._known) > 2000:
                self._known.clear()
            found = self._known[data, expected] = self._loads(data, expected, subject)
        return found
