"""Datasets, slots and lists, printed in the way that Airflow prints its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from airflow.cli.simple_table import AirflowConsole
from rich.markup import escape

from airflow_gobblin.admin.views import DatasetDetail, DatasetView, PositionCoverage, SlotView
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import shown
from airflow_gobblin.model.watermark import TimestampWatermark, Watermark

__all__ = [
    "dataset_row",
    "one_line",
    "print_faults",
    "print_properties",
    "print_rows",
    "print_stream",
    "properties",
    "slot_row",
    "text",
]

_NOTES = 10


def print_rows(rows: Sequence[Mapping[str, Any]], output: str) -> None:
    """Print a list, as a table or in another form that Airflow's commands have. A table leaves out columns without any value."""
    plain = [{name: text(value) for name, value in row.items()} for row in rows]
    console = AirflowConsole()
    if output == "json":
        # Keep numbers as numbers: `print_as` turns them into text.
        console.print_as_json(plain)  # type: ignore[arg-type]
    elif output == "yaml":
        console.print_as_yaml(plain)  # type: ignore[arg-type]
    else:
        cells = [{name: one_line(value) for name, value in row.items()} for row in plain]
        if output == "table":
            filled = {name for row in cells for name, value in row.items() if value}
            cells = [{name: escape(value) for name, value in row.items() if name in filled} for row in cells]
        console.print_as(cells, output)


def print_faults(rows: Sequence[Mapping[str, Any]], output: str) -> None:
    """Print what isn't as it should be. An empty table would be "No data found", which reads like an error."""
    if rows or output in ("json", "yaml"):
        print_rows(rows, output)


def print_stream(rows: Iterable[Mapping[str, Any]], output: str) -> None:
    """Print a list that may be too long for memory: each row is written as it comes, on a line of its own.

    As JSON or YAML, it is one list; otherwise each line has a row's values, separated by tabs.
    """
    if output == "json":
        before = "["
        for row in rows:
            sys.stdout.write(f"{before}{json.dumps(row, ensure_ascii=False)}")
            before = ",\n "
        sys.stdout.write("[]\n" if before == "[" else "]\n")
        return
    for row in rows:
        line = f"- {json.dumps(row)}" if output == "yaml" else "\t".join(map(one_line, row.values()))
        sys.stdout.write(f"{line}\n")


def print_properties(one: Mapping[str, Any], output: str) -> None:
    """Print one thing: a line for each property, or an object."""
    if output in ("table", "plain"):
        print_rows([{"property": name, "value": value} for name, value in one.items()], output)
    else:
        print_rows([one], output)


def text(value: Any) -> Any:
    """Return a value in printable form: text or a number, or a list or an object of these."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, timedelta):
        return str(timedelta(seconds=round(value.total_seconds())))
    if isinstance(value, TimestampWatermark):
        return value.value.isoformat()
    if isinstance(value, Range):
        return f"[{text(value.low)}, {text(value.high)})"
    if isinstance(value, Watermark):
        return json.dumps(value.to_json())
    if isinstance(value, Mapping):
        return {str(name): text(one) for name, one in value.items()}
    if is_dataclass(value):
        return {field.name: text(getattr(value, field.name)) for field in fields(value)}
    return [text(one) for one in value]


def one_line(value: Any) -> str:
    """Return a value, as `text` gives it, on one line, for example for a cell of a table."""
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping):
        pairs = ((name, one_line(one)) for name, one in value.items())
        return ", ".join(f"{name}: {one}" for name, one in pairs if one)
    if isinstance(value, list):
        return ("; " if any(isinstance(one, Mapping) for one in value) else ", ").join(map(one_line, value))
    return shown(str(value))


def dataset_row(one: DatasetView) -> dict[str, Any]:
    """Return the row of a dataset in a list."""
    return {
        "urn": one.urn,
        "status": one.status,
        "watermark": one.watermark,
        "lag": one.lag,
        "last_commit": None if one.last_commit is None else one.last_commit.ended or one.last_commit.decided,
        "slots": one.head,
        "pending_slot": None if one.pending is None else one.pending.slot,
        "failed_runs": one.attempts,
        "holes": one.holes,
        "files": one.files,
        "rows": one.rows,
        "bytes": one.bytes,
        "table": one.table,
        "error": one.error or one.failure,
    }


def slot_row(one: SlotView) -> dict[str, Any]:
    """Return the row of a slot."""
    return {
        "slot": one.slot,
        "action": one.action,
        "state": one.state,
        "decided": one.decided,
        "ended": one.ended,
        "run": one.run,
        "ranges": [*one.ranges, *(f"without {text(gone)}" for gone in one.removed)],
        "units": one.units,
        "rows_read": one.rows_read,
        "rows": one.rows,
        "dead_letters": one.dead_letters,
        "files": one.files,
        "bytes": one.bytes,
        "table_version": one.version,
        "replaced": one.replaced,
        "deleted": one.deleted,
        "retires": one.retires,
        "actor": one.actor,
        "reason": one.reason,
        "failures": one.failures,
        "abandoned": {"actor": one.abandoned_by, "reason": one.abandon_reason} if one.abandoned_by else None,
        "releases": [
            {"at": note.at, "event": note.event, "actor": note.actor, "reason": note.detail} for note in one.releases
        ],
    }


def properties(one: DatasetDetail) -> dict[str, Any]:
    """Return all properties of a dataset."""
    last, pending = one.view.last_commit, one.view.pending
    found = dataset_row(one.view)
    del found["error"], found["pending_slot"]
    if one.view.failure:
        found["last_failure"] = one.view.failure
    return {
        **found,
        "paused": one.view.paused,
        "generation": one.view.generation,
        "last_commit": None if last is None else slot_row(last),
        "coverage": [_of(p, one.coverage, part) for p in one.coverage for part in p.ranges],
        "gaps": [_of(p, one.coverage, gap) for p in one.coverage for gap in p.gaps],
        "retired_units_to_clean": one.retired,
        "unpublished_units": [{"unit": unit.unit, "error": unit.why} for unit in one.unpublished],
        "pending": None if pending is None else slot_row(pending),
        "steps": one.steps,
        "notes": [
            {"at": note.at, "event": note.event, "actor": note.actor, "detail": note.detail}
            for note in one.notes[-_NOTES:]
        ],
    }


def _of(position: PositionCoverage, every: Sequence[PositionCoverage], part: Range) -> Any:
    """Return a range, with its position if there are several."""
    return part if len(every) == 1 else {"position": position.position, "range": part}
