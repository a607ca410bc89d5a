"""The actions on a dataset: each is shown first, as `Administration` would do it, and then done or refused.

Changes of a dataset are in its journal, with the user's name and reason; Airflow's audit log has all actions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.log import Log
from airflow.utils.session import create_session

from airflow_gobblin.admin.actions import Administration, Change
from airflow_gobblin.admin.views import FileCheck, FileState, known_history, verify
from airflow_gobblin.errors import ConfigurationError, LostRaceError
from airflow_gobblin.hooks.registry import Registered, open_administration
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.model.status import SlotState
from airflow_gobblin.plugins.page.access import Ticket
from airflow_gobblin.plugins.page.lookup import opened, target
from airflow_gobblin.storage.files import Files

__all__ = ["ACTIONS", "Done", "Proposal", "carry_out", "fingerprint", "propose"]

MOST_READ = 4 << 30
"""The number of bytes that a verification may read, as a user waits for the answer."""
LONGEST_REASON = 2000
_FILES_SHOWN = 100

Rows = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Proposal:
    """The effect that an action would have.

    :param rows: the facts to know before.
    :param then: the consequences, in a sentence or two.
    """

    title: str
    then: str
    rows: Rows


@dataclass(frozen=True)
class Done:
    """The effect that an action had.

    :param bad: files that are not as they were published, some of them.
    """

    title: str
    rows: Rows
    bad: tuple[FileCheck, ...] = ()


@dataclass(frozen=True)
class _Request:
    """A requested action on a dataset."""

    admin: Administration
    files: Files
    history: History
    to: str

    @property
    def urn(self) -> str:
        return self.history.urn


def fingerprint(history: History) -> str:
    """Return a text that stays the same while a dataset is as it was when an action was shown; a person's release changes it."""
    newest = history.slots[-1:] if history.pending is None else (history.pending,)
    notes = sum(len(slot.notes) for slot in newest)
    pending = SlotState.QUARANTINED if history.state.quarantined else SlotState.PENDING
    state = pending.value if history.pending is not None else ""
    return f"{history.state.head} {history.last_digest} {state} {notes}"


def propose(where: Registered, urn: str, action: str, to: str, user: BaseUser) -> tuple[Proposal, Ticket]:
    """Return what an action would do to a dataset, and the ticket that does it.

    :raises ConfigurationError: there is no such dataset, or the action is not valid.
    """
    request = _request(Administration(opened(where), target(where), user.get_name()), where, urn, to)
    _check_opens_no_table(request.history, action)
    proposal = ACTIONS[action].proposal(request)
    ticket = Ticket(user.get_id(), where.dag_id, where.ingestion, urn, action, to, fingerprint(request.history))
    return proposal, ticket


def carry_out(where: Registered, ticket: Ticket, reason: str, user: BaseUser) -> Done:
    """Carry out the action of a ticket.

    :raises ConfigurationError: the reason is missing or too long, or the action isn't possible any more.
    :raises LostRaceError: the dataset has changed since it was shown; nothing was done.
    """
    if not 0 < len(reason.strip()) <= LONGEST_REASON:
        raise ConfigurationError(
            operation=ticket.action,
            subject=f"dataset {ticket.urn!r}",
            cause=f"its reason has {len(reason.strip())} characters",
            hint=f"Say why, in at most {LONGEST_REASON} characters.",
        )
    action = ACTIONS[ticket.action]
    with _acting(where, ticket, user, write=action.writes) as request:
        done = _carried_out(request, action, ticket, reason)
    _log(ticket, reason, user)
    return done


def _carried_out(request: _Request, action: _Action, ticket: Ticket, reason: str) -> Done:
    if fingerprint(request.history) != ticket.fingerprint:
        raise LostRaceError(
            operation=ticket.action,
            subject=f"dataset {ticket.urn!r}",
            cause="it has changed since this was shown; nothing was done",
            hint="Look at it again, and repeat it if it is still what you want.",
        )
    _check_opens_no_table(request.history, ticket.action)
    return action.carry_out(request, reason)


def _check_opens_no_table(history: History, action: str) -> None:
    """Refuse an action that opens a table: that loads libraries which have no place in the API server.

    :raises ConfigurationError: it does.
    """
    if history.table is not None and action != "release":
        raise ConfigurationError(
            operation=action,
            subject=f"dataset {history.urn!r} by this page",
            cause=f"it is in {history.table.table.name}, which the page doesn't open",
            hint=f"Type it where the table's library is installed: `airflow gobblin {action}`.",
        )


def _request(admin: Administration, where: Registered, urn: str, to: str) -> _Request:
    return _Request(admin, target(where), known_history(admin.journal, urn), to)


@contextmanager
def _acting(where: Registered, ticket: Ticket, user: BaseUser, *, write: bool) -> Iterator[_Request]:
    """Yield the request; for a write, on a journal opened for it alone."""
    if not write:
        admin = Administration(opened(where), target(where), user.get_name())
        yield _request(admin, where, ticket.urn, ticket.to)
        return
    admin = open_administration(where, user.get_name())
    with closing(admin.journal.store):
        yield _request(admin, where, ticket.urn, ticket.to)


def _log(ticket: Ticket, reason: str, user: BaseUser) -> None:
    """Record the action in Airflow's audit log, beside those of Airflow's own pages."""
    named = {name: getattr(ticket, name) for name in ("ingestion", "urn", "to") if getattr(ticket, name)}
    extra = json.dumps({**named, "reason": reason})
    entry = Log(
        event=f"gobblin_{ticket.action}",
        owner=user.get_id(),
        owner_display_name=user.get_name(),
        extra=extra,
        dag_id=ticket.dag_id,
    )
    with create_session() as session:
        session.add(entry)


# Release


def _would_release(request: _Request) -> Proposal:
    slot = request.admin.quarantined(request.urn)
    rows = (("Slot", slot.decision.slot), ("Last failure", slot.last_failure))
    return Proposal("Release", "The next run tries again to finish its slot.", rows)


def _release(request: _Request, reason: str) -> Done:
    slot = request.admin.quarantined(request.urn)
    request.admin.release(request.urn, reason, slot.decision.slot)
    return Done("Released", (("Slot", slot.decision.slot), ("Reason", reason)))


# Abandon


def _would_abandon(request: _Request) -> Proposal:
    found = request.admin.would_abandon(request.urn)
    if isinstance(found, Slot):
        then = "Everything that it has published is taken back, and its ranges are open again: the next run plans them anew."
        rows: Rows = (
            ("Slot", found.decision.slot),
            ("Ranges", found.decision.ranges),
            ("Files", found.files),
            ("Rows", found.rows),
        )
        return Proposal("Abandon", then, rows)
    then = "No slot is pending. Plans that could still be decided lose: their runs publish nothing."
    return Proposal("Abandon", then, (("Open plans", len(found)),))


def _abandon(request: _Request, reason: str) -> Done:
    pending = request.history.pending
    slots = request.admin.abandon(request.urn, reason, 0 if pending is None else pending.decision.slot)
    return Done("Abandoned", (*(("Slot", slot.decision.slot) for slot in slots), ("Reason", reason)))


# Rewind


def _would_rewind(request: _Request) -> Proposal:
    change = _rewinding(request)
    rows = (
        ("Watermark", change.before),
        ("Becomes", change.after),
        ("Open again", change.removed),
        ("Files that go", sum(unit.files for unit in change.retired)),
        ("Rows that go", sum(unit.rows_written for unit in change.retired)),
    )
    then = (
        "Everything from this position on is taken back, by whole work units, and the next run ingests anew what the source "
        "has then; it is refused where the source had removed or changed rows of it when it was last planned. "
        "Runs that are planned already publish nothing of this dataset."
    )
    return Proposal("Rewind", then, rows)


def _rewind(request: _Request, reason: str) -> Done:
    slot = request.admin.carry_out(_rewinding(request), reason)
    after = request.admin.journal.state(request.urn).watermark
    return Done("Rewound", (("Slot", slot.decision.slot), ("Watermark", after), ("Reason", reason)))


def _rewinding(request: _Request) -> Change:
    return request.admin.would_rewind(request.urn, request.admin.position(request.urn, request.to))


# Verify


def _would_verify(request: _Request) -> Proposal:
    units = request.history.state.live.values()
    rows = (("Files", sum(unit.files for unit in units)), ("Bytes to read", _bytes(request)))
    then = "Every published file is looked for and compared with the journal. Nothing is changed."
    if not _reads(request):
        then += " There is too much to read here: sizes and identities are compared, and `airflow gobblin verify` reads all."
    return Proposal("Verify", then, rows)


def _verify(request: _Request, reason: str) -> Done:
    states: Counter[FileState] = Counter()
    bad: list[FileCheck] = []
    for check in verify(request.admin.journal, request.files, request.urn, content=_reads(request)):
        states[check.state] += 1
        if check.state is not FileState.OK and len(bad) < _FILES_SHOWN:
            bad.append(check)
    rows = tuple((f"Files {state}", states[state]) for state in FileState if states[state] or state is FileState.OK)
    return Done("Verified", rows, tuple(bad))


def _bytes(request: _Request) -> int:
    return sum(unit.bytes for unit in request.history.state.live.values())


def _reads(request: _Request) -> bool:
    return _bytes(request) <= MOST_READ


@dataclass(frozen=True)
class _Action:
    """The functions of an action.

    :param writes: whether it changes the journal; otherwise the journal is only read.
    """

    proposal: Callable[[_Request], Proposal]
    carry_out: Callable[[_Request, str], Done]
    writes: bool = True


ACTIONS: Mapping[str, _Action] = MappingProxyType(
    {
        "release": _Action(_would_release, _release),
        "abandon": _Action(_would_abandon, _abandon),
        "rewind": _Action(_would_rewind, _rewind),
        "verify": _Action(_would_verify, _verify, writes=False),
    }
)
"""The actions, by their names in addresses."""
