"""The scripts that are submitted to Spark, in a wheel install and in a checkout."""

from __future__ import annotations

from pathlib import Path

from airflow_gobblin.errors import EnvironmentMismatchError

__all__ = ["spark_job"]

_PACKAGE = Path(__file__).resolve().parents[1]
# The wheel carries the scripts inside the package; an editable install finds them beside it.
_FOLDERS = (_PACKAGE / "_spark_jobs", _PACKAGE.parent / "spark_jobs")


def spark_job(name: str) -> Path:
    """Return the path of a script for `spark-submit`, by its name, for example `extract_pack.py`.

    :raises EnvironmentMismatchError: this installation doesn't have it.
    """
    for folder in _FOLDERS:
        if (folder / name).is_file():
            return folder / name
    raise EnvironmentMismatchError(
        operation="find",
        subject=f"the Spark job {name!r}",
        cause=f"it is neither in {_FOLDERS[0]} nor in {_FOLDERS[1]}",
        hint="Install airflow-gobblin from its wheel or, editable, from a whole checkout",
    )
