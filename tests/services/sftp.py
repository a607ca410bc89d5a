"""A real server of SFTP over a folder, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import asyncssh

__all__ = ["SftpServer", "running_sftp"]

_USER, _PASSWORD = "ann", "s3cr3t/of@ann"


@dataclass(frozen=True)
class SftpServer:
    """A running server, which is the `Connections` of its one connection.

    :param folder: what it shows as its topmost folder.
    :param host_key: its public key, as OpenSSH writes it.
    """

    folder: Path
    port: int
    host_key: str
    client_key: str

    def uri(self, _conn_id: str) -> str:
        """The connection, as Airflow's."""
        return self.connection()

    def connection(self, *, password: str = _PASSWORD, host: str = "127.0.0.1", **extra: str) -> str:
        """A connection with a password.

        :param extra: others than the server's key.
        """
        given = {"host_key": self.host_key} | extra
        user = f"{_USER}:{quote(password, safe='')}" if password else _USER
        return f"sftp://{user}@{host}:{self.port}/?__extra__={quote(json.dumps(given), safe='')}"

    def url(self, path: str = "") -> str:
        """A folder as a DAG author writes it."""
        return f"sftp://shop@127.0.0.1:{self.port}/{path}"


class _Server(asyncssh.SSHServer):
    def __init__(self, key: str) -> None:
        self._key = asyncssh.import_public_key(key)

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == _USER and key == self._key

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (_USER, _PASSWORD)


class _Files(asyncssh.SFTPServer):
    def readlink(self, path: bytes) -> bytes:
        return os.readlink(self.map_path(path))  # the library's own refuses relative ones


@contextmanager
def running_sftp(folder: Path) -> Iterator[SftpServer]:
    """Run a server that asks for a password or a key."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="sftp")
    thread.start()
    own, client = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    client_public = client.export_public_key().decode()
    open_connections: list[Any] = []

    def show(channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        open_connections.append(channel.get_connection())
        return _Files(channel, chroot=str(folder).encode())

    async def start() -> asyncssh.SSHAcceptor:
        return await asyncssh.create_server(
            lambda: _Server(client_public), "127.0.0.1", 0, server_host_keys=[own], sftp_factory=show
        )

    async def stop() -> None:
        server.close()
        await server.wait_closed()
        for connection in open_connections:
            connection.abort()
            await connection.wait_closed()

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield SftpServer(
            folder, server.get_port(), own.export_public_key().decode().strip(), client.export_private_key().decode()
        )
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
