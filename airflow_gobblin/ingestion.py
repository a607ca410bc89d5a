"""An ingestion, as defined by a DAG author. Light to import: it is created whenever a DAG file is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import check_numbers
from airflow_gobblin.model import wire
from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.declarations import check_tuples
from airflow_gobblin.model.naming import check_ingestion_name
from airflow_gobblin.model.policy import DEFAULT_ATTEMPTS, DEFAULT_RETENTION, CommitPolicy
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.work import Limits
from airflow_gobblin.rows.converters.base import Converter, RowCheck
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.rows.sources.base import DeclaredSource, OrderedSource, Source
from airflow_gobblin.rows.work import RowsWork
from airflow_gobblin.stages.outputs import Output


@dataclass(frozen=True)
class Ingestion:
    """One named job: a source, a sink, and the settings that connect them.

    :param name: the name of its journal: mandatory, permanent, never derived from the id of a DAG or group.
    :param journal: the location of the journal: `file:///…`, `sqlite:////…`, `s3://[connection@]bucket/prefix`, or the id of an
        Airflow connection to PostgreSQL.
    :param policy: the effect of a failed unit on its dataset, as a `CommitPolicy` or its name.
    :param partial_ok: whether a run succeeds if it published only a part of a dataset.
    :param max_packs: the maximum number of Spark applications in a run.
    :param max_pack_weight: the maximum weight of a pack, in the weights of work units (bytes, by default). A heavier dataset has
        a pack to itself, and datasets that don't fit wait for the next run. `None`: everything planned fits.
    :param batch: how much must be waiting in the source before a run reads it. Less is held: the run is green, and doesn't start
        Spark. Snapshots, backfills and flushes are not held.
    :param attempts: the number of runs that fail to finish a slot before its dataset is quarantined.
    :param retention: how long replaced files are kept.
    :param seals: whether runs seal versions for stages that read what they publish. Scheduled runs seal the ends of their data
        intervals; in a DAG without times, each run seals the moment when it was due.
    :param code: modules with the author's own sources, sinks, converters, checks, steps and watermarks.
    :raises ConfigurationError: the name, the policy or a number is invalid, a class is not registered with `wire.record`, or two
        datasets share a table.
    """

    name: str
    source: Source
    sink: Sink
    journal: str
    policy: CommitPolicy = CommitPolicy.FULL
    partial_ok: bool = False
    converters: tuple[Converter, ...] = ()
    checks: tuple[RowCheck, ...] = ()
    limits: Limits = field(default_factory=Limits)
    batch: Batch | None = None
    max_packs: int = 4
    max_pack_weight: int | None = None
    attempts: int = DEFAULT_ATTEMPTS
    retention: timedelta = DEFAULT_RETENTION
    options: Mapping[str, Json] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    seals: bool = False

    def __post_init__(self) -> None:
        check_ingestion_name(self.name)
        check_tuples(self)
        for part in (self.source, self.sink, *self.converters, *self.checks):
            wire.kind_of(part)
        try:
            object.__setattr__(self, "policy", CommitPolicy(self.policy))
        except ValueError as error:
            raise ConfigurationError(
                operation="use",
                subject=f"policy {self.policy!r} of ingestion {self.name!r}",
                cause="there is no such commit policy",
                hint=f"Use one of {', '.join(repr(policy.value) for policy in CommitPolicy)}.",
            ) from error
        ordered = isinstance(self.source, OrderedSource) and self.source.reads_in_order
        if self.policy is CommitPolicy.PARTIAL and not ordered:
            raise ConfigurationError(
                operation="use",
                subject=f"policy 'partial' of ingestion {self.name!r}",
                cause=f"its source, a {type(self.source).__name__}, doesn't promise to read in order",
                hint="Use 'successful'; or a source that has `reads_in_order`.",
            )
        check_numbers(self, f"ingestion {self.name!r}")
        self._check_tables()

    def __getitem__(self, urn: str) -> Output:
        """Return a dataset, as stages of a pipeline read it.

        :raises ConfigurationError: the URN is not valid.
        """
        return Output(self.name, urn)

    def _check_tables(self) -> None:
        """Check that no two datasets share a table, as far as they are known here; planning sees whose a table is."""
        if not isinstance(self.sink, TableSink) or not isinstance(self.source, DeclaredSource):
            return
        seen: dict[str, str] = {}
        for dataset in self.source.declared:
            name = self.sink.table_of(dataset).name
            other = seen.setdefault(name, dataset.urn)
            if other != dataset.urn:
                raise ConfigurationError(
                    operation="use",
                    subject=f"{name} for dataset {dataset.urn!r} of ingestion {self.name!r}",
                    cause=f"it is the table of dataset {other!r}, too",
                    hint="Let its name have {dataset}, which represents the dataset's key.",
                )

    @property
    def work(self) -> RowsWork:
        """The work on its units, with everything that Spark needs."""
        return RowsWork(
            self.name, self.source, self.sink, self.converters, self.checks, self.limits, self.options, self.code
        )
