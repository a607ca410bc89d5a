"""Extracting one pack on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gobblin import errors
from airflow_gobblin.errors import GobblinError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.hooks.spark_submit import GobblinSparkSubmitHook
    from airflow_gobblin.pipeline import Ingestion, Pipeline
    from airflow_gobblin.plan import Plan
    from airflow_gobblin.work import WorkUnit

__all__ = ["ExtractOperator"]


class ExtractOperator(SparkSubmitOperator):
    """Runs the work units of one pack on Spark: one submit, the units in parallel as Spark tasks.

    A retry runs the units that have no result that stands, and nothing at all once the pack is decided. Whether the units
    have results is what counts, not how the driver ended; and every try submits anew (`durable` is off), for a stored
    driver that has finished says nothing about the units.

    :param ingestion: the job. :param pack: the reference of the pack that `create_work_units` gave. (templated)
    :param conn_id: the Spark connection, of local or client mode. All else is `SparkSubmitOperator`'s.
    """

    template_fields: Sequence[str] = ("pack", *SparkSubmitOperator.template_fields)

    def __init__(self, *, ingestion: Ingestion, pack: Any, **kwargs: Any) -> None:
        kwargs["durable"] = False
        kwargs.setdefault("name", f"{ingestion.name} extract")
        super().__init__(**kwargs)
        self.ingestion = ingestion
        self.pack = pack

    def execute(self, context: Context) -> None:
        """Submit what is missing, and see that nothing is missing afterwards."""
        try:
            self._extract(context)
        except GobblinError as error:
            if error.retryable:
                raise
            raise AirflowFailException(str(error)) from error

    def _extract(self, context: Context) -> None:
        from airflow_gobblin.environment import check_pyspark  # noqa: PLC0415

        pipeline = self.ingestion.pipeline()
        if not self._missing(pipeline):
            self.log.info("every unit of %s has a result, or is no longer wanted: nothing to do", self.pack["label"])
            return
        check_pyspark()
        self._hook = hook = self._prepared_hook(pipeline)
        failure: AirflowException | None = None
        try:
            super().execute(context)
        except AirflowException as error:
            failure = error
        missing = self._missing(pipeline)
        if missing:
            raise self._failed(pipeline, missing, hook.first_error or (str(failure) if failure else None)) from failure
        if failure:
            self.log.warning("spark-submit failed, though every unit has its result: %s", failure)

    def _missing(self, pipeline: Pipeline) -> list[tuple[Plan, WorkUnit]]:
        pack = pipeline.staging.pack(self.pack["run"], self.pack["pack"])
        return [] if pack is None else list(pipeline.missing_units(pack))

    def _prepared_hook(self, pipeline: Pipeline) -> GobblinSparkSubmitHook:
        """The hook that submits this pack. What is templated has been rendered by now, so nothing of this is shown as rendered."""
        from airflow_gobblin.spark.ship import ship  # noqa: PLC0415
        from airflow_gobblin.spark_jobs import spark_job  # noqa: PLC0415
        from airflow_gobblin.staging import ROOT  # noqa: PLC0415

        staging = pipeline.staging
        shipped = ship(self.ingestion.code, Path(staging.files.root) / ROOT / "code")
        self.py_files = ",".join(filter(None, [str(shipped), self.py_files]))
        self.application = str(spark_job("extract_pack.py"))
        where = {"root": staging.files.root, "staging": staging.folder, "run": self.pack["run"], "pack": self.pack["pack"]}
        code = [f"--code={module}" for module in self.ingestion.code]
        self.application_args = [*(f"--{name}={value}" for name, value in where.items()), *code]
        return self._get_hook()

    def _get_hook(self) -> GobblinSparkSubmitHook:

        ...

    def _failed(
        self, pipeline: Pipeline, missing: list[tuple[Plan, WorkUnit]], first: str | None
    ) -> AirflowException:
        """What to raise for units without a result; a failure that no retry heals, if that is so of every unit."""
        results = {plan.token: pipeline.staging.failed_results(plan.token) for plan, _ in missing}
        found = [results[plan.token].get(unit.id) for plan, unit in missing]
        causes = [result.error if result else None for result in found]
        first = first or next(filter(None, causes), "the driver told none")
        text = f"{len(missing)} units of {self.pack['label']} have no result. The first error: {first}"
        if all(cause is not None and not _may_heal(cause) for cause in causes):
            return AirflowFailException(text)
        return AirflowException(text)

    def on_kill(self) -> None:
        """End `spark-submit`, and the driver with it."""
        if self._hook is not None:
            super().on_kill()


def _may_heal(error: str) -> bool:
    """Whether a retry may heal an error, by the class that its text begins with."""
    known = getattr(errors, error.partition(":")[0], GobblinError)
    return known is GobblinError or bool(known.retryable)
