"""The use that a plan makes of earlier ones of its dataset, which failed runs left in staging.

An earlier plan that is still right is the plan. Otherwise its token is given up before the new plan is stored, so that it is
never decided, and then units of the new plan take the files that it finished: each by a rename, which one process can do.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice

from airflow_gobblin.commit.preconditions import can_win
from airflow_gobblin.errors import GobblinError, LostRaceError, RecordError
from airflow_gobblin.job import ReusingWork
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model import wire
from airflow_gobblin.model.failure import ErrorKind
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import BegunUnit, StagedFile, WorkUnit
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.workspace.staging import batched

log = logging.getLogger(__name__)

_MOST_PLANS = 3
"""How many of the newest plans a new one takes files from: each has taken what it could from the one before."""


def earlier_plans(opened: OpenJob) -> Mapping[str, Sequence[str]]:
    """Return the tokens of the plans in staging by dataset, if the job's work can use anything of them."""
    found: dict[str, list[str]] = {}
    if isinstance(opened.job.work, ReusingWork):
        for token, plan in opened.staging.plans():
            if isinstance(plan, Plan):
                found.setdefault(plan.urn, []).append(token)
    return found


def with_earlier(
    opened: OpenJob, plan: Plan, units: Iterable[WorkUnit], tokens: Sequence[str]
) -> tuple[Plan, Iterable[WorkUnit] | None]:
    """Return the plan to carry out.

    :param units: those of the plan, read to their end if it is an earlier one that is carried out.
    :param tokens: those of earlier plans.
    :return: an earlier plan, which is stored; or the new one, with its units, which may take files of earlier ones.
    """
    work = opened.job.work
    if not tokens or not isinstance(work, ReusingWork):
        return plan, units
    history = opened.journal.history(plan.urn)
    earlier = [one for one in map(opened.staging.plan, tokens) if one is not None and work.reuses(plan, one)]
    earlier = [one for one in earlier if _is_left(one, history) and not _was_refused(opened, one)]
    earlier.sort(key=lambda one: _given_up_at(one, history))
    valid = [one for one in earlier if can_win(one, history) and one.is_like(plan)]
    for one in sorted(valid, key=lambda one: opened.staging.count_results(one.token), reverse=True):
        same, units = _compared(opened, one, units)
        if same:
            log.info("dataset %r: a plan that an earlier run left is still right, and is carried out", plan.urn)
            return one, None
    if not opened.files.moves_folders:  # nothing can be taken over by a rename
        return plan, units
    given_up = [one for one in earlier if opened.committer.give_up(one, plan.run, "a newer plan took its place")]
    given_up = [one for one in given_up if _has_any(opened, one)][-_MOST_PLANS:]
    if not given_up:
        return plan, units
    log.info("dataset %r: files are used that %s finished", plan.urn, many(len(given_up), "earlier plan"))
    plan = replace(plan, takes_from=tuple(one.token for one in given_up))
    return plan, _with_finished(opened, work, plan, units, given_up)


def _is_left(plan: Plan, history: History) -> bool:
    """Return whether a plan was never decided, and not given up by a person, who may know something about its files."""
    slot = history.by_token(plan.token)
    return slot is None or (slot.decision.action is Action.ABORT and not slot.decision.actor)


def _given_up_at(plan: Plan, history: History) -> int:
    """Return the slot by which a plan was given up; one that wasn't is newer than all that were."""
    slot = history.by_token(plan.token)
    return history.state.head + 1 if slot is None else slot.decision.slot


def _has_any(opened: OpenJob, plan: Plan) -> bool:
    """Return whether a try of any of a plan's units, or of their parts, has ended."""
    return opened.staging.has_results(plan.token) or bool(opened.staging.units_begun(plan.token))


def _was_refused(opened: OpenJob, plan: Plan) -> bool:
    """Return whether a check found the files of a plan unfit to be published: they are made anew."""
    try:
        failure = opened.staging.unwritten(plan.token)
    except RecordError:  # it may record a refusal
        return True
    return failure is not None and failure.kind is ErrorKind.CHECK_FAILED


def _compared(opened: OpenJob, plan: Plan, units: Iterable[WorkUnit]) -> tuple[bool, Iterable[WorkUnit]]:
    """Return whether a stored plan has just these units, and all of them again: equal ones are read from it, so none is kept."""
    rest, theirs, same = iter(units), _planned(opened, plan), 0
    for unit in rest:
        if next(theirs, None) != unit:
            return False, chain(_first(opened, plan, same), (unit,), rest)
        same += 1
    return not any(True for _ in theirs), _first(opened, plan, same)


def _first(opened: OpenJob, plan: Plan, count: int) -> Iterator[WorkUnit]:
    return (unit for unit in islice(_planned(opened, plan), count) if unit is not None)


def _planned(opened: OpenJob, plan: Plan) -> Iterator[WorkUnit | None]:
    """Yield the units of a stored plan without the files that they may take, and `None` if it isn't complete."""
    try:
        for unit in opened.staging.units(plan):
            yield replace(unit, finished={}, begun=())
    except (LostRaceError, RecordError):
        yield None


def _with_finished(
    opened: OpenJob, work: ReusingWork, plan: Plan, units: Iterable[WorkUnit], given_up: Iterable[Plan]
) -> Iterator[WorkUnit]:
    """Yield units, each with the finished files, and parts, of earlier plans that are like those that it would make."""
    begun: dict[bytes, list[BegunUnit]] = {}
    with closing(_FinishedFiles()) as finished:
        for earlier in given_up:
            try:
                finished.add(_finished_by(opened, work, earlier))
                for guid, one in _begun_by(opened, work, earlier):
                    begun.setdefault(guid, []).append(one)
            except GobblinError as error:  # these files are made anew
                log.warning("dataset %r: not all files of an earlier plan are known: %s", plan.urn, error)
        for unit in units:
            guids = work.guids(plan, unit)
            of_unit = chain.from_iterable(begun.get(guid, ()) for guid in guids.values() if begun)
            yield replace(unit, finished=finished.of(guids), begun=tuple(of_unit))


def _finished_by(opened: OpenJob, work: ReusingWork, plan: Plan) -> Iterator[tuple[bytes, StagedFile]]:
    """Yield the files that a plan's units finished, each with its GUID. If several tries finished one, the last comes last."""
    staging, folder = opened.staging, opened.staging.token_folder(plan.token)
    failed = staging.all_failed_results(plan.token)
    for some in batched(staging.units(plan)):
        units = {unit.id: unit for unit in some}
        of_failed = chain.from_iterable(failed.get(unit, ()) for unit in units)
        of_done = (result for _, result in staging.results(plan.token, units, checked=False))
        for result in chain(of_failed, of_done):
            guids = work.guids(plan, units[result.unit])
            for path, file in work.finished(units[result.unit], result, folder).items():
                if path in guids:
                    yield guids[path], file


def _begun_by(opened: OpenJob, work: ReusingWork, plan: Plan) -> Iterator[tuple[bytes, BegunUnit]]:
    """Yield the units of a plan that have finished parts, each with the GUID of its file. They are few: their files are large."""
    begun = opened.staging.units_begun(plan.token)
    for unit in opened.staging.units(plan) if begun else ():
        if unit.id in begun:
            yield from ((guid, BegunUnit(plan.token, unit.id)) for guid in work.guids(plan, unit).values())


class _FinishedFiles:
    """Finished files by GUID, in a temporary database, since there may be too many for memory."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE files (guid BLOB PRIMARY KEY, staged BLOB) WITHOUT ROWID")

    def add(self, files: Iterable[tuple[bytes, StagedFile]]) -> None:
        """Add files. Of those with one GUID the last one counts."""
        rows = ((guid, wire.canonical(wire.to_json(file))) for guid, file in files)
        self._database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", rows)

    def of(self, guids: Mapping[str, bytes]) -> dict[str, StagedFile]:
        """Return the files that exist for these GUIDs, by the same paths."""
        found: dict[str, StagedFile] = {}
        for path, guid in guids.items():
            row = self._database.execute("SELECT staged FROM files WHERE guid = ?", (guid,)).fetchone()
            if row is not None:
                found[path] = wire.from_json(StagedFile, json.loads(row[0]), "a finished file")
        return found

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()
