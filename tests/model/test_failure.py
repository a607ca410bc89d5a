"""Errors as records: each class has a kind, and the error that is raised again is the one that was raised."""

from __future__ import annotations

import pytest

from airflow_gobblin import errors
from airflow_gobblin.errors import GobblinError, Remedy, SourceDataError, SourceError
from airflow_gobblin.model import wire
from airflow_gobblin.model.failure import ErrorKind, Failure


class AcmeError(SourceDataError):
    """An author's own."""


def test_every_class_of_the_tree_has_a_kind() -> None:
    assert {kind.value for kind in ErrorKind} == {name for name in errors.__all__ if name.endswith("Error")}


@pytest.mark.parametrize("kind", ErrorKind)
def test_an_error_is_raised_again_as_it_was(kind: ErrorKind) -> None:
    error = kind.error(
        operation="read", subject="unit 'u0'", cause=ValueError("it broke"), hint="Mend it.", remedy=Remedy.EXTRACT
    )
    failure = wire.from_json(Failure, wire.to_json(Failure.of(error)), "a failure")
    again = failure.error()
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert failure.retryable is (error.retryable or type(error) is GobblinError)


def test_an_authors_own_error_is_of_the_kind_that_it_derives_from() -> None:
    failure = Failure.of(AcmeError(operation="read", subject="the log", cause="it is torn"))
    assert (failure.kind, failure.retryable) == (ErrorKind.SOURCE_DATA, False)


def test_each_part_of_it_is_redacted() -> None:
    error = SourceError(operation="read canary", subject="canary", cause=ValueError("canary"), hint="Ask canary.")
    failure = Failure.of(error, lambda text: text.replace("canary", "***"))
    assert b"canary" not in wire.canonical(wire.to_json(failure))


def test_failures_for_one_reason_are_recognized_whatever_ids_and_times_they_name() -> None:
    def failed(cause: str, subject: str = "unit 'u0'") -> Failure:
        return Failure.of(SourceError(operation="read", subject=subject, cause=cause))

    first = failed("request 7f3a9c1e failed at 2026-11-23T01:02:03Z")
    assert first.recurring == failed("request 0b11d2 failed at 2026-11-24T09:59:00Z").recurring
    assert first.recurring != failed("request 7f3a9c1e was refused at 2026-11-23T01:02:03Z").recurring
    assert first.recurring != failed("request 7f3a9c1e failed at 2026-11-23T01:02:03Z", "unit 'u1'").recurring
