"""The inputs of a run's plan: the datasets that are asked for, and their histories, by one listing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from airflow_gobblin.commit.homes import PublishedFolder, Tenant
from airflow_gobblin.errors import ConfigurationError, GobblinError, RecordError
from airflow_gobblin.job import DatasetLike
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.naming import dataset_key, meant
from airflow_gobblin.model.plan import DatasetNote
from airflow_gobblin.model.state import DatasetState, Provenance
from airflow_gobblin.run import reports
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.request import RunRequest

_STATES_KEPT = 1000
_NAMED = 20
_SOUGHT = 3
_TO_CORRECT = "Correct the run's configuration or its partition key, or add them to the source. Nothing was changed."


class States(Mapping[str, DatasetState]):
    """The state of every dataset of an ingestion, by URN. Each is read on first use, and a bounded number is kept."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, DatasetState] = {}

    def add(self, urn: str, history: History | GobblinError) -> None:
        """Keep the state of a dataset that was already read; a dataset that can't be read has no state."""
        self._known.pop(urn, None)
        if isinstance(history, History):
            while len(self._known) >= _STATES_KEPT:
                del self._known[next(iter(self._known))]
            self._known[urn] = history.state

    def __getitem__(self, urn: str) -> DatasetState:
        if urn not in self._known:
            try:
                self.add(urn, self._journal.history(urn))
            except RecordError as error:
                raise KeyError(urn) from error
        return self._known[urn]

    def __iter__(self) -> Iterator[str]:
        return iter(self._journal.datasets())

    def __len__(self) -> int:
        return len(self._journal.datasets())


@dataclass(frozen=True)
class Planning:
    """The inputs of a run's plan, or of the plan that it would have now.

    :param provenance: that of everything the run's DAG plans, except for where each dataset is read from.
    :param every: all datasets of the source.
    :param datasets: the datasets that are asked for.
    :param states: the states of the datasets read so far.
    :param tried: when a run last tried to publish something of each dataset read so far.
    :param folders: the folder of each dataset read so far that has published files.
    """

    request: RunRequest
    run_key: str
    tenant: Tenant
    provenance: Provenance
    every: tuple[DatasetLike, ...]
    datasets: tuple[DatasetLike, ...]
    states: States
    tried: dict[str, datetime | None] = field(default_factory=dict)
    folders: dict[str, PublishedFolder] = field(default_factory=dict)

    def add(self, urn: str, history: History | GobblinError) -> None:
        """Keep what planning needs of a dataset that was read."""
        self.states.add(urn, history)
        self.folders.pop(urn, None)
        if isinstance(history, History) and (folder := PublishedFolder.of(history)) is not None:
            self.folders[urn] = folder

    def provenance_of(self, dataset: DatasetLike) -> Provenance:
        """Return the provenance that a dataset would have."""
        return replace(self.provenance, read_from=dataset.origin)


def begin(opened: OpenJob, request: RunRequest) -> Planning:
    """Collect the inputs of a run's plan, writing nothing. Errors are those of `create_work_units`."""
    tenant = Tenant(request.dag, opened.job.work.source_identity)
    opened.committer.homes.check(tenant)
    every = _datasets(opened, request)
    return Planning(
        request,
        request.run_key(opened.job.name),
        tenant,
        opened.committer.homes.provenance(request.dag),
        every,
        tuple(d for d in every if not request.datasets or d.urn in request.datasets),
        States(opened.journal),
    )


def with_histories(
    opened: OpenJob, planning: Planning, left: list[DatasetNote]
) -> Iterator[tuple[DatasetLike, History | GobblinError]]:
    """Yield each dataset with its history, by one listing, with few of them in memory at once.

    :param left: gets a note for each dataset that the source no longer has and that an earlier run left unfinished.
    """
    for dataset, history in _listed(opened, planning, left):
        planning.add(dataset.urn, history)
        planning.tried[dataset.urn] = history.tried if isinstance(history, History) else None
        yield dataset, history


def _listed(
    opened: OpenJob, planning: Planning, left: list[DatasetNote]
) -> Iterator[tuple[DatasetLike, History | GobblinError]]:
    wanted = {dataset_key(d.urn): d for d in planning.datasets}
    of_source = {dataset_key(d.urn) for d in planning.every}
    names = {key: dataset.urn for key, dataset in wanted.items()}
    for key, history in opened.journal.histories(
        names, lambda keys: keys.dataset in names or (keys.may_be_pending and keys.dataset not in of_source)
    ):
        if key in wanted:
            yield wanted.pop(key), history
        elif key not in of_source and isinstance(history, History) and history.pending is not None:
            left.append(reports.left_behind(history, history.pending))
    for dataset in wanted.values():
        yield dataset, History(dataset.urn)


def _datasets(opened: OpenJob, request: RunRequest) -> tuple[DatasetLike, ...]:
    """Return all datasets of the source, checking that their keys differ and that the requested ones exist."""
    with opened.connections.redacting("plan", f"ingestion {opened.job.name!r}"):
        datasets = tuple(opened.job.work.datasets(opened.connections))
    keys: dict[str, str] = {}
    for dataset in datasets:
        key = dataset_key(dataset.urn)
        if key in keys:
            raise ConfigurationError(
                operation="plan",
                subject=f"dataset {dataset.urn!r}",
                cause="the source names it twice" if keys[key] == dataset.urn else f"its key is {keys[key]!r}'s, too",
                hint="Give each dataset of the source a URN of its own.",
            )
        keys[key] = dataset.urn
    unknown = sorted(set(request.datasets) - {d.urn for d in datasets})
    if unknown:
        raise _unknown(unknown, sorted(d.urn for d in datasets))
    return datasets


def _unknown(urns: Sequence[str], known: Sequence[str]) -> ConfigurationError:
    """Make the error for datasets that were asked for and don't exist."""
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    return ConfigurationError(
        operation="plan",
        subject=f"datasets {[*urns[:_NAMED]]}",
        cause=f"the source has no such: it has {[*known[:_NAMED]]}{more}",
        hint=f"{meant(known, *urns[:_SOUGHT])} {_TO_CORRECT}".lstrip(),
    )
