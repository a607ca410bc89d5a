"""The job of a run: how its units are read and written. It goes to Spark whole, beside the plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gobblin.converters.base import Converter, RowCheck
from airflow_gobblin.sinks.base import Sink
from airflow_gobblin.sources.base import Source
from airflow_gobblin.watermark import Json
from airflow_gobblin.wire import record
from airflow_gobblin.work import Limits


@record("extract_job")
@dataclass(frozen=True)
class ExtractJob:
    """How the units of a run are read, converted, checked and written: what Spark needs to know, and no secret."""

    ingestion: str
    source: Source
    sink: Sink
    converters: tuple[Converter, ...] = ()
    checks: tuple[RowCheck, ...] = ()
    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, Json] = field(default_factory=dict)
    code: tuple[str, ...] = ()
