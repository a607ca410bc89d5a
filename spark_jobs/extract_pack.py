"""The Spark application that extracts one pack; submitted by `ExtractOperator`."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
import uuid
from collections.abc import Sequence

from airflow_gobblin.files import open_files
from airflow_gobblin.spark.connections import take_connections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.spark.report import FIRST_ERROR, PackReport
from airflow_gobblin.spark.session import spark_session
from airflow_gobblin.staging import Staging


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pack. The exit status is 0 if all units have results; otherwise the last line on stderr tells the first error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="the target root")
    parser.add_argument("--staging", required=True, help="the ingestion's staging folder, relative to the target root")
    parser.add_argument("--run", required=True, help="the run's id in staging")
    parser.add_argument("--pack", required=True, type=int, help="the pack's number in the run")
    parser.add_argument("--code", action="append", default=[], help="a module of the DAG author's; may be given again")
    parser.add_argument(
        "--zip", action="append", default=[], help="code for executors, where `spark-submit` brings none"
    )
    parser.add_argument("--conf", action="append", default=[], help="a setting of Spark, key=value, likewise")
    parser.add_argument("--connection", action="append", default=[], help="the id of a connection that units need")
    parser.add_argument("--durable", action="store_true", help="nobody reads the output: leave errors in staging, too")
    asked = parser.parse_args(arguments)
    attempt = uuid.uuid4().hex
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # py4j tells of every lost connection at length.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        error = _run(asked, attempt)
    except Exception as raised:
        traceback.print_exc()
        error = f"{type(raised).__name__}: {raised}"
        if asked.durable:
            files = open_files(asked.root, None)
            Staging(files, asked.staging).put_report(
                asked.run, asked.pack, attempt, PackReport.of_failure(asked.run, asked.pack, attempt, error)
            )
    if error is None:
        return 0
    print(FIRST_ERROR + " ".join(error.split()), file=sys.stderr, flush=True)  # noqa: T201
    return 1


def _run(asked: argparse.Namespace, attempt: str) -> str | None:
    connections = take_connections(conn_ids=asked.connection)
    conf = dict(setting.split("=", 1) for setting in asked.conf)
    with spark_session(attempt, zips=asked.zip, conf=conf) as spark:
        report = run_pack(spark, asked.root, asked.staging, asked.run, asked.pack, asked.code, connections, attempt)
    return report.errors[0] if report.errors else None


if __name__ == "__main__":
    sys.exit(main())
