"""One structured event for each published slot: a line of JSON, logged by `airflow_gobblin.events` at level INFO.

It goes to the task's log, and wherever a handler of that logger sends it. Its fields are in `docs/airflow.md`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_gobblin.copy.entries import shown
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.watermark import Json, encode
from airflow_gobblin.steps.base import deleted_by

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.events.publication import Publication
    from airflow_gobblin.steps.base import CommitStep

__all__ = ["LOGGER", "event", "log_event", "log_file_events"]

LOGGER = "airflow_gobblin.events"
_VERSION = 1


def log_event(publication: Publication, context: Context) -> None:
    """Log that a slot was published."""
    logging.getLogger(LOGGER).info("%s", json.dumps(event(publication, context), ensure_ascii=False))


def event(publication: Publication, context: Context) -> Mapping[str, Json]:
    """Return the event to log for a published slot.

    :param context: of the announcing task, which needn't be the publishing one.
    """
    task = context["ti"]
    return {
        "event": "dataset_published",
        "version": _VERSION,
        "ingestion": publication.ingestion,
        "urn": publication.urn,
        "dataset": publication.dataset,
        "slot": publication.slot,
        "watermark": publication.position,
        "lag_seconds": None if publication.lag is None else publication.lag.total_seconds(),
        "ranges": [_range(found) for found in publication.ranges],
        "rows": publication.rows,
        "files": publication.files,
        "bytes": publication.bytes,
        "dead_letters": publication.dead_letters,
        "replaced_files": publication.replaced,
        "deleted_files": publication.deleted,
        "retired_units": publication.retired,
        "decided_at": publication.decided.isoformat(),
        "done_at": publication.done.isoformat(),
        "publish_seconds": publication.took.total_seconds(),
        "metadata": dict(publication.metadata),
        "run_key": publication.run_key,
        "dag_id": task.dag_id,
        "run_id": task.run_id,
        "task_id": task.task_id,
        "map_index": task.map_index,
        "try_number": task.try_number,
    }


def log_file_events(publication: Publication, steps: Iterable[CommitStep]) -> None:
    """Log an event for each file that a mirror's slot published or deleted."""
    of = {"ingestion": publication.ingestion, "urn": publication.urn, "slot": publication.slot}
    for step in steps:
        for file in _of_files(step):
            entry = {"event": "file_published", "version": _VERSION, **of, **file}
            logging.getLogger(LOGGER).info("%s", json.dumps(entry, ensure_ascii=False))


def _of_files(step: CommitStep) -> Iterator[dict[str, Json]]:
    if (deleted := deleted_by(step)) is not None:
        path, identity = deleted
        yield {"act": "delete", "path": shown(path), "bytes": identity.size}
        return
    act = "copy" if getattr(step, "replaces", None) is None else "replace"
    for file in step.files():
        yield {"act": act, "path": shown(file.path), "bytes": file.size}


def _range(found: Range) -> Json:
    return {"low": encode(found.low), "high": encode(found.high)}
