"""Metrics, through Airflow's own stats: StatsD or OpenTelemetry, as set in Airflow's section `[metrics]`.

| metric | kind | what |
|---|---|---|
| `gobblin.slots` | counter | published slots |
| `gobblin.rows`, `gobblin.files`, `gobblin.bytes` | counters | their content |
| `gobblin.dead_letters` | counter | rows that were refused and kept, of slots that have any |
| `gobblin.replaced`, `gobblin.deleted` | counters | files of mirrors that took the place of others, or were deleted |
| `gobblin.publish` | timer | from a slot's decision to its outcome |
| `gobblin.lag` | gauge | seconds that a dataset's watermark is behind, if it is a time, published or not |
| `gobblin.recoveries` | counter | slots that a later run finished |
| `gobblin.quarantines` | gauge | quarantined datasets of the last run of all datasets |

Each is tagged with the `ingestion`, and those of a dataset with the `dataset`'s key, unless there are too many of them:
`[gobblin] metrics_by_dataset`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from airflow.sdk import conf
from airflow.sdk.observability import stats

from airflow_gobblin.events.publication import lag
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.model.status import Status

if TYPE_CHECKING:
    from airflow_gobblin.events.publication import Publication
    from airflow_gobblin.run.reports import DatasetReport

__all__ = ["count_publication", "count_recoveries", "gauge_lags", "gauge_quarantines"]


def count_publication(publication: Publication) -> None:
    """Count a slot that was published."""
    tags = {"ingestion": publication.ingestion}
    if conf.getboolean("gobblin", "metrics_by_dataset"):
        tags["dataset"] = publication.dataset
    stats.incr("gobblin.slots", tags=tags)
    for name in ("rows", "files", "bytes"):
        stats.incr(f"gobblin.{name}", getattr(publication, name), tags=tags)
    if publication.dead_letters:
        stats.incr("gobblin.dead_letters", publication.dead_letters, tags=tags)
    if publication.holds is Holds.DIFFERENCE:
        stats.incr("gobblin.replaced", publication.replaced, tags=tags)
        stats.incr("gobblin.deleted", publication.deleted, tags=tags)
    stats.timing("gobblin.publish", publication.took, tags=tags)
    if publication.lag is not None:
        stats.gauge("gobblin.lag", publication.lag.total_seconds(), tags=tags)


def count_recoveries(ingestion: str, recovered: Collection[DatasetReport]) -> None:
    """Count the slots that an earlier run left and this one finished."""
    if found := len(recovered):
        stats.incr("gobblin.recoveries", found, tags={"ingestion": ingestion})


def gauge_lags(ingestion: str, reports: Iterable[DatasetReport]) -> None:
    """Gauge how far datasets are behind, including those that don't advance; without dataset tags, only the largest lag."""
    behind = {r.urn: found.total_seconds() for r in reports if (found := lag(r.watermark)) is not None}
    if conf.getboolean("gobblin", "metrics_by_dataset"):
        for urn, seconds in behind.items():
            stats.gauge("gobblin.lag", seconds, tags={"ingestion": ingestion, "dataset": dataset_key(urn)})
    elif behind:
        stats.gauge("gobblin.lag", max(behind.values()), tags={"ingestion": ingestion})


def gauge_quarantines(ingestion: str, reports: Iterable[DatasetReport]) -> None:
    """Gauge the number of quarantined datasets of a run, even if it is zero."""
    found = sum(report.status is Status.QUARANTINED for report in reports)
    stats.gauge("gobblin.quarantines", found, tags={"ingestion": ingestion})
