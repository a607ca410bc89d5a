"""Coverage against a model: the set of the positions that it covers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.model import wire
from airflow_gobblin.model.coverage import Coverage, Range
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, TimestampWatermark, Watermark, split

Positions = frozenset[int]
bounds = st.tuples(st.integers(0, 30), st.integers(0, 30))
edits = st.lists(st.tuples(st.booleans(), bounds), max_size=12)


def _range(low: int, high: int) -> Range:
    return Range(LongWatermark(low), LongWatermark(high))


def _value(watermark: Watermark | None) -> int:
    assert isinstance(watermark, LongWatermark)
    return watermark.value


def _positions(coverage: Coverage) -> Positions:
    return frozenset(p for r in coverage.ranges() for p in range(_value(r.low), _value(r.high)))


def _edited(all_edits: list[tuple[bool, tuple[int, int]]]) -> tuple[Coverage, Positions]:
    """A coverage from 0 on after random additions (True) and removals, and its model. Overlapping ranges aren't added."""
    coverage, model = Coverage().starting_at(LongWatermark(0)), set[int]()
    for adds, (low, high) in all_edits:
        touched = set(range(low, high))
        if not adds:
            coverage = coverage.remove(_range(low, high))
            model -= touched
        elif model & touched:
            with pytest.raises(GobblinError, match="covered already"):
                coverage.add(_range(low, high))
        else:
            coverage = coverage.add(_range(low, high))
            model |= touched
    return coverage, frozenset(model)


@given(edits)
def test_it_covers_what_was_added_and_not_removed(all_edits: list[tuple[bool, tuple[int, int]]]) -> None:
    coverage, model = _edited(all_edits)

    assert _positions(coverage) == model
    edges = [_value(w) for r in coverage.ranges() for w in (r.low, r.high)]
    assert edges == sorted(set(edges)), "disjoint, not touching, in order, none empty"


@given(edits, bounds)
def test_questions_about_a_range(all_edits: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    coverage, model = _edited(all_edits)
    within, wanted = _range(*asked), set(range(*asked))

    assert within.empty == (not wanted)
    assert coverage.overlaps(within) == bool(model & wanted)
    assert coverage.covers(within) == (wanted <= model)
    holes = coverage.uncovered(within)
    assert [p for r in holes for p in range(_value(r.low), _value(r.high))] == sorted(wanted - model)
    assert not any(r.empty for r in holes)


@given(edits)
def test_the_watermark_is_the_contiguous_edge(all_edits: list[tuple[bool, tuple[int, int]]]) -> None:
    coverage, model = _edited(all_edits)

    assert _value(coverage.edge) == next(p for p in range(40) if p not in model)
    assert _value(coverage.end) == max(model, default=-1) + 1


@pytest.mark.slow
@given(edits)
def test_it_does_not_depend_on_the_order(all_edits: list[tuple[bool, tuple[int, int]]]) -> None:
    coverage, model = _edited(all_edits)
    single = Coverage().starting_at(LongWatermark(0))
    for position in sorted(model, key=lambda p: (p % 7, p)):
        single = single.add(_range(position, position + 1))
    assert single == coverage


@pytest.mark.slow
@given(edits)
def test_it_crosses_processes(all_edits: list[tuple[bool, tuple[int, int]]]) -> None:
    coverage, _ = _edited(all_edits)
    assert wire.from_json(Coverage, wire.to_json(coverage), "coverage") == coverage


def test_nothing_is_covered_at_first() -> None:
    nothing = Coverage()
    assert (nothing.edge, nothing.end, nothing.ranges()) == (None, None, ())
    assert nothing.uncovered(_range(3, 5)) == (_range(3, 5),)
    assert not nothing.covers(_range(3, 5))
    assert not nothing.overlaps(_range(3, 5))
    assert nothing.remove(_range(3, 5)) == nothing


def test_the_first_range_gives_the_origin_and_later_ones_do_not_change_it() -> None:
    coverage = Coverage().add(_range(5, 8)).add(_range(10, 12))
    assert coverage.origin == LongWatermark(5)
    assert (_value(coverage.edge), _value(coverage.end)) == (8, 12)
    assert _value(coverage.remove(_range(5, 8)).edge) == 5


def _multi(low: tuple[int, ...], high: tuple[int, ...]) -> Range:
    return Range(MultiLongWatermark(low), MultiLongWatermark(high))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4), st.data())
def test_each_position_of_a_multi_long_has_a_coverage_of_its_own(
    first: list[tuple[int, int]], data: st.DataObject
) -> None:
    start = tuple(low for low, _ in first)
    middle = tuple(low + more for low, more in first)
    end = tuple(m + data.draw(st.integers(0, 9)) for m in middle)
    assume(start != middle)

    coverage = Coverage().add(_multi(start, middle))
    assert coverage.edge == MultiLongWatermark(middle)
    assert coverage.overlaps(_multi(start, end))
    coverage = coverage.add(_multi(middle, end))

    assert coverage.edge == coverage.end == MultiLongWatermark(end)
    assert coverage.covers(_multi(start, end))
    assert coverage.remove(_multi(middle, end)) == Coverage().add(_multi(start, middle))


@pytest.mark.slow
@given(edits, bounds)
def test_it_is_filled_whatever_it_covers_already(
    all_edits: list[tuple[bool, tuple[int, int]]], added: tuple[int, int]
) -> None:
    coverage, model = _edited(all_edits)
    assert _positions(coverage.filled(_range(*added))) == model | set(range(*added))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (LongWatermark(1), MultiLongWatermark((1,))),
        (MultiLongWatermark((1, 2)), MultiLongWatermark((1, 2, 3))),
        (LongWatermark(1), TimestampWatermark(datetime(2026, 1, 1, tzinfo=UTC))),
    ],
)
def test_the_bounds_of_a_range_are_alike(low: Watermark, high: Watermark) -> None:
    with pytest.raises(ConfigurationError, match=r"can't make range \[.*can't be compared. Give both as"):
        Range(low, high)


@pytest.mark.parametrize(
    ("have", "other"),
    [
        (_range(0, 5), _multi((5,), (6,))),
        (_multi((0,), (5,)), _range(5, 6)),
    ],
)
def test_what_cant_be_compared_with_it_is_reported(have: Range, other: Range) -> None:
    coverage = Coverage().add(have)
    for act in (coverage.add, coverage.filled, coverage.remove, coverage.covers):
        with pytest.raises(
            GobblinError, match=r"can't compare range .*, and the coverage is .*publish under another URN"
        ):
            act(other)


def test_a_dataset_may_get_more_positions() -> None:
    coverage = Coverage().add(_multi((0,), (5,)))
    assert not coverage.covers(_multi((5, 3), (5, 4)))
    assert coverage.remove(_multi((5, 3), (9, 4))) == coverage

    grown = coverage.add(_multi((5, 3), (7, 4)))

    assert grown.origin == MultiLongWatermark((0, 3))
    assert grown.edge == MultiLongWatermark((7, 4))
    assert not grown.overlaps(_multi((7, 4), (9, 9)))
    assert grown.covers(_multi((2,), (6,))), "a range of before"
    assert grown.remove(_multi((0,), (6,))).ranges() == (_multi((6, 3), (7, 4)),)
    assert grown.add(_multi((8,), (9,))).ranges() == (_multi((0, 3), (7, 4)), _multi((8, 3), (9, 3)))


@pytest.mark.slow
@given(st.lists(st.tuples(bounds, bounds), max_size=6), st.tuples(bounds, bounds))
def test_what_is_open_of_several_positions_is_as_of_each_alone(
    held: list[tuple[tuple[int, int], tuple[int, int]]], asked: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    def vector(parts: tuple[tuple[int, int], tuple[int, int]]) -> Range:
        return _multi(*((parts[0][n], parts[1][n]) for n in range(2)))

    coverage = Coverage().starting_at(MultiLongWatermark((0, 0)))
    single = [Coverage().starting_at(LongWatermark(0)) for _ in range(2)]
    for parts in held:
        coverage = coverage.filled(vector(parts))
        single = [one.filled(_range(*part)) for one, part in zip(single, parts, strict=True)]
    for found, expected in (
        (coverage.ranges(), [one.ranges() for one in single]),
        (
            coverage.uncovered(vector(asked)),
            [one.uncovered(_range(*part)) for one, part in zip(single, asked, strict=True)],
        ),
    ):
        assert not any(part.empty for part in found)
        for number, ranges in enumerate(expected):
            mine = [_range(*(split(bound)[number].value for bound in (part.low, part.high))) for part in found]  # type: ignore[attr-defined]
            assert [part for part in mine if not part.empty] == [*ranges]
