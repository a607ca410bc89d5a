"""The Spark application that writes or carries out the steps of a long commit sequence; the tasks of a pack submit it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.site import Site
from airflow_gobblin.spark.application import arguments_of_all, end, run_application
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.spark.session import spark_session
from airflow_gobblin.spark.steps import StepOrder, StepVerb, run_steps


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the work. The exit status is 0 if everything is done; otherwise the last line on stderr has the first error."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[arguments_of_all()])
    parser.add_argument("--verb", required=True, type=StepVerb, help="'write' or 'carry_out'")
    parser.add_argument("--work", required=True, help="the folder of the work, relative to the target root")
    parser.add_argument(
        "--pieces",
        required=True,
        type=_group,
        action="append",
        help="where the pieces of a group are worked on, and their number, as 'task:3'; once for each group",
    )
    parser.add_argument("--urn", required=True, help="the dataset")
    parser.add_argument("--token", required=True, help="the plan's token")
    parser.add_argument("--slot", default=0, type=int, help="the slot, if it has one")
    asked = parser.parse_args(arguments)
    return run_application(lambda tag, connections: _run(asked, tag, connections), asked.connection)


def _group(text: str) -> tuple[Site, int]:
    site, _, count = text.partition(":")
    return Site(site), int(count)


def _run(asked: argparse.Namespace, tag: str, connections: SparkConnections) -> Failure | None:
    order = StepOrder(
        verb=asked.verb,
        code=tuple(asked.code),
        target=asked.root,
        staging=asked.staging,
        work=asked.work,
        urn=asked.urn,
        token=asked.token,
        slot=asked.slot,
        connections=connections,
    )
    with spark_session(tag, zips=asked.zip) as spark:
        spark.addTag(tag)
        return run_steps(spark, order, asked.pieces).failure


if __name__ == "__main__":
    end(main())
