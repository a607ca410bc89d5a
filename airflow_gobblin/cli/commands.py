"""The commands' code: `definition` has their arguments, `admin.views` reads what they show, `admin.actions` makes changes."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.api.client import get_current_api_client
from airflow.utils.platform import getuser

from airflow_gobblin.admin.actions import Administration, Change
from airflow_gobblin.admin.export import ExportedDataset, as_document, has_state, read_document
from airflow_gobblin.admin.export import export as exported
from airflow_gobblin.admin.views import (
    AuditLevel,
    DatasetView,
    check_ingestion_is_there,
    dataset_detail,
    held,
    known_history,
    list_datasets,
    list_pending,
    list_slots,
    parse_position,
)
from airflow_gobblin.admin.views import audit as audited
from airflow_gobblin.cli.dag_file import described
from airflow_gobblin.cli.lookup import command, error_text, find_ingestion
from airflow_gobblin.cli.showing import (
    dataset_row,
    one_line,
    print_faults,
    print_properties,
    print_rows,
    properties,
    slot_row,
    text,
)
from airflow_gobblin.commit.homes import Tenant
from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, NotFoundError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.registry import Registered, open_administration, open_journal, open_preview, open_target
from airflow_gobblin.job import TabledWork
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.naming import many, meant, shown
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.table import TableRecord
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.wire import parse_json

_SHOWN = 20
"""The number of changes shown before asking for confirmation."""


# Looking


@command
def datasets(args: Namespace) -> None:
    """List the datasets of an ingestion."""
    where = find_ingestion(args)
    journal = open_journal(where)
    page = list_datasets(journal, now(), search=args.search, start=args.offset, count=args.limit)
    if not page.total:
        check_ingestion_is_there(journal)
    print_rows([dataset_row(one) for one in page.views], args.output)
    _report_modules(where, args, page.views)
    if len(page.views) < page.total:
        _report(f"{len(page.views)} of {page.total} datasets; see --offset and --limit")


@command
def pending(args: Namespace) -> None:
    """List the datasets with an unfinished slot, those that failed before they were ever published, and those that are held."""
    where = find_ingestion(args)
    journal = open_journal(where)
    found, waiting = list_pending(journal, now()), _held(journal, where)
    if not found and not waiting:
        check_ingestion_is_there(journal)
    rows = [
        {
            "urn": one.urn,
            "status": one.status,
            "slot": None if one.pending is None else one.pending.slot,
            "action": None if one.pending is None else one.pending.action,
            "decided": None if one.pending is None else one.pending.decided,
            "steps": None if one.pending is None else one.pending.steps,
            "failed_runs": one.attempts,
            "last_failure": _last_failure(one),
            "waits": waiting.pop(one.urn, ""),
        }
        for one in found
    ]
    empty = dict.fromkeys(("slot", "action", "decided", "steps", "failed_runs", "last_failure"))
    rows += [{"urn": urn, "status": Status.HELD, **empty, "waits": what} for urn, what in sorted(waiting.items())]
    print_rows(rows, args.output)
    _report_modules(where, args, found)


def _held(journal: Journal, where: Registered) -> dict[str, str]:
    """Return what waits for held datasets, by URN, where the ingestion's target is known and can be read."""
    if not where.target:
        return {}
    try:
        found = held(journal, open_target(where))
    except (GobblinError, OSError) as error:
        _report(f"The held datasets can't be read: {error}")
        return {}
    return {} if found is None else dict(found.details)


def _last_failure(one: DatasetView) -> str:
    return one.error or one.failure or ("" if one.pending is None else next(reversed(one.pending.failures), ""))


@command
def show(args: Namespace) -> None:
    """Show a dataset."""
    where = find_ingestion(args, target=True)
    journal, target = open_journal(where), open_target(where)
    detail = dataset_detail(journal, target, args.urn, now(), steps=args.steps, connections=AirflowConnections())
    print_properties(properties(detail), args.output)


@command
def history(args: Namespace) -> None:
    """List the slots of a dataset."""
    found = known_history(open_journal(find_ingestion(args)), args.urn)
    print_rows([slot_row(slot) for slot in list_slots(found, start=args.offset, count=args.limit)], args.output)


@command
def audit(args: Namespace) -> None:
    """Check that the ranges, rows and files of datasets add up."""
    where = find_ingestion(args, target=True)
    journal = open_journal(where)
    found = [*audited(journal, open_target(where), args.urn, AirflowConnections())]
    if not found:
        check_ingestion_is_there(journal)
    rows = [
        {"urn": one.urn, "level": one.level, "check": one.check, "slot": one.slot, "finding": one.detail}
        for one in found
    ]
    print_faults(rows, args.output)
    if not found:
        _report("Nothing was found: it all adds up.")
    problems = sum(one.level is AuditLevel.PROBLEM for one in found)
    if problems:
        raise SystemExit(many(problems, "problem"))


# Doing


@command
def rewind(args: Namespace) -> None:
    """Take back everything from a position on."""
    admin, _ = administration(args)
    carry_out(args, admin, [admin.would_rewind(args.urn, admin.position(args.urn, args.to), lossy=args.lossy)])


@command
def set_watermark(args: Namespace) -> None:
    """Move the watermark forward without ingesting."""
    admin, journal = administration(args, new=True)
    to = parse_position(args.to, _kind(journal, args.urn, args.kind))
    if not journal.history(args.urn).known and (near := meant(journal.datasets(), args.urn)):
        _report(f"No dataset has this URN yet. {near}")
    carry_out(args, admin, [admin.would_set_watermark(args.urn, to)], new=True)


@command
def drop(args: Namespace) -> None:
    """Forget a dataset, or all of them."""
    if args.all is (args.urn is not None):
        raise ConfigurationError(
            operation="drop",
            subject="a dataset and all of them" if args.all else "nothing",
            hint="Give a URN; or --all, for each dataset of the ingestion.",
        )
    admin, _ = administration(args)
    _report_loss(admin)
    if not args.all:
        carry_out(args, admin, [admin.would_drop(args.urn, delete_files=args.delete_files)])
        return
    changes = [*admin.would_drop_all(delete_files=args.delete_files)]
    if not changes:
        check_ingestion_is_there(admin.journal)
    carry_out(args, admin, changes)
    for left in admin.after_drop_all():
        _report(left)


@command
def release(args: Namespace) -> None:
    """Let a quarantined dataset be recovered again."""
    admin, _ = administration(args)
    slot = admin.quarantined(args.urn)
    row = {"dataset": args.urn, "action": "release", "slot": slot.decision.slot, "last_failure": slot.last_failure}

    def act() -> Iterator[dict[str, Any]]:
        admin.release(args.urn, args.reason, slot.decision.slot)
        yield {**row, "actor": getuser(), "reason": args.reason}

    confirm(args, [row], act)


@command
def pause(args: Namespace) -> None:
    """Publish nothing new of a dataset until it is resumed."""
    admin, _ = administration(args)
    _confirm_pause(args, admin.would_pause(args.urn), admin.pause)


@command
def resume(args: Namespace) -> None:
    """Resume a paused dataset where it stopped."""
    admin, _ = administration(args)
    _confirm_pause(args, admin.would_resume(args.urn), admin.resume)


@command
def flush(args: Namespace) -> None:
    """Trigger a run of the DAG that holds nothing back."""
    where = find_ingestion(args)
    if not where.dag_id:
        raise ConfigurationError(
            operation="flush",
            subject=f"ingestion {where.ingestion!r}",
            cause="it is named by its place, and a flush is a run of its DAG",
            hint="Give --dag-id.",
        )
    conf = {"flush": True, "request": args.reason} | ({"datasets": [args.urn]} if args.urn else {})
    row = {"dag": where.dag_id, "action": "flush", "dataset": args.urn or "all"}

    def act() -> Iterator[dict[str, Any]]:
        with redirect_stdout(sys.stderr):  # keep Airflow's logs out of the output
            run = get_current_api_client().trigger_dag(dag_id=where.dag_id, conf=conf, triggering_user_name=getuser())
        yield {**row, "run": None if run is None else run["dag_run_id"]}

    confirm(args, [row], act)


def _confirm_pause(args: Namespace, change: Change, act: Callable[[str, str], Slot]) -> None:
    """Show a pause or its end, ask, and make it in the next free slot: runs may decide meanwhile."""
    state = change.history.state
    row = {"dataset": args.urn, "action": change.action, "watermark": state.watermark, "paused": state.paused}
    confirm(args, [row], lambda: map(done_row, [act(args.urn, args.reason)]))


@command
def abandon(args: Namespace) -> None:
    """Give up the pending slot of a dataset, or the plans that could still be decided."""
    admin, _ = administration(args)
    _report_loss(admin)
    found = admin.would_abandon(args.urn)
    row: dict[str, Any] = {"dataset": args.urn, "action": "abandon"}
    slot = 0
    if isinstance(found, Slot):
        slot = found.decision.slot
        row |= {"slot": slot, "ranges": found.decision.ranges, "files": found.files, "rows": found.rows}
    else:
        row |= {"open_plans": len(found)}
    confirm(args, [row], lambda: map(done_row, admin.abandon(args.urn, args.reason, slot)))


@command
def release_claim(args: Namespace) -> None:
    """Free a claimed folder."""
    admin, _ = administration(args, new=True)
    claim = admin.claim(args.folder)
    row = {
        "action": "release-claim",
        "folder": claim.folder,
        "dataset": claim.urn,
        "ingestion": claim.ingestion,
        "journal": claim.journal,
        "since": claim.at,
    }

    def act() -> Iterator[dict[str, Any]]:
        slot = admin.release_claim(args.folder, args.reason, claim).slot
        yield {**row, "noted_on_slot": slot, "actor": getuser(), "reason": args.reason}
        if slot is None:
            _report(
                "This is kept with the claims at the target only, and not in this journal: "
                "the claim was of another one, or the dataset can't be read in this one"
            )

    confirm(args, [row], act)


@command
def take_over(args: Namespace) -> None:
    """Make the table of a dataset its own, whoever owns it."""
    table = _table(_where(args), args.urn)
    admin, _ = administration(args, new=True)
    change = admin.would_take_over(args.urn, table)
    if change.before is None:
        _report(
            "The rows in the table stay, and the first run adds all rows of the source to them: import what the former owner "
            "has covered before it, or start later by `set-watermark`, if they are not to be there twice"
        )
    carry_out(args, admin, [change], new=True)


def _table(where: Registered, urn: str) -> TableRecord:
    """Return the table of a dataset, which only the file of its DAG names.

    :raises ConfigurationError: no DAG is named, or the dataset is published as files.
    :raises NotFoundError: the source has no such dataset.
    """
    subject = f"dataset {urn!r} of ingestion {where.ingestion!r}"
    if not where.dag_id:
        raise ConfigurationError(
            operation="take over the table of",
            subject=subject,
            cause="only its DAG names that table",
            hint="Name the DAG: --dag-id, instead of --journal, --name and --target.",
        )
    connections = GuardedConnections(AirflowConnections())
    with redirect_stdout(sys.stderr), connections.redacting("take over the table of", subject):
        (one,) = described(where.dag_id, where.ingestion)
        found = {dataset.urn: dataset for dataset in one.job.work.datasets(connections)}
    if urn not in found:
        raise NotFoundError(
            operation="find", subject=subject, cause="its source has no such dataset", hint=meant([*found], urn)
        )
    table = one.job.work.table_of(found[urn]) if isinstance(one.job.work, TabledWork) else None
    if table is None:
        raise ConfigurationError(
            operation="take over the table of",
            subject=subject,
            cause="it is published as files",
            hint="A folder that another dataset claims is freed by `airflow gobblin release-claim`.",
        )
    return table


# Moving


@command
def move(args: Namespace) -> None:
    """Let an ingestion continue at another target, or with another source."""
    where = _where(args)
    admin = open_administration(where, getuser())
    home, tenant = admin.would_move(), Tenant(where.dag_id, where.source)
    row = {
        "ingestion": where.ingestion,
        "action": "move",
        "from": home.target,
        "to": admin.root,
        "dag": tenant.dag or home.dag,
        "source": tenant.source or home.source,
    }

    def act() -> Iterator[dict[str, Any]]:
        moved = admin.move(home, args.reason, tenant)
        yield {**row, "actor": moved.actor, "reason": moved.reason}

    confirm(args, [row], act)


@command
def export(args: Namespace) -> None:
    """Write the state of datasets as JSON."""
    journal = open_journal(find_ingestion(args))
    histories = [known_history(journal, urn) for urn in args.urn] or _all_histories(journal)
    if not histories:
        check_ingestion_is_there(journal)
    unfinished = [shown(found.urn) for found in histories if found.pending is not None]
    if unfinished:
        raise ConfigurationError(
            operation="export",
            subject=f"ingestion {journal.ingestion!r}",
            cause=f"a slot of {', '.join(unfinished[:10])} is pending",
            hint="Let a run finish it, or abandon it; or name the other datasets by --urn.",
        )
    states = (exported(journal, found) for found in histories if has_state(found) or not found.keeps_units)
    document = as_document(journal.ingestion, now(), states)
    lines = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if args.file is None:
        sys.stdout.write(lines)
        return
    try:
        Path(args.file).write_text(lines, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            operation="write",
            subject=f"file {args.file!r}",
            cause=error,
            hint="Name another one, or none for the output.",
        ) from error


@command
def import_(args: Namespace) -> None:
    """Import the state of datasets from another journal or tool."""
    states = _wanted(read_document(_document(args.file), kind=args.kind, last_read=args.last_read), args.urn)
    admin, _ = administration(args, new=True)
    changes = []
    for known in states:
        state = replace(known, units=()) if args.without_files else known
        if admin.has_imported(state):
            _report(f"{shown(state.urn)} is as in the file already")
        else:
            changes.append(admin.would_import(state))
    carry_out(args, admin, changes, new=True)


def _all_histories(journal: Journal) -> list[History]:
    found = []
    for _, one in journal.histories():
        if isinstance(one, GobblinError):
            raise one
        found.append(one)
    return found


def _document(name: str) -> Json:
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        document = parse_json(raw)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            operation="read", subject=f"file {name!r}", cause=error, hint="Give a JSON file as `export` writes it."
        ) from error
    return document


def _wanted(states: Iterable[ExportedDataset], urns: Iterable[str]) -> list[ExportedDataset]:
    by_urn = {state.urn: state for state in states}
    missing = [urn for urn in urns if urn not in by_urn]
    if missing or not by_urn:
        raise ConfigurationError(
            operation="import",
            subject=", ".join(map(repr, missing)) or "the exported state",
            cause=f"the file has {[*by_urn][:20]}" if by_urn else "it has no dataset",
            hint="Name those by --urn that it has, or none for all of them."
            if by_urn
            else "Give a file with a dataset at the least; `airflow gobblin export` writes one.",
        )
    return [by_urn[urn] for urn in urns] or [*by_urn.values()]


# Shared by the actions


def administration(args: Namespace, *, new: bool = False) -> tuple[Administration, Journal]:
    """Open the actions on the datasets of an ingestion, and its journal.

    :param new: there may be no journal yet: then it is an empty one, which isn't kept.
    """
    where = _where(args)
    try:
        admin = open_administration(where, getuser())
    except NotFoundError as error:
        if not new:
            raise
        _report(f"Note: {error_text(error)}")
        admin = open_preview(where, getuser())
    return admin, admin.journal


def _where(args: Namespace) -> Registered:
    """Return the ingestion to act on.

    :raises ConfigurationError: no reason is given.
    """
    if not args.reason.strip():
        raise ConfigurationError(operation="act without", subject="a reason", hint='Say why: --reason "…".')
    return find_ingestion(args, target=True)


def _kind(journal: Journal, urn: str, given: str | None) -> str:
    """Return the kind of a dataset's watermark."""
    watermark = journal.state(urn).watermark
    if watermark is not None and given in (None, watermark.kind):
        return watermark.kind
    if watermark is None and given is not None:
        return given
    raise ConfigurationError(
        operation="read",
        subject=f"the position in dataset {urn!r}",
        cause="it has no watermark yet"
        if watermark is None
        else f"its watermark is of kind {watermark.kind!r}, not {given!r}",
        hint="Give --kind long, timestamp, multi_long or your own." if watermark is None else "Leave --kind out.",
    )


def carry_out(args: Namespace, admin: Administration, changes: list[Change], *, new: bool = False) -> None:
    """Show the effect of changes, ask, and make them one after the other.

    :param new: there may be no journal yet: it is created once the changes are confirmed.
    """

    def make() -> Iterator[dict[str, Any]]:
        acting = open_administration(_where(args), getuser(), new=True) if new else admin
        return (done_row(acting.carry_out(change, args.reason)) for change in changes)

    confirm(args, [change_row(change) for change in changes], make)


def done_row(slot: Slot) -> dict[str, Any]:
    """Return a row that describes a person's action on a slot."""
    decision, outcome = slot.decision, slot.outcome
    by = outcome if outcome is not None and outcome.actor else decision
    action = "abandon" if slot.abandoned else decision.action
    return {"dataset": decision.urn, "action": action, "slot": decision.slot, "actor": by.actor, "reason": by.reason}


def change_row(change: Change) -> dict[str, Any]:
    """Return a row that describes the effect of a change."""
    retired, left = change.retired, change.left
    row = {
        "dataset": change.urn,
        "action": change.action,
        **({"versions": change.versions} if change.versions else {"watermark": change.before, "becomes": change.after}),
        "open_again": change.removed,
        "files_retired": sum(unit.files for unit in retired),
        "rows_retired": sum(unit.rows_written for unit in retired),
        "files_left": sum(unit.files for unit in left),
        "rows_left": sum(unit.rows_written for unit in left),
    }
    if change.takes is not None:
        row |= {"table": change.takes.target.table.name, "from": str(change.takes.former)}
    return {name: value for name, value in row.items() if value or name in ("watermark", "becomes")}


def confirm(args: Namespace, rows: Sequence[Mapping[str, Any]], act: Callable[[], Iterable[dict[str, Any]]]) -> None:
    """Show what will happen and ask, unless `--yes` is given; then do it, and print what was done, even if an error stops it.

    :param act: does one thing after the other, and yields a row for each.
    """
    if not rows:
        print_rows([], args.output)
        return
    for row in rows[:_SHOWN]:
        _report("; ".join(f"{name}: {one_line(text(value)) or 'none'}" for name, value in row.items()))
    if len(rows) > _SHOWN:
        _report(f"… and {len(rows) - _SHOWN} more")
    if not args.yes:
        sys.stderr.write("Do it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SystemExit("Nothing was changed.")
    done: list[dict[str, Any]] = []
    try:
        for one in act():
            done.append(one)  # noqa: PERF402 - keeps what was done before an error
    except GobblinError as error:
        if done:
            were = "was done and stays so; it is" if len(done) == 1 else "were done and stay so; they are"
            error.add_note(f"Before that, {len(done)} of {len(rows)} {were} listed.")
        raise
    finally:
        if done:
            print_rows(done, args.output)


def _report_loss(admin: Administration) -> None:
    """Warn if the target is missing: it may be lost for good, or just not mounted where the command runs."""
    if admin.lost:
        _report(
            f"Target {admin.root} is taken for lost: {admin.lost}. If it is somewhere, type this where it is mounted."
        )


def _report_modules(where: Registered, args: Namespace, views: Sequence[DatasetView]) -> None:
    """Suggest `--module` if datasets are unreadable: the author's modules aren't imported just because a DAG names them."""
    missing = [name for name in where.code if name not in args.module]
    if missing and any(one.status is Status.UNREADABLE for one in views):
        _report(f"To read what the author's own classes wrote, add {' '.join(f'--module {name}' for name in missing)}")


def _report(line: str) -> None:
    """Write a line for people to standard error, apart from the output."""
    sys.stderr.write(f"{line}\n")
