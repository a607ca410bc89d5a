"""The tasks of an ingestion, as a task group and one by one. YAML files are read by modules beside them, which load all kinds of
work; DAG files in Python need few.
"""

from __future__ import annotations

from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.operators.run_requests import ingestion_params
from airflow_gobblin.operators.task_group import GobblinIngestion, SparkOptions
from airflow_gobblin.operators.tasks import (
    CreateWorkUnitsOperator,
    ExecuteCommitStepsOperator,
    FinishOperator,
    VerifyRecoverOperator,
    WriteCommitStepsOperator,
)

__all__ = [
    "CreateWorkUnitsOperator",
    "ExecuteCommitStepsOperator",
    "ExtractOperator",
    "FinishOperator",
    "GobblinIngestion",
    "SparkOptions",
    "VerifyRecoverOperator",
    "WriteCommitStepsOperator",
    "ingestion_params",
]
