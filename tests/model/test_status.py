"""The meaning of a status for a run and for a list."""

from __future__ import annotations

from airflow_gobblin.model.status import Status


def test_no_status_is_both_green_and_bad() -> None:
    assert not [status for status in Status if status.green and (status.bad or status.open)]


def test_a_run_that_leaves_anything_unpublished_against_its_will_is_not_green() -> None:
    left = (Status.PARTIAL, Status.PENDING, Status.SKIPPED, Status.LOST, Status.FAILED, Status.QUARANTINED)
    assert not any(status.green for status in left)


def test_what_waits_or_is_paused_is_green() -> None:
    assert Status.WAITING.green
    assert Status.PAUSED.green
