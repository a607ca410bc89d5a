"""The page's own threads for reading journals and targets, which may hang: nothing else of Airflow's waits for them.

Airflow's routes share a few threads. A journal that doesn't answer would hold one with each view, until none is left. So work
that may hang runs here: in few threads for one journal, not many for all, and with a time limit after which the user is answered.
A thread can't be stopped; one that hangs keeps its place until it ends. A journal that failed isn't asked again for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from asyncio import AbstractEventLoop, Future, Semaphore
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

from airflow_gobblin.errors import GobblinError, StoreError

__all__ = ["Late", "Threads"]

T = TypeVar("T")
Late = Callable[[str, float], GobblinError]
"""A function that makes the error for an answer that is late, from the subject and the seconds that passed."""


def no_answer(subject: str, seconds: float) -> StoreError:
    """Return the error for something that can't be looked at in time."""
    return StoreError(
        operation="look at",
        subject=subject,
        cause=f"no answer came in {seconds:g} s",
        hint="Check that its storage is up and can be reached from the API server. "
        "A long search goes on meanwhile, and the next one is quicker.",
    )


@dataclass
class _Lane:
    """The work on one subject.

    :param users: the number of users that wait or run.
    :param failure: its last, remembered until `until`.
    """

    places: Semaphore
    users: int = 0
    failure: StoreError | None = None
    until: float = 0.0

    def check(self) -> None:
        """Raise the remembered failure, if it still holds."""
        left = self.until - time.monotonic()
        if self.failure is not None and left > 0:
            raise StoreError(
                operation=self.failure.operation,
                subject=self.failure.subject,
                cause=self.failure.cause,
                hint=f"{self.failure.hint or ''} It is asked again in {math.ceil(left)} s.".strip(),
            )


class Threads:
    """A limited number of threads for work that may hang.

    :param each: the number for one subject.
    :param most: the number for all.
    :param seconds: the longest wait, including that for a place.
    :param remembered: seconds for which a subject that failed isn't asked again.
    :param late: makes the error when time is up.
    """

    def __init__(
        self, *, each: int, most: int, seconds: float, remembered: float = 0.0, late: Late = no_answer
    ) -> None:
        self._each = each
        self._places = Semaphore(most)
        self._seconds = seconds
        self._remembered = remembered
        self._late = late
        self._lanes: dict[str, _Lane] = {}

    async def run(self, key: str, subject: str, work: Callable[[], T]) -> T:
        """Run work in a thread.

        :param key: of the subject, whose places are few and whose failures are remembered.
        :param subject: its name in errors.
        :raises GobblinError: it wasn't done in time, or the subject has just failed. Errors of the work pass through.
        """
        lane = self._lanes.setdefault(key, _Lane(Semaphore(self._each)))
        lane.check()
        try:
            async with asyncio.timeout(self._seconds):
                return await (await self._started(key, lane, work))
        except TimeoutError as error:
            late = self._late(subject, self._seconds)
            self._remember(lane, late)
            raise late from error

    async def _started(self, key: str, lane: _Lane, work: Callable[[], T]) -> Future[T]:
        lane.users += 1
        try:
            await lane.places.acquire()
            try:
                await self._places.acquire()
            except BaseException:
                lane.places.release()
                raise
        except BaseException:
            self._leave(key, lane)
            raise
        loop = asyncio.get_running_loop()
        answer: Future[T] = loop.create_future()
        context = copy_context()

        def run() -> None:
            result, error = None, None
            try:
                result = context.run(work)
            except BaseException as raised:
                error = raised
            _call_in(loop, lambda: self._ended(key, lane, answer, result, error))

        # A daemon: a hanging one doesn't keep the API server from stopping.
        Thread(target=run, name=f"gobblin page: {key}", daemon=True).start()
        return answer

    def _ended(self, key: str, lane: _Lane, answer: Future[Any], result: Any, error: BaseException | None) -> None:
        self._places.release()
        lane.places.release()
        if isinstance(error, StoreError):
            self._remember(lane, error)
        else:  # it answers
            lane.failure = None
        self._leave(key, lane)
        if answer.done():  # nobody waits any more
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _remember(self, lane: _Lane, failure: GobblinError) -> None:
        if self._remembered and isinstance(failure, StoreError):
            lane.failure, lane.until = failure, time.monotonic() + self._remembered

    def _leave(self, key: str, lane: _Lane) -> None:
        lane.users -= 1
        if not lane.users and lane.failure is None:
            self._lanes.pop(key, None)


def _call_in(loop: AbstractEventLoop, what: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
        loop.call_soon_threadsafe(what)
