"""Starting and stopping the programs that tests need."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

__all__ = ["children", "command_line", "environment_of", "free_port", "start_process", "stop_process", "wait_for_line"]

_SERVERS_PORTS = range(12_000, 32_000)
_given: set[int] = set()
"""The ports that this process has given to its servers."""


def free_port() -> int:
    """Return a TCP port that is free on 127.0.0.1, another one each time. It is below those that the system gives to clients:
    one of these may be taken before the server listens.
    """
    while True:
        port = secrets.choice(_SERVERS_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def command_line(process: psutil.Process) -> str:
    """The command line of a process, as anybody on this host sees it; empty if it ended just now."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def environment_of(process: psutil.Process) -> dict[str, str]:
    """The environment of a process; empty if it ended just now."""
    with suppress(psutil.Error, OSError):
        return process.environ()
    return {}


def children(process: subprocess.Popen[bytes], *, recursive: bool = True) -> list[psutil.Process]:
    """The processes that a process has started, and theirs."""
    with suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=recursive)
    return []


def start_process(
    command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` as the leader of its own process group, with its output in `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | (env or {}),
            cwd=cwd,
            start_new_session=True,
        )


def stop_process(process: subprocess.Popen[bytes], *, first: signal.Signals, seconds: float = 20) -> None:
    """Ask `process` to end with the signal `first`, then kill what is left of its group."""
    if process.poll() is None:
        process.send_signal(first)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_line(process: subprocess.Popen[bytes], log: Path, pattern: str, *, seconds: float = 240) -> re.Match[str]:
    """Wait until `pattern` is in the log of `process` and return the match.

    :param seconds: the limit, for a machine where three other lanes of tests want the processors, too.
    :raises RuntimeError: the process ends first, or `seconds` go by; its log is in the text.
    """
    deadline = time.monotonic() + seconds
    while True:
        running = process.poll() is None
        text = log.read_text(errors="replace")
        if match := re.search(pattern, text):
            return match
        if not running or time.monotonic() > deadline:
            state = f"has not printed it in {seconds:.0f} s" if running else f"ended with {process.returncode}"
            raise RuntimeError(f"waited for {pattern!r} from a program that {state}:\n{text}\n{process.args!r}")
        time.sleep(0.05)
