"""A process that has loaded what drivers for Spark Connect import, and forks a driver each time one is asked for.

Most of what a small driver takes is Python's imports: of Arrow, and of Spark Connect with pandas. This process loads them and
forks. It has no secrets, no author's code, no connection, and no threads except those of libraries that know of forks: Arrow's
allocator, and OpenBLAS. A driver has the environment, the folder and the output that are sent with the request, and is alone in
its session of processes, as if it had been started anew.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

from airflow_gobblin.spark.worker import freeze_heap

__all__ = ["ENDED", "GO", "IDLE_SECONDS", "PID", "SIZE", "main"]

IDLE_SECONDS = 300.0
"""The time without a driver after which the process ends: longer than it takes from one stage of a pipeline to the next."""
SIZE = 8
"""The number of bytes at the beginning of a request that give its size."""
PID = 4
"""The number of bytes of the answer, the driver's process id. The driver then waits for `GO`."""
GO = b"g"
ENDED = 4
"""The number of bytes in which the server reports how a driver ended: its exit status, or the negative number of a signal."""
_MODULES = (
    "airflow_gobblin.spark.application",
    "airflow_gobblin.spark.pack",
    "airflow_gobblin.spark.steps",
    "airflow_gobblin.stages.evaluation",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.connect.functions",
    "pyspark.sql.connect.session",
    "pyspark.sql.functions",
)


def main(listening: int, idle: float = IDLE_SECONDS) -> None:
    """Serve until no driver has been asked for, and none has run, for a while.

    :param listening: the file descriptor of a socket that listens.
    :param idle: how long, in seconds.
    """
    _load()
    running: dict[int, socket.socket] = {}
    ended, written = os.pipe()
    os.set_blocking(written, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    with socket.socket(fileno=listening) as listener:
        while True:
            ready = select.select([listener.fileno(), ended], [], [], idle)[0]
            if ended in ready:
                os.read(ended, 4096)
                _report_ended(running)
            if listener.fileno() in ready:
                connection, _ = listener.accept()
                pid = os.fork()
                if pid == 0:
                    for other in (listener, *running.values()):
                        other.close()
                    signal.set_wakeup_fd(-1)
                    os.close(ended)
                    os.close(written)
                    _become_driver(connection)
                running[pid] = connection
            if not ready and not running:
                return


def _load() -> None:
    for module in _MODULES:
        with suppress(ImportError):  # the driver reports it
            importlib.import_module(module)
    with suppress(ImportError):
        from airflow_gobblin.model.registry import import_kinds

        import_kinds()
    gc.collect()
    freeze_heap()  # everything loaded stays in memory that all drivers share


def _report_ended(running: dict[int, socket.socket]) -> None:
    for pid in [*running]:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with running.pop(pid) as connection, suppress(OSError):  # the task may have ended before
                connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(ENDED, "big", signed=True))


def _become_driver(connection: socket.socket) -> NoReturn:
    """Run the script that is asked for, in this process, to its end."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        script, arguments = _take_over(connection)
        connection.close()
        status = _run(script, arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _take_over(connection: socket.socket) -> tuple[str, list[str]]:
    """Take what a driver is given: its output, its environment, its folder.

    :return: its script and the script's arguments.
    """
    head, (output, *_), _, _ = socket.recv_fds(connection, SIZE, 1)
    asked = json.loads(_received(connection, int.from_bytes(head, "big")))
    os.setsid()
    connection.sendall(os.getpid().to_bytes(PID, "big"))
    if connection.recv(1) != GO:
        os._exit(0)  # the process that asked has given up, and starts another one
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    command = asked["command"]
    _give_title(" ".join(command))
    os.environ.clear()
    os.environ.update(asked["environment"])
    if "numpy.random" in sys.modules:  # else it would give all drivers the same; a fork seeds Python's own
        sys.modules["numpy.random"].seed()
    return command[0], command[1:]


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def _give_title(title: str) -> None:
    """Have the process listed under the driver's command, as much of it as there is room for."""
    with suppress(ImportError):
        os.environ["SPT_NOENV"] = "1"  # the environment that it was started with stays readable
        from setproctitle import setproctitle

        setproctitle(title)


def _run(script: str, arguments: Iterable[str]) -> int:
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # nobody has to wait for the server
    main(int(sys.argv[1]))
