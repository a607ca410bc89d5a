"""`docker/`, as far as it can be checked without an engine: the files are complete and fit together, and the shop's DAG works."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from airflow.cli.cli_parser import get_parser

from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.ingestion import open_job
from airflow_gobblin.job import connections_of
from airflow_gobblin.model import wire
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.work import UnitResult
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.spark.connections import give_connections
from tests.services.environment import ROOT
from tests.services.packages import make_environment
from tests.services.postgres import Postgres
from tests.services.s3 import REGION, S3Server

DOCKER = ROOT / "docker"
PAGE = (ROOT / "docs" / "docker.md").read_text()
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:-[^}]*)?\}")
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+[\w.-]*")
LOCAL = re.compile(r"airflow-gobblin/\w+:local")
CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "service_healthy": lambda service: "healthcheck" in service,
    "service_completed_successfully": lambda service: service["restart"].startswith("on-failure"),
}
# The keys that the Compose Specification lets a service have, as far as they are used here.
OF_A_SERVICE = {
    "build", "command", "depends_on", "environment", "healthcheck", "hostname", "image", "ports", "restart", "volumes",
}  # fmt: skip
OF_A_HEALTHCHECK = {"interval", "retries", "start_period", "test", "timeout"}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


SERVICES: dict[str, Any] = compose()["services"]
DOCKERFILES = sorted(DOCKER.rglob("Dockerfile"))


def defaults(text: str) -> str:
    """A text with each variable's default in its place."""
    return VARIABLE.sub(lambda found: (found.group(2) or "")[2:], text)


def test_there_is_everything_that_a_small_production_has() -> None:
    assert set(SERVICES) == {
        *(f"airflow-{part}" for part in ("init", "api-server", "scheduler", "dag-processor", "triggerer")),
        *(f"spark-{part}" for part in ("master", "worker-1", "worker-2")),
        *("postgres", "s3", "kafka"),
    }
    assert set(compose()) - {"name", "services", "volumes"} == {"x-airflow", "x-airflow-dependencies", "x-spark"}
    for name in SERVICES:
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_whole(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= OF_A_SERVICE
    assert (LOCAL if "build" in service else PINNED).fullmatch(service["image"])
    for other, how in service.get("depends_on", {}).items():
        assert CONDITIONS[how["condition"]](SERVICES[other]), other
    check = service.get("healthcheck")
    if name != "airflow-init":
        assert set(check) <= OF_A_HEALTHCHECK
        assert check["test"][0] in ("CMD", "CMD-SHELL")
        assert len(check["test"]) == 2 or check["test"][0] == "CMD"
    named = compose()["volumes"]
    for volume in service.get("volumes", ()):
        source, target, *_ = volume.split(":")
        assert target.startswith("/")
        assert (DOCKER / source).exists() if source.startswith(".") else source in named
    assert all(isinstance(value, str) for value in service.get("environment", {}).values())
    if "build" in service:
        context = DOCKER / service["build"]["context"]
        assert (context / service["build"].get("dockerfile", "Dockerfile")).is_file()


def test_no_two_services_take_one_port_and_none_is_open_to_other_machines() -> None:
    ports = [
        port.rsplit(":", 1)[0] for service in SERVICES.values() for port in map(defaults, service.get("ports", ()))
    ]
    assert len(set(ports)) == len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_each_variable_has_one_default_which_is_no_secret_and_is_described() -> None:
    found = set(VARIABLE.findall((DOCKER / "compose.yaml").read_text()))
    assert max(Counter(name for name, _ in found).values()) == 1
    for name, default in found:
        assert len(default) > 2, name
        assert f"`{name}`" in PAGE
        if re.search("PASSWORD|SECRET", name):
            assert set(default[2:].split("local-only")) <= {"", "-"}


def test_what_services_call_each_other_is_there() -> None:
    """Hosts and ports in the environment are those of services, and a service listens there."""
    listening = {"postgres": 5432, "s3": 7070, "kafka": 9092, "airflow-api-server": 8080, "spark-master": 7077}
    text = defaults(json.dumps([service.get("environment", {}) for service in SERVICES.values()]))
    called = re.findall(r"(?:://|@)([a-z][a-z0-9-]*):(\d+)", text)
    assert {"postgres", "s3", "airflow-api-server", "kafka"} <= {host for host, _ in called}
    for host, port in called:
        if host != "localhost" and (host, port) != ("kafka", "9093"):
            assert listening[host] == int(port)
    for name, port in (("s3", 7070), ("spark-master", 7077)):
        folder = DOCKER / "s3" / "entrypoint.sh"
        assert str(port) in (folder.read_text() if name == "s3" else " ".join(SERVICES[name]["command"]))


@pytest.mark.parametrize("name", [name for name in SERVICES if name.startswith("airflow-")])
def test_airflow_knows_the_commands_of_its_services(name: str) -> None:
    parser = get_parser()
    commands = [SERVICES[name]["command"]]
    check = SERVICES[name].get("healthcheck", {"test": []})["test"][1:]
    if check[:1] == ["airflow"]:
        commands.append(check)
    for airflow, *words in commands:
        assert airflow == "airflow"
        assert parser.parse_args(words).subcommand
    console = re.findall(rf"exec {name} airflow (.*)", PAGE)
    for line in console:
        parser.parse_args(shlex.split(line))
    assert bool(console) == (name == "airflow-scheduler")


@pytest.mark.slow
def test_the_api_servers_health_is_where_it_is_asked() -> None:
    # It brings the whole API along, which takes seconds.
    from airflow.api_fastapi.core_api.routes.public.monitor import monitor_router

    url = SERVICES["airflow-api-server"]["healthcheck"]["test"][-1]
    assert f"/api/v2{monitor_router.prefix}/health" in url
    assert "/monitor/health" in {route.path for route in monitor_router.routes}  # type: ignore[attr-defined]


def test_the_entry_point_finds_spark_and_java(tmp_path: Path) -> None:
    entry = DOCKER / "airflow" / "entrypoint.sh"
    java = Path(os.environ["JAVA_HOME"]) / "bin"
    environment = {"PATH": f"{Path(sys.executable).parent}:{java}:/usr/bin:/bin"}
    words = [
        "sh",
        "-c",
        'echo "$SPARK_HOME"; "$JAVA_HOME/bin/java" -version; command -v spark-class; ls "$SPARK_HOME/jars" | wc -l',
    ]
    done = subprocess.run([entry, *words], capture_output=True, text=True, check=True, env=environment)
    home, spark_class, jars = done.stdout.splitlines()
    assert Path(home).name == "pyspark"
    assert spark_class == f"{home}/bin/spark-class"
    assert int(jars) > 100
    assert "version" in done.stderr


def instructions(dockerfile: Path) -> Iterator[tuple[str, list[str]]]:
    """The instructions of a Dockerfile, each with its words."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        yield word, shlex.split(rest)


def test_every_image_is_built_by_a_service() -> None:
    builds = [service["build"] for service in SERVICES.values() if "build" in service]
    built = {(DOCKER / b["context"] / b.get("dockerfile", "Dockerfile")).resolve() for b in builds}
    assert built == set(DOCKERFILES)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_an_image_is_built_from_what_is_there(dockerfile: Path) -> None:
    context = dockerfile.parent if dockerfile.parent.name == "s3" else ROOT
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    words = list(instructions(dockerfile))
    assert words[0][0] == "FROM"
    assert {word for word, _ in words} <= {"FROM", "RUN", "ENV", "COPY", "USER", "WORKDIR", "ENTRYPOINT"}
    users = [arguments[0] for word, arguments in words if word == "USER"]
    assert users[-1:] != ["root"]
    assert users
    for word, arguments in words:
        if word == "FROM":
            assert PINNED.fullmatch(arguments[0])
        if word != "COPY" or any(a.startswith("--from=") for a in arguments):
            continue
        *sources, _ = [a for a in arguments if not a.startswith("--")]
        for source in sources:
            assert (context / source).exists(), source
            assert context != ROOT or any(source.startswith(line[1:]) for line in ignored if line.startswith("!")), (
                source
            )


def of_executors() -> list[str]:
    """The packages that executors have."""
    ((_, words),) = (
        found for found in instructions(DOCKER / "spark" / "Dockerfile") if found[1][:2] == ["pip", "install"]
    )
    return words[words.index("/build/pins.txt") + 1 : words.index("&&")]


def test_driver_and_executors_have_one_python_and_pinned_packages() -> None:
    airflow, spark = (next(instructions(DOCKER / name / "Dockerfile")) for name in ("airflow", "spark"))
    assert airflow == spark
    pins = (ROOT / ".setup" / "pins.txt").read_text()
    assert "pyspark" in of_executors()
    for package in of_executors():
        assert re.search(rf"^{package}==", pins, re.MULTILINE), package


@pytest.mark.parametrize("script", sorted(DOCKER.rglob("*.sh")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_script_can_be_run(script: Path) -> None:
    shell = script.read_text().splitlines()[0].removeprefix("#!")
    assert shell in ("/bin/sh", "/bin/bash")
    subprocess.run(["bash", "-n", script], check=True, capture_output=True)
    if shell == "/bin/sh":
        subprocess.run(["sh", "-n", script], check=True, capture_output=True)
    assert script.stat().st_mode & 0o111


def test_the_shop_is_ingested(
    postgres_server: Postgres, versitygw: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The DAG, the tables, the connections and the executors' Python of the set-up, on real servers in place of its own."""
    url = sa.make_url(postgres_server.create_database("shop"))
    journal = sa.make_url(postgres_server.create_database("journal"))
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.connection.driver_connection.execute((DOCKER / "postgres" / "shop.sql").read_text())  # type: ignore[union-attr]
    versitygw.access.filesystem().call_s3("create_bucket", Bucket="lake")
    place_of: dict[str, dict[str, Any]] = {
        "SHOP_DB": {"host": url.host, "port": url.port, "schema": url.database},
        "SHOP_JOURNAL": {"extra": {"url": f"postgresql://{journal.host}:{journal.port}/{journal.database}"}},
        "LAKE_S3": {"extra": {"endpoint_url": versitygw.access.endpoint, "region_name": REGION}},
    }
    login_of = {"LAKE_S3": (versitygw.access.key, versitygw.access.secret)}
    for name, place in place_of.items():
        given = json.loads(defaults(SERVICES["airflow-scheduler"]["environment"][f"AIRFLOW_CONN_{name}"]))
        assert set(given) == {"conn_type", "login", "password"} | set(place)
        login, password = login_of.get(name, (url.username, url.password))
        given |= {"login": login, "password": password, **place}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(given))

    shop = dag_file(DOCKER / "dags" / "shop.py")
    assert {"shop.create_work_units", "shop.finish"} <= set(shop["dag"].task_ids)
    opened = open_job(shop["shop"])
    run = create_work_units(opened, RunRequest("shop/run-1"))
    extract_as_executors(opened, run, tmp_path)
    for pack in run.packs:
        write_commit_steps(opened, run, pack)
        execute_commit_steps(opened, run, pack)
    with engine.connect() as connection:
        newest = "SELECT count(*) FROM orders WHERE updated_at < now() - interval '1 minute'"
        orders = connection.exec_driver_sql(newest).scalar_one()
    assert {report.urn: (report.status, report.rows) for report in finish(opened, run)} == {
        "orders": ("committed", orders),
        "customers": ("committed", 1000),
    }
    opened.journal.store.close()
    engine.dispose()


def dag_file(path: Path) -> dict[str, Any]:
    """The names that a DAG file defines."""
    specification = importlib.util.spec_from_file_location(f"docker_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return vars(module)


EXECUTOR = """
import base64, importlib.util, json, sys
from airflow_gobblin.spark.connections import take_connections
from airflow_gobblin.spark.probe import Needs
from airflow_gobblin.spark.task import TaskSpec, run_task

assert importlib.util.find_spec("airflow") is None
order = json.loads(sys.argv[1])
needs = Needs(tuple(order.pop("modules")))
for token, result in run_task(TaskSpec((), **order, snapshots={}, connections=take_connections(), needs=needs)):
    print(token, base64.b64encode(result).decode())
"""


def extract_as_executors(opened: OpenJob, run: RunPlan, folder: Path) -> None:
    """Extract by a Python that has what the Dockerfile gives to executors, except Spark itself."""
    python = make_environment(folder / "env", *(package for package in of_executors() if package != "pyspark"))
    units: dict[str, list[str]] = {}
    for pack in run.packs:
        for plan, unit in missing_units(opened, pack):
            units.setdefault(plan.token, []).append(unit.id)
    order = {
        "workspace": opened.job.work.workspace,
        "staging": opened.staging.folder,
        "attempt": "a1",
        "run": run.run,
        "modules": ["pyarrow", *opened.job.work.modules(AirflowConnections())],
    }
    secrets = give_connections(AirflowConnections(), connections_of(opened.job.work))
    done = subprocess.run(
        [python, "-c", EXECUTOR, json.dumps({**order, "units": units})],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **secrets},
    )
    assert done.returncode == 0, done.stderr
    for token, result in map(str.split, done.stdout.splitlines()):
        opened.staging.put_result(token, wire.loads(base64.b64decode(result), UnitResult, "a result"))
