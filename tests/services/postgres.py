"""A real PostgreSQL server for tests: its own data, its own port, gone afterwards."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg

from tests.services.processes import children, free_port, start_process, stop_process, wait_for_line

__all__ = ["Postgres", "running_postgres"]

_USER = "tester"


class Postgres:
    """A PostgreSQL server on 127.0.0.1 with its data below one folder.

    It can be stopped, killed and started again on the same port.
    """

    def __init__(self, folder: Path) -> None:
        self._binaries = Path(os.environ["POSTGRES_BIN"])
        self._data = folder / "data"
        self._log = folder / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.password = secrets.token_urlsafe(12)
        self._create_data(folder)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database, with user and password."""
        return f"postgresql://{_USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        return self.url(name)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        # TCP only: a socket's path may be at most 107 bytes long, and a checkout may be deep.
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*_unprivileged(), str(self._binaries / "postgres"), "-D", str(self._data), *arguments]
        self._process = start_process(command, log=self._log, cwd=self._data)
        wait_for_line(self._process, self._log, "database system is ready to accept connections")

    def stop(self) -> None:
        """Stop the server; open connections are closed, nothing committed is lost."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server as a crash would, and wait until no process of it holds its memory: it doesn't start before."""
        held = children(self._process) if self._process is not None else []
        self._end(signal.SIGKILL)
        psutil.wait_procs(held, timeout=20)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            stop_process(self._process, first=how)
            self._process = None

    def _create_data(self, folder: Path) -> None:
        self._data.mkdir(mode=0o700)
        password_file = folder / "password"
        password_file.write_text(self.password)
        if command := _unprivileged():
            shutil.chown(self._data, _server_account())
        command += [str(self._binaries / "initdb"), "-D", str(self._data), "--username", _USER, "--encoding=UTF8"]
        command += [
            "--no-locale",
            "--auth=scram-sha-256",
            f"--pwfile={password_file}",
            "--no-sync",
            "--no-instructions",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._data)
        password_file.unlink()
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")


@contextmanager
def running_postgres(folder: Path) -> Iterator[Postgres]:
    """Run a server with its data in `folder`, which exists and is empty."""
    server = Postgres(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _server_account() -> str:
    known = {account.pw_name for account in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _unprivileged() -> list[str]:
    """The words before a command that run it as another user, which PostgreSQL requires when we are root.

    It keeps the capability to pass through our folders, so that a checkout below /root works as well.
    """
    if os.geteuid() != 0:
        return []
    group = str(pwd.getpwnam(_server_account()).pw_gid)
    identity = [f"--reuid={_server_account()}", f"--regid={group}", "--clear-groups"]
    # Without the secure bit, access(2) would ignore the capability.
    capability = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
    return ["setpriv", *identity, *capability]
