"""What a driver is started with: a Spark connection that can hold secrets, and an environment that does."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_gobblin.errors import ConfigurationError

__all__ = ["check_spark_connection", "driver_environment"]


def check_spark_connection(conn_id: str, *deploy_modes: object) -> None:
    """Make sure that a Spark connection exists, and that a driver runs beside the Airflow task, where it can be given secrets.

    :param deploy_modes: what else may say in which mode the driver runs.
    :raises ConfigurationError: it doesn't exist (the provider would go on with `master=yarn`), or it is of cluster mode.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise ConfigurationError(
            operation="submit to",
            subject=f"Spark connection {conn_id!r}",
            cause="Airflow has no such connection",
            hint="Add one of type Spark, with host 'local[*]' or 'spark://host' and a port, or name another in `conn_id`.",
        ) from error
    for mode in (connection.extra_dejson.get("deploy-mode"), *deploy_modes):
        if mode not in (None, "", "client"):
            raise ConfigurationError(
                operation="submit to",
                subject=f"Spark connection {conn_id!r} in deploy mode {mode!r}",
                cause="secrets would reach the driver only by command lines or by settings that Spark shows",
                hint="Use the deploy mode 'client': the driver then runs beside the Airflow task.",
            )


def driver_environment(master: str, *more: Mapping[str, object]) -> dict[str, str]:
    """What to set in the environment of `spark-submit`, so that it finds Spark, and runs the driver on the Python that this is.

    What somebody has set already stays.
    """
    environment = {"PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)}
    if master.startswith("local"):
        environment["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if shutil.which("spark-submit") is None:
        environment["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    for variables in more:
        environment |= {name: str(value) for name, value in variables.items()}
    return environment
