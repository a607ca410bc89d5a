"""The code blocks and commands of `docs/airflow.md`, and the figures that `docs/comparison.md` quotes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Connection
from airflow.sdk.definitions.callback import SyncCallback

from airflow_gobblin.events.notifier import IngestionNotifier
from airflow_gobblin.operators import GobblinIngestion
from tests.services.environment import ROOT

PAGE = (ROOT / "docs" / "airflow.md").read_text()
BLOCKS = dict(re.findall(r"<!-- test: (.+?) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


def run(name: str) -> dict[str, Any]:
    """Run a block.

    :return: what it defines.
    """
    defined: dict[str, Any] = {}
    exec(compile(BLOCKS[name], f"docs/airflow.md, {name}", "exec"), defined)
    return defined


def test_every_block_is_run() -> None:
    assert set(BLOCKS) == {"waiting", "callbacks"}


def test_a_dag_that_waits_for_a_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    defined = run("waiting")
    dag, orders = defined["dag"], defined["orders"]
    assert dag.timetable.asset_condition == orders

    event = SimpleNamespace(extra={"rows": 20, "watermark": 521})
    dag.get_task("report").python_callable({orders: [event]})
    assert capsys.readouterr().out == "20 rows up to 521\n"


def test_callbacks_and_a_deadline() -> None:
    dag = run("callbacks")["dag"]
    for task in dag.tasks:
        (callback,) = task.on_failure_callback
        assert isinstance(callback, IngestionNotifier)
        assert (callback.ingestion, callback.journal, callback.webhook_conn_id) == ("shop", "shop_journal", "chat")
    (late,) = dag.deadline if isinstance(dag.deadline, list) else [dag.deadline]
    assert isinstance(late.callback, SyncCallback)
    assert IngestionNotifier(**late.callback.kwargs).text == "The shop is late."


def test_callbacks_of_the_task_group_are_those_of_each_task_beside_its_own() -> None:
    made = run("callbacks")
    called: list[Any] = []
    with DAG("other", schedule=None):
        group = GobblinIngestion(
            made["shop"], default_args={"on_failure_callback": called.append, "on_success_callback": called.append}
        )
    tasks: list[Any] = [*group.iter_tasks()]
    assert len(tasks) == 6
    for task in tasks:
        assert [*task.on_failure_callback] == [called.append]
        own = ["_note_announced"] if task.label in ("execute_commit_steps", "finish") else []
        assert task.on_success_callback[0] == called.append
        assert [callback.__name__ for callback in task.on_success_callback[1:]] == own


def test_the_connection_that_is_added_can_be_tested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (console,) = (text for text in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) if "connections add" in text)
    add, test = (shlex.split(line.removeprefix("$ ")) for line in console.splitlines())
    assert add[:3] == ["airflow", "connections", "add"]
    assert test == ["airflow", "connections", "test", add[3]]
    options = dict(zip(add[4::2], add[5::2], strict=True))
    extra = options["--conn-extra"].replace("/lake/", f"{tmp_path}/")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_JOURNAL", json.dumps({"conn_type": options["--conn-type"], "extra": extra}))
    worked, message = Connection.get(add[3]).test_connection()
    assert worked, message


def test_the_figures_of_the_comparison_are_those_of_the_results() -> None:
    results = (ROOT / "tests" / "benchmarks" / "results.md").read_text()
    page = (ROOT / "docs" / "comparison.md").read_text()
    how_fast = page.partition("## How fast")[2].partition("\n## ")[0]
    quoted = re.findall(r"(\d+\.\d+) s", how_fast)
    assert len(quoted) >= 8
    medians = {f"{float(value):g}" for value in re.findall(r"\| (\d+\.\d+) \| \d", results)}
    phases = {f"{float(value):.1f}" for value in re.findall(r"Spark start (\d+\.\d+)", results)}
    assert {value for value in quoted if f"{float(value):g}" not in medians and value not in phases} == set()


def test_each_source_of_the_comparison_is_used_and_listed() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    text, _, sources = page.partition("## Where it comes from")
    listed = set(re.findall(r"^(\d+)\. .*<https://", sources, re.MULTILINE))
    assert set(re.findall(r"\[(\d+)\]", text)) == listed
