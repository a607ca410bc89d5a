"""The slots that no run has announced yet: those that published files, and versions of stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.job import DerivedWork
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.records import Note, NoteKind, now
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.status import Status
from airflow_gobblin.run import reports
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport


def unannounced(opened: OpenJob, urns: Iterable[str] | None = None) -> Iterator[tuple[Slot, DatasetReport]]:
    """Yield the slots with news that no run has announced, whichever run finished them.

    :param urns: only those of some datasets; `None` for all.
    """
    versions = isinstance(opened.job.work, DerivedWork)  # one without files has no outcome
    wanted = None if urns is None else {dataset_key(urn) for urn in urns}
    for _, history in opened.journal.histories(
        worth=lambda keys: (versions or keys.may_be_unannounced) and (wanted is None or keys.dataset in wanted)
    ):
        if isinstance(history, GobblinError):
            continue
        for slot in history.slots:
            if slot.is_news and not slot.noted(NoteKind.ANNOUNCED):
                yield slot, reports.published(slot, Status.COMMITTED, "", history.state)


def note_announced(opened: OpenJob, slot: Slot, run_key: str) -> None:
    """Note that a slot was announced."""
    opened.journal.put_note(slot.decision.urn, slot.decision.slot, Note(NoteKind.ANNOUNCED, run_key, now()))
