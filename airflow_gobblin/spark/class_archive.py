"""An archive of the classes that drivers load: a driver's JVM maps it instead of reading, checking and linking thousands.

It is Java's own (class data sharing): the JVM writes it as it ends, and a later one maps it if Java, class path and options
fit; otherwise it starts without. It is made once per Java, Spark and options, in a folder that is this user's alone. The first
driver that finds none only leaves a mark, as it may be the only one that ever runs here, as in a container. The second makes it,
and its JVM takes some seconds longer to end. All later ones use it. If the second is killed, the next one tries.

People's settings win: their own archive, agent or class path is left as it is, and nothing is added to it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from airflow_gobblin.spark.ship import own_folder

__all__ = ["ClassArchive", "class_archive"]

log = logging.getLogger(__name__)

_QUIET = "-Xlog:cds*=off"
"""The option that silences Java's warning on standard output about an archive that doesn't fit."""
_OF_OTHERS = (
    *("-Xshare", "SharedArchive", "SharedClassListFile", "ArchiveClassesAtExit", "-XX:Flags", "-XX:VMOptionsFile"),
    *("-javaagent", "-agent", "-Xbootclasspath", "--patch-module", "--upgrade-module-path", "--limit-modules"),
    "java.system.class.loader",
)
"""If people's Java options have one of these words, no archive is made or used here."""
_OPTIONS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_CLASS_PATHS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_PREPEND_CLASSES")
"""Variables that add to the class path of a driver. Java makes no archive if a folder is on it."""
_TRIES = 3
"""The number of drivers in a row that may leave no archive before the next waits for a day."""
_SECONDS_TO_MAKE = 3600.0
"""Seconds after which the making of an archive counts as failed, if the task that would name it hasn't reported its end."""
_SECONDS_TO_WAIT = 24 * 3600.0
"""Seconds until it is tried again after `_TRIES` failures: perhaps this Java can't make one."""
_SECONDS_UNUSED = 30 * 24 * 3600.0
"""Seconds without use after which an archive is removed."""


@dataclass(frozen=True)
class ClassArchive:
    """One driver's use of the archive.

    :param options: for its JVM; empty if there is nothing to use or to make.
    :param made: the file that it writes as it ends.
    """

    options: str = ""
    made: Path | None = None
    _key: str = ""

    def keep(self) -> None:
        """Name the archive that a driver has made, once the driver's JVM has ended; an incomplete one never has a name."""
        if self.made is None:
            return
        making = self.made.with_name(f"{self._key}.making")
        try:
            size = _synced(self.made)
            self.made.rename(self.made.with_name(f"{self._key}-{size}.jsa"))
            making.unlink(missing_ok=True)
            _remove_unused(self.made.parent)
        except OSError as error:  # it was killed, perhaps
            log.info("the driver's JVM has left no archive of its classes: %s", error)
            with suppress(OSError):
                if _tries(making) < _TRIES:
                    making.rename(making.with_suffix(".seen"))


def class_archive(environment: Mapping[str, str], binary: str, conf: Mapping[str, object]) -> ClassArchive:
    """Decide whether the next driver uses the archive, makes it, or neither.

    :param environment: the environment of `spark-submit`.
    :param binary: its name or path.
    :param conf: Spark's settings on its command line.
    """
    options = [environment.get(name, "") for name in _OPTIONS]
    options.append(str(conf.get("spark.driver.extraJavaOptions", "")))
    if any(word in given for word in _OF_OTHERS for given in options):
        return ClassArchive()
    java, spark = _java_home(environment), _spark_home(environment, binary)
    if java is None or spark is None or not _is_plain(environment, spark, conf):
        return ClassArchive()
    try:
        return _next(_key(java, spark, options))
    except OSError as error:
        log.info("drivers start without an archive of classes: %s", error)
        return ClassArchive()


def _next(key: str) -> ClassArchive:
    folder = own_folder(f"airflow-gobblin-{os.getuid()}")
    if folder is None:
        return ClassArchive()
    if (found := _whole(folder, key)) is not None:
        return ClassArchive(f"{_QUIET} -XX:SharedArchiveFile={found}")
    seen, making = folder / f"{key}.seen", folder / f"{key}.making"
    with suppress(FileNotFoundError):
        patience = _SECONDS_TO_MAKE if _tries(making) < _TRIES else _SECONDS_TO_WAIT
        if time.time() - making.stat().st_mtime < patience:
            return ClassArchive()
        making.rename(seen)
    try:
        seen.rename(making)  # only one of several that try at once succeeds
    except FileNotFoundError:
        seen.touch(mode=0o600)
        return ClassArchive()
    with making.open("ab") as mark:
        mark.write(b".")
    made = folder / f".tmp-{uuid.uuid4().hex}.jsa"
    log.info("as it ends, this driver's JVM archives the classes it has loaded, once, for those that start later")
    return ClassArchive(f"{_QUIET} -XX:ArchiveClassesAtExit={made}", made, key)


def _tries(mark: Path) -> int:
    """Return how often an archive was begun: a mark has a byte for each time."""
    return mark.stat().st_size


def _whole(folder: Path, key: str) -> Path | None:
    """Return the archive, if it has the size in its name: Java 17 crashes on a truncated one."""
    for path in folder.glob(f"{key}-*.jsa"):
        if path.name == f"{key}-{path.stat().st_size}.jsa":
            os.utime(path)
            return path
        path.unlink(missing_ok=True)
    return None


def _synced(path: Path) -> int:
    """Sync a file, so that a power failure can't leave it with other bytes.

    :return: its size.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _remove_unused(folder: Path) -> None:
    for path in folder.glob("*.jsa"):
        if time.time() - path.stat().st_mtime > _SECONDS_UNUSED:
            path.unlink(missing_ok=True)


def _is_plain(environment: Mapping[str, str], spark: Path, conf: Mapping[str, object]) -> bool:
    """Return whether the driver's class path is Spark's jars alone, and no file changes it."""
    settings = Path(environment.get("SPARK_CONF_DIR") or spark / "conf")
    return (
        not any(environment.get(name) for name in _CLASS_PATHS)
        and "spark.driver.extraClassPath" not in conf
        and not (settings.is_dir() and any(settings.iterdir()))
    )


def _java_home(environment: Mapping[str, str]) -> Path | None:
    if home := environment.get("JAVA_HOME"):
        return Path(home).resolve()
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    return Path(found).resolve().parents[1] if found else None


def _spark_home(environment: Mapping[str, str], binary: str) -> Path | None:
    """Find Spark as `spark-submit` does: by the variable, beside itself, or in the `pyspark` of the driver's Python."""
    if home := environment.get("SPARK_HOME"):
        return Path(home).resolve()
    found = shutil.which(binary, path=environment.get("PATH", os.defpath))
    if found is None:
        return None
    if not (Path(found).parent / "find_spark_home.py").is_file():
        return Path(found).parents[1].resolve()
    pyspark = find_spec("pyspark")
    return Path(pyspark.origin).resolve().parent if pyspark and pyspark.origin else None


def _key(java: Path, spark: Path, options: Iterable[str]) -> str:
    """Return the key of an archive: these files, as they are now. If one changed unnoticed, Java finds the archive unfit."""
    files = [*java.glob("release"), *java.glob("lib/server/*"), *spark.glob("jars/*.jar")]
    known = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(files)]
    words = [word for given in options for word in given.split() if not word.startswith("-D")]
    return hashlib.sha256(repr((str(java), str(spark), known, words)).encode()).hexdigest()[:32]
