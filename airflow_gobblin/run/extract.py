"""`extract`: the units of a pack that still lack a result.

`spark/pack.py` runs them; `rows/extraction.py` reads and writes a unit's rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from airflow_gobblin.commit.preconditions import can_win
from airflow_gobblin.errors import GobblinError, LostRaceError, RecordError
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.status import Status
from airflow_gobblin.model.work import Pack, WorkUnit
from airflow_gobblin.run import reports
from airflow_gobblin.run.derived import looked
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport

log = logging.getLogger(__name__)


def missing_units(opened: OpenJob, pack: Pack) -> Iterator[tuple[Plan, WorkUnit]]:
    """Yield the units of a pack that have no result and are still wanted: their plan is undecided and can win.

    If a plan can't win because what it reads was taken back, files of that may be gone.

    :raises GobblinError: the inputs of a stage can't be looked at.
    """
    for ref in pack.datasets:
        try:
            plan = opened.staging.plan(ref.token)
            if plan is not None and can_win(plan, opened.journal.history(ref.urn)):
                missing = (unit for unit, done in opened.staging.units_done(plan) if not done)
                for number, unit in enumerate(opened.staging.with_finished(opened.job.work, ref.token, missing)):
                    if number == 0:
                        looked(opened, plan)
                    yield plan, unit
        except (RecordError, LostRaceError) as error:  # write_commit_steps will report it; the others go on
            log.warning("dataset %r is not extracted: %s", ref.urn, error)


def decided(opened: OpenJob, pack: Pack, most: int) -> Iterator[DatasetReport]:
    """Report the datasets of a pack that have a slot.

    :param most: look only at this many datasets, from the first on.
    """
    for ref in islice(pack.datasets, most):
        try:
            history = opened.journal.history(ref.urn)
        except GobblinError as error:
            yield reports.failed("look up", ref.urn, error)
            continue
        slot = history.by_token(ref.token)
        if slot is not None:
            pending = f"{reports.described(slot)} is decided, and not finished"
            yield reports.already(slot, history) if slot.finished else DatasetReport(ref.urn, Status.PENDING, pending)
