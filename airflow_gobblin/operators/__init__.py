"""The tasks of an ingestion, as a task group and one by one; and ingestions and pipelines written in YAML."""

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
from airflow_gobblin.operators.yaml_ingestions import CronSchedule, DagOptions, YamlIngestion, load_ingestions

__all__ = [
    "CreateWorkUnitsOperator",
    "CronSchedule",
    "DagOptions",
    "ExecuteCommitStepsOperator",
    "ExtractOperator",
    "FinishOperator",
    "GobblinIngestion",
    "SparkOptions",
    "VerifyRecoverOperator",
    "WriteCommitStepsOperator",
    "YamlIngestion",
    "ingestion_params",
    "load_ingestions",
]
