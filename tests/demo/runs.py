"""The runs of a DAG of the demo, on an Airflow of its own: each is shown while it runs, and may be killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tests.demo.show import Progress, headline, show
from tests.demo.verdict import DemoError
from tests.services.airflow import FINISHED, Airflow, TaskInstance

__all__ = ["Runs", "airflow_below"]

PATIENCE_SECONDS = 600
"""How long a run may take on a machine that has other things to do."""


class Runs:
    """The runs of a DAG, numbered from 1. :ivar count: how many were triggered."""

    def __init__(self, airflow: Airflow, dag: str) -> None:
        self.count = 0
        self._airflow = airflow
        self._dag = dag
        airflow.wait_for_dag(dag)

    def ids(self) -> list[str]:
        """The ids of all runs, also of those that Airflow started by itself."""
        found = self._airflow.request("GET", f"dags/{self._dag}/dagRuns", params={"limit": 100})["dag_runs"]
        return [one["dag_run_id"] for one in found]

    def pause(self, paused: bool) -> None:
        """Pause the DAG, or let Airflow start runs of it."""
        self._airflow.request("PATCH", f"dags/{self._dag}", json={"is_paused": paused})

    def discard_unfinished(self) -> None:
        """Mark the runs as failed that Airflow started and that haven't ended."""
        for run in self.ids():
            if self._airflow.run_state(self._dag, run) not in FINISHED:
                self._airflow.request("PATCH", f"dags/{self._dag}/dagRuns/{quote(run)}", json={"state": "failed"})

    def tasks(self, run: str) -> list[TaskInstance]:
        """The tasks of a run."""
        return self._airflow.task_instances(self._dag, run)

    def trigger(self, **conf: object) -> str:
        """Start the next run.

        :param conf: its configuration.
        :return: its id.
        """
        self.count += 1
        return self._airflow.trigger(self._dag, conf=conf, run_id=f"run-{self.count}")

    def finish_well(self, run: str, name: str = "") -> None:
        """Wait for the end of a run.

        :param name: it is shown so, and not by its id.
        :raises DemoError: it failed.
        """
        progress = Progress(name or run)

        def ended() -> str | None:
            progress.show(self._airflow.task_instances(self._dag, run))
            state = self._airflow.run_state(self._dag, run)
            return state if state in FINISHED else None

        if self._airflow.wait_for(f"the end of {run}", ended, seconds=PATIENCE_SECONDS) != "success":
            raise DemoError(f"{run} failed; the logs of its tasks below {self._airflow.home}/logs show why")

    def wait_for_publisher(self, run: str, label: str = "") -> TaskInstance:
        """Wait until the task that publishes a pack has a process.

        :param label: of the pack; by default any.
        :raises DemoError: the run ended before.
        """
        progress = Progress(run)

        def publisher() -> TaskInstance | None:
            tasks = self._airflow.task_instances(self._dag, run)
            progress.show(tasks)
            those = [
                t for t in tasks if t.name == "execute_commit_steps" and label in ("", t.label) and t.pid is not None
            ]
            if not those and self._airflow.run_state(self._dag, run) in FINISHED:
                raise DemoError(f"{run} ended before it could be killed; see {self._airflow.home}/logs")
            return next(iter(those), None)

        what = f"execute_commit_steps {label}".strip()
        return self._airflow.wait_for(what, publisher, seconds=PATIENCE_SECONDS, every=0.1)

    def logged_by(self, run: str, task: str, urn: str) -> list[str]:
        """The lines that a task that succeeded logged of a dataset."""
        found = self._airflow.wait_for_task(self._dag, run, task, lambda one: one.state == "success")
        return [line for line in self._airflow.log(self._dag, run, found) if line.startswith(f"dataset '{urn}'")]

    def give_up(self, run: str) -> None:
        """Mark a run as failed before Airflow tries its task again."""
        self._airflow.request("PATCH", f"dags/{self._dag}/dagRuns/{run}", json={"state": "failed"})
        show(
            "Left alone, Airflow would try the task again, and that would finish the slot. To leave it to the next run,"
        )
        show(f"{run} is marked as failed, as people do in the UI.")


@contextmanager
def airflow_below(folder: Path, environment: Mapping[str, str]) -> Iterator[Airflow]:
    """Run Airflow; stopping it can't be interrupted. Its runs are started by hand only."""
    folder.mkdir()
    airflow = Airflow(folder, {"KAFKA_SCHEDULE": "", **environment})
    try:
        airflow.start()
        yield airflow
    finally:
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
        with suppress(OSError):  # the terminal may be gone
            headline("Airflow is stopped")
        airflow.stop()
        for number, handler in handlers.items():
            signal.signal(number, handler)
