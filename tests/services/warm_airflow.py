"""A component of Airflow that has loaded the imports of tasks and DAG files before it forks for them: seconds become tenths."""

from __future__ import annotations

import importlib

MODULES = (
    "adbc_driver_postgresql.dbapi",
    "adbc_driver_sqlite.dbapi",
    "airflow.dag_processing.dagbag",
    "airflow.sdk.execution_time.task_runner",
    "airflow_gobblin.rows.converters.checks",
    "airflow_gobblin.rows.extraction",
    "airflow_gobblin.operators",
    "airflow_gobblin.run.finish",
    "airflow_gobblin.run.plan",
    "airflow_gobblin.rows.sinks.parquet",
    "airflow_gobblin.rows.sinks.parquet_files",
    "airflow_gobblin.rows.sources.sql.database",
    "airflow_gobblin.rows.sources.sql.reader",
    "airflow_gobblin.storage.stores.local",
    "airflow_gobblin.storage.stores.sql",
    "pyarrow.dataset",
)


def main() -> None:
    """Do what the program `airflow` does."""
    for module in MODULES:
        importlib.import_module(module)
    from airflow.__main__ import main as airflow

    airflow()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
