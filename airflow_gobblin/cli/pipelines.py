"""The commands for stages of pipelines: `definition` has their arguments, `stages.views` reads what they show."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_gobblin.admin.actions import Administration, Change
from airflow_gobblin.admin.views import check_ingestion_is_there
from airflow_gobblin.cli.commands import administration, change_row, confirm, done_row
from airflow_gobblin.cli.lookup import command, find_ingestion
from airflow_gobblin.cli.showing import print_properties, print_rows
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.registry import open_journal
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.seals import Seals
from airflow_gobblin.model.naming import dataset_id, many
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.stages.record import inputs_on_record, stages_on_record
from airflow_gobblin.stages.rewind import following, would_rewind, would_rewind_source
from airflow_gobblin.stages.views import graph, stage_view, versions_of


@command
def show(args: Namespace) -> None:
    """Show a stage and the stages that it is made from, upstreams first."""
    views = graph(_journal(args), AirflowConnections())
    rows = [
        {
            "stage": one.name,
            "version": one.newest,
            "versions": one.versions,
            "ahead": {each.id: each.ahead for each in one.inputs},
            "generation": one.generation,
            "restores": len(one.restores),
            "why": one.why,
        }
        for one in views
    ]
    print_rows(rows, args.output)


@command
def versions(args: Namespace) -> None:
    """List the versions of a stage, the newest first."""
    rows = [
        {
            "version": one.version,
            "slot": one.slot,
            "decided": one.decided,
            "run": one.run,
            "rows": one.rows,
            "channels": one.channels,
            "consumed_slots": one.consumed,
            "late": one.late,
        }
        for one in versions_of(_journal(args))
    ]
    print_rows(rows, args.output)


@command
def why(args: Namespace) -> None:
    """Show what a stage waits for, and why it was taken back."""
    found = stage_view(_journal(args), AirflowConnections())
    properties = {
        "stage": found.name,
        "version": found.newest,
        "why": found.why,
        "inputs": [
            {"input": one.id, "sealed": one.sealed, "ahead": one.ahead, "optional": not one.required or None}
            for one in found.inputs
        ],
        "taken_back": [
            {"slot": one.slot, "at": one.at, "reason": one.reason, "actor": one.actor} for one in found.restores
        ],
    }
    print_properties(properties, args.output)


@command
def rewind(args: Namespace) -> None:
    """Take back all versions of stages and ingestions after one."""
    if args.start is (args.to is not None):
        raise ConfigurationError(
            operation="rewind",
            subject=" and ".join(map(repr, args.names)),
            cause="both --to and --start are given" if args.start else "no version is given",
            hint="Give --to, the last version that stays; or --start, to take back all.",
        )
    to = None if args.start else _version(args.to)
    changes = [
        (admin, change)
        for admin in [administration(_named(args, name))[0] for name in dict.fromkeys(args.names)]
        for change in _changes(admin, to)
    ]
    _report_following(changes)

    def make() -> Iterator[dict[str, Any]]:
        return (done_row(admin.carry_out(change, args.reason)) for admin, change in changes)

    confirm(args, [change_row(change) for _, change in changes], make)


def _changes(admin: Administration, to: datetime | None) -> tuple[Change, ...]:
    """Preview the rewind of a stage, or of an ingestion."""
    journal = admin.journal
    if inputs_on_record(journal.store, journal.ingestion) is not None:
        return (would_rewind(admin, journal.ingestion, to),)
    if Seals(journal).newest():
        return would_rewind_source(admin, to)
    check_ingestion_is_there(journal)
    raise ConfigurationError(
        operation="rewind",
        subject=f"{journal.ingestion!r} to a version",
        cause="it is not a stage, and has sealed no version",
        hint="A dataset of an ingestion goes back to a position: `airflow gobblin rewind`.",
    )


def _report_following(changes: Sequence[tuple[Administration, Change]]) -> None:
    """Report what stages take back by themselves, in the journals of those that are rewound."""
    taken: dict[str, set[int]] = {}
    stages: dict[str, DatasetState] = {}
    for admin, change in changes:
        journal = admin.journal
        taken.setdefault(dataset_id(journal.ingestion, change.urn), set()).update(ref.slot for ref in change.replaces)
        for name in stages_on_record(journal.store):
            stages[dataset_id(name, name)] = Journal(journal.store, name, journal.id).state(name)
    for stage, versions in following(taken, stages).items():
        listed = ", ".join(version.isoformat() for version in versions)
        sys.stderr.write(f"{stage} follows in its next run: it takes back {many(len(versions), 'version')}, {listed}\n")


def _journal(args: Namespace) -> Journal:
    return open_journal(find_ingestion(_named(args, args.stage)))


def _named(args: Namespace, name: str) -> Namespace:
    """Return arguments that select a stage, or an ingestion: its journal has its name."""
    ingestion, named = (None, name) if args.journal else (name, None)
    return Namespace(**{**vars(args), "ingestion": ingestion, "name": named})


def _version(given: str) -> datetime:
    try:
        found = datetime.fromisoformat(given)
    except ValueError as error:
        raise ConfigurationError(
            operation="read",
            subject=f"version {given!r}",
            cause="it is not a time",
            hint="Give one like 2026-03-01T05:00:00+00:00.",
        ) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
