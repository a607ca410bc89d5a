"""A chat's incoming webhook, as a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

__all__ = ["Channel", "running_channel"]


class Channel:
    """A webhook and the messages posted to it. :ivar answers: the status that it gives."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.answers = 200
        channel = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                channel.posted.append((self.path, json.loads(body)))
                self.send_response(channel.answers)
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class has it so
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/services/s3cret"


@contextmanager
def running_channel() -> Iterator[Channel]:
    """A webhook on a free port."""
    made = Channel()
    thread = Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()
