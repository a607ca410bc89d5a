"""The archive of a driver's classes: made once, by its owner, for what it fits; and settings that people have made win."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from airflow_gobblin.spark import class_archive as archives
from airflow_gobblin.spark.class_archive import ClassArchive, class_archive

MADE = "ArchiveClassesAtExit"
USED = "SharedArchiveFile"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a `spark-submit`, with a Java and a Spark, and a temporary directory of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name in ("java/release", "java/lib/server/libjvm.so", "spark/jars/spark-core.jar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return {"JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(tmp_path / "spark")}


def folder() -> Path:
    return Path(tempfile.gettempdir()) / f"airflow-gobblin-{os.getuid()}"


def next_driver(environment: Mapping[str, str], conf: Mapping[str, object] | None = None) -> ClassArchive:
    return class_archive(environment, "spark-submit", conf or {})


def end(archive: ClassArchive, content: bytes = b"classes") -> None:
    """Do what a JVM does as it ends, and then the hook."""
    if archive.made is not None:
        archive.made.write_bytes(content)
    archive.keep()


def make(environment: Mapping[str, str]) -> Path:
    """Have the archive made."""
    for _ in range(2):
        end(next_driver(environment))
    (found,) = folder().glob("*.jsa")
    return found


def test_the_second_driver_makes_the_archive_and_the_others_use_it(environment: dict[str, str]) -> None:
    first, second = next_driver(environment), next_driver(environment)
    assert first == ClassArchive()
    assert MADE in second.options
    assert next_driver(environment) == ClassArchive()  # while it is made
    end(second)
    (made,) = folder().iterdir()
    third = next_driver(environment)
    assert third.options.endswith(f"-XX:{USED}={made}")
    assert third.made is None
    assert (stat.S_IMODE(folder().stat().st_mode), folder().stat().st_uid) == (0o700, os.getuid())


def test_of_several_drivers_at_once_one_makes_it(environment: dict[str, str]) -> None:
    next_driver(environment)
    program = (
        "import sys; from airflow_gobblin.spark.class_archive import class_archive; "
        "print(class_archive(dict(JAVA_HOME=sys.argv[1], SPARK_HOME=sys.argv[2]), 'spark-submit', {}).options)"
    )
    command = [sys.executable, "-c", program, environment["JAVA_HOME"], environment["SPARK_HOME"]]
    variables = os.environ | {"TMPDIR": tempfile.gettempdir()}
    drivers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) for _ in range(4)]
    assert sum(MADE in driver.communicate()[0] for driver in drivers) == 1


def test_after_a_driver_that_was_killed_the_next_makes_it(environment: dict[str, str]) -> None:
    next_driver(environment)
    next_driver(environment).keep()  # its JVM has left none
    end(next_driver(environment))
    assert USED in next_driver(environment).options
    assert len([*folder().iterdir()]) == 1


def test_after_three_that_left_none_a_day_goes_by(environment: dict[str, str]) -> None:
    next_driver(environment)
    for _ in range(3):
        failing = next_driver(environment)
        assert MADE in failing.options
        failing.keep()
    (making,) = folder().iterdir()
    age(making, hours=23)
    assert next_driver(environment) == ClassArchive()
    age(making, hours=25)
    assert MADE in next_driver(environment).options


def test_a_task_that_was_killed_with_its_driver_has_failed_after_an_hour(environment: dict[str, str]) -> None:
    next_driver(environment)
    next_driver(environment)
    assert next_driver(environment) == ClassArchive()
    (making,) = folder().iterdir()
    age(making, hours=1.1)
    assert MADE in next_driver(environment).options


def age(path: Path, *, hours: float) -> None:
    """Let a file be as old as that."""
    os.utime(path, (time.time() - hours * 3600,) * 2)


@pytest.mark.parametrize("changed", ["java/lib/server/libjvm.so", "spark/jars/more.jar"])
def test_another_java_or_spark_has_an_archive_of_its_own(
    environment: dict[str, str], tmp_path: Path, changed: str
) -> None:
    make(environment)
    (tmp_path / changed).write_text("another")
    assert next_driver(environment) == ClassArchive()
    assert MADE in next_driver(environment).options


def test_an_archive_that_was_cut_short_is_removed_and_made_anew(environment: dict[str, str]) -> None:
    made = make(environment)
    made.write_bytes(b"class")
    assert next_driver(environment) == ClassArchive()
    assert not made.exists()
    assert MADE in next_driver(environment).options


def test_archives_that_nobody_uses_go(environment: dict[str, str], tmp_path: Path) -> None:
    old = make(environment)
    os.utime(old, (time.time() - 31 * 24 * 3600,) * 2)
    (tmp_path / "spark/jars/more.jar").touch()
    next_driver(environment)
    end(next_driver(environment))
    assert not old.exists()
    assert len([*folder().glob("*.jsa")]) == 1


def of_others(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, 65534, 65534)


def for_others(place: Path) -> None:
    place.mkdir()
    place.chmod(0o770)


def link(place: Path) -> None:
    (place.parent / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.parent / "elsewhere")


@pytest.mark.parametrize("plant", [of_others, for_others, link])
def test_an_archive_in_a_folder_that_is_not_ours_is_left(
    environment: dict[str, str], plant: Callable[[Path], None]
) -> None:
    made = make(environment)
    content = {path.name: path.read_bytes() for path in folder().iterdir()}
    made.parent.rename(made.parent.with_name("kept"))
    try:
        plant(folder())
    except PermissionError:
        pytest.skip("only root can make a folder somebody else's")
    for name, data in content.items():
        (folder() / name).write_bytes(data)
    for _ in range(3):
        assert next_driver(environment) == ClassArchive()
    assert {path.name: path.read_bytes() for path in folder().iterdir()} == content


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/theirs.jsa"),
        ("SPARK_SUBMIT_OPTS", "-Xshare:off"),
        ("JAVA_TOOL_OPTIONS", "-javaagent:/agent.jar"),
        ("JDK_JAVA_OPTIONS", "-XX:ArchiveClassesAtExit=/theirs.jsa"),
        ("HADOOP_CONF_DIR", "/etc/hadoop"),
        ("SPARK_DIST_CLASSPATH", "/opt/hadoop/*"),
    ],
)
def test_what_people_have_set_is_left_alone(environment: dict[str, str], name: str, value: str) -> None:
    make(environment)
    assert next_driver(environment | {name: value}) == ClassArchive()
    assert next_driver(environment).options


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.driver.extraJavaOptions": "-Dx=y -Xshare:off"},
        {"spark.driver.extraJavaOptions": "-javaagent:/agent.jar"},
        {"spark.driver.extraClassPath": "/opt/drivers/*"},
    ],
)
def test_settings_of_somebody_are_left_alone(environment: dict[str, str], conf: dict[str, object]) -> None:
    make(environment)
    assert next_driver(environment, conf) == ClassArchive()


def test_a_spark_with_a_folder_of_settings_has_no_archive_for_java_makes_none(
    environment: dict[str, str], tmp_path: Path
) -> None:
    make(environment)
    (tmp_path / "spark" / "conf").mkdir()
    assert next_driver(environment).options
    (tmp_path / "spark" / "conf" / "spark-defaults.conf").touch()
    assert next_driver(environment) == ClassArchive()
    assert next_driver(environment | {"SPARK_CONF_DIR": str(tmp_path / "nowhere")}).options


def test_system_properties_count_for_nothing(environment: dict[str, str]) -> None:
    make(environment)
    assert USED in next_driver(environment | {"SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/elsewhere"}).options
    assert next_driver(environment | {"SPARK_SUBMIT_OPTS": "-XX:+UseZGC"}) == ClassArchive()  # has one of its own


def test_without_room_for_an_archive_drivers_start_without_one(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(name: str) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "own_folder", no_room)
    assert next_driver(environment) == ClassArchive()


def test_a_jvm_makes_the_archive_and_another_maps_it(environment: dict[str, str]) -> None:
    """Java's own part: Spark's launcher here, which ends soon, and has the class path of drivers."""
    real = environment | {name: os.environ[name] for name in ("JAVA_HOME", "SPARK_HOME")}

    def jvm(options: str) -> str:
        command = [f"{real['JAVA_HOME']}/bin/java", *options.split(), "-Xlog:class+load:stderr"]
        command += ["-cp", f"{real['SPARK_HOME']}/jars/*", "org.apache.spark.launcher.Main"]
        command += ["org.apache.spark.deploy.SparkSubmit", "job.py"]
        variables = {**real, "SPARK_SCALA_VERSION": "2.13"}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=variables).stderr

    mapped = "org.apache.spark.launcher.Main source: shared objects file (top)"
    assert mapped not in jvm(next_driver(real).options)
    second = next_driver(real)
    jvm(second.options)
    second.keep()
    assert mapped in jvm(next_driver(real).options)
    (made,) = folder().glob("*.jsa")
    made.chmod(0o600)
    os.truncate(made, made.stat().st_size // 2)  # Java 17 dies of it
    assert mapped not in jvm(next_driver(real).options)
