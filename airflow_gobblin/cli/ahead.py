"""The commands to use ahead of a run: whether it can work, and what it would plan. Nothing is created, claimed or changed."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, redirect_stdout
from functools import partial
from typing import Any

from airflow_gobblin.cli.acts import ActFile
from airflow_gobblin.cli.dag_file import Described, Submit, described
from airflow_gobblin.cli.lookup import command, why
from airflow_gobblin.cli.showing import print_rows, print_stream, text
from airflow_gobblin.hooks.connections import SECRETS, AirflowConnections
from airflow_gobblin.hooks.environment import check_java, check_pyspark, check_submit
from airflow_gobblin.hooks.ingestion import journal_to_look_at
from airflow_gobblin.job import Job, OutlinedWork
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.naming import many, shown
from airflow_gobblin.model.plan import ActKind, DatasetProspect, Outline, PlannedAct, Prospect
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import WorkUnit
from airflow_gobblin.run.checking import Check, checked, checks
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import would_plan
from airflow_gobblin.run.request import RunRequest

_RANGES = 20
"""The number of ranges shown of a dataset's units."""


@command
def check(args: Namespace) -> None:
    """Check whether the ingestions of a DAG can run."""
    with redirect_stdout(sys.stderr):  # keep a DAG file's prints, and Airflow's logs of it, out of the output
        found = [(one, each) for one in described(args.dag_id, args.ingestion) for each in _checks(one, args.dag_id)]
    print_rows([_check_row(one.job, each) for one, each in found], args.output)
    bad = sum(each.error is not None for _, each in found)
    if bad:
        raise SystemExit(many(bad, "finding"))


@command
def plan(args: Namespace) -> None:
    """Show what a run of a DAG would plan."""
    request = RunRequest(f"{args.dag_id}/plan", datasets=tuple(args.urn))
    with ActFile() as file:
        acts = file if args.acts else None
        with redirect_stdout(sys.stderr):
            jobs = [one.job for one in described(args.dag_id, args.ingestion)]
            found = [(job, would_do(job, request, acts)) for job in jobs]
        show_prospects(found, args.output, acts)


def show_prospects(found: Sequence[tuple[Job, Prospect]], output: str, acts: ActFile | None) -> None:
    """Show what runs would plan.

    :param acts: has every act, if all are to be listed.
    :raises SystemExit: a dataset can't be planned.
    """
    datasets = [(job, prospect, one) for job, prospect in found for one in prospect.datasets]
    of_files = any(isinstance(job.work, OutlinedWork) for job, _ in found)
    in_tables = output in ("table", "plain")
    if acts is not None:
        planned = {(job.name, one.urn) for job, _, one in datasets if one.status is Status.PLANNED}
        print_stream(acts.of(planned), output)
        _report_unplanned(datasets)
    else:
        print_rows([_plan_row(*of, of_files=of_files, acts=not in_tables) for of in datasets], output)
        first = [_act_row(one, act) for _, _, one in datasets if one.outline is not None for act in one.outline.first]
        if first and in_tables:
            print_rows(first, output)
    failed = sum(one.error is not None for _, _, one in datasets)
    if failed:
        raise SystemExit(f"{many(failed, 'dataset')} can't be planned")


def _report_unplanned(datasets: Iterable[tuple[Job, Prospect, DatasetProspect]]) -> None:
    """Report on standard error why datasets have no acts."""
    for _, _, one in datasets:
        if one.status is not Status.PLANNED:
            sys.stderr.write(f"{shown(one.urn)}: {one.status.value}: {one.detail}\n")


def would_do(job: Job, request: RunRequest, acts: ActFile | None) -> Prospect:
    """Return what a run of a job would plan.

    :param acts: takes every act of it.
    """
    journal = journal_to_look_at(job)
    with closing(journal.store):
        opened = OpenJob(job, journal, AirflowConnections())
        return would_plan(opened, request, None if acts is None else partial(acts.add, job.name))


def _checks(one: Described, dag_id: str) -> Iterator[Check]:
    job, opened = one.job, list[Journal]()

    def look() -> str:
        opened.append(journal_to_look_at(job))
        there = opened[0].datasets()
        return f"it has {many(len(there), 'dataset')} of it" if there else "it has none of it yet"

    yield checked("journal", job.journal, look, SECRETS)
    journal = opened[0] if opened else None
    yield from checks(job, dag_id, journal, AirflowConnections())
    if journal is not None:
        journal.store.close()
    for submit in one.spark:
        yield from _spark(submit)


def _spark(submit: Submit) -> Iterator[Check]:
    """Check whether a driver can be started: its connection, and the Spark and Java installed here."""
    from airflow_gobblin.hooks.spark import CONNECT, check_spark_connection, driver_environment

    kinds: list[str] = []

    def look() -> str:
        kinds.append(str(check_spark_connection(submit.conn_id, submit.mode, durable=submit.durable).conn_type))
        return f"of type {kinds[0]!r}"

    yield checked("connection", submit.conn_id, look, SECRETS)
    if kinds and kinds[0] != CONNECT:  # with Spark Connect, only a Python process starts here
        yield checked("spark", "pyspark", check_pyspark, SECRETS)
        environment = os.environ | driver_environment("")

        def look_at_java() -> str:
            check_submit("spark-submit", environment)
            return check_java(environment)

        yield checked("java", "java", look_at_java, SECRETS)


def _check_row(job: Job, one: Check) -> dict[str, Any]:
    error = one.error
    return {
        "ingestion": job.name,
        "check": one.what,
        "of": one.subject,
        "state": (Status.OK if error is None else Status.FAILED).value,
        "operation": "" if error is None else error.operation,
        "subject": "" if error is None else error.subject,
        "cause": one.detail if error is None else why(error),
        "hint": "" if error is None else error.hint or "",
    }


def _plan_row(job: Job, prospect: Prospect, one: DatasetProspect, *, of_files: bool, acts: bool) -> dict[str, Any]:
    """Return the row of a dataset.

    :param of_files: whether any job of the table is a mirror: rows have what its units would do.
    :param acts: whether rows also list these acts, as many as are kept.
    """
    row = {
        "ingestion": job.name,
        "dataset": one.urn,
        "status": one.status,
        "range": None if one.plan is None else one.plan.planned,
        "units": len(one.units),
        "weight": one.weight,
        "pack": prospect.numbers.get(one.urn),
        "unit_ranges": _ranges(one),
        "detail": one.detail,
    }
    if not of_files:
        return row
    outline = one.outline or Outline()
    row |= {kind.value.replace(" ", "_"): outline.counts[kind] for kind in ActKind} | {"bytes": outline.bytes}
    return row | {"acts": outline.first} if acts else row


def _act_row(one: DatasetProspect, act: PlannedAct) -> dict[str, Any]:
    return {"dataset": one.urn, "act": act.kind, "path": act.path, "bytes": act.bytes}


def _ranges(one: DatasetProspect) -> list[Any]:
    """Return the ranges of a dataset's units, the first of many, each with its weight."""
    units = one.units[:_RANGES] if one.outline is None else ()
    return [{"unit": unit.id, "range": _range(unit), "weight": unit.weight} for unit in units]


def _range(unit: WorkUnit) -> str | None:
    if unit.low is None:
        return None
    return f"[{text(unit.low)}, {'…' if unit.expected_high is None else text(unit.expected_high)})"
