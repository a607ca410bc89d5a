"""The metadata that Airflow learns of this distribution through the `apache_airflow_provider` entry point."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata in the form that Airflow's providers manager reads."""
    return {
        "package-name": "airflow-gobblin",
        "name": "Gobblin",
        "description": "Exactly-once ingestion of tables and files as Airflow task groups that run on Spark.",
        "integrations": [{"integration-name": "Gobblin", "tags": ["software"]}],
        "operators": [
            {
                "integration-name": "Gobblin",
                "python-modules": [
                    "airflow_gobblin.operators.extract",
                    "airflow_gobblin.operators.tasks",
                    "airflow_gobblin.operators.task_group",
                    "airflow_gobblin.operators.pipelines",
                    "airflow_gobblin.operators.yaml_ingestions",
                    "airflow_gobblin.operators.yaml_pipelines",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": "Gobblin",
                "python-modules": ["airflow_gobblin.hooks.journal", "airflow_gobblin.hooks.webhook"],
            }
        ],
        "connection-types": [
            {
                "connection-type": "gobblin_journal",
                "hook-name": "Gobblin journal",
                "hook-class-name": "airflow_gobblin.hooks.journal.GobblinJournalHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "schema", "extra"],
                    "relabeling": {"login": "Login (PostgreSQL)", "password": "Password (PostgreSQL)"},
                },
                "conn-fields": {
                    "url": {
                        "label": "Journal URL",
                        "description": "sqlite:////path/journal.db, postgresql://host/database, file:///path or "
                        "s3://connection@bucket/prefix; without a password",
                        "schema": {"type": "string", "minLength": 1},
                    }
                },
            },
            {
                "connection-type": "gobblin_webhook",
                "hook-name": "Gobblin webhook",
                "hook-class-name": "airflow_gobblin.hooks.webhook.GobblinWebhookHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "schema", "login", "extra"],
                    "relabeling": {"password": "Webhook URL"},
                    "placeholders": {"password": "https://hooks.example.com/services/…"},
                },
            },
        ],
        "extra-links": ["airflow_gobblin.links.DatasetLink", "airflow_gobblin.links.SparkLink"],
        "notifications": ["airflow_gobblin.events.notifier.IngestionNotifier"],
        "asset-uris": [
            {
                "schemes": ["gobblin"],
                "handler": "airflow_gobblin.events.assets.sanitize_uri",
                "factory": "airflow_gobblin.events.assets.dataset_asset",
                "to_openlineage_converter": "airflow_gobblin.events.assets.convert_asset_to_openlineage",
            }
        ],
        "cli": ["airflow_gobblin.cli.definition.get_gobblin_cli_commands"],
        "config": {
            "gobblin": {
                "description": "Ingestions by the Gobblin provider.",
                "options": {
                    "metrics_by_dataset": _option(
                        "boolean",
                        "True",
                        "Whether metrics of a publish are tagged with the dataset. Turn it off where there are thousands, "
                        "and what keeps the metrics doesn't take so many tags.",
                    ),
                    "copy_watermarks": _option(
                        "boolean",
                        "True",
                        "Whether the watermark of a dataset is written to Airflow's asset state store when it has moved, for "
                        "people to see. It is never read back.",
                    ),
                    "spark_history_url": _option(
                        "string",
                        "",
                        "Where Spark's history server is, http://history.example.com:18080 for example: `extract` tasks link to "
                        "what it shows of their application when they have ended. Empty: they don't.",
                    ),
                },
            }
        },
    }


def _option(kind: str, default: str, description: str, example: str | None = None) -> dict[str, Any]:
    return {"description": description, "version_added": "0.1.0", "type": kind, "example": example, "default": default}
