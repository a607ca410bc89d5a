"""The request that a DAG run makes of an ingestion: by its data interval, its partition key, and its configuration.

    {"datasets": ["urn", …], "start": "2026-01-01", "end": "2026-02-01", "replace": true, "flush": true, "request": "any text"}

A scheduled run requests everything open up to the end of its interval, a backfill its interval, and a manual run everything
open up to now, or the range from start to end.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetOrTimeSchedule, Param, timezone
from airflow.sdk.definitions.timetables.assets import AssetTriggeredTimetable

from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, TimestampWatermark
from airflow_gobblin.model.wire import parse_json

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.model.request import Bound
    from airflow_gobblin.run.request import RunRequest

__all__ = ["ingestion_params", "replacing_command", "run_request"]

_TYPES = {
    "datasets": "a list of URNs",
    "start": "a point in time, as ISO 8601 text, an integer of 64 bits, or offsets by partition, one for each",
    "end": "a point in time, as ISO 8601 text, an integer of 64 bits, or offsets by partition, one for each",
    "replace": "true or false",
    "flush": "true or false",
    "request": "a text",
}
"""The keys that a run's configuration may hold for us, with their types in words."""


def ingestion_params(datasets: Iterable[str] = (), *, ranges: bool = True) -> dict[str, Param]:
    """Return the form that Airflow shows to trigger a run of an ingestion, as `params` of its DAG: datasets, range, replace.

    :param datasets: URNs to choose from; by default any may be typed.
    :param ranges: whether to ask for a range, too: a mirror has none.
    """
    urns = [*datasets]
    one: dict[str, Any] = {"type": "string", "enum": urns} if urns else {"type": "string"}
    about = {
        "datasets": "Only these datasets; none for all.",
        "start": "Backfill from here on: a point in time; an integer, for datasets whose positions are integers; or offsets by "
        'partition, {"0": 1200}.',
        "end": "Up to here, exclusive; empty: up to now.",
        "replace": "Publish the range anew, in place of what is published of it.",
        "flush": "Read what waits, however little it is for a batch.",
        "request": "Any text: with another one, the same run carries out the same request again.",
    }
    bound = {"type": ["null", "string", "integer", "object"], "default": None}
    fields: dict[str, dict[str, Any]] = {
        "datasets": {"type": "array", "default": [], "items": one, "examples": urns or None},
        "start": bound,
        "end": bound,
        "replace": {"type": "boolean", "default": False},
        "flush": {"type": "boolean", "default": False},
        "request": {"type": ["null", "string"], "default": None},
    }
    return {
        name: Param(description=about[name], title=name, section="Ingestion", **_given(given))
        for name, given in fields.items()
        if ranges or name not in ("start", "end", "replace", "flush")
    }


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None or name == "default"}


def run_request(context: Context) -> RunRequest:
    """Return the request of a DAG run.

    :raises ConfigurationError: its configuration has a key that is neither ours nor the DAG's, or contradicts itself or the run.
    """
    from airflow_gobblin.run.request import RunRequest

    run, dag = context["dag_run"], context["dag"]
    asked = _checked(run.conf or {}, {*dag.params})
    interval = _interval(run)
    start, end = (_bound(name, asked.get(name)) for name in ("start", "end"))
    if interval is not None and (start, end) != (None, None):
        raise _refused(
            f"the range from {asked.get('start')} to {asked.get('end')}",
            f"run {run.run_id!r} has an interval of its own, from {interval[0]} to {interval[1]}",
            "Leave start and end out, or trigger a run by hand.",
        )
    if interval is not None:
        start, end = (interval[0] if run.run_type == "backfill" else None), interval[1]
    elif run.run_type == "backfill" and start is None:
        raise ConfigurationError(
            operation="backfill",
            subject=f"run {run.run_id!r}",
            cause="the DAG's timetable gives it no interval, so nothing defines what it is for",
            hint="Use a timetable with data intervals, such as DatasetCronTimetable; or give start and end in the configuration.",
        )
    datasets = tuple(asked.get("datasets", ()))
    if run.partition_key is not None and getattr(dag.timetable, "partitioned_at_runtime", False):
        if datasets and datasets != (run.partition_key,):
            raise _refused(
                f"datasets {[*datasets]}",
                f"run {run.run_id!r} has the partition key {run.partition_key!r}",
                "Give one of them.",
            )
        datasets = (run.partition_key,)
    dag_run = f"{run.dag_id}/{run.run_id}"
    return RunRequest(
        dag_run,
        end,
        datasets,
        start,
        replace=asked.get("replace", False),
        request=asked.get("request", ""),
        flush=asked.get("flush", False),
        version=_version(run, dag.timetable),
    )


def _interval(run: Any) -> tuple[datetime, datetime] | None:
    """Return the interval of a run. A manual run has none: the one that Airflow gives it is only the last one before it."""
    start, end = run.data_interval_start, run.data_interval_end
    if run.run_type not in ("scheduled", "backfill") or start is None or end is None or not start < end:
        return None
    return _utc(start), _utc(end)


def _version(run: Any, timetable: Any) -> datetime | None:
    """Return the version that a run may seal: the end of a scheduled run's data interval, even if that is a point in time.

    Where a DAG has no times, but is triggered by hand or by assets alone, any run seals one: the moment when it was due.
    """
    if run.run_type == "scheduled" and run.data_interval_end is not None:
        return _utc(run.data_interval_end)
    by_assets = isinstance(timetable, AssetTriggeredTimetable) and not isinstance(timetable, AssetOrTimeSchedule)
    timed = timetable.can_be_scheduled and not by_assets
    return None if timed or run.run_type == "backfill" else _utc(run.run_after)


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _checked(conf: Mapping[str, Any], others: set[str]) -> dict[str, Any]:
    """Return the part of a run's configuration that is for us. A form gives null for fields left empty.

    :param others: the other keys that the DAG's tasks know.
    :raises ConfigurationError: a key is unknown, or its value doesn't fit.
    """
    for name in conf:
        if name not in _TYPES and name not in others:
            raise _refused(
                f"{name!r}",
                "there is no such key",
                meant([*_TYPES], name, most=1, otherwise=f"Known: {', '.join(sorted({*_TYPES} | others))}."),
            )
    asked = {name: conf[name] for name in _TYPES if conf.get(name) is not None}
    for name, value in asked.items():
        if not _fits(name, value):
            raise _refused(
                f"{name} {value!r}",
                f"it is not {_TYPES[name]}",
                'For example {"datasets": ["urn"], "start": "2026-01-01"}.',
            )
    return asked


def _fits(name: str, value: object) -> bool:
    match name:
        case "datasets":
            return isinstance(value, list) and all(isinstance(urn, str) for urn in value)
        case "replace" | "flush":
            return isinstance(value, bool)
        case "request":
            return isinstance(value, str)
        case _:
            return isinstance(value, str | int | dict) and not isinstance(value, bool)


def _bound(name: str, value: str | int | Mapping[str, Any] | None) -> Bound | None:
    """Return a bound: a point in time, an integer, or offsets by partition, which may be typed into a form as JSON.

    A time without an offset is in Airflow's default time zone.
    """
    if value is None:
        return None
    try:
        if isinstance(value, int):
            return LongWatermark(value).value
        if isinstance(value, Mapping):
            return _offsets(value)
        if value.lstrip().startswith("{"):
            return _offsets(parse_json(value))
        return timezone.coerce_datetime(datetime.fromisoformat(value)).astimezone(UTC)
    except (ValueError, OverflowError, RecursionError, GobblinError):
        raise _refused(
            f"{name} {value!r}",
            f"it is not {_TYPES[name]}",
            """For example '2026-01-31T06:00:00Z', or {"0": 1200}.""",
        ) from None


def _offsets(value: Any) -> Mapping[int, int]:
    """Return offsets by partition.

    :raises ValueError: the value isn't that, or one partition has several.
    :raises ConfigurationError: one is beyond 64 bits.
    """
    if not value or not all(type(offset) is int and offset >= 0 for offset in value.values()):
        raise ValueError
    found = {int(partition): LongWatermark(offset).value for partition, offset in value.items()}
    if len(found) < len(value):
        raise ValueError
    return found


def _refused(what: str, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="use", subject=f"{what} of the run's configuration", cause=cause, hint=hint)


def replacing_command(context: Context, urn: str, slot: int, covered: Range | None) -> str:
    """Return the command that ingests a range of a dataset anew: a backfill of the run's interval, if it published that.

    If positions are neither times nor integers nor lists of these, it is a rewind, which takes back what follows the range, too.

    :param slot: the newest of the dataset; it distinguishes the request from the one before.
    :param covered: a snapshot has none, and any run publishes it anew.
    """
    run, interval = context["dag_run"], _interval(context["dag_run"])
    dag_id = shlex.quote(run.dag_id)
    if covered is None:
        return _triggering(dag_id, {"datasets": [urn]})
    conf: dict[str, Any] = {"datasets": [urn], "replace": True}
    timed = covered.low.kind == TimestampWatermark.kind
    if isinstance(covered.low, MultiLongWatermark) and isinstance(covered.high, MultiLongWatermark):
        pairs = enumerate(zip(covered.low.values, covered.high.values, strict=True))
        held = {str(number): of for number, of in pairs if of[0] < of[1]}
        conf |= {name: {number: of[n] for number, of in held.items()} for n, name in enumerate(("start", "end"))}
        return _triggering(dag_id, conf)
    if not timed and covered.low.kind != LongWatermark.kind:
        to = shlex.quote(json.dumps(covered.low.to_json()))
        return f"airflow gobblin rewind {shlex.quote(urn)} --dag-id {dag_id} --to {to} --reason 'to ingest it anew'"
    if interval is not None and timed and covered.overlaps(Range(*map(TimestampWatermark, interval))):
        day = shlex.quote(interval[0].isoformat())
        quoted = shlex.quote(json.dumps({**conf, "request": f"after slot {slot}"}, ensure_ascii=False))
        return (
            f"airflow backfill create --dag-id {dag_id} --from-date {day} --to-date {day} --max-active-runs 1 "
            f"--reprocess-behavior completed --dag-run-conf {quoted}"
        )
    conf |= {"start": covered.low.to_json(), "end": covered.high.to_json()}
    return _triggering(dag_id, conf)


def _triggering(dag_id: str, conf: Mapping[str, Any]) -> str:
    return f"airflow dags trigger {dag_id} --conf {shlex.quote(json.dumps(conf, ensure_ascii=False))}"
