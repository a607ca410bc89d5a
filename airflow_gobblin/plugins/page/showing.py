"""The page's words, lengths and positions for what it shows of datasets; the HTML is in `templates/`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from airflow_gobblin.admin.views import DatasetView, PositionCoverage, SlotView
from airflow_gobblin.cli.showing import one_line, text
from airflow_gobblin.hooks.registry import Registered
from airflow_gobblin.journal.records import Note, now
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import many, shown, size, visible
from airflow_gobblin.model.watermark import TimestampWatermark, Watermark, split

__all__ = [
    "WIDTH",
    "Bar",
    "CoverageBar",
    "Pages",
    "chart",
    "coverage_bars",
    "remarks",
    "render",
    "to_dataset",
    "to_list",
]

WIDTH = 1000
"""The width of a bar, in the units of its drawing."""
_THINNEST = 2.0
_POSITIONS = 32
_RANGES = 300
_BRIEF = 60
_AGAIN = "the same again"
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


# Drawings


@dataclass(frozen=True)
class Bar:
    """A piece of a drawing.

    :param kind: its meaning, a class of `page.css`.
    :param title: its description.
    """

    kind: str
    x: float
    width: float
    title: str
    y: float = 0.0
    height: float = 0.0


@dataclass(frozen=True)
class CoverageBar:
    """The coverage of one position of a dataset.

    :param name: the position's name, if there are several.
    """

    name: str
    low: str
    high: str
    bars: tuple[Bar, ...]


def coverage_bars(coverage: Sequence[PositionCoverage], pending: SlotView | None) -> tuple[CoverageBar, ...]:
    """Draw the coverage of a dataset: each of its positions, the first of many."""
    wanted = () if pending is None else pending.ranges
    if not coverage and wanted:  # of a first load, which has no origin until it is done
        starts = enumerate(split(wanted[0].low))
        coverage = [PositionCoverage(number, start, start, (), ()) for number, start in starts]
    return tuple(
        _coverage_bar(one, [_of_position(part, one.position) for part in wanted], len(coverage) > 1)
        for one in coverage[:_POSITIONS]
    )


def _of_position(part: Range, position: int) -> Range | None:
    lows, highs = split(part.low), split(part.high)
    return Range(lows[position], highs[position]) if position < min(len(lows), len(highs)) else None


def _coverage_bar(one: PositionCoverage, pending: Iterable[Range | None], several: bool) -> CoverageBar:
    coming = [part for part in pending if part is not None and not part.empty]
    parts = [("covered", part) for part in one.ranges] + [("gap", part) for part in one.gaps]
    parts += [("pending", part) for part in coming]
    high = one.edge
    for _, part in parts:
        high = part.high if high < part.high else high
    bars = []
    for kind, part in parts[-_RANGES:]:
        start, end = _place(part.low, one.origin, high), _place(part.high, one.origin, high)
        bars.append(Bar(kind, start, max(end - start, _THINNEST), f"{kind}: {text(part)}"))
    name = f"position {one.position}" if several else ""
    return CoverageBar(name, brief(one.origin), brief(high), tuple(bars))


def _place(position: Watermark, low: Watermark, high: Watermark) -> float:
    return position.progress(low, high) * WIDTH / 100


def chart(slots: Sequence[SlotView], count: Callable[[SlotView], int], unit: str) -> tuple[Bar, ...]:
    """Draw a column for each of some slots, the newest first in `slots` and last in the drawing.

    :param unit: the name of one counted thing.
    """
    most = max((count(slot) for slot in slots), default=0) or 1
    step = WIDTH / max(len(slots), 20)
    columns = []
    for number, slot in enumerate(reversed(slots)):
        height = 100 * count(slot) / most
        title = f"slot {slot.slot}, {slot.state}: {many(count(slot), unit)}, decided {text(slot.decided)}"
        height = max(height, 1.5) if count(slot) else 0
        columns.append(Bar(slot.state, number * step + step * 0.1, step * 0.8, title, 100 - height, height))
    return tuple(columns)


# Words


@dataclass(frozen=True)
class Pages:
    """The place in a long list.

    :param start: the number of entries before those shown.
    """

    start: int
    shown: int
    size: int
    total: int

    @property
    def before(self) -> int | None:
        """The start of the previous page, if any."""
        return max(0, self.start - self.size) if self.start else None

    @property
    def after(self) -> int | None:
        """The start of the next page, if any."""
        return self.start + self.size if self.start + self.shown < self.total else None


def short(value: timedelta | None) -> str:
    """Return a time span by its two largest units: `3 d 4 h`."""
    if value is None:
        return ""
    left, parts = round(value.total_seconds()), []
    for unit, seconds in _UNITS:
        number, left = divmod(left, seconds)
        parts.append(f"{number} {unit}" if number else "")
    first = next((index for index, part in enumerate(parts) if part), 0)
    return " ".join(filter(None, parts[first : first + 2])) or "0 s"


def ago(value: datetime) -> str:
    """Return how long ago a time was: `3 d 4 h ago`."""
    past = now() - value
    return f"{short(past)} ago" if past >= timedelta(seconds=1) else "just now"


def in_one_line(value: Any) -> str:
    """Return any value in one line."""
    return one_line(text(value))


def brief(value: Any) -> str:
    """Return any value in a short line; a time to the second."""
    if isinstance(value, TimestampWatermark):
        return value.value.strftime("%Y-%m-%d %H:%M:%S UTC")
    whole = in_one_line(value)
    return whole if len(whole) <= _BRIEF else f"{whole[: _BRIEF - 1]}…"


def alike(items: Iterable[Any], name: str) -> tuple[tuple[Any, list[Any]], ...]:
    """Group things by the value of an attribute: an error that several have is shown once."""
    found: dict[Any, list[Any]] = {}
    for one in items:
        found.setdefault(getattr(one, name), []).append(one)
    return tuple(found.items())


def remarks(notes: Iterable[Note], elsewhere: Iterable[str] = ()) -> tuple[Note, ...]:
    """Return notes without repeating a text that was shown before.

    :param elsewhere: the texts that the page shows elsewhere.
    """
    before, found = {*elsewhere}, []
    for note in notes:
        found.append(replace(note, detail=_AGAIN) if note.detail in before and note.detail else note)
        before.add(note.detail)
    return tuple(found)


# Addresses, relative to the page's own


def to_list(where: Registered, **more: Any) -> str:
    """Return the address of the list of an ingestion's datasets."""
    return _address("datasets", where, more)


def to_dataset(where: Registered, one: DatasetView | str, **more: Any) -> str:
    """Return the address of the page of a dataset."""
    return _address("dataset", where, {"urn": one if isinstance(one, str) else one.urn, **more})


def to_kept(where: Registered, urn: str) -> str:
    """Return the address of the page of a dataset's kept files."""
    return _address("kept", where, {"urn": urn})


def to_pipeline(where: Registered) -> str:
    """Return the address of the page of an ingestion's or a stage's pipeline."""
    return _address("pipeline", where, {})


def to_action(where: Registered, urn: str, action: str) -> str:
    """Return the address of the page that asks whether to do something to a dataset."""
    return _address("action", where, {"urn": urn, "action": action})


def to_act(where: Registered) -> str:
    """Return the address for a confirmed action: the user's permission is checked by it, before the form is read."""
    return _address("action", where, {})


def to_counts(where: Registered) -> str:
    """Return the address of the number of datasets of an ingestion."""
    return _address("counts", where, {})


def to_dag(dag_id: str) -> str:
    """Return the address of a DAG in Airflow's UI."""
    return f"../dags/{quote(dag_id, safe='')}"


def to_run(run: str) -> str:
    """Return the address of a DAG run in Airflow's UI.

    :param run: as a slot has it, `dag_id/run_id`.
    """
    dag_id, _, run_id = run.partition("/")
    return f"../dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def _address(page: str, where: Registered, more: dict[str, Any]) -> str:
    words = {"dag_id": where.dag_id, "ingestion": where.ingestion, **{k: v for k, v in more.items() if v or v == 0}}
    return f"{page}?{urlencode(words, quote_via=quote)}"


def _filters() -> Iterator[tuple[str, Callable[..., Any]]]:
    for one in (
        ago,
        alike,
        brief,
        many,
        in_one_line,
        short,
        shown,
        size,
        to_act,
        to_action,
        to_counts,
        to_dag,
        to_dataset,
        to_kept,
        to_list,
        to_pipeline,
        to_run,
    ):
        yield one.__name__, one


def _finished(value: Any) -> Any:
    """Make invisible characters visible in a template's output, except in HTML and in what a form must send back unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# Everything shown was written by others, so all of it is escaped. Values that a form must keep unchanged pass through `e`.
_TEMPLATES = Environment(
    loader=PackageLoader("airflow_gobblin.plugins.page"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finished,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(_filters())
_TEMPLATES.filters["number"] = lambda value: f"{value:,}"


def render(template: str, **values: Any) -> str:
    """Render a page."""
    return _TEMPLATES.get_template(f"{template}.html").render(values)
