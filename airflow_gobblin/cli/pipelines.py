"""The commands for stages of pipelines: `definition` has their arguments, `stages.views` reads what they show."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from airflow_gobblin.cli.commands import administration, carry_out
from airflow_gobblin.cli.lookup import command, find_ingestion
from airflow_gobblin.cli.showing import print_properties, print_rows
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.registry import open_journal
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.stages.rewind import would_rewind
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
            "consumed_slots": one.consumed,
            "late": one.late,
        }
        for one in versions_of(_journal(args))
    ]
    print_rows(rows, args.output)


@command
def why(args: Namespace) -> None:
    """Say what a stage waits for, and why it was taken back."""
    found = stage_view(_journal(args), AirflowConnections())
    told = {
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
    print_properties(told, args.output)


@command
def rewind(args: Namespace) -> None:
    """Take back all versions of a stage after one."""
    if args.start is (args.to is not None):
        raise ConfigurationError(
            operation="rewind",
            subject=f"stage {args.stage!r}",
            cause="both --to and --start are given" if args.start else "no version is given",
            hint="Give --to, the last version that stays; or --start, to take back all.",
        )
    to = None if args.start else _version(args.to)
    admin, _ = administration(_named(args))
    carry_out(args, admin, [would_rewind(admin, args.stage, to)])


def _journal(args: Namespace) -> Journal:
    return open_journal(find_ingestion(_named(args)))


def _named(args: Namespace) -> Namespace:
    """Return the arguments with the stage as the ingestion that they select: its journal has its name."""
    args.ingestion, args.name = (None, args.stage) if args.journal else (args.stage, None)
    return args


def _version(given: str) -> datetime:
    try:
        found = datetime.fromisoformat(given)
    except ValueError as error:
        raise ConfigurationError(
            operation="read", subject=f"version {given!r}", cause=error, hint="Give a time: 2026-03-01T05:00:00+00:00."
        ) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
