"""The task that extracts one pack on Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.connections import SECRETS, AirflowConnections
from airflow_gobblin.hooks.environment import check_pyspark, check_submit
from airflow_gobblin.hooks.ingestion import check_job, open_job
from airflow_gobblin.hooks.spark import (
    CONNECT,
    ConnectHook,
    check_spark_connection,
    close_output,
    code_folder,
    prepare_submit,
    reported_error,
    watch_output,
)
from airflow_gobblin.hooks.spark_jobs import spark_job
from airflow_gobblin.hooks.standalone import (
    ENDED,
    SUBMITTER,
    SUCCEEDED,
    UNKNOWN,
    StandaloneMasters,
    submitting_environment,
)
from airflow_gobblin.hooks.wording import worded, worded_failure
from airflow_gobblin.job import DerivedWork, connections_of
from airflow_gobblin.links import DatasetLink, SparkLink
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.naming import many
from airflow_gobblin.operators.announcing import announce_published, let_announce
from airflow_gobblin.operators.run_requests import run_request
from airflow_gobblin.operators.spark_options import check_conf
from airflow_gobblin.operators.task_logs import log_replacing, log_reports, log_swept_pack
from airflow_gobblin.operators.tasks import failing_at_once
from airflow_gobblin.redaction import is_sensitive
from airflow_gobblin.spark.connections import give_connections
from airflow_gobblin.spark.report import PackReport
from airflow_gobblin.spark.ship import ship, ship_file, ship_launcher
from airflow_gobblin.storage.locations import remote_location

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseOperatorLink, Context
    from pydantic import JsonValue

    from airflow_gobblin.events.announcement import Announcement
    from airflow_gobblin.job import Job
    from airflow_gobblin.run.open_job import OpenJob

__all__ = ["ExtractOperator"]

DATASETS_LOGGED = 20
MISSES = 10
"""The number of failed status requests in a row that are tolerated for a durable driver."""
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
"""The settings for starting an application, which Spark Connect doesn't do."""


class ExtractOperator(SparkSubmitOperator):
    """Run the work units of one pack on Spark: one submit, the units in parallel as Spark tasks.

    A retry runs the units that have no valid result, and nothing at all once the pack is decided. Success depends on whether
    the units have results, not on how the driver ended.

    :param job: the tasks' job: an ingestion.
    :param pack: the reference to the pack that `create_work_units` returned. (templated)
    :param conn_id: the Spark connection, in local or client mode or of Spark Connect, where the driver works on a Spark that is
        already running. All other arguments are `SparkSubmitOperator`'s.
    :param durable: the driver runs on a worker of a standalone cluster and outlives the Airflow task; a retry finds it again. It
        finds its secrets there (see `spark.connections`). Otherwise every try submits anew.
    """

    graph_task = "extract"
    template_fields: Sequence[str] = ("pack", *SparkSubmitOperator.template_fields)
    operator_extra_links: Collection[BaseOperatorLink] = (DatasetLink(), SparkLink())

    def __init__(
        self,
        *,
        job: Job,
        pack: Any,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=30),
        map_index_template: str = "{{ task.pack['label'] }}",
        durable: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", f"{job.name} extract")
        super().__init__(
            retries=retries, retry_delay=retry_delay, map_index_template=map_index_template, durable=durable, **kwargs
        )
        check_job(job)
        check_conf(self.conf or {})
        self.job = job
        self.pack = pack
        self.announcement: Announcement | None = None
        if isinstance(job.work, DerivedWork):
            let_announce(self)
        self._connect: ConnectHook | None = None
        self._masters: StandaloneMasters | None = None
        self._driver: str | None = None
        self._zips: list[str] = []
        self._arguments: list[str] = []
        self._submitted = False

    def execute(self, context: Context) -> None:
        """Submit the missing units, and check that none is missing afterwards. A flush and a stage decide, and may go on."""
        fresh = dict(vars(self))
        for number in count():
            vars(self).update(fresh)  # each submit has a hook, an application and arguments of its own
            opened = self._extract(context, number)
            with failing_at_once():
                if not self._planned_again(opened, context):
                    self._announce(opened, context)
                    return

    def _announce(self, opened: OpenJob, context: Context) -> None:
        """Announce the versions that a stage has published here: their readers begin while its other tasks go on."""
        if isinstance(self.job.work, DerivedWork):
            announce_published(self, opened, None, context)

    def _planned_again(self, opened: OpenJob, context: Context) -> bool:
        """Return whether the run goes on with other plans: for what a flush lost to other runs, or for a stage's next version."""
        run, pack = opened.staging.run(self.pack["run"]), opened.staging.pack(self.pack["run"], self.pack["pack"])
        if run is None or pack is None or not run.goes_on:
            return False
        from airflow_gobblin.run.replan import decide_and_plan_again

        return decide_and_plan_again(opened, run_request(context), run, pack)

    def _extract(self, context: Context, number: int) -> OpenJob:
        """Submit the missing units, and return the job.

        :param number: how many plans were extracted in this try before.
        """
        failure: AirflowException | None = None
        with failing_at_once():
            opened = open_job(self.job)
            opened.check_target()  # else it would seem swept
            if self._is_whole(opened):
                self._log_nothing(opened, context)
                return opened
            self._prepare(opened)
            self.external_id_key += f"_{number}" if number else ""
            try:
                self._run_driver(context)
                if self.durable and not self._submitted and not self._is_whole(opened):
                    self.log.warning(
                        "the driver of an earlier try has ended, and units have no result: submitting anew"
                    )
                    context["task_state_store"].delete(self.external_id_key)
                    self._run_driver(context)
            except AirflowException as error:
                failure = error
            missing = [*self._missing(opened)]
            if missing:
                raise self._failed(opened, missing, failure) from failure
        if failure:
            self.log.warning("spark-submit failed, and yet no unit that is still wanted lacks a result: %s", failure)
        return opened

    def _missing(self, opened: OpenJob) -> Iterator[tuple[str, str]]:
        """Yield the token and the id of each unit without a result, with one plan at a time in memory."""
        from airflow_gobblin.run.extract import missing_units

        pack = opened.staging.pack(self.pack["run"], self.pack["pack"])
        if pack is not None:
            yield from ((plan.token, unit.id) for plan, unit in missing_units(opened, pack))

    def _log_nothing(self, opened: OpenJob, context: Context) -> None:
        from airflow_gobblin.run.extract import decided

        self.log.info("every unit of %s has a result, or is no longer wanted: nothing to do", self.pack["label"])
        pack = opened.staging.pack(self.pack["run"], self.pack["pack"])
        if pack is None:
            log_swept_pack(self.log, opened, self.pack, context)
            return
        reports = [*map(worded, decided(opened, pack, DATASETS_LOGGED))]
        log_reports(self.log, reports)
        log_replacing(self.log, opened, reports, context)

    def _is_whole(self, opened: OpenJob) -> bool:
        """Return whether every wanted unit has a result."""
        return next(self._missing(opened), None) is None

    def _prepare(self, opened: OpenJob) -> None:
        """Set what to submit. Templates are rendered and shown before this, so none of it is shown."""
        staging, code = opened.staging, self.job.work.code
        elsewhere = self.durable and remote_location(self.job.work.workspace) is None
        shipped = ship(code, code_folder(staging.files.root if elsewhere else None))
        self.py_files = ",".join(filter(None, [str(shipped), self.py_files]))
        self.application = str(spark_job("extract_pack.py"))
        self._zips = self.py_files.split(",")
        where = {"root": self.job.work.workspace, "staging": staging.folder} | {
            name: self.pack[name] for name in ("run", "pack")
        }
        arguments = [f"--{name}={value}" for name, value in where.items()]
        arguments += [f"--code={module}" for module in code]
        arguments += [f"--connection={conn_id}" for conn_id in connections_of(self.job.work)]
        self._arguments = self.application_args = arguments
        self.external_id_key = f"spark_driver_{self.pack['run']}_{self.pack['pack']}"  # not another pack's driver

    def _run_driver(self, context: Context) -> None:
        """Run a driver to its end, by `spark-submit` or for Spark Connect.

        :raises AirflowException: it failed.
        """
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
        secrets = give_connections(AirflowConnections(), connections_of(self.job.work))
        return {**{name: str(value) for name, value in others.items()}, **secrets}

    def _get_hook(self) -> SparkSubmitHook:
        if self.durable:
            return self._get_durable_hook()
        self._deploy_mode = "client"
        # With some masters, the provider puts `env_vars` on the command line.
        secrets = self._secrets()
        hook = super()._get_hook()
        prepare_submit(hook, secrets, SparkLink().lead_to)
        return hook

    # A durable driver: the methods that `execute_resumable` calls

    def _get_durable_hook(self) -> SparkSubmitHook:
        self._deploy_mode, self._java_class = "cluster", SUBMITTER
        root, cause = self.job.work.workspace, None
        if remote_location(root) is not None:
            cause = "workers find the code below the target, and this one is in an object store or on a server"
        elif self.env_vars:
            cause = "it runs in the environment of a worker, and `env_vars` can't be added to that"
        if cause is not None:
            raise ConfigurationError(
                operation="submit",
                subject=f"a durable driver for target {root!r}",
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
        """Submit a durable driver.

        :return: its id.
        """
        assert self._hook is not None
        self._submitted = True
        return str(self._hook.submit(self.application, env=submitting_environment()))

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the status of a durable driver."""
        assert self._masters is not None
        return self._masters.status(str(external_id))

    def is_job_active(self, status: str) -> bool:
        """Return whether a durable driver is worth waiting for."""
        return status not in {*ENDED, UNKNOWN}

    def is_job_succeeded(self, status: str) -> bool:
        """Return whether a durable driver ended well, as far as it knows."""
        return status == SUCCEEDED

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Wait for a durable driver to end.

        :raises AirflowException: it didn't end well, or its status can't be read.
        """
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
        self, opened: OpenJob, missing: Sequence[tuple[str, str]], failure: AirflowException | None
    ) -> AirflowException:
        """Return the error for units without a result: a final failure if no retry can heal any of them."""
        results = {token: opened.staging.failed_results(token) for token in {token for token, _ in missing}}
        found = [results[token].get(unit) for token, unit in missing]
        causes = [result.failure if result else None for result in found]
        printed = reported_error(str(failure))
        left = self._left(opened, printed)
        typed = left if printed else next(filter(None, causes), None) or left
        first = worded_failure(typed) if typed is not None else printed or str(failure or "the driver reported none")
        text = f"no result of {many(len(missing), 'unit')} of {self.pack['label']}. The first error: {' '.join(first.split())}"
        healing = [cause is None or cause.retryable for cause in (causes if any(causes) else [left])]
        return AirflowException(text) if any(healing) else AirflowFailException(text)

    def _left(self, opened: OpenJob, printed: str | None) -> Failure | None:
        """Return the failure that a driver of this pack left in staging.

        :param printed: the error that the driver printed; `None` if its output isn't read, since it runs elsewhere.
        """
        if printed is None and not self.durable:
            return None
        reports = opened.staging.reports(self.pack["run"], PackReport)
        mine = sorted(
            (r for r in reports if r.pack == self.pack["pack"]), key=lambda report: report.started, reverse=True
        )
        failures = (failure for report in mine for failure in report.failures[:1])
        return next((failure for failure in failures if printed in (None, failure.line)), None)

    def on_kill(self) -> None:
        """Stop the driver, and `spark-submit` with it."""
        if self._connect is not None:
            self._connect.on_kill()
        elif self._hook is not None:
            driver = self._driver or self._hook._driver_id
            if self._masters is not None and driver is not None:
                self._masters.kill(driver)
            else:
                super().on_kill()
