"""An ingestion as a task group."""

from __future__ import annotations

from typing import Any

from airflow.sdk import TaskGroup, conf, task_group

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import Job
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.operators.spark_options import SparkOptions
from airflow_gobblin.operators.tasks import (
    CreateWorkUnitsOperator,
    ExecuteCommitStepsOperator,
    FinishOperator,
    VerifyRecoverOperator,
    WriteCommitStepsOperator,
)

__all__ = ["GobblinIngestion", "SparkOptions"]


class GobblinIngestion(TaskGroup):
    """The tasks of an ingestion::

        verify_recover → create_work_units → (extract → write_commit_steps → execute_commit_steps) per pack → finish

    Any of them may be killed, retried or cleared at any time.

    :param ingestion: its source, datasets and target.
    :param spark: how it is submitted to Spark.
    :param group_id: the group's id; by default the ingestion's name, with `_` for `.`.
    :param arguments: other arguments of `TaskGroup`, for example `default_args`.
    :raises ConfigurationError: it can't work, as far as that is known without contacting anything.
    """

    def __init__(
        self, ingestion: Job, *, spark: SparkOptions | None = None, group_id: str | None = None, **arguments: Any
    ) -> None:
        _check_packs(ingestion)
        super().__init__(group_id or ingestion.name.replace(".", "_"), **arguments)
        options = spark or SparkOptions()
        with self:
            recover = VerifyRecoverOperator(task_id="verify_recover", job=ingestion, spark=options)
            plan = CreateWorkUnitsOperator(task_id="create_work_units", job=ingestion, spark=options)

            @task_group(group_id="pack")
            def one_pack(pack: Any) -> None:
                of_pack = {"job": ingestion, "pack": pack}
                extract = ExtractOperator(**of_pack, task_id="extract", **options.arguments())
                write = WriteCommitStepsOperator(**of_pack, task_id="write_commit_steps", spark=options)
                execute = ExecuteCommitStepsOperator(**of_pack, task_id="execute_commit_steps", spark=options)
                extract >> write >> execute

            packs = one_pack.expand(pack=plan.output)
            finish = FinishOperator(task_id="finish", job=ingestion, plan=plan)
            recover >> plan >> packs >> finish


def _check_packs(ingestion: Job) -> None:
    most = conf.getint("core", "max_map_length")
    if ingestion.max_packs > most:
        raise ConfigurationError(
            operation="use",
            subject=f"max_packs={ingestion.max_packs} of ingestion {ingestion.name!r}",
            cause=f"Airflow maps at most {most} instances of a task here",
            hint="Use fewer packs, or raise Airflow's [core] max_map_length.",
        )
