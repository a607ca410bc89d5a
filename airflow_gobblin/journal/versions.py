"""Old versions of datasets, for readers: the units that hold what a dataset had up to a version.

A stage has the versions that it made; a dataset of a source those that its job sealed. Rows that later replaced others of
a version are part of it, and rows that were taken back are gone: a version is what stages would read of it now.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterable
from datetime import datetime

from airflow_gobblin.errors import ConfigurationError, NotFoundError, StateGivenUpError
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.seals import Seals, content
from airflow_gobblin.model.channels import ROWS, STATE
from airflow_gobblin.model.checkpoint import StateForm
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.state import UnitRef

__all__ = ["state_after", "table_slot", "units_up_to"]


def units_up_to(
    version: datetime, history: History, seals: Seals, number: int, channel: str = ROWS
) -> frozenset[UnitRef]:
    """Return the live units of a dataset up to a version.

    :param seals: those of its job.
    :param number: the number of the newest of them when the history was read, or of an older one.
    :raises NotFoundError: it has no such version, or no longer has it; the versions next to it are named.
    :raises ConfigurationError: the version has no time zone, or each slot of the dataset replaces the ones before.
    :raises RecordError: as `Seals.after`.
    """
    version = _zoned(version, history)
    holds, state = history.holds, history.state
    if holds is not None and (holds.replaces_all or not holds.keeps_units):
        hint = "Read it without a version."
        raise _refused(version, history, f"each of its slots holds {holds.what}, and only the newest counts", hint)
    if holds is Holds.VERSIONS:
        slots = {slot for slot, made in state.checkpoints.items() if made.version <= version}
        if all(state.checkpoints[slot].version != version for slot in slots):
            raise _missing(version, history, [made.version for made in state.checkpoints.values()])
        return _units(history, slots, channel)
    return _units(history, content(_head(version, history, seals, number), state), channel)


def table_slot(version: datetime, history: History, seals: Seals, number: int) -> Slot:
    """Return the slot whose commit left a table as it was at a version. The parameters are those of `units_up_to`.

    :raises NotFoundError: it has no such version, rows of it were replaced since, or it isn't known what the table calls it.
    :raises ConfigurationError: the version has no time zone.
    :raises RecordError: as `Seals.after`.
    """
    version, whole = _zoned(version, history), history.holds is not None and history.holds.replaces_all
    units = frozenset[UnitRef]() if whole else units_up_to(version, history, seals, number)
    if history.holds is Holds.VERSIONS:
        head = max(slot for slot, made in history.state.checkpoints.items() if made.version <= version)
    else:
        head = _head(version, history, seals, number)
    later = max((ref.slot for ref in units), default=0)
    if later > head:
        raise _unreadable(
            version, history, f"slot {later} replaced rows of it since: no version of its table is just that"
        )
    slots = (slot for slot in history.newest_first if slot.decision.slot <= head and slot.done)
    slot = next((slot for slot in slots if slot.decision.table is not None), None)
    if slot is None:
        raise _unreadable(version, history, "it has no rows")
    if not slot.table_version:
        cause = f"the version of its table that slot {slot.decision.slot} left isn't known: it may keep none"
        raise _unreadable(version, history, cause)
    return slot


def _head(version: datetime, history: History, seals: Seals, number: int) -> int:
    """Return the slot up to which a sealed version of a dataset goes.

    :raises NotFoundError: as `units_up_to`.
    """
    state = history.state
    sealed = (seal for seal in seals.after(version - datetime.resolution, number) if seal.upto == version)
    found = (seal.datasets[history.urn] for seal in sealed if history.urn in seal.datasets)
    head = next((one.head for one in found if one.intact(state)), None)
    if head is None:
        sealing = (seal for seal in seals.before(number) if history.urn in seal.datasets)
        raise _missing(version, history, [one.upto for one in sealing if one.datasets[history.urn].intact(state)])
    return head


def state_after(version: datetime | None, history: History) -> tuple[UnitRef, StateForm]:
    """Return the unit with what a stage keeps after a version, and its form.

    :param version: `None`: the newest.
    :raises StateGivenUpError: the state of that version is given up.
    :raises NotFoundError: it keeps no state, or it has no such version, or no longer has it: the versions next to it are named.
    :raises ConfigurationError: the version has no time zone.
    """
    state = history.state
    made = {state.checkpoints[slot].version: slot for slot in state.versions}
    if version is not None and _zoned(version, history) not in made:
        raise _missing(version, history, made)
    if not made:
        raise _stateless(history, "it has no version" if history.holds is Holds.VERSIONS else "it is not a stage")
    version = version or max(made)
    slot, form = made[version], state.checkpoints[made[version]].state
    if form is None:
        raise _stateless(history, "it keeps none")
    units = {ref.slot: ref for ref in state.units_of(STATE)}
    if slot not in units:
        kept = ", ".join(one.isoformat() for one, slot in made.items() if slot in units)
        raise StateGivenUpError(
            operation="read",
            subject=f"the state of {history.urn!r} after version {version.isoformat()}",
            cause="it is given up",
            hint=f"The state of {kept} is kept. `State(keep=…)` sets how many are kept.",
        )
    return units[slot], form


def _stateless(history: History, cause: str) -> NotFoundError:
    hint = "Read its rows: `read_dataset`."
    return NotFoundError(operation="read", subject=f"the state of {history.urn!r}", cause=cause, hint=hint)


def _zoned(version: datetime, history: History) -> datetime:
    if version.tzinfo is None:
        raise _refused(version, history, "it has no time zone", "Give it one: datetime(2026, 3, 1, 5, tzinfo=UTC).")
    return version


def _units(history: History, slots: Collection[int], channel: str) -> frozenset[UnitRef]:
    return frozenset(ref for ref in history.state.units_of(channel) if ref.slot in slots)


def _missing(version: datetime, history: History, known: Iterable[datetime]) -> NotFoundError:
    """Make the error for a version that isn't there, with those next to it."""
    ordered = sorted({*known})
    place = bisect(ordered, version)
    beside = " and ".join(one.isoformat() for one in ordered[max(0, place - 1) : place + 1])
    return NotFoundError(
        operation="read",
        subject=f"version {version.isoformat()} of {history.urn!r}",
        cause=_why(version, history),
        hint=f"Next to it are {beside}." if beside else "It has no version yet.",
    )


def _unreadable(version: datetime, history: History, cause: str) -> NotFoundError:
    subject = f"version {version.isoformat()} of {history.urn!r}"
    return NotFoundError(operation="read", subject=subject, cause=cause, hint="Read the table as it is now.")


def _why(version: datetime, history: History) -> str:
    """Return why a version isn't there; for a stage, what is on record about it."""
    made = [slot for slot in history.slots if (one := slot.decision.checkpoint) and one.version == version]
    if not made:
        return "it has no such version, or no longer"
    newest = made[-1]
    if not newest.finished:
        return f"its slot, {newest.decision.slot}, is decided and not finished"
    if not newest.done:
        return newest.given_up
    taker = next(slot for slot in history.after(newest.decision.slot) if slot.done and _takes(slot, newest))
    return f"{taker.named} took it back, and no run has made it again"


def _takes(slot: Slot, made: Slot) -> bool:
    decision = slot.decision
    return decision.action is Action.DROP or any(
        ref.slot == made.decision.slot and ref.channel == ROWS for ref in decision.replaces
    )


def _refused(version: datetime, history: History, cause: str, hint: str) -> ConfigurationError:
    subject = f"version {version.isoformat()} of {history.urn!r}"
    return ConfigurationError(operation="read", subject=subject, cause=cause, hint=hint)
