"""A task announces what was published: asset events while it runs, and all else once it has succeeded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow.sdk import AssetAlias

from airflow_gobblin.announcing.assets import asset_uri, dataset_asset
from airflow_gobblin.announcing.events import log_event
from airflow_gobblin.announcing.metrics import count_publication
from airflow_gobblin.announcing.mirror import mirror_watermarks
from airflow_gobblin.announcing.publication import Publication, publication

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.history import Slot
    from airflow_gobblin.pipeline import Pipeline

__all__ = ["Announcement", "announce"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Announcement:
    """What a task announces: slots, and what is told of each. :param run_key: of the task's run."""

    pipeline: Pipeline
    run_key: str
    slots: tuple[Slot, ...] = ()
    publications: tuple[Publication, ...] = ()

    def succeeded(self, context: Context) -> None:
        """Tell it to all others, and note it: Airflow has the events now, which it takes from tasks that succeed only."""
        for told in self.publications:
            _trying(partial(log_event, told, context))
            _trying(partial(count_publication, told))
        _trying(partial(mirror_watermarks, self.publications))
        for slot in self.slots:
            self.pipeline.announced(slot, self.run_key)


def announce(pipeline: Pipeline, urns: Iterable[str] | None, run_key: str, context: Context) -> Announcement:
    """Make an event of each published slot of these datasets that has had none, whoever published it.

    :param urns: `None` for all datasets.
    """
    ingestion = pipeline.ingestion.name
    events = context["outlet_events"][AssetAlias(asset_uri(ingestion))]
    slots, publications = [], []
    for slot, report in pipeline.unannounced(urns):
        told = publication(ingestion, slot, report.watermark)
        events.add(dataset_asset(ingestion=ingestion, urn=told.urn), extra=dict(told.event))
        slots.append(slot)
        publications.append(told)
    return Announcement(pipeline, run_key, tuple(slots), tuple(publications))


def _trying(tell: Callable[[], None]) -> None:
    """What is published stands; that somebody couldn't be told of it is a warning."""
    try:
        tell()
    except Exception:
        log.warning("a publish can't be told", exc_info=True)
