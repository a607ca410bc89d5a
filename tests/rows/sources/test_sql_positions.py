"""Axes of positions: bounds grow with their watermarks, and each value lies within its bounds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_gobblin.model.watermark import TimestampWatermark
from airflow_gobblin.rows.sources.sql.positions import DateAxis, InstantAxis, LocalAxis

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo")
TICK = timedelta(microseconds=1)

# Around the changes of the clock in Berlin, and anywhere.
_near = st.sampled_from([datetime(2025, 3, 30, 1), datetime(2025, 10, 26, 1)]).flatmap(  # noqa: DTZ001
    lambda change: st.timedeltas(timedelta(hours=-3), timedelta(hours=3)).map(lambda by: change + by)
)
_anywhere = st.datetimes(datetime(1990, 1, 1), datetime(2035, 1, 1))  # noqa: DTZ001
times = _near | _anywhere
zones = st.sampled_from(ZONES).map(ZoneInfo)
instants = times.map(lambda t: TimestampWatermark(t.replace(tzinfo=UTC)))


@given(zones, instants, instants)
def test_bounds_of_wall_time_grow_with_their_watermarks(
    zone: ZoneInfo, one: TimestampWatermark, other: TimestampWatermark
) -> None:
    axis = LocalAxis(zone)
    low, high = sorted((one, other))
    assert axis.bound(low) <= axis.bound(high)


@given(zones, times, instants)
@example(
    ZoneInfo("Europe/Berlin"),
    datetime(2025, 3, 30, 2, 30),  # noqa: DTZ001 - wall time that never was
    TimestampWatermark(datetime(2025, 3, 30, 1, tzinfo=UTC)),
)
def test_a_wall_time_is_before_a_bound_if_its_position_is_before_the_watermark(
    zone: ZoneInfo, value: datetime, watermark: TimestampWatermark
) -> None:
    axis = LocalAxis(zone)
    assert (value < axis.bound(watermark)) is (axis.position(value) < watermark)
    at = axis.position(value)
    assert axis.bound(at) <= value < axis.bound(axis.after(value))
    assert axis.after(value) == TimestampWatermark(at.value + TICK)


@given(zones, times)
def test_nothing_is_behind_what_the_clock_will_still_show(zone: ZoneInfo, now: datetime) -> None:
    """Anything written from now on, by the wall clock, is never below the bound of now."""
    bound = LocalAxis(zone).bound(TimestampWatermark(now.replace(tzinfo=UTC)))
    for minutes in range(0, 241, 7):
        later = now.replace(tzinfo=UTC) + timedelta(minutes=minutes)
        assert bound <= later.astimezone(zone).replace(tzinfo=None)


@given(st.dates(date(1970, 1, 2), date(2200, 1, 1)), instants)
def test_dates(value: date, watermark: TimestampWatermark) -> None:
    axis = DateAxis()
    assert (value < axis.bound(watermark)) is (axis.position(value) < watermark)
    assert axis.bound(axis.position(value)) == value
    assert axis.bound(axis.after(value)) == value + timedelta(days=1)


@given(instants)
def test_instants(watermark: TimestampWatermark) -> None:
    axis = InstantAxis()
    assert axis.position(axis.bound(watermark)) == watermark
    assert axis.after(axis.bound(watermark)).value - watermark.value == TICK
