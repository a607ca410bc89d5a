"""Commit policies: what of a dataset is published when some of its units failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from airflow_gobblin.work import UnitResult, UnitState, UnitSummary


class CommitPolicy(StrEnum):
    """What a failed unit means for its dataset. Source: Gobblin's ``JobCommitPolicy``."""

    FULL = "full"
    """One failed unit, and nothing of the dataset is published."""
    SUCCESSFUL = "successful"
    """Good units are published; the ranges of the others stay open and are planned first next time."""


def publishable(policy: CommitPolicy, units: Sequence[UnitSummary]) -> tuple[UnitSummary, ...]:
    """The units as the policy judges them: those that stay successful are published, the other good ones skipped."""
    if policy is CommitPolicy.SUCCESSFUL or all(unit.state is UnitState.SUCCESSFUL for unit in units):
        return (*units,)
    return tuple(replace(u, state=UnitState.SKIPPED) if u.state is UnitState.SUCCESSFUL else u for u in units)


def reconciled(result: UnitResult) -> UnitResult:
    """A result whose row count is compared with the source's, where the source can tell; failed if they differ."""
    if result.state is not UnitState.SUCCESSFUL or result.expected_rows in (None, result.rows_read):
        return result
    return replace(
        result,
        state=UnitState.FAILED,
        error=f"the source says {result.expected_rows} rows, and {result.rows_read} were read",
    )
