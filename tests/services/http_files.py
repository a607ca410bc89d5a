"""A real server of HTTP over a folder, in a thread of the test's process."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

__all__ = ["HttpServer", "running_http"]


@dataclass
class HttpServer:
    """A running server, which is the `Connections` of its one connection.

    :param refused: the status that it answers with, by the start of a path.
    :param redirected: where it leads to, likewise.
    :param asked: the requests that it got.
    :param authorization: the header that it wants, if it wants one.
    :param user: login and password of the connection.
    :param extra: of the connection.
    :param without: the headers that it doesn't send.
    :param sent: those that it sends besides.
    :param cut: the number of bytes after which it breaks off, if it does.
    """

    folder: Path
    port: int = 0
    refused: dict[str, HTTPStatus] = field(default_factory=dict)
    redirected: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    authorization: str = ""
    user: str = ""
    extra: str = ""
    without: tuple[str, ...] = ()
    sent: dict[str, str] = field(default_factory=dict)
    cut: int = 0

    def uri(self, _conn_id: str) -> str:
        """The connection, as Airflow's."""
        return f"http://{self.user}127.0.0.1:{self.port}/{self.extra}"

    def url(self, path: str = "", *, connection: str = "") -> str:
        """A folder as a DAG author writes it."""
        return f"http://{connection}127.0.0.1:{self.port}/{path}"

    def expect(self, user: str, password: str) -> None:
        """Want a user and a password."""
        self.authorization = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, server: HttpServer, *arguments: object) -> None:
        self._wanted = server
        super().__init__(*arguments, directory=str(server.folder))  # type: ignore[arg-type]

    def send_head(self):  # type: ignore[no-untyped-def]
        wanted = self._wanted
        wanted.asked.append((self.command, self.path, dict(self.headers)))
        if wanted.authorization and self.headers.get("Authorization") != wanted.authorization:
            self.send_error(HTTPStatus.UNAUTHORIZED)
            return None
        for start, status in wanted.refused.items():
            if self.path.startswith(start):
                self.send_error(status)
                return None
        for start, there in wanted.redirected.items():
            if self.path.startswith(start):
                self.send_response(HTTPStatus.FOUND)
                self.send_header("Location", there)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
        return super().send_head()

    def send_header(self, keyword: str, value: str) -> None:
        if keyword.title() not in self._wanted.without:
            super().send_header(keyword, value)

    def end_headers(self) -> None:
        for keyword, value in self._wanted.sent.items():
            self.send_header(keyword, value)
        super().end_headers()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        if self._wanted.cut:
            outputfile.write(source.read(self._wanted.cut))
            self.close_connection = True
        else:
            super().copyfile(source, outputfile)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def running_http(folder: Path) -> Iterator[HttpServer]:
    """Run a server."""
    found = HttpServer(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, found)) as server:
        found.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.02,), name="http")
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
