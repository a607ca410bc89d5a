"""Fresh processes: forked from a warm one, so that they cost milliseconds, and killed as the kernel kills."""

from __future__ import annotations

import gc
import io
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

Tell = Callable[[Any], None]
"""Sends something to the process that waits for this one."""


def die() -> None:
    """Be gone, as by `kill -9`: nothing is flushed, closed or undone."""
    os.kill(os.getpid(), signal.SIGKILL)


def in_fresh_process(work: Callable[[Tell], None]) -> list[Any]:
    """Do some work in a process of its own, and wait for its end, natural or not.

    :return: what it told. :raises AssertionError: it failed, with its traceback. Being killed by its own hand is no failure.
    """
    reading, writing = os.pipe()
    gc.collect()
    gc.freeze()  # the two share what there is
    child = os.fork()
    if child == 0:
        _be_the_child(work, reading, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    heard = _loads_all(told)
    if code == 1:
        raise AssertionError(heard[-1])
    assert code in (0, -signal.SIGKILL), f"it ended with {code}"
    return heard


def _be_the_child(work: Callable[[Tell], None], reading: int, writing: int) -> NoReturn:
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
    stream, found = io.BytesIO(data), []
    while stream.tell() < len(data):
        found.append(pickle.load(stream))
    return found
