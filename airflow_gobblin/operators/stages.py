"""The tasks of an ingestion, but for `extract`: each is one stage of `pipeline.Pipeline`, called with the run's request.

XCom holds nothing but short references, and no task reads what a sibling pushed: a task of a pack has the pack's reference as
its own argument, and everything else is in staging and in the journal. Any of them may be run again, or twice at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, TriggerRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin.errors import ConfigurationError, GobblinError, IncompleteRunError
from airflow_gobblin.hooks.ingestion import check_journal, open_pipeline
from airflow_gobblin.naming import dataset_key

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.ingestion import Ingestion
    from airflow_gobblin.journal import Slot
    from airflow_gobblin.pipeline import DatasetReport, Pipeline, RunRequest
    from airflow_gobblin.plan import RunPlan
    from airflow_gobblin.work import Pack

__all__ = [
    "CreateWorkUnitsOperator",
    "ExecuteCommitStepsOperator",
    "FinishOperator",
    "VerifyRecoverOperator",
    "WriteCommitStepsOperator",
]

RUN = "run"
"""The XCom key of the reference to what `create_work_units` planned."""
_STEPS_LOGGED = 50


class _StageOperator(BaseOperator):
    """What the stages share.

    :param ingestion: the job. :param retries: what a retry may heal is tried again; what it can't fails at once.
    """

    def __init__(
        self,
        *,
        ingestion: Ingestion,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=30),
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        check_journal(ingestion.journal)
        self.ingestion = ingestion

    def _log_reports(self, reports: Iterable[DatasetReport]) -> None:
        for report in reports:
            self.log.info("dataset %r: %s, %s", report.urn, report.status, report.detail)


class VerifyRecoverOperator(_StageOperator):
    """Finishes what earlier runs decided and left. A dataset that can't be finished stands still, and the others go on."""

    def execute(self, context: Context) -> None:
        with failing_at_once():
            reports = open_pipeline(self.ingestion).verify_recover(run_request(context))
        self._log_reports(reports)
        if not reports:
            self.log.info("no dataset was left unfinished")


class CreateWorkUnitsOperator(_StageOperator):
    """Plans every dataset from its watermark, and packs the plans.

    Gives a reference for each pack, to map a task group over; and, under the XCom key `run`, one to the whole plan.
    """

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with failing_at_once():
            plan = open_pipeline(self.ingestion).create_work_units(run_request(context))
        for note in plan.notes:
            self.log.info("dataset %r: %s, %s", note.urn, note.status, note.detail)
        for pack in plan.packs:
            self.log.info("%s: weight %d, datasets %s", pack.label, pack.weight, [d.urn for d in pack.datasets][:20])
        context["ti"].xcom_push(key=RUN, value=plan.run)
        return [{"run": plan.run, "pack": pack.index, "label": pack.label} for pack in plan.packs]


class _PackOperator(_StageOperator):
    """What the stages of a pack share.

    :param pack: a reference that `create_work_units` gave, as it comes from mapping. (templated)
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

    def _planned(self, pipeline: Pipeline, context: Context) -> tuple[RunPlan, Pack] | None:
        """What staging has of the pack; `None` if it was swept."""
        run, pack = pipeline.staging.run(self.pack["run"]), pipeline.staging.pack(self.pack["run"], self.pack["pack"])
        if run is not None and pack is not None:
            return run, pack
        self.log.info(
            "the plan of %s was swept: its datasets are committed, or other runs took their ranges. Nothing to do; %s",
            self.pack["label"],
            "to ingest what is open, clear create_work_units with its downstream tasks",
        )
        return None


class WriteCommitStepsOperator(_PackOperator):
    """Applies the commit policy to the results of a pack that stand, and decides a slot for each of its datasets.

    It runs when `extract` has ended, however it did: a failed unit makes `extract` red, and the policy has its say all the same.
    """

    def execute(self, context: Context) -> None:
        with failing_at_once():
            pipeline = open_pipeline(self.ingestion)
            planned = self._planned(pipeline, context)
            reports = pipeline.write_commit_steps(*planned) if planned else ()
        self._log_reports(reports)
        _raise_unless_good("write the commit steps of", self.pack, reports)


class ExecuteCommitStepsOperator(_PackOperator):
    """Carries out what is decided for the datasets of a pack. Always safe to do again.

    It runs however `write_commit_steps` ended: what is decided for one dataset is published whatever became of another.
    """

    def execute(self, context: Context) -> None:
        with failing_at_once():
            pipeline = open_pipeline(self.ingestion)
            planned = self._planned(pipeline, context)
            reports = pipeline.execute_commit_steps(*planned, after_step=self._log_step) if planned else ()
        self._log_reports(reports)
        _raise_unless_good("execute the commit steps of", self.pack, reports)

    def _log_step(self, urn: str, slot: int, k: int, n: int) -> None:
        if n <= _STEPS_LOGGED or k % (n // _STEPS_LOGGED) == 0:
            self.log.info("dataset %r, slot %d: step %d of %d is done", urn, slot, k, n)


class FinishOperator(_StageOperator):
    """Sweeps staging, announces what was published, and fails unless every dataset is as the policy wants it.

    What was published is an event of an asset of each dataset, `gobblin://<ingestion>/<dataset>`, through the asset alias
    `gobblin://<ingestion>`, with URN, slot, watermark, rows and files. An event may come twice, and never for nothing.

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
        self.alias = AssetAlias(f"gobblin://{self.ingestion.name}")
        self.outlets = [*self.outlets, self.alias]
        self._announced: list[Slot] = []
        # A slot is noted as announced once Airflow has the event: not before this task has succeeded.
        self.on_success_callback = [*_callbacks(self.on_success_callback), self._note_announced]

    def execute(self, context: Context) -> None:
        with failing_at_once():
            pipeline = open_pipeline(self.ingestion)
            plan = self._run_plan(pipeline, context)
            reports = pipeline.finish(plan)
            self._log_table(reports)
            self._log_loads(pipeline, plan, reports)
            self._raise_unless_complete(reports)
            self._announce(pipeline, reports, context)

    def _run_plan(self, pipeline: Pipeline, context: Context) -> RunPlan:
        run = context["ti"].xcom_pull(task_ids=self.plan, key=RUN)
        plan = pipeline.staging.run(run) if run else None
        if plan is not None:
            return plan
        raise IncompleteRunError(
            operation="finish",
            subject=f"the run of ingestion {self.ingestion.name!r}",
            cause=f"{self.plan} gave no plan" if not run else f"the plan of {self.plan} was swept",
            hint=f"Clear {self.plan} with its downstream tasks; its log says why, if it failed.",
        )
