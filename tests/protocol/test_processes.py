"""The processes of the proofs: a proof fails for what a process does, not for who else stops it."""

from __future__ import annotations

import os
import signal
import time
from threading import Timer

import pytest

from tests.protocol.processes import Child, Send, stop


def test_a_process_that_somebody_else_stops_is_waited_for() -> None:
    def work(send: Send) -> None:
        time.sleep(0.3)
        send("done")

    child = Child(work)
    os.kill(child.pid, signal.SIGSTOP)
    resume = Timer(0.5, os.kill, (child.pid, signal.SIGCONT))
    resume.start()
    assert child.result(60) == ["done"]
    resume.join()


def test_a_process_that_stops_itself_is_seen_to_be_stopped() -> None:
    def work(send: Send) -> None:
        send("before")
        stop()
        send("after")

    child = Child(work)
    assert child.stopped(60)
    assert not child.ended(0.1)
    child.send(signal.SIGCONT)
    assert child.result(60) == ["before", "after"]


def test_a_process_that_comes_to_no_end_is_killed() -> None:
    child = Child(lambda send: time.sleep(600))
    with pytest.raises(AssertionError, match="came to no end"):
        child.result(0.1)
    assert child.killed
