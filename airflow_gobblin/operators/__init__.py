"""The tasks of an ingestion, as a task group and one by one."""

from __future__ import annotations

from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.operators.stages import (
    CreateWorkUnitsOperator,
    ExecuteCommitStepsOperator,
    FinishOperator,
    VerifyRecoverOperator,
    WriteCommitStepsOperator,
)
from airflow_gobblin.operators.task_group import GobblinIngestion, SparkOptions

__all__ = [
    "CreateWorkUnitsOperator",
    "ExecuteCommitStepsOperator",
    "ExtractOperator",
    "FinishOperator",
    "GobblinIngestion",
    "SparkOptions",
    "VerifyRecoverOperator",
    "WriteCommitStepsOperator",
]
