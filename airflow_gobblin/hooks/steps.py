"""Long commit sequences, run on Spark for an Airflow task."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from airflow_gobblin.commit.remote import StepFolder, pieces_of
from airflow_gobblin.errors import ConfigurationError, Remedy, StepError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.spark import (
    CONNECT,
    ConnectHook,
    check_spark_connection,
    close_output,
    code_folder,
    driver_hook,
    reported_error,
)
from airflow_gobblin.hooks.spark_jobs import spark_job
from airflow_gobblin.job import DriverWork, connections_of
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.site import Site
from airflow_gobblin.spark.connections import give_connections
from airflow_gobblin.spark.ship import ship

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from airflow_gobblin.commit.remote import StepAnswers
    from airflow_gobblin.journal.records import ShardRef
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.work import UnitResult, WorkUnit
    from airflow_gobblin.run.open_job import OpenJob

__all__ = ["StepsOnSpark"]

log = logging.getLogger(__name__)


class StepsOnSpark:
    """A `StepRunner`: each sequence is one Spark application, each shard of it one Spark task, or the driver's.

    :param opened: the opened job of the ingestion.
    :param options: how applications are submitted: arguments of `SparkSubmitHook`.
    :param above: as in `StepRunner`.
    """

    def __init__(self, opened: OpenJob, options: Mapping[str, Any], above: int | None) -> None:
        self.above = above
        self._opened = opened
        self._options = options
        self._hook: SparkSubmitHook | ConnectHook | None = None

    def write(
        self, plan: Plan, published: Iterable[tuple[WorkUnit, UnitResult]], staging: str
    ) -> Iterator[tuple[ShardRef, bytes]]:
        """See `StepRunner.write`."""
        with self._work(staging) as work:
            pieces = work.put(pieces_of(self._opened.job.work, published))
            yield from work.shards(self._run("write", work, [(Site.TASK, pieces)], plan.urn, staging))

    def carry_out(self, urn: str, slot: int, staging: str, groups: Iterable[tuple[Site, Iterable[bytes]]]) -> int:
        """See `StepRunner.carry_out`."""
        with self._work(staging) as work:
            pieces: list[tuple[Site, int]] = []
            for site, shards in groups:
                pieces.append((site, work.put(shards, start=sum(count for _, count in pieces))))
            answers = self._run("carry_out", work, pieces, urn, staging, slot)
        return sum(answer.steps for answer in answers.answers)

    def on_kill(self) -> None:
        """Stop the running driver."""
        if self._hook is not None:
            self._hook.on_kill()

    @contextmanager
    def _work(self, staging: str) -> Iterator[StepFolder]:
        """Create a folder for a piece of work, and remove it afterwards; leftovers of a crash go with the token's staging."""
        work = StepFolder(self._opened.files, f"{staging}/{uuid.uuid4().hex}")
        try:
            yield work
        finally:
            with suppress(OSError):
                work.remove()

    def _run(
        self, verb: str, work: StepFolder, pieces: Sequence[tuple[Site, int]], urn: str, staging: str, slot: int = 0
    ) -> StepAnswers:
        """Run a piece of work on Spark.

        :raises StepError: the first that failed, or the application came to nothing.
        :raises TargetError: the target is missing: on this host, which is the driver's, or for a Spark task.
        """
        job = self._opened.job
        shipped = ship(job.work.code, code_folder())
        given = {
            "verb": verb,
            "root": job.work.workspace,
            "staging": self._opened.staging.folder,
            "work": work.folder,
            "urn": urn,
            "token": staging.rpartition("/")[2],
            "slot": slot,
        }
        arguments = [f"--{name}={value}" for name, value in given.items()]
        arguments += [f"--pieces={site}:{count}" for site, count in pieces]
        arguments += [f"--code={module}" for module in job.work.code]
        arguments += [f"--connection={conn_id}" for conn_id in connections_of(job.work)]
        secrets = give_connections(AirflowConnections(), connections_of(job.work))
        total = many(sum(count for _, count in pieces), "piece")
        log.info("dataset %r: its steps are %s on Spark, in %s", urn, _DONE[verb], total)
        on_driver = any(site is Site.DRIVER for site, _ in pieces)
        options = self._with_settings() if on_driver else self._options
        self._hook = driver_hook(options, f"{job.name} {verb} steps", arguments, [str(shipped)], secrets)
        failure = self._submit()
        answers = work.answers()
        if answers is None:
            self._opened.staging.check_shared()
            raise StepError(
                operation=_DOING[verb],
                subject=f"the commit steps of dataset {urn!r} on Spark",
                cause=reported_error(str(failure)) or str(failure or "the driver left no answers"),
                hint="Nothing is lost." if on_driver else f"Nothing is lost. {_RAISE}",
                remedy=Remedy.REPEAT,
            ) from failure
        if answers.failure is not None:
            raise answers.failure.error()
        return answers

    def _with_settings(self) -> Mapping[str, Any]:
        """Return how to submit applications whose driver carries out steps.

        :raises ConfigurationError: Spark is already running, and can't be given the settings that the steps need.
        """
        work, conf = self._opened.job.work, self._options["conf"]
        settings = work.driver_settings(AirflowConnections()) if isinstance(work, DriverWork) else {}
        conn_id = self._options["conn_id"]
        if settings and check_spark_connection(conn_id).conn_type == CONNECT:
            raise ConfigurationError(
                operation="carry out",
                subject=f"the commit steps of {self._opened.job.name!r} by Spark connection {conn_id!r}",
                cause=f"this Spark runs already, and can't be given {', '.join(settings)} any more",
                hint="Give its server these settings, and leave the connection out of the mirror's `register`.",
            )
        return {**self._options, "conf": {**conf, **settings}}

    def _submit(self) -> AirflowException | None:
        assert self._hook is not None
        try:
            self._hook.submit(str(spark_job("carry_out_steps.py")))
        except AirflowException as error:
            return error
        finally:
            if not isinstance(self._hook, ConnectHook):
                close_output(self._hook)
        return None


_RAISE = "The task itself can carry out the steps: raise `steps_above` of SparkOptions."
_DOING = {"write": "write", "carry_out": "carry out"}
_DONE = {"write": "written", "carry_out": "carried out"}
