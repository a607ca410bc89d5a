"""How a driver is started: with which Spark connection, in which environment, and by `spark-submit` or for Spark Connect."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.connections import SECRETS
from airflow_gobblin.hooks.environment import check_pyspark, check_submit
from airflow_gobblin.spark.class_archive import ClassArchive, class_archive
from airflow_gobblin.spark.driver_process import DriverProcess, start_driver
from airflow_gobblin.spark.report import FIRST_ERROR, SPARK_UI
from airflow_gobblin.spark.session import CONF, JVM_OPTIONS, REMOTE, submit_options
from airflow_gobblin.spark.ship import private_folder, shared_folder

if TYPE_CHECKING:
    from airflow.sdk import Connection

__all__ = [
    "CONNECT",
    "ConnectHook",
    "check_spark_connection",
    "close_output",
    "code_folder",
    "driver_environment",
    "driver_hook",
    "prepare_submit",
    "reported_error",
    "watch_output",
]

log = logging.getLogger(__name__)

CONNECT = SparkConnectHook.conn_type
LINES_SHOWN = 50
SECONDS_TO_END = 20.0
PAGE = re.compile(r"(?=.{,250}$)https?://[\w.:\[\]-]+(/[\w./%~-]*)?", re.ASCII)
"""The address of a page that may be shown as a link: it has no user, no query, and nothing to escape."""


def check_spark_connection(conn_id: str, *deploy_modes: object, durable: bool = False) -> Connection:
    """Check that a Spark connection exists, and that a driver runs beside the Airflow task, where it can be given secrets.

    :param deploy_modes: other settings that may set the driver's mode.
    :param durable: the driver is to run on the cluster instead, and to find secrets there.
    :return: the connection; of Spark Connect, if its type is `CONNECT`.
    :raises ConfigurationError: it doesn't exist (the provider would go on with `master=yarn`), or it is of cluster mode.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise ConfigurationError(
            operation="submit to",
            subject=f"Spark connection {conn_id!r}",
            cause="Airflow has no such connection",
            hint="Add one of type Spark, with host 'local[*]' or 'spark://host' and a port, or of type Spark Connect; "
            "or name another in `conn_id`.",
        ) from error
    SECRETS.learn(connection.password or "")
    for mode in (connection.extra_dejson.get("deploy-mode"), *deploy_modes):
        if mode not in (None, "", "client") and not (durable and mode == "cluster"):
            raise ConfigurationError(
                operation="submit to",
                subject=f"Spark connection {conn_id!r} in deploy mode {mode!r}",
                cause="secrets would reach the driver only by command lines or by settings that Spark shows",
                hint="Use the deploy mode 'client': the driver then runs beside the Airflow task. On a standalone cluster, "
                "`durable` is the way to run it there.",
            )
    return connection


def driver_environment(master: str, *more: Mapping[str, object]) -> dict[str, str]:
    """Return the environment for `spark-submit` to find Spark, and to run the driver on this Python.

    Variables that are already set keep their values.
    """
    environment = {
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_SUBMIT_OPTS": submit_options(),
        # For the JVM that only builds the driver's command line.
        "SPARK_LAUNCHER_OPTS": " ".join(filter(None, (JVM_OPTIONS, os.environ.get("SPARK_LAUNCHER_OPTS")))),
    }
    if master.startswith("local"):
        environment["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if shutil.which("spark-submit") is None:
        home = os.environ.get("SPARK_HOME")
        folder = Path(home) / "bin" if home else Path(sys.executable).parent
        environment["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(folder)])
    for variables in more:
        environment |= {name: str(value) for name, value in variables.items()}
    return environment


def prepare_submit(
    hook: SparkSubmitHook, secrets: Mapping[str, str], notice: Callable[[str], None] | None = None
) -> None:
    """Prepare a hook to run a driver beside the Airflow task, with its secrets and environment, and to watch its output.

    :param notice: as for `watch_output`.
    :raises EnvironmentMismatchError: `spark-submit` or Java is missing.
    """
    environment, binary = driver_environment(hook._connection["master"], secrets), hook._connection["spark_binary"]
    check_submit(binary, os.environ | environment)
    if hook._driver_class_path or hook._properties_file:
        archive = ClassArchive()
    else:
        archive = class_archive(os.environ | environment, binary, hook._conf)
    options = (archive.options, environment["SPARK_SUBMIT_OPTS"])  # Java takes the last of two options
    hook._env = environment | {"SPARK_SUBMIT_OPTS": " ".join(filter(None, options))}
    watch_output(hook, notice, archive.keep)


def driver_hook(
    options: Mapping[str, Any], name: str, arguments: Sequence[str], zips: Iterable[str], secrets: Mapping[str, str]
) -> SparkSubmitHook | ConnectHook:
    """Return a hook that starts a driver beside the Airflow task, by `spark-submit` or for Spark Connect.

    :param options: the connection's id and how an application is submitted: arguments of `SparkSubmitHook`.
    :param name: the application's name.
    :param arguments: the script's arguments.
    :param zips: the code that executors need.
    :raises ConfigurationError: there is no such connection, or a driver can't be given secrets there.
    """
    rest = dict(options)
    conn_id, conf = rest.pop("conn_id"), rest.pop("conf")
    if check_spark_connection(conn_id, conf.get("spark.submit.deployMode")).conn_type == CONNECT:
        return ConnectHook(conn_id, arguments, zips, conf, secrets)
    check_pyspark()
    code = ",".join(zips)
    hook = SparkSubmitHook(
        conf, conn_id, name=name, application_args=list(arguments), py_files=code, deploy_mode="client", **rest
    )
    prepare_submit(hook, secrets)
    return hook


def close_output(hook: SparkSubmitHook | None) -> None:
    """Close the pipe from `spark-submit`, which the provider's hook leaves open."""
    process = None if hook is None else hook._submit_sp
    if process is not None and process.stdout is not None:
        process.stdout.close()


def code_folder(shared: str | None = None) -> Path:
    """Return the folder for Spark's code: beside the driver if it starts here, below the target if it runs elsewhere.

    :param shared: the target root, as a path that is valid on the other host, too.
    :raises ConfigurationError: others may write to the folder below the target.
    """
    from airflow_gobblin.workspace.staging import ROOT

    if shared is not None:
        return shared_folder(Path(shared) / ROOT / f"code-{os.getuid()}")
    return private_folder(f"airflow-gobblin-{os.getuid()}")


def reported_error(output: str) -> str | None:
    """Return the first error that a driver reported, from the end of its output."""
    lines = [line for line in output.splitlines() if line.startswith(FIRST_ERROR)]
    return lines[-1].removeprefix(FIRST_ERROR) if lines else None


def watch_output(
    hook: SparkSubmitHook, notice: Callable[[str], None] | None = None, ended: Callable[[], None] | None = None
) -> None:
    """Keep secrets in the output of `spark-submit` out of the task's log, and notice the address of the driver's UI.

    :param notice: called once with the address of the UI, as `PAGE` has it, as soon as the driver logs it.
    :param ended: called when the output, and so the driver's JVM, has ended.
    """
    read = hook._process_spark_submit_log

    def read_and_watch(itr: Iterator[str]) -> None:
        read(_noticing(map(_redacted, itr), notice or (lambda _: None)))
        if ended is not None:
            ended()

    hook._process_spark_submit_log = read_and_watch  # type: ignore[method-assign]


def _redacted(line: str) -> str:
    """Return a line of a driver's output without secrets, but with its agreed prefix."""
    mark = next(filter(line.startswith, (FIRST_ERROR, SPARK_UI)), "")
    return mark + SECRETS.redact(line.removeprefix(mark))


def _noticing(lines: Iterable[str], notice: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines of a driver's output. Its own UI line comes first; later lines like it come from the code it runs."""
    noticed = False
    for line in lines:
        if line.startswith(SPARK_UI) and not noticed:
            noticed, address = True, line.removeprefix(SPARK_UI).strip()
            if PAGE.fullmatch(address):
                notice(address)
        yield line


class ConnectHook:
    """A hook that runs a driver beside the Airflow task; it works on a running Spark, by Spark Connect: nothing is submitted.

    It has the methods of the provider's `SparkSubmitHook` that are needed here.

    :param conn_id: a connection of type Spark Connect.
    :param arguments: the script's arguments.
    :param zips: the code that executors need.
    :param conf: settings of a Spark session.
    :param environment: what to set for the driver.
    """

    def __init__(
        self,
        conn_id: str,
        arguments: Iterable[str],
        zips: Iterable[str],
        conf: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        self._url = SparkConnectHook(conn_id).get_connection_url()
        self._arguments = (*arguments, *(f"--zip={file}" for file in zips))
        self._environment = {**environment, CONF: json.dumps({key: str(value) for key, value in conf.items()})}
        self._driver: DriverProcess | None = None

    def submit(self, application: str) -> None:
        """Run a script of `spark_jobs` to its end.

        :raises AirflowException: it failed; the text has the end of its output.
        """
        environment = os.environ | self._environment | {REMOTE: self._url}
        command = [application, *self._arguments]
        log.info("driver for Spark Connect: %s", shlex.join(command))
        last: deque[str] = deque(maxlen=LINES_SHOWN)
        with start_driver(command, environment) as driver:
            self._driver = driver
            for line in driver.stdout or ():
                last.append(_redacted(line.rstrip()))
                log.info("%s", last[-1])
        status = driver.wait()
        if status:
            raise AirflowException("\n".join([f"the driver ended with status {status}:", *last]))

    def on_kill(self) -> None:
        """Stop the driver; it cancels its work on the server."""
        driver = self._driver
        if driver is None or driver.poll() is not None:
            return
        driver.terminate()
        try:
            driver.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            driver.kill()
