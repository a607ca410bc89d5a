"""The tasks of an ingestion, except `extract`: each calls its function of `run` with the run's request.

XCom holds only short references, and no task reads what a sibling pushed: a task of a pack gets the pack's reference as an
argument, and everything else is in staging and in the journal. Any task may run again, or twice at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, BaseOperator, TriggerRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin.errors import ConfigurationError, GobblinError, IncompleteRunError, SourceError, without_stop
from airflow_gobblin.events.assets import asset_uri, versions_asset
from airflow_gobblin.events.metrics import count_recoveries, gauge_lags, gauge_quarantines
from airflow_gobblin.hooks.connections import SECRETS, AirflowConnections
from airflow_gobblin.hooks.ingestion import check_job, open_job
from airflow_gobblin.hooks.registry import location_of
from airflow_gobblin.hooks.wording import worded, worded_error
from airflow_gobblin.links import DatasetLink
from airflow_gobblin.model.naming import many, shown
from airflow_gobblin.operators.announcing import announce_published, let_announce
from airflow_gobblin.operators.frozen_heap import frozen_heap
from airflow_gobblin.operators.run_requests import run_request
from airflow_gobblin.operators.task_logs import (
    copied_in_all,
    log_replacing,
    log_reports,
    log_swept,
    log_swept_pack,
    pack_reference,
    result_table,
    without_many_idle,
)

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_gobblin.events.announcement import Announcement
    from airflow_gobblin.hooks.steps import StepsOnSpark
    from airflow_gobblin.job import Job
    from airflow_gobblin.journal.records import Decision
    from airflow_gobblin.model.plan import RunPlan
    from airflow_gobblin.model.work import Pack
    from airflow_gobblin.operators.spark_options import SparkOptions
    from airflow_gobblin.run.open_job import OpenJob
    from airflow_gobblin.run.reports import DatasetReport

__all__ = [
    "CreateWorkUnitsOperator",
    "ExecuteCommitStepsOperator",
    "FinishOperator",
    "VerifyRecoverOperator",
    "WriteCommitStepsOperator",
]

RUN = "run"
"""The XCom key of the reference to what `create_work_units` planned."""
STEPS_LOGGED = 50


class _TaskOperator(BaseOperator):
    """The base of the tasks.

    :param job: the tasks' job: an ingestion.
    :param retries: errors that a retry may heal are retried; all others fail at once.
    :param spark: how the steps of very long commit sequences run on Spark; by default all run in the task itself.
    """

    operator_extra_links: Collection[BaseOperatorLink] = (DatasetLink(),)

    def __init__(
        self,
        *,
        job: Job,
        spark: SparkOptions | None = None,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=30),
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        check_job(job)
        self.job = job
        self.spark = spark
        self._on_spark: StepsOnSpark | None = None
        self.announcement: Announcement | None = None

    def _open_job(self) -> OpenJob:
        opened = open_job(self.job)
        if self.spark is not None:
            from airflow_gobblin.hooks.steps import StepsOnSpark

            self._on_spark = StepsOnSpark(opened, self.spark.submit_arguments(), self.spark.steps_above)
            opened.committer.runner = self._on_spark
        opened.committer.after_step = self._log_step
        return opened

    def _log_step(self, decision: Decision, k: int, n: int) -> None:
        if n <= STEPS_LOGGED or k % (n // STEPS_LOGGED) == 0:
            self.log.info("dataset %r, slot %d: step %d of %d is done", decision.urn, decision.slot, k, n)

    def on_kill(self) -> None:
        """Stop the work on Spark."""
        if self._on_spark is not None:
            self._on_spark.on_kill()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the lineage for OpenLineage: the datasets that this task announced."""
        from airflow_gobblin.events.lineage import lineage

        publications = self.announcement.publications if self.announcement is not None else ()
        with SECRETS.guarding("report to OpenLineage on", f"ingestion {self.job.name!r}"):
            return lineage(self.job.work, publications, AirflowConnections())


class VerifyRecoverOperator(_TaskOperator):
    """Finish what earlier runs decided and left. A dataset that can't be finished stays as it is, and the others go on."""

    def execute(self, context: Context) -> None:
        from airflow_gobblin.run.recover import verify_recover

        with failing_at_once():
            opened = self._open_job()
            reports = [*map(worded, verify_recover(opened, run_request(context)))]
        count_recoveries(self.job.name, opened.recovered)
        log_reports(self.log, reports)
        if not reports:
            self.log.info("no dataset was left unfinished")


class CreateWorkUnitsOperator(_TaskOperator):
    """Plan every dataset from its watermark, and pack the plans.

    It returns a reference to each pack, to map a task group over, and pushes one to the whole plan under the XCom key `run`.

    It is retried if nothing at all could be planned and a retry may heal that, or if some datasets couldn't be planned because of
    their journal or target. Otherwise, or after the last try, it goes on with the others: those that couldn't be planned keep
    their state, `finish` fails for them, and the next run plans them.

    The ingestion's location, `location`, is a templated field, so the serialized DAG contains it, and `airflow gobblin` finds it
    there without running the DAG's code. (templated)
    """

    graph_task = "create_work_units"
    template_fields: Sequence[str] = ("location",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.location = location_of(self.job)
        for other in self._dag.tasks if self._dag is not None else ():
            if isinstance(other, CreateWorkUnitsOperator) and other is not self:
                _check_one_of_a_name(self, other)
        if self._dag is not None and self.dag.rerun_with_latest_version is None:
            # A run that is moved to the DAG's latest version, as backfills do, loses its mapped tasks.
            self.dag.rerun_with_latest_version = False

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from airflow_gobblin.run.plan import create_work_units

        with failing_at_once():
            opened = self._open_job()
            try:
                with frozen_heap():
                    plan = create_work_units(opened, run_request(context))
            finally:
                count_recoveries(self.job.name, opened.recovered)
                log_reports(self.log, opened.recovered)
            log_reports(self.log, map(worded, plan.notes))
            log_replacing(self.log, opened, plan.notes, context)
            _retry_unplanned(opened, plan, context)
        for pack in plan.packs:
            self.log.info("%s: weight %d, datasets %s", pack.label, pack.weight, [d.urn for d in pack.datasets][:20])
        context["ti"].xcom_push(key=RUN, value=plan.run)
        return [pack_reference(plan.run, pack) for pack in plan.packs]


class _PackOperator(_TaskOperator):
    """The base of a pack's tasks.

    :param pack: a reference that `create_work_units` returned, as passed by mapping. (templated)
    """

    template_fields: Sequence[str] = ("pack",)

    def __init__(
        self,
        *,
        pack: Any,
        trigger_rule: TriggerRule = TriggerRule.ALL_DONE,
        map_index_template: str = "{{ task.pack['label'] }}",
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, map_index_template=map_index_template, **kwargs)
        self.pack = pack

    def _of_pack(
        self, opened: OpenJob, context: Context, task: Callable[[RunPlan, Pack], tuple[DatasetReport, ...]]
    ) -> tuple[DatasetReport, ...]:
        """Return and log the reports of a task on the pack, or those of the journal if the pack was swept."""
        opened.check_target()  # else it would seem swept
        run, pack = opened.staging.run(self.pack["run"]), opened.staging.pack(self.pack["run"], self.pack["pack"])
        if run is None or pack is None:
            return log_swept_pack(self.log, opened, self.pack, context)
        with frozen_heap():
            reports = tuple(map(worded, task(run, pack)))
        log_reports(self.log, reports)
        log_replacing(self.log, opened, reports, context)
        return reports


class WriteCommitStepsOperator(_PackOperator):
    """Apply the commit policy to the valid results of a pack, and decide a slot for each of its datasets.

    It runs once `extract` has ended, even if it failed: a failed unit fails `extract`, and the policy still decides.
    """

    def execute(self, context: Context) -> None:
        from airflow_gobblin.run.decide import write_commit_steps

        with failing_at_once():
            opened = self._open_job()
            reports = self._of_pack(opened, context, partial(write_commit_steps, opened))
        _raise_unless_good("write the commit steps of", self.pack, reports)


class ExecuteCommitStepsOperator(_PackOperator):
    """Carry out what is decided for the datasets of a pack, and announce what was published. Always safe to repeat.

    It runs even if `write_commit_steps` failed: a decided slot of one dataset is published, regardless of the others.

    Each published slot is an event of its dataset's asset, `gobblin://<ingestion>/<dataset>`, through the asset alias
    `gobblin://<ingestion>`, with URN, slot, watermark, rows and files. Airflow takes events only from tasks that succeed:
    while one dataset of a pack can't be published, the others of this pack wait for theirs, and those of other packs don't.
    An event may come twice, but never without a publish.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        let_announce(self)

    def execute(self, context: Context) -> None:
        from airflow_gobblin.run.execute import execute_commit_steps

        with failing_at_once():
            opened = self._open_job()
            reports = self._of_pack(opened, context, partial(execute_commit_steps, opened))
            _raise_unless_good("execute the commit steps of", self.pack, reports)
            announce_published(self, opened, [r.urn for r in reports], context)


class FinishOperator(_TaskOperator):
    """Sweep staging, announce what was published, and fail unless every dataset is as the policy wants it.

    It emits the events of `ExecuteCommitStepsOperator` for slots that have had none, for example an earlier run's.

    :param plan: the task that planned the run.
    """

    def __init__(
        self,
        *,
        plan: CreateWorkUnitsOperator,
        trigger_rule: TriggerRule = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.plan = plan.task_id
        let_announce(self)

    def execute(self, context: Context) -> None:
        from airflow_gobblin.run.answers import answered
        from airflow_gobblin.run.finish import finish
        from airflow_gobblin.run.reports import incomplete

        with failing_at_once():
            opened = open_job(self.job)
            run = context["ti"].xcom_pull(task_ids=self.plan, key=RUN)
            if run is None:
                raise self._unplanned()
            opened.check_target()  # else it would seem swept
            plan = opened.staging.run(run)
            request = run_request(context)
            reports = tuple(map(worded, answered(opened, request) if plan is None else finish(opened, plan)))
            gauge_lags(self.job.name, reports)
            if plan is not None and not request.datasets:
                gauge_quarantines(self.job.name, reports)
            self._log_table(reports)
            log_replacing(self.log, opened, reports, context)
            if plan is None:
                log_swept(self.log, "the plan of this run", reports)
            else:
                self._log_loads(opened, plan)
            error = incomplete(self.job, reports)
            if error is not None:
                # A dataset that couldn't be read, for example, may be readable the next time.
                raise (AirflowException if any(r.retryable for r in reports) else AirflowFailException)(str(error))
            announce_published(self, opened, None, context)
            if plan is not None and plan.seals is not None:
                self._announce_version(plan.seals.version, context)

    def _announce_version(self, version: datetime, context: Context) -> None:
        """Wake the stages that read what the job publishes. They look for themselves whether the version is sealed."""
        events = context["outlet_events"][AssetAlias(asset_uri(self.job.name))]
        events.add(versions_asset(ingestion=self.job.name), extra={"version": version.isoformat()})

    def _unplanned(self) -> IncompleteRunError:
        return IncompleteRunError(
            operation="finish",
            subject=f"the run of ingestion {self.job.name!r}",
            cause=f"{self.plan} gave no plan",
            hint="See the log of the first task that failed, which may be the one before it; once that is fixed, clear it "
            "with its downstream tasks.",
        )

    def _log_table(self, reports: Collection[DatasetReport]) -> None:
        from airflow_gobblin.run.reports import MOST_NAMED, unwanted

        rows = [*result_table(reports, without_many_idle(self.log, reports))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            self.log.info("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        summary = copied_in_all(reports)
        if summary:
            self.log.info(summary)
        in_error = unwanted(self.job, reports)[:MOST_NAMED]  # which lists them
        for report in reports:
            if report.already:
                self.log.info("dataset %r: %s", report.urn, report.detail)
            if not report.ok and report not in in_error:
                self.log.warning("dataset %r: %s, %s", report.urn, report.status, report.detail)

    def _log_loads(self, opened: OpenJob, plan: RunPlan) -> None:
        from airflow_gobblin.spark.report import PackReport

        reports = list(opened.staging.reports(plan.run, PackReport))
        written = {p.index: sum(g.bytes for r in reports if r.pack == p.index for g in r.groups) for p in plan.packs}
        predicted, actual = sum(p.weight for p in plan.packs), sum(written.values())
        for pack in plan.packs:
            self.log.info(
                "%s: predicted load %d (%s of the run's), actual %d bytes (%s), in %.1f s on Spark",
                pack.label,
                pack.weight,
                _share(pack.weight, predicted),
                written[pack.index],
                _share(written[pack.index], actual),
                sum(r.seconds for r in reports if r.pack == pack.index),
            )


@contextmanager
def failing_at_once() -> Iterator[None]:
    """Fail a task at once on an error that no retry can heal, and keep secrets out of all errors: Airflow logs causes, too."""
    try:
        yield
    except AirflowException as error:
        if not SECRETS.shows_secret(error):
            raise
        raise type(error)(SECRETS.redact(str(error))) from None
    except BaseException as error:  # an author's code may raise anything
        shown = SECRETS.without_secrets(error, "run", "a task of an ingestion", SourceError)
        if isinstance(shown, GobblinError):
            shown = worded_error(shown)
            if not shown.retryable:
                raise AirflowFailException(str(shown)) from None  # its text has its cause
        if shown is error:
            raise
        raise shown from None


def _check_one_of_a_name(task: CreateWorkUnitsOperator, other: CreateWorkUnitsOperator) -> None:
    """Check, when a DAG is parsed, that no two of its tasks plan different ingestions of the same name in one journal.

    Those of two DAGs are detected when the second one plans.

    :raises ConfigurationError: they do.
    """
    mine, theirs = task.location, other.location
    if (mine["ingestion"], mine["journal"]) != (theirs["ingestion"], theirs["journal"]):
        return
    for what in ("target", "source"):
        if mine[what] != theirs[what]:
            raise ConfigurationError(
                operation="use",
                subject=f"ingestion {mine['ingestion']!r} of task {task.task_id!r}",
                cause=f"task {other.task_id!r} has one of this name and journal, with {what} {theirs[what]!r} and not "
                f"{mine[what]!r}",
                hint="Give one of them a name of its own: its journal is found by it.",
            )


def _retry_unplanned(opened: OpenJob, plan: RunPlan, context: Context) -> None:
    """Fail for a retry while one may heal datasets that couldn't be planned. The last try goes on with the other datasets."""
    healing = [note for note in plan.notes if note.retryable]
    task = context["ti"]
    if healing and task.try_number <= task.max_tries:
        opened.staging.finish_run(plan.run)  # the next try has a plan of its own
        first = f"{shown(healing[0].urn)}: {worded(healing[0]).detail}"
        raise AirflowException(f"{many(len(healing), 'dataset')} can't be planned, and may be by the next try; {first}")


def _raise_unless_good(operation: str, pack: Mapping[str, Any], reports: Iterable[DatasetReport]) -> None:
    """Fail if datasets of the pack failed, were lost or are quarantined, after all are done; for good if no retry can heal it."""
    bad = [r for r in reports if r.status.bad]
    if not bad:
        return
    details = "; ".join(f"{shown(r.urn)}: {r.status} ({without_stop(r.detail)})" for r in bad[:10])
    text = f"can't {operation} {many(len(bad), 'dataset')} of {pack['label']!r}: {details}"
    raise AirflowException(text) if any(r.retryable for r in bad) else AirflowFailException(text)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"
