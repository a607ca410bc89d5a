"""The environment in which tests and demo run their parts: the set-up's choices, and temporary files inside the checkout."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

__all__ = ["ROOT", "TEMPORARY", "hurry_java", "use_environment"]

ROOT = Path(__file__).resolve().parents[2]
TEMPORARY = ROOT / ".build" / "tmp"


def use_environment() -> None:
    """Put this checkout's Java, Spark and Python into the environment of this process and of all that it starts.

    :raises RuntimeError: the set-up has not run.
    """
    chosen = ROOT / ".build" / "env"
    if not chosen.exists():
        raise RuntimeError(f"{chosen} is missing: run `make setup` first")
    TEMPORARY.mkdir(parents=True, exist_ok=True)
    os.environ.update(dict(word.split("=", 1) for word in shlex.split(chosen.read_text())))
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # else every process compiles this checkout anew, a Spark driver for 0.5 s
    bin_folders = [str(ROOT / ".venv" / "bin"), str(Path(os.environ["JAVA_HOME"]) / "bin")]
    rest = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder not in bin_folders]
    java_options = f'-XX:-UsePerfData -Djava.io.tmpdir="{TEMPORARY}"'
    os.environ.update(
        # spark-submit finds its Spark, and pip-installed programs, only if they come first.
        PATH=os.pathsep.join([*bin_folders, *rest]),
        TMPDIR=str(TEMPORARY),
        PYTEST_DEBUG_TEMPROOT=os.environ.get("PYTEST_DEBUG_TEMPROOT") or str(TEMPORARY),
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_LOCAL_DIRS=str(TEMPORARY),
        # The JVM writes to /tmp whatever TMPDIR is.
        SPARK_SUBMIT_OPTS=java_options,
        SPARK_LAUNCHER_OPTS="-XX:-UsePerfData",
        SPARK_DAEMON_JAVA_OPTS=java_options,
    )


def hurry_java() -> None:
    """Let every JVM start in a third of the time: with the compiler that starts first, and with Spark's classes as the
    set-up has kept them. It is for tests, and not for measurements: a user's Spark has no such classes.
    """
    quick, classes = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", os.environ.get("SPARK_CLASSES")
    # Where it can't use them, because its class path is another, Java would report it on stdout.
    kept = f' -XX:SharedArchiveFile="{classes}" -Xlog:disable -Xlog:all=error:stderr' if classes else ""
    for name, options in (
        ("SPARK_SUBMIT_OPTS", quick + kept),
        ("SPARK_DAEMON_JAVA_OPTS", quick + kept),
        ("SPARK_LAUNCHER_OPTS", quick),
    ):
        os.environ[name] += f" {options}"
