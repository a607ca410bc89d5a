"""Drivers that run on the workers of a Spark standalone cluster, and outlive the Airflow task that submitted them.

Spark itself doesn't run Python applications there. So Spark's own submitter, `SparkSubmit`, is submitted as a Java application;
it then runs the Python driver in client mode, on a worker. Its jar is empty, as Spark's classes are already there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import requests
from airflow.sdk.exceptions import AirflowException

from airflow_gobblin.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

__all__ = ["ENDED", "SUBMITTER", "SUCCEEDED", "UNKNOWN", "StandaloneMasters", "submitting_environment"]

SUBMITTER = "org.apache.spark.deploy.SparkSubmit"
SUCCEEDED = "FINISHED"
ENDED = frozenset({SUCCEEDED, "FAILED", "KILLED", "ERROR"})
UNKNOWN = "NOT_FOUND"
"""The status of a driver that no master knows any more: one was restarted, and forgot it."""
_TIMEOUT = (10, 30)
_PASSED_ON = (
    "HOME",
    "JAVA_HOME",
    "LANG",
    "LC_ALL",
    "PATH",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_LOCAL_IP",
    "SPARK_SUBMIT_OPTS",
)


class StandaloneMasters:
    """The masters of a standalone cluster, by their REST servers, which accept submits and report the status of each driver.

    :param hook: of a connection to the cluster, in cluster mode.
    :raises ConfigurationError: it is to another kind of cluster.
    """

    def __init__(self, hook: SparkSubmitHook) -> None:
        connection = hook._connection
        self.url: str = connection["master"]
        if not self.url.startswith("spark://"):
            raise ConfigurationError(
                operation="submit",
                subject=f"a durable driver to {self.url!r}",
                cause="it is not a standalone cluster; only there are drivers kept and found again",
                hint="Use a Spark connection with host 'spark://…' and a port, or leave out `durable`.",
            )
        self._scheme: str = connection["rest_scheme"]
        self._port: int = connection["rest_port"]
        self._hosts = [address.rsplit(":", 1)[0] for address in self.url.removeprefix("spark://").split(",")]

    @property
    def rest_url(self) -> str:
        """The URL of the masters for `spark-submit`. The older protocol sends the submitter's whole environment."""
        return "spark://" + ",".join(f"{host}:{self._port}" for host in self._hosts)

    def status(self, driver: str) -> str:
        """Return the status of a driver in Spark's words, or `UNKNOWN`.

        :raises AirflowException: no master that could know it answers.
        """
        failure: Exception | None = None
        for host in self._hosts:
            try:
                answer = self._ask("GET", host, f"status/{driver}")
            except requests.RequestException as error:
                failure = error
                continue
            if answer.get("success"):
                return str(answer["driverState"])
        if failure is None:
            return UNKNOWN
        raise AirflowException(f"no Spark master at {self.rest_url} reports on driver {driver}: {failure}")

    def kill(self, driver: str) -> None:
        """Stop a driver, with everything that it runs.

        :raises AirflowException: no master does it.
        """
        answers: list[str] = []
        for host in self._hosts:
            try:
                answer = self._ask("POST", host, f"kill/{driver}")
            except requests.RequestException as error:
                answers.append(str(error))
                continue
            if answer.get("success"):
                return
            answers.append(str(answer.get("message")))
        raise AirflowException(f"no Spark master at {self.rest_url} kills driver {driver}: {'; '.join(answers)}")

    def _ask(self, method: str, host: str, what: str) -> dict[str, object]:
        url = f"{self._scheme}://{host}:{self._port}/v1/submissions/{what}"
        answer = requests.request(method, url, timeout=_TIMEOUT)
        answer.raise_for_status()
        found: dict[str, object] = answer.json()
        return found


def submitting_environment() -> dict[str, str]:
    """Return the environment for `spark-submit`. The cluster receives some of it, so Airflow's own variables are left out."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
