"""Checks of this environment: whether Spark is installed whole, and `spark-submit` and Java exist.

The Airflow provider for Spark brings `pyspark-client`, which installs several hundred files at the same paths as `pyspark`. The
distribution installed last wins each of them, and uninstalling one removes them from the other. The rest may start and fail
much later, so this module looks at what is on disk: metadata and files only, without importing pyspark.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from airflow_gobblin.errors import EnvironmentMismatchError
from airflow_gobblin.spark.session import settings_folder

__all__ = ["check_java", "check_pyspark", "check_submit"]

_OLDEST, _TOO_NEW = (4, 0), (5, 0)
_WAY_OUT = "Install pyspark last: pip install --force-reinstall --no-deps 'pyspark=={version}'"
_OLDEST_JAVA = 17
_JAVA_SECONDS = 60


def check_pyspark() -> str:
    """Return the version of the Spark that `spark-submit` runs here.

    That is the Spark in `SPARK_HOME` where it is set, and the `pyspark` distribution of this interpreter otherwise.

    :raises EnvironmentMismatchError: it is missing, mixed or unsupported; names what is wrong and the command that repairs it.
    """
    installed = _distribution("pyspark")
    spark_home = os.environ.get("SPARK_HOME")
    if spark_home and not (installed and _is_home_of(installed, Path(spark_home))):
        return _supported(_version_of_home(Path(spark_home)), subject=f"SPARK_HOME={spark_home}")
    if installed is None:
        raise _mismatch("pyspark", "it is not installed", _WAY_OUT.format(version="4.*"))
    version = _supported(installed.version, subject=f"pyspark {installed.version}")
    _check_files(installed, _distribution("pyspark-client"))
    return version


def check_submit(binary: str, environment: Mapping[str, str]) -> None:
    """Check that `spark-submit` and the Java it runs on exist, before starting it: its own messages name neither.

    :param binary: the program to start, by name or path.
    :param environment: the environment to start it in.
    :raises EnvironmentMismatchError: one is missing; names it, and what to do.
    """
    path, java_home = environment.get("PATH", os.defpath), environment.get("JAVA_HOME")
    if shutil.which(binary, path=path) is None:
        cause = f"there is no {binary!r} on the PATH of this task"
        raise _mismatch(
            "Spark", cause, f"Put its folder on the PATH, or set SPARK_HOME. {_WAY_OUT.format(version='4.*')}"
        )
    java = _java(environment)
    if shutil.which(java, path=path) is None and not _sets_environment(environment):
        cause = (
            f"JAVA_HOME is {java_home!r}, and there is no {java}"
            if java_home
            else "JAVA_HOME isn't set, and no 'java' is on the PATH"
        )
        raise _mismatch(
            "Spark",
            f"it runs on Java, and that isn't there: {cause}",
            "Install Java 17 or 21 where this task runs, and set JAVA_HOME to it; or name a Spark Connect connection, which "
            "needs no Java here",
        )


def _sets_environment(environment: Mapping[str, str]) -> bool:
    """Return whether Spark runs a script that may set where Java is."""
    folder = settings_folder(environment)
    return folder is not None and (folder / "spark-env.sh").is_file()


def check_java(environment: Mapping[str, str]) -> str:
    """Return the version of the Java that `spark-submit` runs on, once `check_submit` has found one.

    :param environment: the environment to start it in.
    :raises EnvironmentMismatchError: it doesn't start, or is too old.
    """
    found = shutil.which(_java(environment), path=environment.get("PATH", os.defpath))
    if found is None:
        return "the one that Spark's spark-env.sh names"
    hint = f"Install Java {_OLDEST_JAVA} or 21 where this task runs, and set JAVA_HOME to it"
    try:
        output = subprocess.run(
            [found, "-version"], capture_output=True, text=True, check=True, timeout=_JAVA_SECONDS
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise _mismatch(f"Java at {found}", f"it doesn't start: {error}", hint) from error
    version = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', output)
    if version is None or int(version[2]) < _OLDEST_JAVA:
        other = version[1] if version else output.strip()[:40]
        raise _mismatch(f"Java at {found}", f"expected {_OLDEST_JAVA} or newer, found {other}", hint)
    return version[1]


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _check_files(pyspark: metadata.Distribution, client: metadata.Distribution | None) -> None:
    """Check that every file of pyspark exists, and is pyspark's where the client has another version of it.

    :raises EnvironmentMismatchError: one is missing, or is the client's.
    """
    subject = f"pyspark {pyspark.version}"
    way_out = _WAY_OUT.format(version=pyspark.version)
    of_client = _recorded(client) if client else {}
    for file, own in _recorded(pyspark).items():
        path = Path(str(pyspark.locate_file(file)))
        if file.endswith(".pyc"):
            continue
        if not path.exists():
            raise _mismatch(subject, f"its file {file} is gone (was pyspark-client uninstalled?)", way_out)
        if client and own and of_client.get(file, own) != own and _hash_on_disk(path, own) != own:
            cause = f"its file {file} was overwritten by pyspark-client {client.version}, which was installed after it"
            raise _mismatch(subject, cause, way_out)


def _recorded(distribution: metadata.Distribution) -> dict[str, str]:
    """Return the files that were installed, with their hashes, `sha256=…`.

    Not `distribution.files`: in newer Pythons, and where `importlib_metadata` is loaded, it leaves out missing files.
    """
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    return {row[0]: row[1] for row in rows if len(row) > 1}


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _is_home_of(pyspark: metadata.Distribution, spark_home: Path) -> bool:
    return Path(str(pyspark.locate_file("pyspark"))).resolve() == spark_home.resolve()


def _version_of_home(spark_home: Path) -> str:
    for jar in spark_home.glob("jars/spark-core_*.jar"):
        if match := re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", jar.name):
            return match[1]
    raise _mismatch(
        f"SPARK_HOME={spark_home}",
        "there is no jars/spark-core_*.jar below it",
        "Point SPARK_HOME at a Spark, or unset it to use the installed pyspark",
    )


def _supported(version: str, *, subject: str) -> str:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or not _OLDEST <= (int(numbers[1]), int(numbers[2])) < _TOO_NEW:
        cause = f"expected Spark {_OLDEST[0]}.{_OLDEST[1]} or newer, and older than {_TOO_NEW[0]}, found {version}"
        raise _mismatch(subject, cause, _WAY_OUT.format(version="4.*"))
    return version


def _hash_on_disk(path: Path, like: str) -> str:
    mode = like.partition("=")[0]
    value = base64.urlsafe_b64encode(hashlib.new(mode, path.read_bytes()).digest())
    return f"{mode}={value.rstrip(b'=').decode()}"


def _mismatch(subject: str, cause: str, hint: str) -> EnvironmentMismatchError:
    return EnvironmentMismatchError(operation="use", subject=subject, cause=cause, hint=hint)
