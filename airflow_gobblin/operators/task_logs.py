"""The tasks' logs about datasets: what became of them, and the command to ingest one anew."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_gobblin.hooks.wording import worded
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import dataset_key, many, shown, size
from airflow_gobblin.model.status import Status
from airflow_gobblin.operators.run_requests import replacing_command, run_request

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from airflow_gobblin.model.plan import DatasetNote
    from airflow_gobblin.model.work import Pack
    from airflow_gobblin.run.open_job import OpenJob
    from airflow_gobblin.run.reports import DatasetReport

__all__ = [
    "copied_in_all",
    "log_replacing",
    "log_reports",
    "log_swept",
    "log_swept_pack",
    "pack_reference",
    "result_table",
    "without_many_idle",
]

T = TypeVar("T", bound="DatasetReport | DatasetNote")

IDLE_LOGGED = 50
COMMANDS_LOGGED = 3
MAX_NAMES = 200
"""The number of characters that the keys of a pack's datasets may take in XCom: as many as its label."""


def pack_reference(run: str, pack: Pack) -> dict[str, Any]:
    """Return the reference to a pack for XCom, with the datasets' keys for when the pack is swept, unless there are too many."""
    keys = [dataset_key(ref.urn) for ref in pack.datasets[:MAX_NAMES]]
    short = len(keys) == len(pack.datasets) and sum(map(len, keys)) <= MAX_NAMES
    return {"run": run, "pack": pack.index, "label": pack.label, "datasets": keys if short else []}


def result_table(reports: Collection[DatasetReport], shown_ones: Iterable[DatasetReport]) -> Iterator[list[str]]:
    """Yield the rows of a run's table, its heading first: for mirrors in files and bytes, otherwise with rows and watermarks.

    :param shown_ones: the reports that have a row.
    """
    of_files = any(report.holds is Holds.DIFFERENCE for report in reports)
    figures = ("files", "replaced", "deleted", "bytes") if of_files else ("files", "rows")
    yield ["dataset", "status", "slot", *figures, *(() if of_files else ("watermark",))]
    for report in shown_ones:
        counts = ["" if report.slot is None else str(getattr(report, name)) for name in ("slot", *figures)]
        watermark = "" if report.watermark is None else json.dumps(report.watermark.to_json())
        yield [shown(report.urn), report.status, *counts, *(() if of_files else (watermark,))]


def copied_in_all(reports: Iterable[DatasetReport]) -> str:
    """Return what a mirror's run did in all file sets together; empty for other runs, and for one that did nothing."""
    done = [one for one in reports if one.holds is Holds.DIFFERENCE and not one.already]
    if not done:
        return ""
    files, copied, replaced, deleted = (sum(getattr(one, name) for one in done) for name in _FIGURES)
    return (
        f"in {many(len(done), 'file set')}: {many(files, 'file')} of {size(copied)} copied, {replaced:,} of them in place of "
        f"others, and {deleted:,} deleted"
    )


_FIGURES = ("files", "bytes", "replaced", "deleted")


def log_reports(log: Logger, reports: Iterable[DatasetReport | DatasetNote]) -> None:
    """Log what became of each dataset."""
    for report in without_many_idle(log, reports):
        write = log.warning if report.status.bad else log.info
        write("dataset %r: %s, %s", report.urn, report.status, report.detail)


def log_replacing(
    log: Logger, opened: OpenJob, reports: Iterable[DatasetReport | DatasetNote], context: Context
) -> None:
    """Log how to ingest anew what this run had committed before, if that is wanted."""
    from airflow_gobblin.run.answers import answered_range

    again = [report.urn for report in reports if report.already]
    for urn in again[:COMMANDS_LOGGED]:
        found = answered_range(opened, urn, run_request(context))
        if found is not None:
            how = "To ingest dataset %r anew, in place of what is published, type: %s"
            snapshot = "Dataset %r is a snapshot, which each run publishes anew: %s"
            log.info(snapshot if found[1] is None else how, urn, replacing_command(context, urn, *found))
    if len(again) > COMMANDS_LOGGED:
        log.info(
            "… and so for %s that this run had committed before", many(len(again) - COMMANDS_LOGGED, "more dataset")
        )


def log_swept_pack(
    log: Logger, opened: OpenJob, pack: Mapping[str, Any], context: Context
) -> tuple[DatasetReport, ...]:
    """Return and log what the journal reports of a pack whose plan was swept.

    :param pack: the reference to it.
    """
    from airflow_gobblin.run.answers import answered

    keys = pack.get("datasets", ())
    reports = tuple(map(worded, answered(opened, run_request(context), keys)))
    log_reports(log, reports)
    log_replacing(log, opened, reports, context)
    log_swept(log, f"the plan of {pack['label']!r}", reports, keys)
    return reports


def log_swept(log: Logger, what: str, answers: Sequence[DatasetReport], keys: Collection[str] = ()) -> None:
    """Log that a plan was swept, if the journal doesn't answer for all of it.

    :param keys: its datasets', if they are known.
    """
    left = len(keys) - len(answers)
    if left > 0 or not answers:
        log.info(
            "%s is no longer kept, and for %s the journal has no slot with all that this run asked for: other runs took the "
            "range, or the plan could win no more. To ingest what may be open, clear create_work_units with its downstream "
            "tasks.",
            what,
            many(left, "dataset") if left > 0 else "its datasets",
        )


def without_many_idle(log: Logger, reports: Iterable[T]) -> Iterator[T]:
    """Yield the reports worth a log line; of possibly thousands of idle ones, yield a few and log the number of the rest."""
    idle = 0
    for report in reports:
        idle += report.status is Status.IDLE
        if report.status is not Status.IDLE or idle <= IDLE_LOGGED:
            yield report
    if idle > IDLE_LOGGED:
        log.info("idle, too: %s", many(idle - IDLE_LOGGED, "more dataset"))
