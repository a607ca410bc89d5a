"""How a task announces what was published: by asset events while it runs, and by all else once it has succeeded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow.sdk import AssetAlias

from airflow_gobblin.events.assets import asset_uri, dataset_asset, versions_asset
from airflow_gobblin.events.metrics import count_publication
from airflow_gobblin.events.publication import Publication, publication
from airflow_gobblin.events.structured import log_event, log_file_events
from airflow_gobblin.events.watermark_copies import copy_watermarks
from airflow_gobblin.job import FileEvents

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.journal.history import Slot
    from airflow_gobblin.run.open_job import OpenJob

__all__ = ["Announcement", "announce"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Announcement:
    """The slots that a task announces, and the publications of those with files.

    :param run_key: of the task's run.
    """

    opened: OpenJob
    run_key: str
    slots: tuple[Slot, ...] = ()
    publications: tuple[Publication, ...] = ()

    def succeeded(self, context: Context) -> None:
        """Announce the slots to all others, and note it: Airflow has the events now, taken only from tasks that succeed."""
        from airflow_gobblin.run.announce import note_announced

        published = (slot for slot in self.slots if slot.publishes)
        for slot, facts in zip(published, self.publications, strict=True):
            _trying(partial(log_event, facts, context))
            if isinstance(self.opened.job, FileEvents) and self.opened.job.file_events:
                _trying(partial(self._log_files, slot, facts))
            _trying(partial(count_publication, facts))
        _trying(partial(copy_watermarks, self.publications))
        for slot in self.slots:
            note_announced(self.opened, slot, self.run_key)

    def _log_files(self, slot: Slot, facts: Publication) -> None:
        log_file_events(facts, self.opened.journal.steps(slot.decision))


def announce(opened: OpenJob, urns: Iterable[str] | None, run_key: str, context: Context) -> Announcement:
    """Emit an event for each published slot of these datasets that has had none, no matter which run published it; and one for
    the versions of a stage among them, even if they have no files.

    :param urns: `None` for all datasets.
    """
    from airflow_gobblin.run.announce import unannounced

    ingestion = opened.job.name
    events = context["outlet_events"][AssetAlias(asset_uri(ingestion))]
    slots, publications = [], []
    for slot, report in unannounced(opened, urns):
        slots.append(slot)
        if slot.publishes:
            facts = publication(ingestion, slot, report.watermark)
            events.add(dataset_asset(ingestion=ingestion, urn=facts.urn), extra=dict(facts.event))
            publications.append(facts)
    made = [slot.decision.checkpoint.version for slot in slots if slot.decision.checkpoint is not None]
    if made:
        events.add(versions_asset(ingestion=ingestion), extra={"version": max(made).isoformat()})
    return Announcement(opened, run_key, tuple(slots), tuple(publications))


def _trying(action: Callable[[], None]) -> None:
    """Call `action`, and log its failure as a warning: the publish itself is valid."""
    try:
        action()
    except Exception:
        log.warning("a publish can't be announced", exc_info=True)
