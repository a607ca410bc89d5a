"""A moto that serves one request at a time: `python -m tests.services.moto_server PORT`.

moto checks whether an object exists and then puts it, without a lock: under load two creates at once both won, which no real
S3 allows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def serve(port: int) -> None:
    """Answer on 127.0.0.1 until the process is ended."""
    moto = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, moto, threaded=True, request_handler=MotoRequestHandler)


def one_at_a_time(application: WSGIApplication) -> WSGIApplication:
    """The same application, which begins a request when it is done with the one before."""
    lock = Lock()

    def locked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with lock:
            return application(environ, start_response)

    return locked


if __name__ == "__main__":
    serve(int(sys.argv[1]))
