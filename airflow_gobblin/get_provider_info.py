"""What Airflow is told about this distribution through the `apache_airflow_provider` entry point."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata in the form Airflow's providers manager reads."""
    return {
        "package-name": "airflow-gobblin",
        "name": "Gobblin",
        "description": "Exactly-once ingestion of tables and files as Airflow task groups that run on Spark.",
        "cli": ["airflow_gobblin.cli.definition.get_gobblin_cli_commands"],
    }
