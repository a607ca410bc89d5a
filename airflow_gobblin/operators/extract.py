"""Extracting one pack on Spark."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin import errors
from airflow_gobblin.environment import check_pyspark
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.hooks.ingestion import AirflowConnections, check_ingestion, open_pipeline
from airflow_gobblin.hooks.spark import CONNECT, ConnectHook, check_spark_connection, driver_environment
from airflow_gobblin.operators.stages import failing_at_once
from airflow_gobblin.places import object_place
from airflow_gobblin.spark.connections import give_connections
from airflow_gobblin.spark.report import FIRST_ERROR
from airflow_gobblin.spark.ship import ship
from airflow_gobblin.spark_jobs import spark_job

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_gobblin.ingestion import Ingestion
    from airflow_gobblin.pipeline import Pipeline
    from airflow_gobblin.plan import Plan
    from airflow_gobblin.work import WorkUnit

    Missing = list[tuple[Plan, WorkUnit]]

__all__ = ["ExtractOperator"]

_OF_SUBMITS = (
    "files",
    "jars",
    "packages",
    "exclude_packages",
    "driver_class_path",
    "properties_file",
    "keytab",
    "principal",
    "proxy_user",
    "_archives",
    "_driver_memory",
    "_executor_cores",
    "_executor_memory",
    "_num_executors",
    "_repositories",
    "_total_executor_cores",
    "_yarn_queue",
)
"""What says how an application is started, which Spark Connect doesn't do."""


class ExtractOperator(SparkSubmitOperator):
    """Runs the work units of one pack on Spark: one submit, the units in parallel as Spark tasks.

    A retry runs the units that have no result that stands, and nothing at all once the pack is decided. Whether the units
    have results is what counts, not how the driver ended; and every try submits anew (`durable` is off), for a stored
    driver that has finished says nothing about the units.

    :param ingestion: the job. :param pack: the reference of the pack that `create_work_units` gave. (templated)
    :param conn_id: the Spark connection: of local or client mode, or of Spark Connect, where the driver works on a Spark that
        runs already. All else is `SparkSubmitOperator`'s.
    """

    template_fields: Sequence[str] = ("pack", *SparkSubmitOperator.template_fields)

    def __init__(
        self,
        *,
        ingestion: Ingestion,
        pack: Any,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=30),
        map_index_template: str = "{{ task.pack['label'] }}",
        **kwargs: Any,
    ) -> None:
        kwargs["durable"] = False
        kwargs.setdefault("name", f"{ingestion.name} extract")
        super().__init__(retries=retries, retry_delay=retry_delay, map_index_template=map_index_template, **kwargs)
        check_ingestion(ingestion)
        self.ingestion = ingestion
        self.pack = pack
        self._connect: ConnectHook | None = None

    def execute(self, context: Context) -> None:
        """Submit what is missing, and see that nothing is missing afterwards."""
        failure: AirflowException | None = None
        with failing_at_once():
            pipeline = open_pipeline(self.ingestion)
            if not self._missing(pipeline):
                self.log.info(
                    "every unit of %s has a result, or is no longer wanted: nothing to do", self.pack["label"]
                )
                return
            self._prepare(pipeline)
            try:
                self._run_driver(context)
            except AirflowException as error:
                failure = error
            missing = self._missing(pipeline)
            if missing:
                raise self._failed(pipeline, missing, failure) from failure
        if failure:
            self.log.warning("spark-submit failed, though every unit has its result: %s", failure)

    def _missing(self, pipeline: Pipeline) -> Missing:
        pack = pipeline.staging.pack(self.pack["run"], self.pack["pack"])
        return [] if pack is None else list(pipeline.missing_units(pack))

    def _prepare(self, pipeline: Pipeline) -> None:
        """Fill in what is submitted. Templates are rendered and shown before, so nothing of this is."""
        staging, code = pipeline.staging, self.ingestion.code
        shipped = ship(code, _code_folder(self.ingestion.sink.target, staging.files.root))
        self.py_files = ",".join(filter(None, [str(shipped), self.py_files]))
        self.application = str(spark_job("extract_pack.py"))
        where = {"root": self.ingestion.sink.target, "staging": staging.folder} | {
            name: self.pack[name] for name in ("run", "pack")
        }
        self.application_args = [f"--{name}={value}" for name, value in where.items()]
        self.application_args += [f"--code={module}" for module in code]

    def _run_driver(self, context: Context) -> None:
        """Run a driver to its end, by `spark-submit` or for Spark Connect. :raises AirflowException: it failed."""
        modes = (self._deploy_mode, (self.conf or {}).get("spark.submit.deployMode"))
        if check_spark_connection(self._conn_id, *modes).conn_type == CONNECT:
            self._connect = self._get_connect_hook()
            self._connect.submit(self.application)
        else:
            check_pyspark()
            super().execute(context)

    def _get_connect_hook(self) -> ConnectHook:
        for name in _OF_SUBMITS:
            if getattr(self, name, None):
                raise ConfigurationError(
                    operation="use",
                    subject=f"{name.removeprefix('_')} with Spark connection {self._conn_id!r}",
                    cause="it is of Spark Connect, whose server has been started with resources and packages of its own",
                    hint="Leave it out, and set it where the server is started.",
                )
        arguments = [*self.application_args, *(f"--zip={file}" for file in self.py_files.split(","))]
        arguments += [f"--conf={key}={value}" for key, value in (self.conf or {}).items()]
        return ConnectHook(self._conn_id, arguments, self._secrets())

    def _secrets(self) -> dict[str, str]:
        others, self.env_vars = self.env_vars or {}, None
        secrets = give_connections(AirflowConnections(), self.ingestion.connection_ids)
        return {**{name: str(value) for name, value in others.items()}, **secrets}

    def _get_hook(self) -> SparkSubmitHook:
        self._deploy_mode = "client"
        # The provider's own way for `env_vars` ends on the command line of some masters.
        secrets = self._secrets()
        hook = super()._get_hook()
        hook._env = driver_environment(hook._connection["master"], secrets)
        return hook

    def _failed(self, pipeline: Pipeline, missing: Missing, failure: AirflowException | None) -> AirflowException:
        """What to raise for units without a result: a failure for good, if no retry heals any of them."""
        results = {token: pipeline.staging.failed_results(token) for token in {plan.token for plan, _ in missing}}
        found = [results[plan.token].get(unit.id) for plan, unit in missing]
        causes = [result.error if result else None for result in found]
        first = _told(str(failure)) or next(filter(None, causes), None) or str(failure or "the driver told none")
        text = f"{len(missing)} units of {self.pack['label']} have no result. The first error: {first}"
        healing = [cause is None or _may_heal(cause) for cause in (causes if any(causes) else [first])]
        return AirflowException(text) if any(healing) else AirflowFailException(text)

    def on_kill(self) -> None:
        """End the driver, and `spark-submit` with it."""
        if self._connect is not None:
            self._connect.on_kill()
        elif self._hook is not None:
            super().on_kill()


def _code_folder(target: str, root: str) -> Path:
    """Where the zip for Spark is put: below the target; with a target in an object store, beside the driver that is started."""
    from airflow_gobblin.staging import ROOT

    if object_place(target) is None:
        return Path(root) / ROOT / "code"
    return Path(tempfile.gettempdir()) / f"airflow-gobblin-{os.getuid()}"


def _told(output: str) -> str | None:
    """The first error that a driver told, from the end of its output."""
    lines = [line for line in output.splitlines() if line.startswith(FIRST_ERROR)]
    return lines[-1].removeprefix(FIRST_ERROR) if lines else None


def _may_heal(error: str) -> bool:
    """Whether a retry may heal an error, by the class that its text begins with; of what isn't ours nobody knows."""
    known = getattr(errors, error.partition(":")[0], GobblinError)
    return known is GobblinError or bool(known.retryable)
