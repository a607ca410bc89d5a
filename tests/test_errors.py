"""The tree of errors: the contents of each, and what a caller may do about it."""

from __future__ import annotations

import pickle

import pytest

from airflow_gobblin import errors
from airflow_gobblin.errors import GobblinError, Remedy, StepConflictError, StoreError, UnknownOutcomeError

CLASSES = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
HEALING = {
    "SourceError",
    "StoreError",
    "UnknownOutcomeError",
    "StepError",
    "TableError",
    "TableMovedError",
    "TargetError",
}


def test_every_error_is_in_the_tree_and_in_all() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert defined == {cls.__name__ for cls in CLASSES}
    assert list(errors.__all__) == sorted(errors.__all__)
    assert all(issubclass(cls, GobblinError) for cls in CLASSES)


def test_the_drawing_shows_each_class_below_its_base() -> None:
    above: list[str] = []
    drawn = {}
    lines = (errors.__doc__ or "").split("    GobblinError\n")[1].splitlines()
    for line in lines:
        name = line.strip("│├└─ ").split(" ")[0]
        if not name.endswith("Error"):
            continue
        depth = line.index(name) // 4 - 2
        above[depth:] = [name]
        drawn[name] = above[depth - 1] if depth else "GobblinError"
    assert drawn == {cls.__name__: cls.__base__.__name__ for cls in CLASSES if cls is not GobblinError}


@pytest.mark.parametrize("cls", CLASSES)
def test_it_names_operation_subject_cause_and_hint(cls: type[GobblinError]) -> None:
    error = cls(operation="publish", subject="dataset 'a'", cause="it is gone", hint="Look for it.")
    assert str(error) == "can't publish dataset 'a': it is gone. Look for it."
    assert str(cls(operation="publish", subject="dataset 'a'")) == "can't publish dataset 'a'"
    assert cls.__doc__


@pytest.mark.parametrize("cls", CLASSES)
def test_it_states_whether_a_retry_may_heal_it(cls: type[GobblinError]) -> None:
    assert cls.retryable == (cls.__name__ in HEALING)


def test_an_unknown_outcome_is_a_store_error_and_a_conflict_is_final() -> None:
    assert issubclass(UnknownOutcomeError, StoreError)
    assert not StepConflictError.retryable


@pytest.mark.parametrize("cause", [None, "it is gone", KeyError("name"), OSError(28, "No space left")])
def test_it_is_the_same_in_another_process(cause: str | BaseException | None) -> None:
    remedy = Remedy.REPEAT
    error = StoreError(operation="write", subject="record 'a'", cause=cause, hint="Make room.", remedy=remedy)
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is StoreError
    assert str(found) == str(error)
    parts = (found.operation, found.subject, found.hint, found.remedy)
    assert parts == ("write", "record 'a'", "Make room.", Remedy.REPEAT)


def test_a_cause_is_shown_with_its_class() -> None:
    inner = StoreError(operation="read", subject="record 'a'", cause="the disk is gone")
    outer = GobblinError(operation="plan", subject="dataset 'b'", cause=inner)
    assert str(outer) == "can't plan dataset 'b': StoreError: can't read record 'a': the disk is gone"
