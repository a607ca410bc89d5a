"""Secrets that a source's code puts into its errors get no further than planning."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from airflow_gobblin.errors import ConfigurationError, GobblinError, SourceError
from airflow_gobblin.guarded import GuardedConnections
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.pipeline import Pipeline, RunRequest
from airflow_gobblin.sources.base import Connections, DatasetPlan, PlanRequest
from airflow_gobblin.state import DatasetState
from airflow_gobblin.wire import record
from airflow_gobblin.work import Dataset, ExtractKind
from tests.lab import Lab
from tests.protocol.rows import RowSource, Table

SECRET = "canary-9fQ2"
URI = f"postgresql://reader:{SECRET}@db.example/shop"


class OneUri:
    def uri(self, conn_id: str) -> str:
        return URI


@record("test.leaky")
@dataclass(frozen=True)
class LeakySource(RowSource):
    """Tells its connection in its errors. :param where: `datasets` or `plan`. :param ours: whether by an error of the tree."""

    where: str = ""
    ours: bool = False
    connection_ids: ClassVar[tuple[str, ...]] = ("db",)

    def leak(self, connections: Connections) -> None:
        uri = connections.uri("db")
        if self.ours:
            raise SourceError(operation="plan", subject=uri, cause=ValueError(uri), hint=f"Is {uri} right?")
        raise ValueError(f"{uri} is out of reach")

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        if self.where == "datasets":
            self.leak(connections)
        return super().datasets(connections)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        if dataset.urn == "a":
            self.leak(connections)
        return super().plan(dataset, states, request, connections)


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("where", ["datasets", "plan"])
def test_an_error_of_planning_holds_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str, ours: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    tables = tuple(Table(urn, ExtractKind.APPEND_ONLY, 3) for urn in ("a", "b"))
    lab = Lab(tmp_path, *tables)
    ingestion: Ingestion = replace(lab.ingestion, source=LeakySource(tables, where, ours))
    pipeline = Pipeline(ingestion, lab.journal, OneUri())
    if where == "datasets":
        with pytest.raises(SourceError) as caught:
            pipeline.create_work_units(RunRequest("one"))
        told = str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    else:
        plan = pipeline.create_work_units(RunRequest("one"))
        told = plan.notes[0].detail
        assert [d.urn for p in plan.packs for d in p.datasets] == ["b"]
        kept = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert kept
        assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    assert "***" in told
    assert SECRET not in told + caplog.text


def test_an_error_without_secrets_is_let_out_as_it_is() -> None:
    guarded = GuardedConnections(OneUri())
    guarded.uri("db")
    error = ConfigurationError(operation="plan", subject="dataset 'a'", cause="there is no such table")
    with pytest.raises(GobblinError) as caught, guarded.scrubbing("plan", "dataset 'a'"):
        raise error
    assert caught.value is error
