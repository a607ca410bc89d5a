"""Fresh processes: forked from a warm one, so that they cost milliseconds, and killed or stopped as the kernel does it."""

from __future__ import annotations

import gc
import io
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from airflow_gobblin.storage import filesystems
from airflow_gobblin.storage.stores import objects

Send = Callable[[Any], None]
"""Send something to the process that waits for this one."""


def die() -> None:
    """Die, as by `kill -9`: nothing is flushed, closed or undone."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    """Stop, as by `kill -STOP`, until another process lets this one go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Child:
    """Some work in a process of its own.

    :param work: gets a function that sends something to this process.
    """

    def __init__(self, work: Callable[[Send], None]) -> None:
        reading, writing = os.pipe()
        gc.collect()
        self.pid = os.fork()
        if self.pid == 0:
            _be_the_child(work, reading, writing)
        os.close(writing)
        self._pipe = reading
        self._heard = b""
        self._status: int | None = None

    def send(self, which: signal.Signals) -> None:
        """Send it a signal; harmless if it has ended."""
        if self._status is None:
            os.kill(self.pid, which)

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, by itself or not; waits for it for some time, also while somebody else has stopped it."""
        return self._waited(seconds, os.WNOHANG) == "ended"

    def stopped(self, seconds: float = 0.0) -> bool:
        """Whether it is stopped; waits for that, or for its end, for some time."""
        return self._waited(seconds, os.WNOHANG | os.WUNTRACED) == "stopped"

    def _waited(self, seconds: float, options: int) -> str:
        deadline = time.monotonic() + seconds
        while self._status is None:
            self._hear()
            pid, status = os.waitpid(self.pid, options)
            if pid and os.WIFSTOPPED(status):
                return "stopped"
            if pid:
                self._status = status
                self._hear(to_the_end=True)
            elif time.monotonic() > deadline:
                return "running"
            else:
                select.select([self._pipe], [], [], 0.002)
        return "ended"

    def _hear(self, *, to_the_end: bool = False) -> None:
        """Read what it has sent, so that it never waits for us."""
        while to_the_end or select.select([self._pipe], [], [], 0)[0]:
            data = os.read(self._pipe, 1 << 16)
            if not data:
                break
            self._heard += data
        if to_the_end:
            os.close(self._pipe)

    def result(self, seconds: float = 600.0) -> list[Any]:
        """The objects that it sent until its end.

        :raises AssertionError: it failed, with its traceback, or it didn't end. Being killed is no failure.
        """
        if not self.ended(seconds):
            self.send(signal.SIGKILL)
            self.ended(60)
            raise AssertionError(f"process {self.pid} came to no end in {seconds:.0f} s")
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        heard = _loads_all(self._heard)
        if code == 1:
            raise AssertionError(heard[-1])
        assert code in (0, -signal.SIGKILL), f"it ended with {code}"
        return heard

    @property
    def killed(self) -> bool:
        """Whether it ended by being killed."""
        return self._status is not None and os.WIFSIGNALED(self._status)


def be_forked_often() -> None:
    """Leave out all that this process has now of what is looked through before each fork: it takes most of a fork's time."""
    gc.collect()
    gc.freeze()


def in_fresh_process(work: Callable[[Send], None]) -> list[Any]:
    """Do some work in a process of its own, and wait for its end.

    :return: what it sent.
    :raises AssertionError: as `Child`.
    """
    return Child(work).result()


def _be_the_child(work: Callable[[Send], None], reading: int, writing: int) -> NoReturn:
    os.close(reading)
    code = 1
    try:
        gc.disable()
        work(lambda what: _write_all(writing, pickle.dumps(what)))
        code = 0
    except BaseException:
        _write_all(writing, pickle.dumps(traceback.format_exc(limit=-8)))
    finally:
        os._exit(code)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _loads_all(data: bytes) -> list[Any]:
    """The objects that were sent, without a half-sent rest."""
    stream, found = io.BytesIO(data), []
    while stream.tell() < len(data):
        try:
            found.append(pickle.load(stream))
        except (EOFError, pickle.UnpicklingError):
            break
    return found


def share_clients() -> None:
    """Let each process open one client of an object store for records and one for files."""
    for module in (filesystems, objects):
        share(module, "open_filesystem", lambda place: place.conn_id)


def share(module: Any, name: str, key: Callable[[Any], Any]) -> None:
    """Let each process that is forked from this one open a place once.

    :param name: of the function that opens it.
    """
    setattr(module, name, opening_once(getattr(module, name), key))


def opening_once(real: Callable[..., Any], key: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that opens a place as `real` does, once.

    :param key: what is opened once of a place.
    """
    opened: dict[Any, Any] = {}

    def shared(place: Any, connections: Any = None, **options: Any) -> Any:
        at = key(place), tuple(options.items())
        if at not in opened:
            opened[at] = real(place, connections, **options)
        return opened[at]

    return shared
