"""Submitting to Spark with secrets in the environment of the process alone."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.spark.report import FIRST_ERROR

__all__ = ["GobblinSparkSubmitHook"]


class GobblinSparkSubmitHook(SparkSubmitHook):
    """A `SparkSubmitHook` for applications of this package.

    It gives the driver secrets by the environment of the `spark-submit` process (the provider's `env_vars` end on command
    lines), refuses what would take them elsewhere, and hears the driver's first error.

    :param secrets: environment variables for the driver's process. :param env_vars: other ones.
    :raises ConfigurationError: there is no such Spark connection, or it asks for cluster mode.
    """

    def __init__(
        self,
        *,
        conn_id: str,
        secrets: Mapping[str, str],
        env_vars: Mapping[str, Any] | None = None,
        deploy_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        extra_mode = self._extra_mode(conn_id)
        conf = kwargs.get("conf") or {}
        for mode in (deploy_mode, extra_mode, conf.get("spark.submit.deployMode")):
            _refuse_unless_client(mode, conn_id)
        super().__init__(conn_id=conn_id, deploy_mode="client", **kwargs)
        self._environment = _environment(self._connection["master"]) | {k: str(v) for k, v in (env_vars or {}).items()}
        self._environment |= secrets
        self.first_error: str | None = None

    def _extra_mode(self, conn_id: str) -> str | None:
        try:
            mode = self.get_connection(conn_id).extra_dejson.get("deploy-mode")
        except AirflowNotFoundException as error:
            # The provider would go on with master=yarn.
            raise ConfigurationError(
                operation="submit to",
                subject=f"Spark connection {conn_id!r}",
                cause="there is no such connection",
                hint="Add it, of type Spark, with host 'local[*]' or 'spark://host:port', or name another one in `conn_id`.",
            ) from error
        return None if mode is None else str(mode)

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run `spark-submit` and wait for its end. :raises AirflowException: it ended with an error."""
        return super().submit(application, env=self._environment, **kwargs)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._listen(itr))

    def _listen(self, lines: Iterable[Any]) -> Iterator[Any]:
        for line in lines:
            if line.startswith(FIRST_ERROR):
                self.first_error = line.removeprefix(FIRST_ERROR).strip()
            yield line


def _refuse_unless_client(mode: object, conn_id: str) -> None:
    if mode not in (None, "", "client"):
        raise ConfigurationError(
            operation="submit to",
            subject=f"Spark connection {conn_id!r} in deploy mode {mode!r}",
            cause="the driver would run on another host, where secrets come only by command lines or settings that Spark shows",
            hint="Use the deploy mode 'client': the driver then runs beside the Airflow task.",
        )


def _environment(master: str) -> dict[str, str]:
    """The environment of this process, so that `spark-submit` finds Spark, and the driver runs on the Python that this is."""
    environment = dict(os.environ)
    if shutil.which("spark-submit") is None:
        environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
    return environment
