"""Commit policies: the part of a dataset that is published when some of its units failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum

from airflow_gobblin.errors import SourceError
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.work import UnitResult, UnitState, UnitSummary

DEFAULT_ATTEMPTS = 3
"""The number of runs that fail to finish a slot before its dataset is quarantined."""
DEFAULT_RETENTION = timedelta(hours=24)
"""How long replaced files are kept."""


class CommitPolicy(StrEnum):
    """The effect of a failed unit on its dataset. Source: Gobblin's ``JobCommitPolicy``."""

    FULL = "full"
    """If one unit fails, nothing of the dataset is published."""
    SUCCESSFUL = "successful"
    """Successful units are published; the ranges of the others stay open and are planned first next time."""
    PARTIAL = "partial"
    """The rows that a failed unit read before it failed are published, too, up to a position. For sources that read in order."""


def publishable(policy: CommitPolicy, units: Sequence[UnitSummary]) -> tuple[UnitSummary, ...]:
    """Return the units as judged by the policy: those still successful are published, other successful ones become skipped."""
    if policy is not CommitPolicy.FULL or all(unit.state is UnitState.SUCCESSFUL for unit in units):
        return (*units,)
    return tuple(replace(u, state=UnitState.SKIPPED) if u.state is UnitState.SUCCESSFUL else u for u in units)


def reconciled(result: UnitResult) -> UnitResult:
    """Return the result, marked as failed if its row count differs from the source's, where that is known."""
    if result.state is not UnitState.SUCCESSFUL or result.expected_rows in (None, result.rows_read):
        return result
    error = SourceError(
        operation="accept",
        subject=f"unit {result.unit!r}",
        cause=f"the source expects {result.expected_rows} rows, and {result.rows_read} were read",
    )
    return replace(result, state=UnitState.FAILED, failure=Failure.of(error))
