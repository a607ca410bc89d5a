"""The first step on a cluster: does each executor's Python have what the units need?

Only the standard library is imported here, for an executor may have nothing else.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import socket
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_gobblin.errors import EnvironmentMismatchError
from airflow_gobblin.spark.failures import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["probe_executors"]

_ROWS = 1000


def probe_executors(spark: SparkSession, modules: Iterable[str], folder: str | None) -> int:
    """Try to import `modules` in the executors' Pythons, and to see `folder` there, by one small Spark job.

    It is a plain Python function, not one on Arrow: without pyarrow an executor couldn't even say that it lacks it.

    :return: how many Spark tasks the cluster runs at once.
    :raises EnvironmentMismatchError: naming host, Python and what is missing.
    """
    from pyspark.sql.functions import spark_partition_id, udf

    wanted = tuple(modules)
    look = udf(lambda _: _found(wanted, folder), "string", useArrow=False)
    rows = spark.range(0, _ROWS)
    try:
        answers = rows.select(spark_partition_id().alias("slot"), look(rows.id).alias("found")).collect()
    except Exception as error:  # Spark has many ways to say that a Python doesn't start
        raise EnvironmentMismatchError(
            operation="run", subject="Python on the executors", cause=cause_of(error), hint=_HINT
        ) from error
    for found in sorted({answer.found for answer in answers}):
        _raise_for(json.loads(found))
    return 1 + max(int(answer.slot) for answer in answers)


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


@lru_cache
def _found(modules: tuple[str, ...], folder: str | None) -> str:
    """What is missing in this process, as JSON."""
    problems = []
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken native library raises all sorts
            problems.append(f"module {module!r} can't be imported: {type(error).__name__}: {error}")
    if folder is None:
        pass  # the target is in an object store
    elif not os.path.isdir(folder):
        problems.append(
            f"folder {folder!r} is not there: the target must be on a file system that workers and executors share"
        )
    elif not os.access(folder, os.W_OK):
        problems.append(f"folder {folder!r} may not be written to")
    answer = {
        "host": socket.gethostname(),
        "python": sys.executable,
        "version": platform.python_version(),
        "problems": problems,
    }
    return json.dumps(answer, sort_keys=True)
