"""The process of a driver for Spark Connect: forked by a server that has its imports loaded, or else started anew.

The server is this user's alone, as is the folder of its socket. Each environment in which imports may differ has its own: the
Python, its packages, and the variables that are read when modules load. A request goes through the socket, with the secrets in
a driver's environment; the server itself is given none.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import select
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol, Self

from airflow_gobblin.spark import fork_server
from airflow_gobblin.spark.ship import own_folder

__all__ = ["DriverProcess", "start_driver"]

log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds in which the server must answer; the first time, it loads everything before that."""
UNKNOWN = 255
"""The status of a driver whose server ended before it."""
_WAITING = 64
"""The number of requests that may wait while the server loads."""
_READ_ON_IMPORT = ("PYTHON", "PYSPARK_", "ARROW_", "GRPC_", "OMP_", "OPENBLAS_", "MKL_", "LC_", "LD_")
"""The prefixes of variables that decide how modules load."""
_ALSO_READ = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "AIRFLOW_HOME", "SPARK_HOME", "SPARK_CONNECT_MODE_ENABLED")


class DriverProcess(Protocol):
    """The part of a `subprocess.Popen` that is needed, with its output in `stdout`."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start_driver(command: Sequence[str], environment: Mapping[str, str]) -> DriverProcess:
    """Start a driver, in a session of processes of its own, with all of its output in one stream.

    :param command: a script and its arguments, for this Python.
    :param environment: all of the driver's environment.
    """
    forked = _forked(command, environment)
    if forked is not None:
        return forked
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        text=True,
        start_new_session=True,
    )


class _ForkedDriver:
    """A driver that a server has forked.

    :param connection: the connection to the server, which reports on it how the driver ended.
    """

    def __init__(self, pid: int, connection: socket.socket, stdout: IO[str]) -> None:
        self.pid, self.stdout = pid, stdout
        self._connection = connection
        self._ended: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Wait for its end; its output is no longer read."""
        self.stdout.close()
        self._ended = self.wait()
        self._connection.close()

    def poll(self) -> int | None:
        """Return how it ended; `None` if it runs."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        :raises subprocess.TimeoutExpired: it runs on.
        """
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"driver {self.pid}", timeout or 0)
        return status

    def _status(self, timeout: float | None) -> int | None:
        """Return how it ended. The server's report is only peeked at, so that anyone may ask again, even a signal handler."""
        with suppress(OSError, ValueError):  # another thread has waited for it, and closed the connection
            ready, _, _ = select.select([self._connection], [], [], timeout)
            if not ready:
                return None
            report = self._connection.recv(fork_server.ENDED, socket.MSG_PEEK | socket.MSG_WAITALL)
            if len(report) == fork_server.ENDED:
                return int.from_bytes(report, "big", signed=True)
        return UNKNOWN if self._ended is None else self._ended

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _forked(command: Sequence[str], environment: Mapping[str, str]) -> _ForkedDriver | None:
    """Have a driver forked; return `None` if no server is there to do it, and none can be started."""
    folder = own_folder(f"airflow-gobblin-{os.getuid()}")
    if folder is None or not hasattr(socket, "send_fds"):
        return None
    read = {name: value for name, value in environment.items() if _is_read_on_import(name)}
    try:
        connection = _connected(folder / f"drivers-{_key(read)}", read)
    except OSError as error:
        log.warning("drivers are started anew, as no process is there to fork them: %s", error)
        return None
    reads, writes = os.pipe()
    try:
        connection.settimeout(PATIENCE)
        pid = _asked(connection, writes, command, environment)
        connection.sendall(fork_server.GO)
        connection.settimeout(None)
        return _ForkedDriver(pid, connection, os.fdopen(reads, encoding="utf-8", errors="replace"))
    except OSError as error:
        log.warning("the driver is started anew, as it wasn't forked: %s", error)
        os.close(reads)
        connection.close()
        return None
    finally:
        os.close(writes)


def _asked(connection: socket.socket, output: int, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Ask for a driver.

    :return: its process id.
    :raises OSError: there is no answer.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    asked = {"command": [*command], "environment": {**environment}, "folder": os.getcwd(), "umask": umask}
    data = json.dumps(asked).encode()
    socket.send_fds(connection, [len(data).to_bytes(fork_server.SIZE, "big")], [output])
    connection.sendall(data)
    pid = connection.recv(fork_server.PID, socket.MSG_WAITALL)
    if len(pid) != fork_server.PID:
        raise ConnectionError("the process that forks drivers ended")
    return int.from_bytes(pid, "big")


def _connected(place: Path, environment: Mapping[str, str]) -> socket.socket:
    """Return a connection to the server of a place, which is started if there is none."""
    with suppress(FileNotFoundError, ConnectionRefusedError):
        return _connection(place)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError, ConnectionRefusedError):
            return _connection(place)
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen(_WAITING)  # requests wait from now on
            _start_server(listener.fileno(), place, environment)
        return _connection(place)


def _connection(place: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(place))
    except BaseException:
        connection.close()
        raise
    return connection


def _start_server(listening: int, place: Path, environment: Mapping[str, str]) -> None:
    # The place is for people who look at the list of processes, and makes the room that titles of drivers need.
    command = [sys.executable, "-P", "-m", fork_server.__name__, str(listening), str(place)]
    subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        pass_fds=(listening,),
        cwd="/",
        start_new_session=True,
    )
    log.info("a process is started that forks drivers for Spark Connect, until it was idle for a while: %s", place)


def _is_read_on_import(name: str) -> bool:
    return name in _ALSO_READ or name.startswith(_READ_ON_IMPORT)


def _key(environment: Mapping[str, str]) -> str:
    """Return a key that two drivers share if one server can fork both."""
    package = Path(__file__).parents[1]
    known_by = (
        sys.executable,
        sys.version,
        sorted(environment.items()),
        sorted(_changed(package)),
        [(folder, _mtime(folder)) for folder in site.getsitepackages()],
    )
    return hashlib.sha256(repr(known_by).encode()).hexdigest()[:16]


def _changed(package: Path) -> Iterator[tuple[str, int]]:
    """Yield when each module of a package was changed."""
    for path in package.rglob("*.py"):
        yield str(path), path.stat().st_mtime_ns


def _mtime(folder: str) -> int:
    with suppress(OSError):
        return os.stat(folder).st_mtime_ns
    return 0
