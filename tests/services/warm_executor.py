"""Airflow's LocalExecutor, with what the tasks import loaded before its workers are forked: seconds a task become tenths.

It is put into the `config` folder of an Airflow, which is on its path.
"""

from __future__ import annotations

import importlib

from airflow.executors.local_executor import LocalExecutor

MODULES = (
    "adbc_driver_postgresql.dbapi",
    "adbc_driver_sqlite.dbapi",
    "airflow.dag_processing.dagbag",
    "airflow.sdk.execution_time.task_runner",
    "airflow_gobblin.extraction",
    "airflow_gobblin.operators",
    "airflow_gobblin.pipeline",
    "airflow_gobblin.sinks.parquet_files",
    "airflow_gobblin.sources.sql.database",
    "airflow_gobblin.sources.sql.reader",
    "pyarrow.dataset",
)


class WarmExecutor(LocalExecutor):
    """A LocalExecutor whose workers have loaded `MODULES`."""

    def start(self) -> None:
        for module in MODULES:
            importlib.import_module(module)
        super().start()
