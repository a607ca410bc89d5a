"""The pipeline of an ingestion or a stage, as far as a user may look at its DAGs: jobs that read each other, in layers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.registry import Registered
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.seals import Seals
from airflow_gobblin.plugins.page.lookup import opened
from airflow_gobblin.stages.outputs import Input
from airflow_gobblin.stages.record import inputs_on_record, stages_on_record
from airflow_gobblin.stages.views import SourceView, StageView, source_view, stage_view

__all__ = ["JobView", "has_versions", "layers"]


@dataclass(frozen=True)
class JobView:
    """A job of a pipeline.

    :param where: `None`: no DAG that the user may look at has it.
    :param view: `None`: it can't be seen.
    :param error: why its journal can't be read; empty if it can.
    """

    name: str
    where: Registered | None
    view: StageView | SourceView | None = None
    error: str = ""

    @property
    def stage(self) -> StageView | None:
        """The view, if it is that of a stage."""
        return self.view if isinstance(self.view, StageView) else None


def has_versions(journal: Journal) -> bool:
    """Return whether a journal is that of a stage, or of an ingestion that seals versions."""
    return inputs_on_record(journal.store, journal.ingestion) is not None or Seals(journal).newest() > 0


def layers(where: Registered, readable: Iterable[Registered]) -> tuple[tuple[JobView, ...], ...]:
    """Return the jobs of a pipeline, each in the layer below the lowest one that it reads.

    :param where: one of them.
    :param readable: all ingestions and stages that the user may look at. The stages of a pipeline have one journal.
    :raises GobblinError: the journal of `where` can't be read.
    """
    places = {(one.journal, one.ingestion): one for one in (*readable, where)}
    names = {where.ingestion, *_stages(where)}  # others read nothing, however many there are
    inputs = {name: _inputs(where, name) for name in names if (where.journal, name) in places}
    journals = dict.fromkeys(inputs, where.journal)
    for read in chain.from_iterable(inputs.values()):
        journals.setdefault(read.ingestion, read.journal)
    upstreams = {name: {one.ingestion for one in inputs.get(name, ())} for name in journals}
    together = _together(where.ingestion, upstreams)
    depths = _depths(together, upstreams)
    found: list[list[JobView]] = [[] for _ in range(max(depths.values()) + 1)]
    for name in sorted(together):
        found[depths[name]].append(_job(name, places.get((journals[name], name)), stage=bool(inputs.get(name))))
    return tuple(tuple(layer) for layer in found if layer)


def _stages(where: Registered) -> tuple[str, ...]:
    """Return the names of the stages in a journal; none if it can't be read."""
    try:
        return stages_on_record(opened(where).store)
    except GobblinError:
        return ()


def _inputs(where: Registered, name: str) -> tuple[Input, ...]:
    """Return what a stage in the same journal reads; nothing for an ingestion, or where its record can't be read."""
    try:
        known = inputs_on_record(opened(where).store, name)
    except GobblinError:
        return ()
    return () if known is None else known.inputs


def _together(name: str, upstreams: Mapping[str, set[str]]) -> set[str]:
    """Return the jobs that a job is connected with, by whatever reads what."""
    found, before = {name}, set[str]()
    while found != before:
        before = set(found)
        for job, reads in upstreams.items():
            if job in before or reads & before:
                found |= {job, *reads}
    return found


def _depths(names: Collection[str], upstreams: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the layer of each job. Journals that were tampered with may have jobs that read each other: that ends somewhere."""
    depths = dict.fromkeys(names, 0)
    for _ in names:
        deeper = {name: max((depths[one] + 1 for one in upstreams[name]), default=0) for name in names}
        if deeper == depths:
            break
        depths = deeper
    return depths


def _job(name: str, where: Registered | None, *, stage: bool) -> JobView:
    if where is None:
        return JobView(name, None)
    try:
        journal = opened(where)
        return JobView(name, where, stage_view(journal, AirflowConnections()) if stage else source_view(journal))
    except GobblinError as error:
        return JobView(name, where, error=str(error))
