from __future__ import annotations

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan, known_ranges
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark
from airflow_gobblin.model.work import (
    Limits,
    UnitResult,
    UnitState,
    WorkUnit,
    summarize,
)
from airflow_gobblin.rows.work import RowsBinding


def _unit(name: str, low: int | None, high: int | None, weight: int = 0) -> WorkUnit:
    start, end = (None if n is None else LongWatermark(n) for n in (low, high))
    return WorkUnit(name, "d", start, end, weight)


def _plan(*units: WorkUnit, planned: Range | None) -> Plan:
    holds = Holds.SNAPSHOT if planned is None else Holds.RANGES
    return Plan("token", "i", "key", 0, "d", holds, "d", units, RowsBinding(""), planned=planned)


def _range(low: int, high: int) -> Range:
    return Range(LongWatermark(low), LongWatermark(high))


def test_the_known_ranges_are_those_that_hold_anything_and_those_that_touch_are_one() -> None:
    units = (
        _unit("a", 0, 5),
        _unit("b", 5, 5),
        _unit("c", 5, 7),
        _unit("d", 8, 9),
        _unit("e", 9, None),
        _unit("f", None, None),
    )
    assert known_ranges(_plan(planned=_range(0, 9)), units) == (_range(0, 7), _range(8, 9))
    assert known_ranges(_plan(planned=None), units) == (), "a snapshot has no positions"


def test_what_is_known_to_be_empty() -> None:
    assert [_unit("u", 0, high).empty for high in (5, 0, None)] == [False, True, False]
    multi = WorkUnit("m", "d", MultiLongWatermark((1, 2)), MultiLongWatermark((1, 3)))
    assert not multi.empty


def test_a_units_own_property_wins_over_the_ingestions_option() -> None:
    unit = WorkUnit("u", "d", properties={"fetch": 5, "none": None})
    assert unit.option("fetch", {"fetch": 7, "other": 1}) == 5
    assert unit.option("other", {"fetch": 7, "other": 1}) == 1
    assert unit.option("none", {"none": 1}) is None
    assert unit.option("missing", {}, "default") == "default"
    assert unit.properties == {"fetch": 5, "none": None}, "options are not copied into it"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a-b", "ü", "..", "a\n"])
def test_what_can_be_no_units_id_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="letters, digits and underscores"):
        WorkUnit(name, "d")


@pytest.mark.parametrize("limits", [{"rows": 0}, {"bytes": -1}, {"seconds": 0.0}])
def test_a_limit_lets_something_through(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="above zero"):
        Limits(**limits)
    assert not Limits().any
    assert Limits(seconds=0.5).any


def test_a_summary_covers_what_was_read_and_shows_whether_it_stopped_short() -> None:
    unit = _unit("u", 0, 9)
    whole = summarize(unit, UnitResult("u", "a", UnitState.SUCCESSFUL, LongWatermark(9)))
    short = summarize(unit, UnitResult("u", "a", UnitState.SUCCESSFUL, LongWatermark(4)))
    none = summarize(unit, None)
    assert (whole.range, whole.short) == (_range(0, 9), False)
    assert (short.range, short.short) == (_range(0, 4), True)
    assert (none.range, none.short, none.state) == (None, False, UnitState.FAILED)
    assert none.why == "it has no result: it was not extracted to its end"
