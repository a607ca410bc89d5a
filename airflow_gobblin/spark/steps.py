"""Commit steps on Spark: each Spark task writes, or carries out, one piece of a long sequence (see `commit/remote.py`). Pieces
of steps that need Spark itself are carried out by the driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_gobblin.commit.remote import FILES_PER_PIECE, ResultsToPublish, StepAnswer, StepAnswers, StepFolder
from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import GobblinError, StepError, StepLostError
from airflow_gobblin.journal.records import Shard, shards
from airflow_gobblin.model import wire
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.registry import import_kinds
from airflow_gobblin.model.site import Site
from airflow_gobblin.redaction import redacted_output
from airflow_gobblin.spark.connections import VARIABLE, SparkConnections
from airflow_gobblin.spark.jobs import TaskRow, collect
from airflow_gobblin.spark.worker import freeze_heap_once
from airflow_gobblin.steps.base import StepContext
from airflow_gobblin.steps.execution import carry_out, carry_out_all, sync
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.workspace.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StepOrder", "StepVerb", "run_steps"]


class StepVerb(StrEnum):
    """The action on the steps."""

    WRITE = "write"
    CARRY_OUT = "carry_out"


@dataclass(frozen=True)
class StepOrder:
    """The order for every Spark task of a piece of work; it travels in closures, with the secrets, so it is small.

    :param code: the author's modules.
    :param target: the target root.
    :param staging: the ingestion's staging folder below the target root.
    :param work: the work's folder below the target root.
    :param urn: the dataset of the steps.
    :param token: their plan.
    :param slot: their slot, 0 while there is none.
    """

    verb: StepVerb
    code: tuple[str, ...]
    target: str
    staging: str
    work: str
    urn: str
    token: str
    slot: int
    connections: SparkConnections


def run_steps(spark: SparkSession, order: StepOrder, pieces: Sequence[tuple[Site, int]]) -> StepAnswers:
    """Do the work, and write the answers. A failed piece is an answer; the others of its group go on, and no later group begins.

    :param pieces: where the pieces of each group are worked on, and their number, in order.
    :raises TargetError: the driver doesn't see the target; nothing was written there.
    """
    files = open_files(order.target, order.connections)
    staging = Staging(files, order.staging)
    staging.check_shared()

    def task(number: int) -> Iterator[TaskRow]:
        freeze_heap_once()
        os.environ.pop(VARIABLE, None)
        connections = order.connections.guarded()
        with redacted_output(connections.redactor), connections.redactor.guarding("run", "a Spark task"):
            yield "", wire.dumps(StepAnswers((_work_on(order, number, connections),)))

    def on_tasks(first: int, count: int) -> list[StepAnswer]:
        rows = collect(spark, task, range(first, first + count))
        found = [wire.loads(answer, StepAnswers, "an answer of a Spark task") for _, answer in rows]
        return [answer for some in found for answer in some.answers]

    def on_driver(first: int, count: int) -> list[StepAnswer]:
        connections = order.connections.guarded()
        return [_work_on(order, number, connections, spark) for number in range(first, first + count)]

    together, first = StepAnswers(()), 0
    for site, count in pieces:
        if not count:
            continue
        answers = on_driver(first, count) if site is Site.DRIVER else on_tasks(first, count)
        together, first = StepAnswers((*together.answers, *answers)), first + count
        if together.failure is not None:
            break
    staging.check_shared()  # it may have disappeared meanwhile
    StepFolder(files, order.work).put_answers(together)
    return together


def _work_on(
    order: StepOrder, number: int, connections: GuardedConnections, spark: SparkSession | None = None
) -> StepAnswer:
    """Work on one piece.

    :param spark: the session, on the driver.
    :raises BaseException: only one that isn't an `Exception` and shows no secret.
    """
    subject = f"piece {number} of the steps of dataset {order.urn!r}"
    try:
        import_kinds(order.code)
        context = StepContext(open_files(order.target, connections), connections, spark)
        Staging(context.files, order.staging).check_shared()
        work = StepFolder(context.files, order.work)
        verb = _write if order.verb is StepVerb.WRITE else _carry_out
        return verb(order, context, work, number)
    except BaseException as error:
        shown = connections.redactor.without_secrets(error, "work on", subject, StepError)
        if not isinstance(shown, Exception):
            raise
        if not isinstance(shown, GobblinError):
            shown = StepError(operation="work on", subject=subject, cause=shown)
        return StepAnswer(number, failure=Failure.of(shown))


def _write(order: StepOrder, context: StepContext, work: StepFolder, number: int) -> StepAnswer:
    given = wire.loads(work.piece(number), ResultsToPublish, f"piece {number}")
    staging = Staging(context.files, order.staging)
    plan = staging.plan(order.token)
    if plan is None:
        raise StepLostError(operation="publish", subject=f"dataset {order.urn!r}", cause="its plan was swept")
    steps = given.work.publish(plan, given.published, context.files, staging.token_folder(order.token))
    return StepAnswer(number, shards=work.put_shards(shards(order.token, steps, FILES_PER_PIECE)))


def _carry_out(order: StepOrder, context: StepContext, work: StepFolder, number: int) -> StepAnswer:
    steps = wire.loads(work.piece(number), Shard, f"piece {number}").steps
    done = sum(carry_out_all(steps, context.files, lambda step: carry_out(step, context, order.urn, order.slot)))
    sync(context.files, {folder for step in steps for folder in step.folders()})
    return StepAnswer(number, done)
