from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model import wire
from airflow_gobblin.rows.converters.base import OnBadRow, RowCheck
from airflow_gobblin.rows.converters.checks import InRange, Matches, NotNull

DAY = dt.date(2013, 1, 1)
BATCH = pa.record_batch(
    {
        "int": [1, 5, None],
        "double": [0.5, float("nan"), 2.0],
        "text": ["JFK", "jfk", None],
        "day": [DAY, DAY + dt.timedelta(1), None],
        "at": pa.array([0, 86_400_000_000, None], pa.timestamp("us", "UTC")),
        "decimal": [decimal.Decimal("1.10"), decimal.Decimal("9.99"), None],
    }
)


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (NotNull(("int",)), [True, True, False]),
        (NotNull(("double", "text")), [True, True, False]),
        (NotNull(()), [True, True, True]),
        (InRange("int", 1, 4), [True, False, True]),
        (InRange("int", low=1.5), [False, True, True]),
        (InRange("int"), [True, True, True]),
        (InRange("double", 0.5, 2), [True, False, True]),
        (InRange("text", high="Z"), [True, False, True]),
        (InRange("day", "2013-01-02"), [False, True, True]),
        (InRange("at", high="1970-01-01T12:00:00Z"), [True, False, True]),
        (InRange("decimal", high=1.1), [True, False, True]),
        (Matches("text", "[A-Z]{3}"), [True, False, True]),
        (Matches("text", "JF|jfk"), [False, True, True]),
        (Matches("text", "(?i)jfk"), [True, True, True]),
    ],
)
def test_they_distinguish_good_rows_from_bad(check: RowCheck, good: list[bool]) -> None:
    found = check.good(BATCH)
    assert found.to_pylist() == good
    assert found.null_count == 0
    assert len(check.good(BATCH.slice(0, 0))) == 0


@pytest.mark.parametrize("at_most", [-1, 0.0, 1.0, 1.5, True, "1"])
def test_a_bound_is_a_number_of_rows_or_a_share(at_most: float) -> None:
    with pytest.raises(ConfigurationError, match="it is not a bound"):
        NotNull(("int",), OnBadRow.DROP, at_most)


@pytest.mark.parametrize("on_bad", ["drp", "fail", None])
def test_a_response_is_one_that_there_is(on_bad: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no such response. Give one of OnBadRow.FAIL, OnBadRow.DROP"
    ):
        NotNull(("id",), on_bad)  # type: ignore[arg-type]


def test_a_bound_is_for_a_check_that_drops() -> None:
    with pytest.raises(ConfigurationError, match="Let it drop"):
        InRange("int", 1, at_most=5)
    check = Matches("text", "JF", OnBadRow.DROP, 0.25)
    assert wire.from_json(RowCheck, wire.to_json(check), "a check") == check


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (NotNull(("int", "z")), "there is no column 'z'"),
        (InRange("z", 1), "there is no column 'z'"),
        (InRange("text", 1), "InRange"),
        (InRange("day", "tomorrow"), "InRange"),
        (Matches("int", "1"), "Matches"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_even_without_rows(check: RowCheck, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        check.good(BATCH.slice(0, 0))


def test_a_wrong_pattern_is_refused_when_it_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"Matches\(.*missing \)"):
        Matches("text", "(" * 5000)
    with pytest.raises(ConfigurationError, match="missing"):
        Matches("text", "(")


def test_a_pattern_that_only_re2_has_for_wrong_is_refused_at_planning() -> None:
    check = Matches("text", "(?=J)JFK")
    with pytest.raises(ConfigurationError, match=r"Matches\(.*invalid perl operator"):
        check.good(BATCH.slice(0, 0))


@pytest.mark.parametrize(
    "check", [NotNull(("a",), OnBadRow.DROP), InRange("a", 1, 2.5), InRange("a", "x"), Matches("a", r"\d+")]
)
def test_they_cross_processes(check: NotNull | InRange | Matches) -> None:
    found = wire.loads(wire.dumps(check), type(check), "check")
    assert found == check
    assert found.on_bad is check.on_bad
