"""Sealing a version at the end of a run, for the stages that read what the job publishes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import now
from airflow_gobblin.journal.seals import Seal, SealedDataset, Seals, head_of, up_to
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.naming import dataset_key, shown
from airflow_gobblin.model.plan import RunPlan, Sealing
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.status import Status
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport

log = logging.getLogger(__name__)

_IN = frozenset({Status.COMMITTED, Status.COVERED, Status.IDLE})
"""Statuses of datasets of which everything that the source had for the run is published."""
_NAMED = 5
_WAITS = frozenset({Status.HELD, Status.PAUSED})
"""Statuses of datasets that wait: the rest of such a dataset belongs to the version that publishes it."""


def seal(opened: OpenJob, run: RunPlan, sealing: Sealing, reports: Iterable[DatasetReport]) -> Seal | None:
    """Seal the version of a run, if everything up to it is in, and neither it nor a later one is sealed.

    :param reports: those of the end of the run.
    :return: the seal; `None` if the version isn't sealed now.
    :raises RecordError: the chain of seals is broken.
    """
    found = {report.urn: report.status for report in reports}
    lacks = sorted(urn for urn, status in found.items() if status not in _IN | _WAITS)
    if lacks:
        _unsealed(sealing, f"{', '.join(map(shown, lacks[:_NAMED]))} may lack something of it")
        return None
    seals = Seals(opened.journal)
    while True:
        newest = seals.newest()  # before the datasets
        known = _known(opened, found, run.run_key)
        made = _made(run, sealing, found, seals, newest, known)
        if isinstance(made, str):
            _unsealed(sealing, made)
            return None
        if seals.put(made):
            log.info("version %s is sealed, as number %d", made.upto.isoformat(), made.number)
            return made


@dataclass(frozen=True)
class _Known:
    """The facts that a seal needs about a dataset.

    :param state: without units.
    :param head: its newest slot that has ended.
    :param answered: what was planned by the slot that answers the run, if it was committed before; for a trimmed slot, only if a
        part of it wasn't covered then.
    """

    state: DatasetState
    head: int
    dropped: bool
    answered: Range | None = None


def _known(opened: OpenJob, urns: Iterable[str], run_key: str) -> Mapping[str, _Known | GobblinError]:
    """Return every dataset of the journal, by URN, or by key if it can't be read."""
    names = {dataset_key(urn): urn for urn in urns}
    known: dict[str, _Known | GobblinError] = {}
    for key, found in opened.journal.histories(names):
        if isinstance(found, History):
            state = replace(found.state, live={}, retired={}, previous_units=())
            pending = found.pending
            head = state.head if pending is None else pending.decision.slot - 1
            answer = found.answer(run_key)
            answered = None if answer is None else answer.decision.planned
            known[found.urn] = _Known(state, head, found.dropped is not None, answered)
        else:
            known[names.get(key, key)] = found
    return known


def _made(
    run: RunPlan,
    sealing: Sealing,
    found: Mapping[str, Status],
    seals: Seals,
    newest: int,
    known: Mapping[str, _Known | GobblinError],
) -> Seal | str:
    """Return the seal to put after the newest, or why there is none."""
    planned = {ref.urn: ref.planned for pack in run.packs for ref in pack.datasets}
    states = {urn: one.state for urn, one in known.items() if isinstance(one, _Known)}
    last, above = up_to(seals.before(newest), states)
    if last is not None and sealing.version <= last.upto:
        return f"{last.upto.isoformat()} is sealed, and has it"
    datasets = {}
    for urn in found:
        one = known.get(urn, _Known(DatasetState(urn), 0, dropped=False))  # idle, and never published
        if isinstance(one, GobblinError):
            return f"dataset {urn!r} can't be read"
        if not _same_generation(one.state, sealing):
            return f"dataset {urn!r} was rewound, set, imported or dropped since the run was planned"
        if not _all_there(one.state, planned.get(urn) or one.answered):
            return f"dataset {urn!r} has less than was planned"
        status = found[urn]
        sealed = SealedDataset(one.head, one.state.generation, status.value if status in _WAITS else "")
        datasets[urn] = head_of(urn, sealing.version, sealed, above, one.state)
    for urn in () if last is None else last.datasets.keys() - found.keys():
        gone = known.get(urn)
        if gone is not None and not (isinstance(gone, _Known) and gone.dropped):
            return f"dataset {urn!r} is no longer listed, and not dropped"
    highest = max([sealing.version, *(seal.highest for seal in (last, *above) if seal is not None)])
    return Seal(newest + 1, sealing.version, highest, datasets, seals.digest(newest), now(), run.dag_run)


def _same_generation(state: DatasetState, sealing: Sealing) -> bool:
    """Return whether nothing can have been taken back of a dataset since it was planned."""
    return state.generation == sealing.generations.get(state.urn, 0)


def _all_there(state: DatasetState, planned: Range | None) -> bool:
    """Return whether all that was planned is covered, by whichever run; a unit may have stopped below its end."""
    return planned is None or state.coverage.covers(planned)


def _unsealed(sealing: Sealing, why: str) -> None:
    log.info("version %s isn't sealed: %s", sealing.version.isoformat(), why)
