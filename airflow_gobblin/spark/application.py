"""What the scripts of `spark_jobs` share: their arguments, and how they end."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
import uuid
from collections.abc import Callable
from typing import NoReturn

from airflow_gobblin.spark.report import FIRST_ERROR

__all__ = ["arguments_of_all", "end", "run_application"]


def arguments_of_all() -> argparse.ArgumentParser:
    """The arguments that every script takes."""
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


def run_application(run: Callable[[str], str | None], failed: Callable[[str, str], None] | None = None) -> int:
    """Run a script's work. If it fails, the last line on stderr tells the first error.

    :param run: is given a tag for what it runs on Spark, and gives the first error, if there is one.
    :param failed: is told tag and error, if the work came to nothing.
    :return: the exit status.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # py4j tells of every lost connection at length.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    tag = uuid.uuid4().hex
    try:
        error = run(tag)
    except Exception as raised:
        traceback.print_exc()
        error = f"{type(raised).__name__}: {raised}"
        if failed is not None:
            failed(tag, error)
    if error is None:
        return 0
    print(FIRST_ERROR + " ".join(error.split()), file=sys.stderr, flush=True)  # noqa: T201
    return 1


def end(status: int) -> NoReturn:
    """End the process, with all said. Python's own end takes apart all that was imported, one thing after the other: 0.2 s."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
