"""A whole pyspark passes; a mixed, broken, missing or unsupported one is named, with the command that repairs it."""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

from airflow_gobblin.errors import EnvironmentMismatchError
from airflow_gobblin.hooks.environment import check_java, check_pyspark, check_submit

PATH = [*sys.path]
PYSPARK = {"pyspark/__init__.py": b"spark", "pyspark/sql/connect.py": b"whole"}
CLIENT = {"pyspark/__init__.py": b"spark", "pyspark/sql/connect.py": b"client"}


def install(site: Path, name: str, version: str, files: Mapping[str, bytes]) -> None:
    """Lay files and metadata down as an installer does."""
    record = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("\n".join(record))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty site-packages that this interpreter looks into, and no other."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path


def test_the_environment_of_these_tests_is_whole() -> None:
    assert check_pyspark() == metadata.version("pyspark")


def test_pyspark_installed_last_is_whole(site: Path) -> None:
    install(site, "pyspark-client", "4.1.3", CLIENT)
    install(site, "pyspark", "4.1.4", PYSPARK)
    assert check_pyspark() == "4.1.4"


def test_pyspark_overwritten_by_the_client(site: Path) -> None:
    install(site, "pyspark", "4.1.4", PYSPARK)
    install(site, "pyspark-client", "4.1.3", CLIENT)
    with pytest.raises(
        EnvironmentMismatchError, match=r"connect\.py was overwritten by pyspark-client 4\.1\.3"
    ) as caught:
        check_pyspark()
    assert "pip install --force-reinstall --no-deps 'pyspark==4.1.4'" in str(caught.value)


@pytest.mark.parametrize("loaded", ["", "importlib_metadata"])
def test_client_uninstalled_takes_files_along(site: Path, loaded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the backport is loaded, as in Airflow: its finder leaves out files that are gone."""
    if loaded:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "path", PATH)
            monkeypatch.setattr(
                sys, "meta_path", [importlib.import_module(loaded).MetadataPathFinder(), *sys.meta_path]
            )
    install(site, "pyspark", "4.1.4", PYSPARK)
    (site / "pyspark/__init__.py").unlink()
    with pytest.raises(EnvironmentMismatchError, match=r"pyspark/__init__\.py is gone.*--force-reinstall"):
        check_pyspark()


def test_only_the_client(site: Path) -> None:
    install(site, "pyspark-client", "4.1.3", CLIENT)
    with pytest.raises(EnvironmentMismatchError, match="pyspark: it is not installed"):
        check_pyspark()


@pytest.mark.parametrize("version", ["3.5.1", "5.0.0"])
def test_unsupported_version(site: Path, version: str) -> None:
    install(site, "pyspark", version, PYSPARK)
    with pytest.raises(EnvironmentMismatchError, match=rf"older than 5, found {version}"):
        check_pyspark()


def test_a_spark_home_of_its_own_counts_instead(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = site / "spark"
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(EnvironmentMismatchError, match=r"no jars/spark-core"):
        check_pyspark()
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark-core_2.13-4.0.1.jar").touch()
    assert check_pyspark() == "4.0.1"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh")
    path.chmod(0o755)
    return path


def test_spark_and_its_java_are_looked_for_before_they_are_started(tmp_path: Path) -> None:
    spark, java = program(tmp_path / "spark" / "bin" / "spark-submit"), program(tmp_path / "java" / "bin" / "java")
    path = {"PATH": str(spark.parent)}
    check_submit("spark-submit", path | {"JAVA_HOME": str(tmp_path / "java")})
    check_submit(str(spark), {"PATH": str(java.parent)})
    with pytest.raises(
        EnvironmentMismatchError, match=r"use Spark: there is no 'spark-submit' on the PATH.*set SPARK_HOME"
    ):
        check_submit("spark-submit", {"PATH": str(java.parent)})
    with pytest.raises(
        EnvironmentMismatchError, match=r"it runs on Java, and that isn't there: JAVA_HOME isn't set.*Install Java 17"
    ):
        check_submit("spark-submit", path)
    program(tmp_path / "spark" / "conf" / "spark-env.sh")  # it may set where Java is
    check_submit("spark-submit", path | {"SPARK_HOME": str(tmp_path / "spark")})


@pytest.mark.parametrize(
    ("version", "finding"),
    [("1.8.0_402", "found 1.8.0_402"), ("11.0.22", "found 11.0.22"), (None, "it doesn't start"), ("17.0.15", None)],
)
def test_a_java_that_spark_does_not_run_on_is_named(tmp_path: Path, version: str | None, finding: str | None) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {int(version is None)}\n")
    java.chmod(0o700)
    environment = {"JAVA_HOME": str(tmp_path), "PATH": os.defpath}
    if finding is None:
        assert check_java(environment) == version
        return
    with pytest.raises(EnvironmentMismatchError, match=rf"Java at {java}.*{finding}.*Install Java 17 or 21"):
        check_java(environment)
