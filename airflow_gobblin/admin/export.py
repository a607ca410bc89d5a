"""The state of a dataset as JSON: to move an ingestion to another journal, or to continue where another tool stopped.

From another tool, the next position to read is enough::

    {"datasets": [{"urn": "public.orders", "watermark": {"kind": "long", "value": 4711}}]}

The output of `airflow gobblin export` also contains the covered ranges, and the published files by unit. Gobblin's state is
read as its JobStateToJsonConverter writes it, or with its watermarks (`{"value": 4711}`, `{"values": [5, 7]}`) in the form above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_gobblin.errors import ConfigurationError, GobblinError, RecordError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model import schema as schemas
from airflow_gobblin.model import wire
from airflow_gobblin.model.coverage import Coverage, Range, padded
from airflow_gobblin.model.naming import check_urn
from airflow_gobblin.model.watermark import Json, LongWatermark, MultiLongWatermark, TimestampWatermark, Watermark

__all__ = ["ExportedDataset", "ExportedFile", "ExportedUnit", "as_document", "export", "has_state", "read_document"]

KIND = "gobblin_state"
VERSION = 1
_EXAMPLE = '{"datasets": [{"urn": "…", "watermark": {"kind": "long", "value": 42}}]}'
_TIMES = {
    14: ("%Y%m%d%H%M%S", timedelta(seconds=1)),
    10: ("%Y%m%d%H", timedelta(hours=1)),
    8: ("%Y%m%d", timedelta(days=1)),
}
"""Gobblin's formats of a time as a number, by the number of digits, with the distance between two neighboring times."""


@dataclass(frozen=True)
class ExportedFile:
    """A published file.

    :param path: below the target root.
    :param size: bytes.
    :param checksum: SHA-256 in hex.
    """

    path: str
    size: int
    checksum: str
    rows: int


@dataclass(frozen=True)
class ExportedUnit:
    """A published unit, with its files.

    :param unit: its name, like a work unit's.
    :param low: the start of its range; `None` if the dataset has no positions.
    :param high: the end of its range; `None` if the dataset has no positions.
    """

    unit: str
    files: tuple[ExportedFile, ...]
    low: Watermark | None = None
    high: Watermark | None = None
    properties: Mapping[str, Json] = field(default_factory=dict)

    @property
    def range(self) -> Range | None:
        """The range that it covers."""
        return None if self.low is None or self.high is None else Range(self.low, self.high)


@dataclass(frozen=True)
class ExportedDataset:
    """The state of a dataset.

    :param watermark: the next position to read.
    :param coverage: the covered ranges; without it, everything before the watermark is over and never looked at.
    :param schema: the published schema.
    :param units: the published units.
    :raises ConfigurationError: it contradicts itself, or is empty.
    """

    urn: str
    watermark: Watermark | None = None
    coverage: Coverage | None = None
    schema: str | None = None
    units: tuple[ExportedUnit, ...] = ()

    def __post_init__(self) -> None:
        check_urn(self.urn)
        if self.schema is not None:
            schemas.decode(self.schema)
        finding = self._finding()
        if finding:
            raise ConfigurationError(
                operation="use",
                subject=f"the state of dataset {self.urn!r}",
                cause=finding,
                hint=f"A state has at least {_EXAMPLE}",
            )

    @property
    def covered(self) -> Coverage:
        """Its coverage."""
        if self.coverage is not None:
            return self.coverage
        return Coverage() if self.watermark is None else Coverage().starting_at(self.watermark)

    def _finding(self) -> str:
        """Return the first fault in it; empty if there is none."""
        covered = self.covered
        if covered.origin is None and not self.units:
            return "it has neither a watermark, nor covered ranges, nor published units"
        if self.watermark is not None and covered.edge != self.watermark:
            return "its covered ranges don't reach to its watermark without a hole, or reach past it"
        if len({unit.unit for unit in self.units}) != len(self.units):
            return "two of its units have one name"
        odd = next((u.unit for u in self.units if not u.unit.isascii() or not u.unit.replace("_", "a").isalnum()), None)
        if odd is not None:
            return f"its unit {odd!r} isn't named by letters, digits and underscores"
        if any((unit.low is None) != (unit.high is None) for unit in self.units):
            return "one of its units has a low and no high, or a high and no low"
        held = Coverage() if covered.origin is None else Coverage().starting_at(covered.origin)
        for unit in self.units:
            part = unit.range
            if (part is None) != (covered.origin is None):
                return f"its unit {unit.unit!r} has positions and the dataset none, or the other way round"
            if part is not None and covered.origin is not None and not part.empty:
                part = padded(part, covered.origin)
                if not covered.covers(part) or held.overlaps(part):
                    return f"its unit {unit.unit!r} holds {part}, which isn't covered, or is held by another unit, too"
                held = held.filled(part)
        return ""


NO_UNITS = (
    "its slots hold differences of files, which have no positions, and the journal doesn't record what the target has"
)
"""Why a mirror's dataset has no state to take along, to go back to, or to be set."""


def has_state(history: History) -> bool:
    """Return whether a dataset has any state; a dropped one has none."""
    return bool(history.state.live) or history.state.coverage.origin is not None


def export(journal: Journal, history: History) -> ExportedDataset:
    """Return the state of a dataset, without its pending slot.

    :raises RecordError: the steps that published it are lost.
    :raises ConfigurationError: it has none: its slots hold differences of files.
    """
    state = history.state
    if not history.keeps_units:
        raise ConfigurationError(
            operation="export",
            subject=f"dataset {history.urn!r}",
            cause=NO_UNITS,
            hint="Nothing needs to be exported: a mirror with another journal compares source and target anew.",
        )
    files: dict[tuple[int, str], list[ExportedFile]] = {}
    for decision, file in journal.files(history, state.live):
        found = ExportedFile(file.path, file.size, file.checksum, file.rows)
        files.setdefault((decision.slot, file.unit), []).append(found)
    units = tuple(
        ExportedUnit(
            f"s{ref.slot}_{ref.unit}",
            tuple(files.get((ref.slot, ref.unit), ())),
            # The units of a snapshot may have ranges; the dataset has no positions.
            None if unit.range is None or state.coverage.origin is None else unit.range.low,
            None if unit.range is None or state.coverage.origin is None else unit.range.high,
            unit.properties,
        )
        for ref, unit in sorted(state.live.items())
    )
    coverage = None if state.coverage.origin is None else state.coverage
    return ExportedDataset(history.urn, state.watermark, coverage, state.schema, units)


def as_document(ingestion: str, at: datetime, datasets: Iterable[ExportedDataset]) -> dict[str, Json]:
    """Return datasets as a JSON document that `read_document` and people can read."""
    return {
        "kind": KIND,
        "version": VERSION,
        "ingestion": ingestion,
        "exported": at.isoformat(),
        "datasets": [_as_json(dataset) for dataset in datasets],
    }


def _as_json(dataset: ExportedDataset) -> Json:
    """Return a dataset as an object with a line for each thing; the wire format would make tables of many."""
    units = [
        {
            "unit": unit.unit,
            "low": wire.to_json(unit.low),
            "high": wire.to_json(unit.high),
            "properties": wire.to_json(unit.properties),
            "files": [wire.to_json(file) for file in unit.files],
        }
        for unit in dataset.units
    ]
    return {
        "urn": dataset.urn,
        "watermark": wire.to_json(dataset.watermark),
        "coverage": wire.to_json(dataset.coverage),
        "schema": dataset.schema,
        "units": [*units],
    }


def read_document(document: Json, *, kind: str | None = None, last_read: bool = False) -> tuple[ExportedDataset, ...]:
    """Read the datasets of a document that `export` or another tool wrote.

    :param kind: the kind of Gobblin's watermarks: `timestamp` if they are times written as numbers (20260131120000, in UTC);
        otherwise they are integers, or lists of them.
    :param last_read: watermarks without a kind are the last positions that were read, not the next ones to read.
    :raises GobblinError: it isn't one, or contradicts itself.
    """
    if not isinstance(document, dict) or not ({"datasets", "task states"} & document.keys()):
        raise _no_document("it has no list of datasets")
    version = document.get("version", VERSION)
    if type(version) is not int or not 0 < version <= VERSION:
        raise _no_document(f"it is of version {version!r}, and the airflow-gobblin installed here knows {VERSION}")
    listed: Any = document.get("datasets", document.get("task states"))
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise _no_document("its datasets are not a list of objects")
    found = listed if "datasets" in document else _of_gobblin(listed)
    datasets = tuple(_read(one, kind, last_read) for one in found)
    urns = [dataset.urn for dataset in datasets]
    twice = sorted({urn for urn in urns if urns.count(urn) > 1}) if len(set(urns)) < len(urns) else []
    if twice:
        raise _no_document(f"it names {twice} twice")
    return datasets


def _no_document(cause: str) -> ConfigurationError:
    return ConfigurationError(
        operation="read", subject="the exported state", cause=cause, hint=f"The minimum is {_EXAMPLE}"
    )


def _read(one: Mapping[str, Any], kind: str | None, last_read: bool) -> ExportedDataset:
    if not isinstance(one.get("urn"), str):
        raise _no_document("one of its datasets has no URN")
    subject = f"the state of dataset {one['urn']!r}"
    watermark = one.get("watermark")
    if isinstance(watermark, dict) and "kind" not in watermark:
        one = {**one, "watermark": wire.to_json(_gobblins_watermark(watermark, kind, last_read, subject))}
    try:
        found = wire.from_json(ExportedDataset, {**one}, subject)
    except RecordError as error:
        raise _not_as_expected(subject, error) from error
    assert isinstance(found, ExportedDataset)
    return found


def _not_as_expected(subject: str, error: RecordError) -> ConfigurationError:
    """Make the error for a state that people may have written themselves."""
    inner = error.__cause__
    cause, hint = str(inner), f"The minimum is {_EXAMPLE}"
    if isinstance(inner, GobblinError):
        why = inner.cause  # an exception's text, without the name of its class
        cause = str(why) if inner.subject == subject else f"can't {inner.operation} {inner.subject}: {why}"
        hint = inner.hint or hint
    return ConfigurationError(operation="read", subject=subject, cause=_CLASSES.sub(_in_words, cause), hint=hint)


_WORDS = {
    "ExportedDataset": "a dataset",
    "ExportedUnit": "a unit",
    "ExportedFile": "a file",
    "Coverage": "a coverage",
    "Range": "a range",
}
_CLASSES = re.compile(rf"(?:\ba )?\b({'|'.join(_WORDS)})\b")


def _in_words(name: re.Match[str]) -> str:
    return _WORDS[name[1]]


def _gobblins_watermark(given: Mapping[str, Any], kind: str | None, last_read: bool, subject: str) -> Watermark:
    """Parse a watermark of Gobblin's. Source: Gobblin's ``LongWatermark`` and ``MultiLongWatermark``."""
    step = 1 if last_read else 0
    try:
        if "values" in given and kind in (None, MultiLongWatermark.kind):
            read = MultiLongWatermark.from_json(given["values"])
            return MultiLongWatermark(tuple(value + step for value in read.values))
        value = LongWatermark.from_json(given["value"]).value
        if kind in (None, LongWatermark.kind):
            return LongWatermark(value + step)
        if kind == TimestampWatermark.kind:
            form, apart = _TIMES[len(str(value))]
            return TimestampWatermark(datetime.strptime(str(value), form).replace(tzinfo=UTC) + step * apart)
    except (KeyError, TypeError, ValueError, GobblinError) as error:
        raise _no_watermark(given, kind, subject) from error
    raise _no_watermark(given, kind, subject)


def _no_watermark(given: Mapping[str, Any], kind: str | None, subject: str) -> ConfigurationError:
    return ConfigurationError(
        operation="read",
        subject=f"watermark {dict(given)} in {subject}",
        cause="it has no kind, and is not a Gobblin watermark" + (f" that can be of kind {kind!r}" if kind else ""),
        hint='Write it as {"kind": "timestamp", "value": "2026-01-31T12:00:00+00:00"}, or {"kind": "long", "value": 42}.',
    )


def _of_gobblin(tasks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Read the datasets of a Gobblin job: each continues where the farthest of its tasks ended, if all are committed.

    Source: Gobblin's ``JobStateToJsonConverter`` with ``keepConfig``, and ``ConfigurationKeys``.
    """
    ends: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:
        properties = task.get("properties", {})
        if not isinstance(properties, dict):
            raise _no_document(f"the 'properties' of task {task.get('task id')!r} are not an object")
        urn = properties.get("dataset.urn") or properties.get("extract.table.name")
        state = properties.get("workunit.working.state", task.get("task state"))
        if not isinstance(urn, str) or not urn:
            raise _no_document(
                f"task {task.get('task id')!r} has no 'dataset.urn' in its 'properties' (convert it with them)"
            )
        if state not in (None, "COMMITTED", "SUCCESSFUL"):
            raise _no_document(f"task {task.get('task id')!r} of {urn!r} is {state}: choose yourself where to go on")
        ends.setdefault(urn, []).append(_end_of(task, properties))
    for urn, marks in ends.items():
        if len({len(mark.get("values", ())) for mark in marks}) > 1:
            raise _no_document(f"the tasks of {urn!r} have watermarks of different lengths")
        values = [mark["values"] for mark in marks if "values" in mark]
        farthest = (
            {"values": [*map(max, zip(*values, strict=True))]} if values else {"value": max(m["value"] for m in marks)}
        )
        yield {"urn": urn, "watermark": farthest}


def _end_of(task: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the position where a Gobblin task ended."""
    try:
        mark: Any = wire.parse_json(properties["workunit.state.actual.high.water.mark"])
        if "values" in mark:
            return {"values": [*MultiLongWatermark.from_json(mark["values"]).values]}
        return {"value": LongWatermark.from_json(mark["value"]).value}
    except (KeyError, TypeError, ValueError, RecursionError, GobblinError):
        pass
    raise _no_document(f"task {task.get('task id')!r} has no actual high watermark that can be read")
