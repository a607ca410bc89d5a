"""The first step on a cluster: a check that each executor's Python has everything that the units need.

Only the standard library is imported here, as an executor may have nothing else.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import EnvironmentMismatchError
from airflow_gobblin.spark.failures import cause_of
from airflow_gobblin.spark.jobs import TaskRow, collect
from airflow_gobblin.spark.worker import reading_last

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["probe_executors", "probe_tasks"]

log = logging.getLogger(__name__)

_ROWS = 1000


def probe_executors(spark: SparkSession, modules: Iterable[str], folder: str | None) -> int:
    """Try to import `modules` in the executors' Pythons, and to see `folder` there, by one small Spark job.

    That also starts them, and loads what the units need. In local mode, where this Python is the executors', there is no job.

    :return: the number of Spark tasks that the cluster runs at once.
    :raises EnvironmentMismatchError: with host, Python and the missing parts.
    """
    wanted = tuple(modules)
    if _is_here(spark):
        _raise_for(json.loads(_found(wanted, folder)))
        return int(spark.sparkContext.defaultParallelism)
    try:
        answers = probe_tasks(spark, wanted, folder)
    except Exception as error:  # Spark has many errors for a Python that doesn't start
        raise EnvironmentMismatchError(
            operation="run", subject="Python on the executors", cause=cause_of(error), hint=_HINT
        ) from error
    for found in sorted(set(answers)):
        _raise_for(json.loads(found))
    return len(answers)


def probe_tasks(spark: SparkSession, modules: tuple[str, ...], folder: str | None) -> list[str]:
    """Return the findings of as many Spark tasks as the cluster runs at once, as JSON. `probe_executors` draws the conclusions.

    Behind Spark Connect the tasks use Arrow, as the units do. If that fails, perhaps for lack of pyarrow, a plain Python function
    finds the reason.
    """
    from pyspark.sql import is_remote

    def look(_: int) -> Iterator[TaskRow]:
        yield "", _found(modules, folder).encode()

    if not is_remote():
        tasks = collect(spark, look, range(spark.sparkContext.defaultParallelism))
        return [found.decode() for _, found in tasks]
    try:
        return _by_arrow(spark, modules, folder)
    except Exception as error:
        log.warning("the probe by Arrow failed: %s", cause_of(error))
        return _plainly(spark, modules, folder)


def _is_here(spark: SparkSession) -> bool:
    """Return whether executors are this very host's, with this very Python: those of a driver in local mode."""
    from pyspark.sql import is_remote

    if is_remote():
        return False
    context = spark.sparkContext
    local = re.match(r"local(\[|$)", context.master or "")
    return local is not None and _environment(context.pythonExec) == _environment(sys.executable)


def _environment(python: str) -> tuple[str, str]:
    """Return what two Pythons share if they see the same packages: the folder they are in, and what they are a link to."""
    found = shutil.which(python) or python
    return os.path.realpath(os.path.dirname(found)), os.path.realpath(found)


def _by_arrow(spark: SparkSession, modules: tuple[str, ...], folder: str | None) -> list[str]:
    """Return each Spark task's findings."""

    def look(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        found = pa.RecordBatch.from_pydict({"found": [_found(modules, folder)]})
        return reading_last([found], batches)

    return [row.found for row in spark.range(0, _ROWS).mapInArrow(look, "found string").collect()]


def _plainly(spark: SparkSession, modules: tuple[str, ...], folder: str | None) -> list[str]:
    """Return each Spark task's findings without pyarrow, and more slowly."""
    from pyspark.sql.functions import spark_partition_id, udf

    findings: list[str] = []  # each Spark task is given its own

    def look(_: int) -> str:
        if not findings:
            findings.append(_found(modules, folder))
        return findings[0]

    rows, plain = spark.range(0, _ROWS), udf(look, "string", useArrow=False)
    answers = rows.select(spark_partition_id().alias("partition"), plain(rows.id).alias("found")).collect()
    return list({answer.partition: str(answer.found) for answer in answers}.values())


_HINT = (
    "Executors need a Python of the driver's version with pyarrow and the sources' drivers; "
    "name it in the Spark setting spark.pyspark.python."
)


def _raise_for(found: dict[str, str | list[str]]) -> None:
    if found["problems"]:
        raise EnvironmentMismatchError(
            operation="run",
            subject=f"Python {found['version']} ({found['python']}) of the executors on {found['host']}",
            cause="; ".join(found["problems"]),
            hint=_HINT,
        )


def _found(modules: tuple[str, ...], folder: str | None) -> str:
    """Return the parts that this process lacks, as JSON."""
    problems = []
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken native library may raise anything
            problems.append(f"module {module!r} can't be imported: {type(error).__name__}: {error}")
    if folder is None:
        pass  # the target is in an object store
    elif not os.path.isdir(folder):
        problems.append(
            f"folder {folder!r} is not there: the target must be on a file system that workers and executors share"
        )
    elif not os.access(folder, os.W_OK):
        problems.append(
            f"folder {folder!r} may not be written to by user {os.getuid()}: executors and workers must be one user, or of one "
            "group that may write to the target"
        )
    answer = {
        "host": socket.gethostname(),
        "python": sys.executable,
        "version": platform.python_version(),
        "problems": problems,
    }
    return json.dumps(answer, sort_keys=True)
