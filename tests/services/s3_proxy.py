"""A proxy in front of the server of an object store, or of a catalog, that does harm by rule: lost answers, 500s, no permission.

The client's `Host` goes on as it came, because the signature covers it.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["Fault", "Proxy", "Request", "running_proxy"]


class Fault(Enum):
    """An act of the proxy on a request."""

    DROP_ANSWER = "the server does it, and its answer is lost"
    DROP_REQUEST = "the server never sees it"
    INTERNAL_ERROR = "500"
    INTERNAL_ERROR_AFTER = "the server does it, and the answer is 500"
    SLOW_DOWN = "503 SlowDown"
    CONFLICT = "409 ConditionalRequestConflict"
    PRECONDITION = "412 PreconditionFailed, as MinIO words it"
    EXPIRED = "403 ExpiredToken"
    DENIED = "403 AccessDenied"
    FORBIDDEN = "403 ForbiddenException, as a REST catalog words it"
    DENIED_IN_BULK = "200, and in its body that an object was not deleted"
    ON_GENERATION = (
        "it is refused unless the object has the generation of its condition, as by GCS, whose emulator ignores it"
    )
    UNCONDITIONAL = "it goes on without If-None-Match; a server that checks signatures refuses it"


_ANSWERS = {
    Fault.INTERNAL_ERROR: (500, "InternalError"),
    Fault.INTERNAL_ERROR_AFTER: (500, "InternalError"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.PRECONDITION: (412, "PreconditionFailed"),
    Fault.EXPIRED: (403, "ExpiredToken"),
    Fault.DENIED: (403, "AccessDenied"),
    Fault.FORBIDDEN: (403, "ForbiddenException"),
    Fault.DENIED_IN_BULK: (200, "AccessDenied"),
}
_HOP = ("connection", "keep-alive", "transfer-encoding", "proxy-connection")


@dataclass(frozen=True)
class Request:
    """A request that came by.

    :param client: its name for itself.
    :param condition: its If-None-Match.
    """

    method: str
    path: str
    query: str
    fault: Fault | None
    client: str
    condition: str = ""


class _Rule:
    def __init__(self, fault: Fault, method: str, path: str, query: str, first: int, last: float) -> None:
        self.fault = fault
        self._method, self._path, self._query = method, re.compile(path), re.compile(query)
        self._first, self._last = first, last
        self._seen = 0

    def applies(self, method: str, path: str, query: str) -> bool:
        if self._method not in ("*", method) or not self._path.search(path) or not self._query.search(query):
            return False
        self._seen += 1
        return self._first <= self._seen <= self._last


class _Random:
    def __init__(self, seed: int, share: float, faults: tuple[Fault, ...]) -> None:
        self._random, self._share, self._faults = random.Random(seed), share, faults

    def choose(self) -> Fault | None:
        return self._random.choice(self._faults) if self._random.random() < self._share else None


class Proxy:
    """A proxy on 127.0.0.1, with the rules by which it harms.

    :param upstream: the server's endpoint, `http://127.0.0.1:9000`.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._rules: list[_Rule] = []
        self._random: _Random | None = None
        self._lock = threading.Lock()
        self._conditional = threading.Lock()
        self.seen: list[Request] = []
        self.moved = 0
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def harm(
        self, fault: Fault, method: str = "*", path: str = "", query: str = "", *, nth: int = 1, times: float = 1
    ) -> None:
        """Harm the `nth` and the following of the requests that match, counted from now.

        :param path: a regular expression to be found in the path, which begins `/bucket/`; `query`: in the part after the `?`.
        :param times: how many; `float("inf")` for all.
        """
        with self._lock:
            self._rules.append(_Rule(fault, method, path, query, nth, nth + times - 1))

    def harm_at_random(self, seed: int, share: float, *faults: Fault) -> None:
        """Harm a share of all requests, in an order that the seed fixes."""
        with self._lock:
            self._random = _Random(seed, share, faults or (Fault.DROP_ANSWER,))

    def heal(self) -> None:
        """Forget all rules."""
        with self._lock:
            self._rules.clear()
            self._random = None

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and close all connections."""
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()

    def _fault(self, method: str, target: str, client: str, condition: str) -> Fault | None:
        path, _, query = target.partition("?")
        with self._lock:
            matching = [rule.fault for rule in self._rules if rule.applies(method, path, query)]
            chance = self._random.choose() if self._random else None
            fault = matching[0] if matching else chance
            self.seen.append(Request(method, path, query, fault, client, condition))
        return fault

    def _on_generation(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Forward a rewrite or a removal if its conditions hold.

        :return: the answer; None if one doesn't hold.
        """
        path, _, query = re.sub(r"/b/[^/]+/o/.+/rewriteTo", "", target).partition("?")
        expected = {path: parse_qs(query)["ifGenerationMatch"]}
        if of_source := parse_qs(query).get("ifSourceGenerationMatch"):
            expected[target.partition("/rewriteTo")[0]] = of_source
        with self._conditional:
            hold = all([self._generation(at, headers)] == generation for at, generation in expected.items())
            return self._forward(method, target, headers, body) if hold else None

    def _generation(self, path: str, headers: list[tuple[str, str]]) -> str:
        status, _, found = self._forward("GET", path, headers, b"")
        return str(json.loads(found)["generation"]) if status == 200 else "0"

    def _forward(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            if body or method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
            with self._lock:
                self.moved += len(body) + len(data)
            return answer.status, answer.getheaders(), data
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is closed already
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""


def _handler_of(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do(self) -> None:
            client, condition = self.headers.get("User-Agent", ""), self.headers.get("If-None-Match", "")
            fault = proxy._fault(self.command, self.path, client, condition)
            body = self._body()
            if fault is Fault.DROP_REQUEST:
                return self._drop()
            if fault in _ANSWERS and fault is not Fault.INTERNAL_ERROR_AFTER:
                return self._refuse(fault)
            forward = proxy._on_generation if fault is Fault.ON_GENERATION else proxy._forward
            try:
                answer = forward(self.command, self.path, self._headers(fault), body)
            except (OSError, http.client.HTTPException):  # the server is gone
                return self._drop()
            if answer is None:
                return self._refuse(Fault.PRECONDITION)
            if fault is Fault.DROP_ANSWER:
                return self._drop()
            if fault is Fault.INTERNAL_ERROR_AFTER:
                return self._refuse(fault)
            return self._answer(*answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return body

        def _headers(self, fault: Fault | None) -> list[tuple[str, str]]:
            condition = ("if-none-match",) if fault is Fault.UNCONDITIONAL else ()
            left_out = (*_HOP, "content-length", "expect", *condition)
            return [(name, value) for name, value in self.headers.items() if name.lower() not in left_out]

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in (*_HOP, "content-length"):
                    self.send_header(name, value)
            length = next((v for n, v in headers if n.lower() == "content-length"), str(len(body)))
            if status not in (204, 304):
                self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def _refuse(self, fault: Fault) -> None:
            status, code = _ANSWERS[fault]
            if fault is Fault.FORBIDDEN:
                answer = {"error": {"message": f"{fault.value}, by rule", "type": code, "code": status}}
                self._answer(status, [("Content-Type", "application/json")], json.dumps(answer).encode())
                return
            xml = f"<Error><Code>{code}</Code><Message>{fault.value}, by rule</Message></Error>"
            if fault is Fault.DENIED_IN_BULK:
                xml = f"<DeleteResult>{xml}</DeleteResult>"
            xml = f"<?xml version='1.0'?>{xml}"
            body = b"" if self.command == "HEAD" else xml.encode()
            self._answer(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))], body)

        def _drop(self) -> None:
            # Reset, so that the client sees at once that nothing will come.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

        def log_message(self, *_arguments: Any) -> None:
            """Tests read `seen` instead."""

    return Handler


@contextmanager
def running_proxy(upstream: str) -> Iterator[Proxy]:
    """Run a proxy for a while."""
    proxy = Proxy(upstream)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
