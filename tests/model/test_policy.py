from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.policy import CommitPolicy, publishable, reconciled
from airflow_gobblin.model.work import UnitResult, UnitState, UnitSummary, WorkUnit, summarize
from tests.protocol.rows import LineSink, RowSource

BAD = UnitResult(
    "u2", "a", UnitState.FAILED, failure=Failure.of(SourceError(operation="read", subject="u2", cause="it broke"))
)
GOOD, FAILED, SKIPPED = UnitState.SUCCESSFUL, UnitState.FAILED, UnitState.SKIPPED


def summaries(*states: UnitState) -> tuple[UnitSummary, ...]:
    units = (WorkUnit(f"u{number}", "a") for number in range(len(states)))
    return tuple(replace(summarize(unit, None), state=state) for unit, state in zip(units, states, strict=True))


@pytest.mark.parametrize(
    ("policy", "states", "judged"),
    [
        (CommitPolicy.FULL, (GOOD, GOOD), (GOOD, GOOD)),
        (CommitPolicy.FULL, (GOOD, FAILED, GOOD), (SKIPPED, FAILED, SKIPPED)),
        (CommitPolicy.FULL, (FAILED,), (FAILED,)),
        (CommitPolicy.SUCCESSFUL, (GOOD, GOOD), (GOOD, GOOD)),
        (CommitPolicy.SUCCESSFUL, (GOOD, FAILED, GOOD), (GOOD, FAILED, GOOD)),
        (CommitPolicy.SUCCESSFUL, (FAILED,), (FAILED,)),
    ],
)
def test_what_may_be_published(
    policy: CommitPolicy, states: tuple[UnitState, ...], judged: tuple[UnitState, ...]
) -> None:
    assert publishable(policy, summaries(*states)) == summaries(*judged)


@pytest.mark.parametrize("expected", [None, 5])
def test_a_count_that_fits_or_that_nobody_knows_changes_nothing(expected: int | None) -> None:
    result = UnitResult("u", "a", UnitState.SUCCESSFUL, rows_read=5, expected_rows=expected)
    assert reconciled(result) is result
    assert reconciled(BAD) is BAD


@pytest.mark.parametrize(("expected", "read"), [(6, 5), (5, 6), (0, 5), (5, 0)])
def test_a_count_that_differs_fails_its_unit(expected: int, read: int) -> None:
    result = reconciled(UnitResult("u", "a", UnitState.SUCCESSFUL, rows_read=read, expected_rows=expected))
    assert result.state is UnitState.FAILED
    assert result.why == f"SourceError: can't accept unit 'u': the source expects {expected} rows, and {read} were read"


def test_an_ingestion_takes_a_policy_by_its_name_and_no_other() -> None:
    source, sink = RowSource(()), LineSink("/target")
    assert Ingestion("i", source, sink, "db", policy="successful").policy is CommitPolicy.SUCCESSFUL  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match=r"policy 'some' of ingestion 'i'.*Use one of 'full', 'successful', 'partial'"
    ):
        Ingestion("i", source, sink, "db", policy="some")  # type: ignore[arg-type]
