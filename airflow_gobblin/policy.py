"""Commit policies: what of a dataset is published when some of its units failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from airflow_gobblin.work import UnitResult, UnitState


class CommitPolicy(StrEnum):
    """What a failed unit means for its dataset. Source: Gobblin's ``JobCommitPolicy``."""

    FULL = "full"
    """One failed unit, and nothing of the dataset is published."""
    SUCCESSFUL = "successful"
    """Good units are published; the ranges of the others stay open and are planned first next time."""


def publishable(policy: CommitPolicy, results: Sequence[UnitResult]) -> tuple[UnitResult, ...]:
    """The results that may be published, by policy."""
    good = tuple(r for r in results if r.state is UnitState.SUCCESSFUL)
    return good if policy is CommitPolicy.SUCCESSFUL or len(good) == len(results) else ()


def reconciled(result: UnitResult) -> UnitResult:
    """A result whose row count is compared with the source's, where the source can tell; failed if they differ."""
    if result.state is not UnitState.SUCCESSFUL or result.expected_rows in (None, result.rows_read):
        return result
    return replace(
        result,
        state=UnitState.FAILED,
        error=f"the source says {result.expected_rows} rows, and {result.rows_read} were read",
    )
