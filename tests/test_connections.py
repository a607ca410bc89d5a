"""Secrets that a source's code puts into its errors get no further than planning."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.wire import record
from airflow_gobblin.model.work import Dataset, ExtractKind
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest
from airflow_gobblin.run.checking import checks
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from tests.lab import Lab
from tests.protocol.rows import RowSource, Table
from tests.spellings import SPELLINGS, cores

SECRET = "canary-9fQ2"
URI = f"postgresql://reader:{SECRET}@db.example/shop"


class OneUri:
    def uri(self, conn_id: str) -> str:
        return URI


@record("test.leaky")
@dataclass(frozen=True)
class LeakySource(RowSource):
    """Show its connection in its errors.

    :param where: `datasets` or `plan`.
    :param ours: whether by an error of the tree.
    """

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
    opened = OpenJob(ingestion, lab.journal, OneUri())
    if where == "datasets":
        with pytest.raises(SourceError) as caught:
            create_work_units(opened, RunRequest("one"))
        text = str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    else:
        plan = create_work_units(opened, RunRequest("one"))
        text = plan.notes[0].detail
        assert [d.urn for p in plan.packs for d in p.datasets] == ["b"]
        kept = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert kept
        assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    assert "***" in text
    assert SECRET not in text + caplog.text


@record("test.leaky_check")
@dataclass(frozen=True)
class LeakyCheck(LeakySource):
    """A source with a check, which may also show its connection in its errors."""

    def check(self, dataset: Dataset, connections: Connections) -> Iterator[GobblinError]:
        connections.uri("db")
        if self.where == "finding":
            yield ConfigurationError(operation="check", subject=dataset.urn, cause=f"{URI} has no such table")
        if self.where == "check":
            self.leak(connections)


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("where", ["datasets", "check", "finding", "plan"])
def test_a_finding_of_a_check_ahead_of_a_run_holds_no_secret(tmp_path: Path, where: str, ours: bool) -> None:
    tables = tuple(Table(urn, ExtractKind.APPEND_ONLY, 3) for urn in ("a", "b"))
    lab = Lab(tmp_path, *tables)
    ingestion = replace(lab.ingestion, source=LeakyCheck(tables, where, ours))
    found = [one.error for one in checks(ingestion, "dag", lab.journal, OneUri()) if one.error is not None]
    assert found
    for error in found:
        assert "***" in str(error)
        assert SECRET not in "".join(traceback.format_exception(error))


class Stop(BaseException):
    """An end that is no `Exception`, as an author's code may have."""


def chained(text: str) -> Exception:
    error = KeyError("chained")
    error.__cause__ = OSError(text)
    return error


def in_context(text: str) -> Exception:
    error = KeyError("in context")
    error.__context__ = OSError(text)
    return error


def noted(text: str) -> Exception:
    error = KeyError("noted")
    error.add_note(text)
    return error


def ours(text: str) -> Exception:
    return SourceError(operation=text, subject=text, cause=OSError(text), hint=text)


WAYS: dict[str, Callable[[str], BaseException]] = {
    "Exception": ValueError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "BaseException": Stop,
    "cause": chained,
    "context": in_context,
    "note": noted,
    "group": lambda text: BaseExceptionGroup("many", [Stop(text)]),
    "ours": ours,
}
"""The ways of a secret: by name, a function that makes an error with a text."""
MIXED = "p@ss/w'ö\"rd \\ %+&zwitschert"


@record("test.spelling")
@dataclass(frozen=True)
class SpellingSource(LeakySource):
    """Show its password in its errors, in one spelling and in one way."""

    spelling: str = ""
    way: str = ""

    def leak(self, connections: Connections) -> None:
        connections.uri("db")
        raise WAYS[self.way](SPELLINGS[self.spelling](MIXED))


class MixedUri:
    def uri(self, conn_id: str) -> str:
        return f"postgresql://reader:{quote(MIXED, safe='')}@db.example/shop"


@pytest.mark.parametrize(("spelling", "way"), [*zip(SPELLINGS, cycle(WAYS), strict=False)])
def test_no_spelling_and_no_way_gets_a_password_into_an_error_a_log_or_staging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spelling: str, way: str
) -> None:
    caplog.set_level(logging.DEBUG)
    tables = tuple(Table(urn, ExtractKind.APPEND_ONLY, 3) for urn in ("a", "b"))
    lab = Lab(tmp_path, *tables)
    source = SpellingSource(tables, "plan", spelling=spelling, way=way)
    plan = create_work_units(OpenJob(replace(lab.ingestion, source=source), lab.journal, MixedUri()), RunRequest("one"))
    assert [d.urn for p in plan.packs for d in p.datasets] == ["b"]
    opened = OpenJob(replace(lab.ingestion, source=replace(source, where="datasets")), lab.journal, MixedUri())
    with pytest.raises(SourceError) as caught:
        create_work_units(opened, RunRequest("two"))
    kept = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    for text in (plan.notes[0].detail, *traceback.format_exception(caught.value), caplog.text, *kept):
        assert not shown_in(text, MIXED)


def shown_in(text: str, secret: str) -> list[str]:
    """The spellings of a secret that a text has."""
    return [name for name, core in cores(secret).items() if core in text]


def test_an_interrupt_of_airflows_passes_as_it_is() -> None:
    guarded = GuardedConnections(OneUri())
    guarded.uri("db")
    interrupt = KeyboardInterrupt("timed out")
    with pytest.raises(KeyboardInterrupt) as caught, guarded.redacting("plan", "dataset 'a'"):
        raise interrupt
    assert caught.value is interrupt


def test_an_error_without_secrets_is_let_out_as_it_is() -> None:
    guarded = GuardedConnections(OneUri())
    guarded.uri("db")
    error = ConfigurationError(operation="plan", subject="dataset 'a'", cause="there is no such table")
    with pytest.raises(GobblinError) as caught, guarded.redacting("plan", "dataset 'a'"):
        raise error
    assert caught.value is error
