"""Links of an ingestion's tasks: to their datasets on the page in Airflow's UI, and to Spark's own pages.

Airflow asks for them in the task's process when the task has ended, even if it failed. Until then, the task itself sets a link.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink, conf, get_current_context

from airflow_gobblin.model.naming import dataset_key

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

    from airflow_gobblin.job import Job

__all__ = ["NAME", "DatasetLink", "SparkLink", "page_address"]

log = logging.getLogger(__name__)

NAME = "gobblin"
"""The page's name in its own address, and in that of Airflow's UI around it."""


class DatasetLink(BaseOperatorLink):
    """A link to the page of the task's dataset or, if it has several, to the list of the ingestion's datasets."""

    name = "Datasets"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        urns = _urns(operator.job, getattr(operator, "pack", None))
        return page_address(ti_key.dag_id, operator.job.name, urns[0] if len(urns) == 1 else None)


class SparkLink(BaseOperatorLink):
    """A link to the UI of the driver that extracts the pack, and afterwards to its application in Spark's history server.

    The server's address is set by `[gobblin] spark_history_url`. Of several applications, the newest is linked.
    """

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        server = conf.get("gobblin", "spark_history_url", fallback="")
        application = _application(operator.job, operator.pack) if server else ""
        return f"{server.rstrip('/')}/history/{quote(application, safe='')}/" if application else ""

    def lead_to(self, address: str) -> None:
        """Link the running task to an address, until the task has ended."""
        try:
            get_current_context()["ti"].xcom_push(self.xcom_key, address)
        except Exception as error:  # a missing link is no reason to fail
            log.warning("the task has no link to %s: %s", address, error)


def page_address(dag_id: str, ingestion: str, urn: str | None = None) -> str:
    """Return the address, relative to Airflow's own, of the page of a dataset, or of the list of an ingestion's."""
    words = {"dag_id": dag_id, "ingestion": ingestion} | ({} if urn is None else {"urn": urn})
    return f"{NAME}/open?{urlencode(words, quote_via=quote)}"


def _urns(job: Job, reference: Any) -> tuple[str, ...]:
    """Return the datasets of a pack; none if the pack was swept or there is no pack.

    The job is opened only if the reference doesn't name them: that costs each task a tenth of a second.
    """
    from airflow_gobblin.hooks.ingestion import open_job

    if not isinstance(reference, dict):  # a task of the whole job, or one that failed before it knew its pack
        return ()
    keys = reference.get("datasets", ())
    if keys and all(dataset_key(key) == key for key in keys):  # they are URNs: no hash of one is
        return tuple(keys)
    pack = open_job(job).staging.pack(reference["run"], reference["pack"])
    return () if pack is None else tuple(dataset.urn for dataset in pack.datasets)


def _application(job: Job, reference: Any) -> str:
    """Return Spark's id of the application that extracted a pack; empty if none is reported."""
    from airflow_gobblin.hooks.ingestion import open_job
    from airflow_gobblin.spark.report import PackReport

    if not isinstance(reference, dict):
        return ""
    reports = open_job(job).staging.reports(reference["run"], PackReport)
    mine = [report for report in reports if report.pack == reference["pack"] and report.application]
    return max(mine, key=lambda report: report.started).application if mine else ""
