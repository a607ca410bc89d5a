"""An ingestion, as a DAG author describes it. Light to import: it is made whenever a DAG file is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from airflow_gobblin import wire
from airflow_gobblin.converters.base import Converter, RowCheck
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import ExtractJob
from airflow_gobblin.naming import check_ingestion_name
from airflow_gobblin.places import object_place
from airflow_gobblin.policy import CommitPolicy
from airflow_gobblin.sinks.base import Sink
from airflow_gobblin.sources.base import Source
from airflow_gobblin.watermark import Json
from airflow_gobblin.work import Limits

DEFAULT_ATTEMPTS = 3
DEFAULT_RETENTION = timedelta(hours=24)


@dataclass(frozen=True)
class Ingestion:
    """One named job: a source, a sink, and how they are brought together.

    :param name: the name of its journal: mandatory, lasting, never derived from a DAG's or group's id.
    :param journal: where the journal is: `file:///…`, `sqlite:////…`, `s3://[connection@]bucket/prefix`, or the id of an Airflow
        connection to PostgreSQL.
    :param policy: what a failed unit means for its dataset, as a `CommitPolicy` or its name.
    :param partial_ok: a run that published only a part of a dataset is green, too.
    :param max_packs: how many Spark applications a run has at the most.
    :param max_pack_weight: what a pack may weigh at the most, in the weights of work units (bytes, by default); a heavier
        dataset has a pack alone, and what has no room waits for the next run. `None`: all that is planned has room.
    :param attempts: after how many runs that failed to finish a slot its dataset is quarantined.
    :param retention: how long replaced files stay.
    :param code: modules with the author's own sources, sinks, converters, checks, steps and watermarks.
    :raises ConfigurationError: the name, the policy or a number can't be one, or a class is not registered with `wire.record`.
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
    max_packs: int = 4
    max_pack_weight: int | None = None
    attempts: int = DEFAULT_ATTEMPTS
    retention: timedelta = DEFAULT_RETENTION
    options: Mapping[str, Json] = field(default_factory=dict)
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ingestion_name(self.name)
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
        least = {"max_packs": self.max_packs, "attempts": self.attempts, "max_pack_weight": self.max_pack_weight}
        for name, value in least.items():
            if value is not None and value < 1:
                raise ConfigurationError(
                    operation="use",
                    subject=f"{name}={value} of ingestion {self.name!r}",
                    cause="it is too small",
                    hint="Give at least 1.",
                )

    @property
    def job(self) -> ExtractJob:
        """What Spark needs to know of it."""
        return ExtractJob(
            self.name, self.source, self.sink, self.converters, self.checks, self.limits, self.options, self.code
        )

    @property
    def source_identity(self) -> str:
        """What the source is known by, without a secret: its kind and its connections."""
        return " ".join((wire.kind_of(self.source), *self.source.connection_ids))

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections that Spark needs: the source's, and the target's if it is in an object store."""
        place = object_place(self.sink.target)
        target = () if place is None or place.conn_id is None else (place.conn_id,)
        return (*self.source.connection_ids, *target)
