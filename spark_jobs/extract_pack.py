"""The Spark application that extracts one pack; `ExtractOperator` submits it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from airflow_gobblin.model.failure import Failure
from airflow_gobblin.spark.application import arguments_of_all, end, run_application
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.pack import run_pack
from airflow_gobblin.spark.report import PackReport
from airflow_gobblin.spark.session import spark_session
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.workspace.staging import Staging


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pack. The exit status is 0 if all units have results; otherwise the last line on stderr has the first error."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[arguments_of_all()])
    parser.add_argument("--run", required=True, help="the run's id in staging")
    parser.add_argument("--pack", required=True, type=int, help="the pack's number in the run")
    asked = parser.parse_args(arguments)

    given: list[SparkConnections] = []

    def leave(attempt: str, failure: Failure) -> None:
        report = PackReport.of_failure(asked.run, asked.pack, attempt, failure)
        files = open_files(asked.root, given[0] if given else None)
        Staging(files, asked.staging).put_report(asked.run, asked.pack, attempt, report)

    def run(attempt: str, connections: SparkConnections) -> Failure | None:
        given.append(connections)
        return _run(asked, attempt, connections)

    return run_application(run, asked.connection, leave)


def _run(asked: argparse.Namespace, attempt: str, connections: SparkConnections) -> Failure | None:
    with spark_session(attempt, zips=asked.zip) as spark:
        report = run_pack(spark, asked.root, asked.staging, asked.run, asked.pack, asked.code, connections, attempt)
    return next(iter(report.failures), None)


if __name__ == "__main__":
    end(main())
