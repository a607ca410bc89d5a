"""How the tasks of an ingestion use Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.redaction import setting_shows_secret

__all__ = ["SECRET_SETTING", "SECRET_SETTING_HINT", "SparkOptions", "check_conf"]

SECRET_SETTING = "it holds a secret, which would be seen on command lines, in rendered fields and on Spark's pages"
SECRET_SETTING_HINT = (
    "Passwords of sources and targets belong in Airflow connections; those that Spark itself needs in the environment, in "
    "a spark-defaults.conf that its user alone may read, or into the store that spark.hadoop.hadoop.security.credential."
    "provider.path names."
)


def check_conf(conf: Mapping[str, object]) -> None:
    """Check that no setting of Spark's holds a secret.

    :raises ConfigurationError: one does; it is named, and not shown.
    """
    for name, value in conf.items():
        if setting_shows_secret(name, value):
            raise ConfigurationError(
                operation="use", subject=f"the Spark setting {name!r}", cause=SECRET_SETTING, hint=SECRET_SETTING_HINT
            )


@dataclass(frozen=True)
class SparkOptions:
    """How the tasks submit to Spark: `extract` each pack, the others the steps of very long commit sequences.

    :param conn_id: the Spark connection: `local[*]`, a cluster in client mode, or Spark Connect to a running Spark, which spares
        each pack the seconds of starting one.
    :param conf: Spark's own settings, none of them a secret. Fields left `None` are as the connection or Spark sets them.
    :param durable: drivers run on the workers of a standalone cluster, and are found again after a crash (see `ExtractOperator`).
        For `extract` only.
    :param steps_above: commit sequences of more steps than this are written and carried out on Spark; `None`: none is. Steps
        that need Spark itself, such as registrations in a Hive metastore, always are.
    """

    conn_id: str = "spark_default"
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    executor_cores: int | None = None
    executor_memory: str | None = None
    num_executors: int | None = None
    total_executor_cores: int | None = None
    durable: bool = False
    steps_above: int | None = 20_000

    def __post_init__(self) -> None:
        """Check the settings.

        :raises ConfigurationError: a setting holds a secret.
        """
        check_conf(self.conf)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `ExtractOperator`."""
        return self.submit_arguments() | {"durable": self.durable}

    def submit_arguments(self) -> dict[str, Any]:
        """Return the arguments of `SparkSubmitHook` for any application."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("durable", "steps_above")}
        return {name: value for name, value in given.items() if value is not None} | {"conf": dict(self.conf)}
