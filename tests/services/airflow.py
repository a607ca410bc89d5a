"""A real Airflow for tests: its scheduler, DAG processor and API server, on free ports, with a metadata database of its own."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import psutil

from tests.services.processes import free_port, start_process, stop_process

__all__ = ["Airflow", "TaskInstance", "running_airflow"]

COMPONENTS = ("api-server", "dag-processor", "scheduler")
"""All components that an Airflow here can have; without a scheduler nothing runs, and it is ready sooner."""
FORKING = ("dag-processor", "scheduler")
"""Those that fork for each DAG file and each task."""
WARM = Path(__file__).with_name("warm_airflow.py")
FINISHED = ("success", "failed")
"""The states in which a DAG run has ended."""
_POLL_SECONDS = 0.5
"""The time between two questions to the API server, each of which takes it 15 to 40 ms."""

T = TypeVar("T")


@dataclass(frozen=True)
class TaskInstance:
    """A task instance as the API returns it. `pid` is the process that runs the task; its parent supervises it."""

    task_id: str
    map_index: int
    state: str | None
    try_number: int
    pid: int | None
    label: str | None

    @property
    def name(self) -> str:
        """The task's name without its groups."""
        return self.task_id.rsplit(".", 1)[-1]


class Airflow:
    """An Airflow below one folder: `dags` has the DAG files, `logs` those of its components, and `home` everything else.

    :param environment: additional variables, for example `AIRFLOW_CONN_…`, or other settings `AIRFLOW__…`.
    :param components: those to start.
    :param login: the name and the password of the API's user, if not everybody is an administrator.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        components: Sequence[str] = COMPONENTS,
        login: tuple[str, str] | None = None,
    ) -> None:
        self.home = folder / "home"
        self.dags = folder / "dags"
        self.logs = folder / "logs"
        self._port = free_port()
        self._environment = {**self._settings(), **environment}
        self._wanted = components
        self._login = login
        self._components: list[subprocess.Popen[bytes]] = []
        self._kept: set[int] = set()
        self._client = httpx.Client(base_url=self.url, timeout=60)

    def _settings(self) -> dict[str, str]:
        settings: dict[str, dict[str, object]] = {
            "api": {"host": "127.0.0.1", "port": self._port, "workers": 1, "secret_key": secrets.token_hex(16)},
            "api_auth": {"jwt_secret": secrets.token_hex(32)},
            "core": {
                "dags_folder": self.dags,
                "dags_are_paused_at_creation": False,
                "executor": "LocalExecutor",
                "execution_api_server_url": f"http://127.0.0.1:{self._port}/execution/",
                "load_examples": False,
                "parallelism": 16,
                "simple_auth_manager_all_admins": True,
            },
            "dag_processor": {
                "bundle_refresh_check_interval": 0,
                "min_file_process_interval": 3600,
                "parsing_processes": 1,
                "refresh_interval": 1,
            },
            "database": {"sql_alchemy_conn": f"sqlite:///{self.home}/airflow.db"},
            "scheduler": {
                "scheduler_idle_sleep_time": 0.4,
                "task_instance_heartbeat_sec": 1,
                "task_instance_heartbeat_timeout": 20,
                "task_instance_heartbeat_timeout_detection_interval": 2,
            },
            # A supervisor looks that often whether its task has ended.
            "workers": {"min_heartbeat_interval": 1, "socket_cleanup_timeout": 5},
        }
        named = (
            (f"AIRFLOW__{part}__{key}".upper(), value) for part, some in settings.items() for key, value in some.items()
        )
        return {"AIRFLOW_HOME": str(self.home), **{name: str(value) for name, value in named}}

    def start(self) -> None:
        """Make the metadata database, start the components one by one, and wait until the API answers."""
        for folder in (self.dags, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["airflow", "db", "migrate"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | self._environment,
        )
        if done.returncode:
            raise RuntimeError(f"airflow db migrate failed:\n{done.stdout}{done.stderr}")
        self._components += map(self._start, self._wanted)
        token = self.wait_for("the API", lambda: self.token(self._login))
        self._client.headers["Authorization"] = f"Bearer {token}"

    def _start(self, component: str) -> subprocess.Popen[bytes]:
        # With -P nothing beside that file is taken for Airflow.
        airflow = [sys.executable, "-P", str(WARM)] if component in FORKING else ["airflow"]
        command = [*airflow, component, *(["--skip-serve-logs"] if component == "scheduler" else [])]
        return start_process(command, log=self.logs / f"{component}.log", env=self._environment)

    @contextmanager
    def kept_running(self) -> Iterator[None]:
        """Start the scheduler again whenever it ends, as a service manager does."""
        ended = Event()
        at = self._wanted.index("scheduler")

        def keep() -> None:
            while not ended.wait(1):
                if self._components[at].poll() is not None:
                    self._components[at] = self._start("scheduler")

        with ThreadPoolExecutor(1) as pool:
            kept = pool.submit(keep)
            self._kept = {at}
            try:
                yield
            finally:
                ended.set()
                kept.result()
                self._kept = set()

    def stop(self) -> None:
        """Kill the components, and whatever tasks are left of them: nobody reads what they would write as they end."""
        for component in self._components:  # the environment of those that have given themselves a title can't be read
            stop_process(component, first=signal.SIGKILL)
        self._components.clear()
        while left := self.processes():  # one may have started another meanwhile
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=20)
        self._client.close()

    def processes(self) -> list[psutil.Process]:
        """Every process of this Airflow: those that have its home in their environment."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("AIRFLOW_HOME") == str(self.home):
                    found.append(process)
        return found

    def add_dag(self, name: str, text: str, *dag_ids: str) -> None:
        """Put a file into the DAG folder and wait until its DAGs exist; without ids, the file is a module for others."""
        self.put_dag_file(name, text)
        for dag_id in dag_ids:
            self.wait_for_dag(dag_id)

    def put_dag_file(self, name: str, text: str) -> None:
        """Put a file into the DAG folder, whole at once."""
        unfinished = self.dags / f".{name}"
        unfinished.write_text(text)
        unfinished.rename(self.dags / name)

    def put_connection(self, **connection: Any) -> None:
        """Make a connection, or another one of it.

        :param connection: as the API has it.
        """
        action = {"action": "create", "action_on_existence": "overwrite", "entities": [connection]}
        self.request("PATCH", "connections", json={"actions": [action]})

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until the DAG processor has found a DAG; a file that can't be imported is an error."""
        self.wait_for(f"DAG {dag_id}", partial(self._dag, dag_id))

    def trigger(self, dag_id: str, *, conf: Mapping[str, Any] | None = None, run_id: str | None = None) -> str:
        """Start a run.

        :return: its id.
        """
        body = {"logical_date": None, "conf": dict(conf or {}), "dag_run_id": run_id or f"run-{secrets.token_hex(4)}"}
        return str(self.request("POST", f"dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """The state of a DAG run."""
        return str(self.request("GET", f"dags/{dag_id}/dagRuns/{quote(run_id)}")["state"])

    def wait_for_run(self, dag_id: str, run_id: str, *, seconds: float = 180) -> str:
        """Wait until a run has ended.

        :return: its state, success or failed.
        """

        def ended() -> str | None:
            state = self.run_state(dag_id, run_id)
            return state if state in FINISHED else None

        return self.wait_for(f"the end of {dag_id} {run_id}", ended, seconds=seconds)

    def run(self, dag_id: str, **options: Any) -> tuple[str, str]:
        """Trigger a run and wait for its end.

        :return: its id and its state.
        """
        run_id = self.trigger(dag_id, **options)
        return run_id, self.wait_for_run(dag_id, run_id)

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """All task instances of a run."""
        answer = self.request("GET", f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances", params={"limit": 100})
        return [
            TaskInstance(
                task_id=found["task_id"],
                map_index=found["map_index"],
                state=found["state"],
                try_number=found["try_number"],
                pid=found["pid"],
                label=found["rendered_map_index"],
            )
            for found in answer["task_instances"]
        ]

    def states(self, dag_id: str, run_id: str) -> dict[str, list[str | None]]:
        """The states of a run's tasks by their names, those of mapped ones by index."""
        states: dict[str, list[str | None]] = {}
        for found in sorted(self.task_instances(dag_id, run_id), key=lambda t: (t.task_id, t.map_index)):
            states.setdefault(found.name, []).append(found.state)
        return states

    def wait_for_task(
        self, dag_id: str, run_id: str, name: str, holds: Callable[[TaskInstance], bool], *, seconds: float = 120
    ) -> TaskInstance:
        """Wait until a task instance of this name is as wished."""

        def found() -> TaskInstance | None:
            those = [t for t in self.task_instances(dag_id, run_id) if t.name == name and holds(t)]
            return those[0] if those else None

        return self.wait_for(f"{name} of {dag_id} {run_id}", found, seconds=seconds)

    def clear(
        self, dag_id: str, run_id: str, names: Iterable[str], *, downstream: bool = False, index: int | None = None
    ) -> None:
        """Clear the tasks of these names, as a user does in the UI: all their mapped instances, or the one of an index."""
        wanted = set(names)
        ids = sorted({t.task_id for t in self.task_instances(dag_id, run_id) if t.name in wanted})
        if len(ids) != len(wanted):
            raise ValueError(f"{dag_id} {run_id} has {ids}, and asked were {sorted(wanted)}")
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": ids if index is None else [[task_id, index] for task_id in ids],
            "only_failed": False,
            "reset_dag_runs": True,
            "include_downstream": downstream,
        }
        self.request("POST", f"dags/{dag_id}/clearTaskInstances", json=body)

    def log(self, dag_id: str, run_id: str, task: TaskInstance) -> list[str]:
        """The log of a task instance's last try, as the UI shows it: a text per entry, with its errors."""
        path = f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task.task_id}/logs/{task.try_number}"
        answer = self.request("GET", path, params={"map_index": task.map_index, "full_content": True})
        return [
            "\n".join(
                [entry["event"], *(f"{e['exc_type']}: {e['exc_value']}" for e in entry.get("error_detail") or ())]
            )
            for entry in answer["content"]
        ]

    def command(self, line: str) -> str:
        """Run a command in a shell that knows this Airflow.

        :return: its output.
        :raises RuntimeError: it fails.
        """
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, check=False, env=os.environ | self._environment
        )
        if done.returncode:
            raise RuntimeError(f"{line} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def request(self, method: str, path: str, *, tries: int = 3, **options: Any) -> Any:
        """Call Airflow's public API. Requests that only read are sent again if the answer is lost; and those that set something
        if Airflow's SQLite was locked for longer than it waits.
        """
        again = partial(self.request, method, path, tries=tries - 1, **options)
        try:
            answer = self._client.request(method, f"/api/v2/{path}", **options)
        except httpx.TransportError:
            if method != "GET" or tries == 1:
                raise
            return again()
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and method in ("GET", "PATCH") and tries > 1:
            time.sleep(1)
            return again()
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def tails(self) -> str:
        """The last lines of the components' logs, for failures."""
        tails = (f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-40:]) for log in self.logs.glob("*.log"))
        return "\n".join(tails)

    @property
    def url(self) -> str:
        """Where the UI and the API are."""
        return f"http://127.0.0.1:{self._port}"

    def token(self, login: tuple[str, str] | None) -> str | None:
        """The token of a user, by name and password; `None` while the API doesn't answer."""
        with suppress(httpx.TransportError):
            if login is None:
                answer = self._client.get("/auth/token")
            else:
                answer = self._client.post("/auth/token", json={"username": login[0], "password": login[1]})
            if answer.is_success:
                return str(answer.json()["access_token"])
        return None

    def _dag(self, dag_id: str) -> str | None:
        answer = self._client.get(f"/api/v2/dags/{dag_id}")
        if answer.is_success:
            return dag_id
        errors = self.request("GET", "importErrors")["import_errors"]
        if errors:
            raise RuntimeError("\n".join(f"{e['filename']}:\n{e['stack_trace']}" for e in errors))
        return None

    def wait_for(
        self, what: str, found: Callable[[], T | None], *, seconds: float = 120, every: float = _POLL_SECONDS
    ) -> T:
        """Ask, `every` so many seconds, until the answer is something other than `None`, and return it.

        :raises RuntimeError: a component ended, or `seconds` went by; their logs are in the text.
        """
        deadline = time.monotonic() + seconds
        while True:
            value = found()
            if value is not None:
                return value
            ended = [c.args for at, c in enumerate(self._components) if at not in self._kept and c.poll() is not None]
            if ended or time.monotonic() > deadline:
                why = f"{ended} ended" if ended else f"it did not come in {seconds:.0f} s"
                raise RuntimeError(f"waited for {what}, and {why}:\n{self.tails()}")
            time.sleep(every)


@contextmanager
def running_airflow(folder: Path, environment: Mapping[str, str], **options: Any) -> Iterator[Airflow]:
    """Run Airflow with its files in `folder`, which exists and is empty; parameters as of `Airflow`."""
    airflow = Airflow(folder, environment, **options)
    try:
        airflow.start()
        yield airflow
    finally:
        airflow.stop()
