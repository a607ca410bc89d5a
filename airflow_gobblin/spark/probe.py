"""The needs of units in an executor's Python, and the reasons why executors can't run any.

Each Spark task checks its own Python before it runs a unit, so that no pack waits for a job that only checks. Where Spark can't
even begin a task, such a job looks for the reason.

Only the standard library is imported here, as an executor may have nothing else.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import platform
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_gobblin.errors import EnvironmentMismatchError
from airflow_gobblin.spark.failures import cause_of
from airflow_gobblin.spark.jobs import TaskRow, collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Needs", "count_cores", "lacking", "mismatch_in", "probe_executors"]

log = logging.getLogger(__name__)

_LACKING = ""
"""The key of a task's row that has what its Python lacks, as JSON."""
_ROWS = 1000
_HINT = (
    "Executors need a Python of the driver's version with pyarrow and the sources' drivers; "
    "name it in the Spark setting spark.pyspark.python."
)


@dataclass(frozen=True)
class Needs:
    """The needs of units in a Python that runs them.

    :param modules: what it can import.
    :param folder: the folder that it sees and may write to; `None` if the target is in an object store.
    """

    modules: tuple[str, ...]
    folder: str | None = None


def lacking(needs: Needs) -> list[TaskRow]:
    """Return a row with what this process lacks, if it lacks something. To check a module is to import it, as the units would."""
    problems = [*_problems(needs)]
    if not problems:
        return []
    found = {
        "host": socket.gethostname(),
        "python": sys.executable,
        "version": platform.python_version(),
        "problems": problems,
    }
    return [(_LACKING, json.dumps(found, sort_keys=True).encode())]


def mismatch_in(rows: Iterable[TaskRow]) -> EnvironmentMismatchError | None:
    """Return an error, with host, Python and what it lacks, if one of the Spark tasks that gave these rows lacked something."""
    found = min((record for key, record in rows if key == _LACKING), default=None)
    if found is None:
        return None
    python = json.loads(found)
    return EnvironmentMismatchError(
        operation="run",
        subject=f"Python {python['version']} ({python['python']}) of the executors on {python['host']}",
        cause="; ".join(python["problems"]),
        hint=_HINT,
    )


def count_cores(spark: SparkSession) -> int:
    """Return the number of Spark tasks that the cluster runs at once; behind Spark Connect by a small job, without Python."""
    from pyspark.sql import is_remote

    return _count_partitions(spark) if is_remote() else int(spark.sparkContext.defaultParallelism)


def _count_partitions(spark: SparkSession) -> int:
    """Run a small job without Python, and return the number of tasks that Spark has cut it into: as many as it runs at once."""
    from pyspark.sql.functions import spark_partition_id

    rows = spark.range(0, _ROWS).select(spark_partition_id()).collect()
    return len({partition for (partition,) in rows})


def probe_executors(spark: SparkSession, needs: Needs) -> EnvironmentMismatchError | None:
    """Look for the reason why Spark runs no task of units to its end, by a job that only checks the executors' Pythons.

    :return: the error that names it: they lack something, or can't run that job either, though Spark runs one without Python.
    """
    try:
        numbers = range(_count_partitions(spark))
    except Exception as error:  # it is Spark that is gone, and a retry may find it again
        log.warning("Spark runs no job: %s", cause_of(error))
        return None
    try:
        return mismatch_in(_look(spark, needs, numbers))
    except Exception as error:  # Spark has many errors for a Python that doesn't start
        return EnvironmentMismatchError(
            operation="run", subject="Python on the executors", cause=cause_of(error), hint=_HINT
        )


def _look(spark: SparkSession, needs: Needs, numbers: range) -> list[TaskRow]:
    """Return what the Python of each Spark task lacks.

    Behind Spark Connect the tasks use Arrow, as the units do. If that fails, perhaps for lack of pyarrow, a plain Python function
    finds the reason.
    """
    from pyspark.sql import is_remote

    try:
        return collect(spark, lambda _: lacking(needs), numbers)
    except Exception as error:
        if not is_remote():
            raise
        log.warning("the probe by Arrow failed: %s", cause_of(error))
        return _look_plainly(spark, needs, numbers)


def _look_plainly(spark: SparkSession, needs: Needs, numbers: range) -> list[TaskRow]:
    """Return what the Python of each Spark task lacks, without pyarrow."""
    from pyspark.sql.functions import udf

    look = udf(lambda _: [record.decode() for _, record in lacking(needs)], "array<string>", useArrow=False)
    rows = spark.range(0, len(numbers), 1, len(numbers)).select(look("id")).collect()
    return [(_LACKING, record.encode()) for (found,) in rows for record in found]


def _problems(needs: Needs) -> Iterator[str]:
    for module in needs.modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken native library may raise anything
            yield f"module {module!r} can't be imported: {type(error).__name__}: {error}"
    folder = needs.folder
    if folder is None:
        return
    if not os.path.isdir(folder):
        yield f"folder {folder!r} is not there: the target must be on a file system that workers and executors share"
    elif not os.access(folder, os.W_OK):
        yield (
            f"folder {folder!r} may not be written to by user {os.getuid()}: executors and workers must be one user, or of one "
            "group that may write to the target"
        )
