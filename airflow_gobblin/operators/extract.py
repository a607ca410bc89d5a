"""Extracting one pack on Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin import errors
from airflow_gobblin.environment import check_pyspark, check_submit
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.hooks.connections import SECRETS, AirflowConnections
from airflow_gobblin.hooks.ingestion import check_ingestion, open_pipeline
from airflow_gobblin.hooks.spark import (
    CONNECT,
    ConnectHook,
    check_spark_connection,
    close_output,
    code_folder,
    prepare_submit,
    told,
    watch_output,
)
from airflow_gobblin.hooks.standalone import (
    ENDED,
    SUBMITTER,
    SUCCEEDED,
    UNKNOWN,
    StandaloneMasters,
    submitting_environment,
)
from airflow_gobblin.links import DatasetLink, SparkLink
from airflow_gobblin.naming import many
from airflow_gobblin.operators.spark_options import check_conf
from airflow_gobblin.operators.stages import failing_at_once
from airflow_gobblin.operators.telling import log_replacing, log_reports, tell_swept_pack
from airflow_gobblin.places import object_place
from airflow_gobblin.redaction import is_sensitive
from airflow_gobblin.spark.connections import give_connections
from airflow_gobblin.spark.report import PackReport
from airflow_gobblin.spark.ship import ship, ship_file, ship_launcher
from airflow_gobblin.spark_jobs import spark_job

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseOperatorLink, Context
    from pydantic import JsonValue

    from airflow_gobblin.ingestion import Ingestion
    from airflow_gobblin.pipeline import Pipeline

__all__ = ["ExtractOperator"]

DATASETS_LOGGED = 20
MISSES = 10
"""How often in a row nobody may know how a durable driver does."""
_OF_SUBMITS = (
    "durable",
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
    have results is what counts, not how the driver ended.

    :param ingestion: the job. :param pack: the reference of the pack that `create_work_units` gave. (templated)
    :param conn_id: the Spark connection: of local or client mode, or of Spark Connect, where the driver works on a Spark that
        runs already. All else is `SparkSubmitOperator`'s.
    :param durable: the driver runs on a worker of a standalone cluster and outlives the Airflow task; a retry finds it again. It
        finds its secrets there (see `spark.connections`). Otherwise every try submits anew.
    """

    template_fields: Sequence[str] = ("pack", *SparkSubmitOperator.template_fields)
    operator_extra_links: Collection[BaseOperatorLink] = (DatasetLink(), SparkLink())

    def __init__(
        self,
        *,
        ingestion: Ingestion,
        pack: Any,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=30),
        map_index_template: str = "{{ task.pack['label'] }}",
        durable: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", f"{ingestion.name} extract")
        super().__init__(
            retries=retries, retry_delay=retry_delay, map_index_template=map_index_template, durable=durable, **kwargs
        )
        check_ingestion(ingestion)
        check_conf(self.conf or {})
        self.ingestion = ingestion
        self.pack = pack
        self._connect: ConnectHook | None = None
        self._masters: StandaloneMasters | None = None
        self._driver: str | None = None
        self._zips: list[str] = []
        self._arguments: list[str] = []
        self._submitted = False

    def execute(self, context: Context) -> None:
        """Submit what is missing, and see that nothing is missing afterwards."""
        failure: AirflowException | None = None
        with failing_at_once():
            pipeline = open_pipeline(self.ingestion)
            pipeline.check_target()  # else it would seem swept
            if self._is_whole(pipeline):
                self._log_nothing(pipeline, context)
                return
            self._prepare(pipeline)
            try:
                self._run_driver(context)
                if self.durable and not self._submitted and not self._is_whole(pipeline):
                    self.log.warning(
                        "the driver of an earlier try has ended, and units have no result: submitting anew"
                    )
                    context["task_state_store"].delete(self.external_id_key)
                    self._run_driver(context)
            except AirflowException as error:
                failure = error
            missing = [*self._missing(pipeline)]
            if missing:
                raise self._failed(pipeline, missing, failure) from failure
        if failure:
            self.log.warning("spark-submit failed, though every unit has its result: %s", failure)

    def _missing(self, pipeline: Pipeline) -> Iterator[tuple[str, str]]:
        """The token and the id of each unit that has no result, a plan at a time in memory."""
        pack = pipeline.staging.pack(self.pack["run"], self.pack["pack"])
        if pack is not None:
            yield from ((plan.token, unit.id) for plan, unit in pipeline.missing_units(pack))

    def _log_nothing(self, pipeline: Pipeline, context: Context) -> None:
        self.log.info("every unit of %s has a result, or is no longer wanted: nothing to do", self.pack["label"])
        pack = pipeline.staging.pack(self.pack["run"], self.pack["pack"])
        if pack is None:
            tell_swept_pack(self.log, pipeline, self.pack, context)
            return
        reports = [*pipeline.decided(pack, DATASETS_LOGGED)]
        log_reports(self.log, reports)
        log_replacing(self.log, pipeline, reports, context)

    def _is_whole(self, pipeline: Pipeline) -> bool:
        """Whether every unit that is wanted has a result."""
        return next(self._missing(pipeline), None) is None

    def _prepare(self, pipeline: Pipeline) -> None:
        """Fill in what is submitted. Templates are rendered and shown before, so nothing of this is."""
        staging, code = pipeline.staging, self.ingestion.code
        shipped = ship(code, code_folder(self.ingestion.sink.target, staging.files.root))
        self.py_files = ",".join(filter(None, [str(shipped), self.py_files]))
        self.application = str(spark_job("extract_pack.py"))
        self._zips = self.py_files.split(",")
        where = {"root": self.ingestion.sink.target, "staging": staging.folder} | {
            name: self.pack[name] for name in ("run", "pack")
        }
        arguments = [f"--{name}={value}" for name, value in where.items()]
        arguments += [f"--code={module}" for module in code]
        arguments += [f"--connection={conn_id}" for conn_id in self.ingestion.connection_ids]
        self._arguments = self.application_args = [*arguments, *(["--durable"] if self.durable else [])]
        self.external_id_key = f"spark_driver_{self.pack['run']}_{self.pack['pack']}"  # another pack's is none of ours

    def _run_driver(self, context: Context) -> None:
        """Run a driver to its end, by `spark-submit` or for Spark Connect. :raises AirflowException: it failed."""
        modes = (self._deploy_mode, (self.conf or {}).get("spark.submit.deployMode"))
        if check_spark_connection(self._conn_id, *modes, durable=self.durable).conn_type == CONNECT:
            self._connect = self._get_connect_hook()
            self._connect.submit(self.application)
        else:
            check_pyspark()
            try:
                super().execute(context)
            finally:
                close_output(self._hook)

    def _get_connect_hook(self) -> ConnectHook:
        for name in _OF_SUBMITS:
            if getattr(self, name, None):
                raise ConfigurationError(
                    operation="use",
                    subject=f"{name.removeprefix('_')} with Spark connection {self._conn_id!r}",
                    cause="it is of Spark Connect, whose server has been started with resources and packages of its own",
                    hint="Leave it out, and set it where the server is started.",
                )
        return ConnectHook(self._conn_id, self._arguments, self._zips, self.conf or {}, self._secrets())

    def _secrets(self) -> dict[str, str]:
        others, self.env_vars = self.env_vars or {}, None
        SECRETS.learn(*(str(value) for name, value in others.items() if is_sensitive(name)))
        secrets = give_connections(AirflowConnections(), self.ingestion.connection_ids)
        return {**{name: str(value) for name, value in others.items()}, **secrets}

    def _get_hook(self) -> SparkSubmitHook:
        if self.durable:
            return self._get_durable_hook()
        self._deploy_mode = "client"
        # The provider's own way for `env_vars` ends on the command line of some masters.
        secrets = self._secrets()
        hook = super()._get_hook()
        prepare_submit(hook, secrets, SparkLink().lead_to)
        return hook

    # A durable driver: what `execute_resumable` asks for

    def _get_durable_hook(self) -> SparkSubmitHook:
        self._deploy_mode, self._java_class = "cluster", SUBMITTER
        target, cause = self.ingestion.sink.target, None
        if object_place(target) is not None:
            cause = "workers find the code below the target, and this one is in an object store"
        elif self.env_vars:
            cause = "it runs in the environment of a worker, and `env_vars` can't be added to that"
        if cause is not None:
            raise ConfigurationError(
                operation="submit",
                subject=f"a durable driver for target {target!r}",
                cause=cause,
                hint="Leave out `durable`, or what is in its way.",
            )
        folder = Path(self._zips[0]).parent
        script = ship_file(Path(self.application), folder)
        self.application, self.py_files = ship_launcher(folder).as_uri(), None
        self.conf = {**(self.conf or {}), "spark.master.rest.enabled": "true"}
        hook = super()._get_hook()
        check_submit(hook._connection["spark_binary"], os.environ)
        watch_output(hook)
        self._masters = StandaloneMasters(hook)
        hook._connection["master"] = self._masters.rest_url
        driver = ["--master", self._masters.url, "--deploy-mode", "client", "--name", self.name]
        hook._application_args = [*driver, "--py-files", ",".join(self._zips), str(script), *self._arguments]
        return hook

    def submit_job(self, context: Context) -> str:
        """Submit a durable driver. :return: its id."""
        assert self._hook is not None
        self._submitted = True
        return str(self._hook.submit(self.application, env=submitting_environment()))

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """How a durable driver does."""
        assert self._masters is not None
        return self._masters.status(str(external_id))

    def is_job_active(self, status: str) -> bool:
        """Whether a durable driver is worth waiting for."""
        return status not in {*ENDED, UNKNOWN}

    def is_job_succeeded(self, status: str) -> bool:
        """Whether a durable driver has ended well, as far as it knows."""
        return status == SUCCEEDED

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Wait for a durable driver's end. :raises AirflowException: it wasn't good."""
        self._driver, status, misses = str(external_id), "", 0
        while self.is_job_active(status):
            time.sleep(self._status_poll_interval)
            last = status
            try:
                status, misses = self.get_job_status(external_id, context), 0
            except AirflowException as error:
                misses += 1
                if misses > MISSES:
                    raise
                self.log.warning("%s", error)
            if status != last:
                self.log.info("driver %s: %s", external_id, status)
        if not self.is_job_succeeded(status):
            raise AirflowException(f"driver {external_id} ended as {status}; the log is with its worker")

    def _failed(
        self, pipeline: Pipeline, missing: Sequence[tuple[str, str]], failure: AirflowException | None
    ) -> AirflowException:
        """What to raise for units without a result: a failure for good, if no retry heals any of them."""
        results = {token: pipeline.staging.failed_results(token) for token in {token for token, _ in missing}}
        found = [results[token].get(unit) for token, unit in missing]
        causes = [result.error if result else None for result in found]
        first = told(str(failure)) or next(filter(None, causes), None) or self._left(pipeline)
        first = first or str(failure or "the driver told none")
        text = f"no result of {many(len(missing), 'unit')} of {self.pack['label']}. The first error: {first}"
        healing = [cause is None or _may_heal(cause) for cause in (causes if any(causes) else [first])]
        return AirflowException(text) if any(healing) else AirflowFailException(text)

    def _left(self, pipeline: Pipeline) -> str | None:
        """The first error of the last driver that left one: nobody reads the output of one that runs elsewhere."""
        if not self.durable:
            return None
        reports = pipeline.staging.reports(self.pack["run"], PackReport)
        failed = [report for report in reports if report.pack == self.pack["pack"] and report.errors]
        return max(failed, key=lambda report: report.started).errors[0] if failed else None

    def on_kill(self) -> None:
        """End the driver, and `spark-submit` with it."""
        if self._connect is not None:
            self._connect.on_kill()
        elif self._hook is not None:
            driver = self._driver or self._hook._driver_id
            if self._masters is not None and driver is not None:
                self._masters.kill(driver)
            else:
                super().on_kill()


def _may_heal(error: str) -> bool:
    """Whether a retry may heal an error, by the class that its text begins with; of what isn't ours nobody knows."""
    known = getattr(errors, error.partition(":")[0], GobblinError)
    return known is GobblinError or bool(known.retryable)
