"""Extracting one pack on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_gobblin import errors
from airflow_gobblin.errors import GobblinError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.hooks.spark_submit import GobblinSparkSubmitHook
    from airflow_gobblin.pipeline import Ingestion, Pipeline

__all__ = ["ExtractOperator"]


class ExtractOperator(SparkSubmitOperator):
    """Runs the work units of one pack on Spark: one submit, the units in parallel as Spark tasks.

    A retry runs the units that have no result that stands, and nothing at all once the pack is decided. Whether the units
    have results is what counts, not how the driver ended. Every try submits anew (`durable` is off): a driver that was
    stored and has finished says nothing about the units.

    :param ingestion: the job. :param pack: a short reference to the pack, from `create_work_units`. (templated)
    :param conn_id: the Spark connection, of a local or a client mode. The other parameters are `SparkSubmitOperator`'s.
    """

    template_fields: Sequence[str] = ("pack", *SparkSubmitOperator.template_fields)

    def __init__(self, *, ingestion: Ingestion, pack: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name or f"{ingestion.name} extract", **{**kwargs, "durable": False})
        self.ingestion = ingestion
        self.pack = pack

    def execute(self, context: Context) -> None:
        """Submit what is missing, and make sure that nothing is missing afterwards."""
        try:
            self._extract(context)
        except GobblinError as error:
            raise (error if _may_heal(error) else AirflowFailException(str(error))) from error

    def _extract(self, context: Context) -> None:
        from airflow_gobblin.environment import check_pyspark  # noqa: PLC0415

        pipeline = self._pipeline()
        if not pipeline.extract_needed(self.pack):
            self.log.info("every unit of %s has a result, or the pack is decided: nothing to do", self.pack["label"])
            return
        check_pyspark()
        hook = self._prepare(pipeline)
        try:
            super().execute(context)
        except AirflowException as error:
            self.log.warning("spark-submit failed", exc_info=True)
            raise _driver_error(self.pack, hook.first_error or str(error)) from error
        finally: ...
