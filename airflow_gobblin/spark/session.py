"""The Spark session of a driver: one that it starts itself, or a warm one that it reaches by Spark Connect.

A session of a Connect server has Python workers of its own, which take seconds to start, and leaves their parent process
behind for as long as the server lives. So drivers that ship the same code and settings share a session, and nobody closes it:
the server does, when it has been idle (`spark.connect.session.manager.defaultSessionTimeout`, an hour by default).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import signal
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.spark.failures import cause_of
from airflow_gobblin.spark.report import SPARK_UI
from airflow_gobblin.spark.worker import freeze_heap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CONF", "JVM_OPTIONS", "LOG_SETTINGS", "REMOTE", "settings_folder", "spark_session", "submit_options"]

log = logging.getLogger(__name__)

REMOTE = "SPARK_REMOTE"
"""The environment variable with a Connect server's URL and token. Without it a driver starts a Spark of its own."""
JVM_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Options of a driver's JVM, which only hands out work to Pythons: its thorough compiler takes cores from them, for seconds."""
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
"""The default log settings of a driver's JVM."""
CONF = "AIRFLOW_GOBBLIN_SPARK_CONF"
"""The environment variable with the settings of a Connect session, as JSON: they may be secret, unlike command lines."""
PATIENCE = 60.0
"""Seconds in which a Connect server must answer."""
KILLED = 128 + signal.SIGTERM
_READY = "airflow_gobblin.ready"
"""The setting that marks a shared session as having its code and settings."""
_TRIES = 10
"""How often a driver tries to give a session its code while others do, too."""


def submit_options() -> str:
    """Return the value of `SPARK_SUBMIT_OPTS`: of two options Java takes the last, so people's own come after ours.

    Spark logs some hundred lines of level INFO for each driver, so only warnings are logged, unless people set something else:
    here, in Spark's folder of settings, or by the settings `spark.log.level` and `spark.driver.extraJavaOptions`.
    """
    quiet = "" if _has_log_settings() else f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    return " ".join(filter(None, (JVM_OPTIONS, quiet, os.environ.get("SPARK_SUBMIT_OPTS"))))


def settings_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of Spark's settings, with `spark-env.sh` and `log4j2.properties`, if the environment names it."""
    if folder := environment.get("SPARK_CONF_DIR"):
        return Path(folder)
    home = environment.get("SPARK_HOME")
    return Path(home) / "conf" if home else None


def _has_log_settings() -> bool:
    folder = settings_folder(os.environ)
    return folder is not None and any(not name.name.endswith(".template") for name in folder.glob("log4j2*"))


@contextmanager
def spark_session(tag: str, *, zips: Sequence[str] = ()) -> Iterator[SparkSession]:
    """Open the session to work with. A driver with a Spark of its own prints the UI's address on stderr.

    That Spark is stopped by its own shutdown hook, as the driver's process ends: `stop` would wait up to a second for the thread
    that collects accumulators.

    :param tag: the tag of this driver's operations; if SIGTERM ends it, they are cancelled on the server.
    :param zips: the code that executors need. They and the settings in `CONF` are for Spark Connect only: any other driver
        was given them by `spark-submit`.
    :raises GobblinError: the Connect server can't be reached.
    """
    from pyspark.sql import SparkSession

    freeze_heap()  # with Spark's modules in it
    url, conf = os.environ.pop(REMOTE, None), json.loads(os.environ.pop(CONF, "{}"))
    if url is None:
        spark = SparkSession.builder.getOrCreate()
        _print_ui(spark)
        yield spark
        return
    remote: Any = _shared(url, zips, conf)

    def end(*_: object) -> None:
        remote.interruptTag(tag)
        os._exit(KILLED)  # the threads that wait for the server's answers would hold up any other end

    signal.signal(signal.SIGTERM, end)
    yield remote
    remote.client.close()


def _print_ui(spark: SparkSession) -> None:
    """Print the address of a session's UI, or that it has none: later lines of this form don't count."""
    print(f"{SPARK_UI}{spark.sparkContext.uiWebUrl or 'none'}", file=sys.stderr, flush=True)  # noqa: T201


def _shared(url: str, zips: Sequence[str], conf: Mapping[str, str]) -> SparkSession:
    """Return the session shared by all drivers with this code and these settings: today's first one that isn't closed."""
    from pyspark.sql import SparkSession

    code = [(os.path.basename(path), hashlib.sha256(Path(path).read_bytes()).hexdigest()) for path in zips]
    known_by = (code, sorted(conf.items()), datetime.now(UTC).date())
    ids = (uuid.UUID(bytes=_digest(known_by, life), version=4) for life in count())
    found = ((place, _state(place)) for place in (f"{url};session_id={session}" for session in ids))
    place, state = next((place, state) for place, state in found if state is not None)
    spark: SparkSession = SparkSession.builder.remote(place).create()
    if state:
        sys.path[1:1] = zips  # for this process itself, as `addArtifacts` does
        importlib.invalidate_caches()
        return spark
    _prepare(spark, zips, conf)
    return spark


def _prepare(spark: SparkSession, zips: Sequence[str], conf: Mapping[str, str]) -> None:
    """Give a session its code and settings. Several drivers may do so at once."""
    from pyspark.errors import PySparkException

    for left in reversed(range(_TRIES)):
        try:
            spark.addArtifacts(*zips, pyfile=True)
            for key, value in conf.items():
                spark.conf.set(key, value)
            spark.conf.set(_READY, "true")
            return
        except PySparkException as error:
            # Spark accepts a file that it already has, but not one that it is getting at the same moment.
            if left and "FileAlreadyExistsException" in str(error):
                continue
            raise ConfigurationError(
                operation="open",
                subject="a session of the Spark Connect server",
                cause=cause_of(error),
                hint="Of Spark's settings, only those of a session can be set here; the others are the server's.",
            ) from error


def _digest(*known_by: object) -> bytes:
    return hashlib.sha256(repr(known_by).encode()).digest()[:16]


def _state(place: str) -> str | None:
    """Return whether a session has what it needs, by `_READY`; `None` if the server accepts neither its use nor its start.

    A client asks, not a session: Spark takes a process's first session for its active one, whatever becomes of it, and each
    session, when it is collected, closes resources that all of them share.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder, SparkConnectClient

    try:
        # Spark's own patience is ten minutes, and it warns at its end.
        with warnings.catch_warnings(action="ignore"):
            client = SparkConnectClient(place, retry_policy=_every_second(PATIENCE))
            (ready,) = client.get_config_with_defaults((_READY, ""))
    except PySparkException as error:
        if error.getCondition() == "INVALID_HANDLE.SESSION_CLOSED":
            return None
        raise GobblinError(
            operation="reach",
            subject=f"the Spark Connect server at {DefaultChannelBuilder(place).endpoint}",
            cause=f"it gave no answer in {PATIENCE:.0f} s" if "UNAVAILABLE" in str(error) else cause_of(error),
            hint="See that it runs, and that host and port of the Spark Connect connection are its.",
        ) from None
    return ready or ""


def _every_second(seconds: float) -> dict[str, float]:
    """Return a retry policy for Spark Connect's client; its times are milliseconds."""
    return {"max_retries": round(seconds), "initial_backoff": 1000, "max_backoff": 1000, "jitter": 0}
