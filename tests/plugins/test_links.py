"""Where the links of tasks lead, of packs of every kind; in a whole Airflow they are in `tests/airflow/test_links.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk.types import TaskInstanceKey

from airflow_gobblin.hooks import ingestion as hooks
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import Job
from airflow_gobblin.links import DatasetLink, SparkLink, page_address
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.operators.extract import ExtractOperator
from airflow_gobblin.operators.task_logs import pack_reference
from airflow_gobblin.operators.tasks import FinishOperator, WriteCommitStepsOperator
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.spark.report import PackReport
from tests.lab import Lab
from tests.plugins.conftest import EVIL, made
from tests.protocol.rows import Table

HERE = TaskInstanceKey(dag_id="shop", task_id="extract", run_id="one")
TABLES = (Table("orders", ExtractKind.APPEND_ONLY, 8), Table(EVIL, ExtractKind.APPEND_ONLY, 4))


def decided(folder: Path, **options: Any) -> tuple[Lab, Ingestion, RunPlan]:
    """A run that is about to publish, and its ingestion as a task opens it."""
    lab = made(folder)
    lab.ingestion = replace(lab.ingestion, journal=str(folder / "journal"), **options)
    _, plan = lab.decide(*TABLES)
    return lab, lab.ingestion, plan


def leads_to(address: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(address)
    return parts.path, parse_qs(parts.query)


def test_a_task_of_one_dataset_leads_to_it(tmp_path: Path) -> None:
    _, ingestion, plan = decided(tmp_path, max_packs=2)
    found = set()
    for pack in plan.packs:
        operator = WriteCommitStepsOperator(task_id="write", job=ingestion, pack=reference(plan, pack.index))
        path, words = leads_to(DatasetLink().get_link(operator, ti_key=HERE))
        assert path == "gobblin/open"
        assert (words["dag_id"], words["ingestion"]) == (["shop"], ["lab"])
        found |= set(words["urn"])
    assert found == {"orders", EVIL}


def test_a_task_opens_its_job_only_where_its_reference_does_not_name_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ingestion, plan = decided(tmp_path, max_packs=2)
    opened: list[str] = []
    real = hooks.open_job

    def opening(job: Job) -> OpenJob:
        opened.append(job.name)
        return real(job)

    monkeypatch.setattr(hooks, "open_job", opening)
    found = {}
    for pack in plan.packs:
        of = pack_reference(plan.run, pack)
        operator = WriteCommitStepsOperator(task_id="write", job=ingestion, pack=of)
        _, words = leads_to(DatasetLink().get_link(operator, ti_key=HERE))
        found[words["urn"][0]] = len(opened)
        opened.clear()
    assert found == {"orders": 0, EVIL: 1}


def test_other_tasks_lead_to_the_list(tmp_path: Path) -> None:
    _, ingestion, plan = decided(tmp_path, max_packs=1)
    several = WriteCommitStepsOperator(task_id="write", job=ingestion, pack=reference(plan, 0))
    swept = WriteCommitStepsOperator(task_id="late", job=ingestion, pack={"run": "gone", "pack": 0, "label": "x"})
    unmapped = WriteCommitStepsOperator(task_id="soon", job=ingestion, pack=None)
    for operator in (several, swept, unmapped):
        assert DatasetLink().get_link(operator, ti_key=HERE) == page_address("shop", "lab")
    assert [type(link) for link in FinishOperator.operator_extra_links] == [DatasetLink]


def test_an_extract_leads_to_the_newest_of_its_applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, ingestion, plan = decided(tmp_path, max_packs=1)
    staging = lab.opened().staging
    operator = ExtractOperator(task_id="extract", job=ingestion, pack=reference(plan, 0))
    monkeypatch.setenv("AIRFLOW__GOBBLIN__SPARK_HISTORY_URL", "http://history:18080/")
    assert SparkLink().get_link(operator, ti_key=HERE) == ""
    for pack, hour, application in ((0, 1, "app-1"), (0, 3, "app-3"), (0, 2, "app-2"), (1, 4, "app-4"), (0, 5, "")):
        at = datetime(2026, 1, 1, hour, tzinfo=UTC)
        report = PackReport(plan.run, pack, "x", application, at, 1.0, 1, 0, 0, (), (), application=application)
        staging.put_report(plan.run, pack, f"a{hour}", report)
    assert SparkLink().get_link(operator, ti_key=HERE) == "http://history:18080/history/app-3/"
    monkeypatch.delenv("AIRFLOW__GOBBLIN__SPARK_HISTORY_URL")
    assert SparkLink().get_link(operator, ti_key=HERE) == ""


def reference(plan: RunPlan, index: int) -> dict[str, Any]:
    return {"run": plan.run, "pack": index, "label": "x"}
