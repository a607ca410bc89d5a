"""The common part of the scripts of `spark_jobs`: their arguments, and how they end."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import traceback
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.redaction import Redactor, is_sensitive, redacted_output
from airflow_gobblin.spark.connections import SparkConnections, take_connections
from airflow_gobblin.spark.report import FIRST_ERROR
from airflow_gobblin.spark.session import CONF, REMOTE

__all__ = ["arguments_of_all", "end", "run_application"]


def arguments_of_all() -> argparse.ArgumentParser:
    """Return the arguments that every script takes."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--root", required=True, help="the target root")
    parser.add_argument("--staging", required=True, help="the ingestion's staging folder, relative to the target root")
    for name, what in (
        ("code", "a module of the DAG author's"),
        ("connection", "the id of a connection that is needed"),
        ("zip", "code for executors, where `spark-submit` brings none"),
    ):
        parser.add_argument(f"--{name}", action="append", default=[], help=f"{what}; may be given again")
    return parser


def run_application(
    run: Callable[[str, SparkConnections], Failure | None],
    conn_ids: Iterable[str],
    failed: Callable[[str, Failure], None] | None = None,
) -> int:
    """Run a script's work. If it fails, the last line on stderr is the first error. No output contains a secret.

    :param run: called with a tag for its operations on Spark, and the connections; returns the first error, if any.
    :param conn_ids: the connections that it needs; if none is named, all that were given.
    :param failed: called with the tag and the failure if the work raises an error.
    :return: the exit status.
    """
    redactor = Redactor(secrets=_secrets_of_connect())
    with redacted_output(redactor):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        # py4j logs every lost connection at length.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        tag = uuid.uuid4().hex
        try:
            connections = take_connections(conn_ids=[*conn_ids] or None)
            for uri in connections.uris.values():
                redactor.learn_uri(uri)
            failure = run(tag, connections)
        except BaseException as raised:  # importing an author's module may end in any way
            if not isinstance(raised, GobblinError):  # one of ours contains its cause
                traceback.print_exc()
            failure = Failure.of(_as_ours(raised), redactor.brief)
            if failed is not None:
                with suppress(Exception):  # the first error is the one to report
                    failed(tag, failure)
    if failure is None:
        return 0
    print(FIRST_ERROR + redactor.redact(failure.line), file=sys.stderr, flush=True)  # noqa: T201
    return 1


def _as_ours(error: BaseException) -> GobblinError:
    if isinstance(error, GobblinError):
        return error
    return GobblinError(operation="run", subject="the Spark application", cause=error)


def _secrets_of_connect() -> list[str]:
    """Return the secrets in the environment of a driver that uses Spark Connect: the server's token, and some settings."""
    url, conf = os.environ.get(REMOTE, ""), json.loads(os.environ.get(CONF, "{}"))
    options = (option.partition("=") for option in url.partition("/;")[2].split(";"))
    return [
        *(value for name, _, value in options if is_sensitive(name)),
        *(v for k, v in conf.items() if is_sensitive(k)),
    ]


def end(status: int) -> NoReturn:
    """End the process, with all output flushed. Python's own end takes 0.2 s to dismantle everything imported."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
