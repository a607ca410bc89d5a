"""An ingestion, or a mirror, as a task group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from airflow_gobblin.mirror import Mirror

__all__ = ["GobblinIngestion", "GobblinMirror", "SparkOptions"]


class _JobTasks(TaskGroup):
    """The tasks of a job, whatever its work is."""

    def __init__(self, job: Job, spark: SparkOptions | None, group_id: str | None, arguments: dict[str, Any]) -> None:
        _check_packs(job)
        super().__init__(group_id or job.name.replace(".", "_"), **arguments)
        options = spark or SparkOptions()
        with self:
            recover = VerifyRecoverOperator(task_id="verify_recover", job=job, spark=options)
            plan = CreateWorkUnitsOperator(task_id="create_work_units", job=job, spark=options)

            @task_group(group_id="pack")
            def one_pack(pack: Any) -> None:
                of_pack = {"job": job, "pack": pack}
                extract = ExtractOperator(**of_pack, task_id="extract", **options.arguments())
                write = WriteCommitStepsOperator(**of_pack, task_id="write_commit_steps", spark=options)
                execute = ExecuteCommitStepsOperator(**of_pack, task_id="execute_commit_steps", spark=options)
                extract >> write >> execute

            packs = one_pack.expand(pack=plan.output)
            finish = FinishOperator(task_id="finish", job=job, plan=plan)
            recover >> plan >> packs >> finish


class GobblinIngestion(_JobTasks):
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
        super().__init__(ingestion, spark, group_id, arguments)


class GobblinMirror(_JobTasks):
    """The tasks of a mirror, which are those of an ingestion: `extract` copies files into staging, and the commit steps give them
    their places, or delete what is gone.

    :param mirror: its source, target and options. Other parameters and errors as for `GobblinIngestion`.
    """

    def __init__(
        self, mirror: Mirror, *, spark: SparkOptions | None = None, group_id: str | None = None, **arguments: Any
    ) -> None:
        super().__init__(mirror, spark, group_id, arguments)


def _check_packs(job: Job) -> None:
    most = conf.getint("core", "max_map_length")
    if job.max_packs > most:
        raise ConfigurationError(
            operation="use",
            subject=f"max_packs={job.max_packs} of ingestion {job.name!r}",
            cause=f"Airflow maps at most {most} instances of a task here",
            hint="Use fewer packs, or raise Airflow's [core] max_map_length.",
        )
