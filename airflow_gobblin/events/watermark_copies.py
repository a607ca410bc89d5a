"""A copy of each dataset's watermark in Airflow's asset state store, under the key `watermark`, for people to see.

It is written after a publish and never read back: that store is an upsert without compare-and-set, and loses its rows when an
asset is deactivated. The journal has the watermark.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from airflow.sdk import conf

from airflow_gobblin.events.assets import asset_uri
from airflow_gobblin.model.naming import many

if TYPE_CHECKING:
    from airflow_gobblin.events.publication import Publication

__all__ = ["KEY", "copy_watermarks"]

log = logging.getLogger(__name__)

KEY = "watermark"
_SECONDS = 10.0


def copy_watermarks(publications: Sequence[Publication]) -> None:
    """Write the newest watermark of each dataset, for some seconds at most.

    Airflow knows the asset of a new dataset about a minute after its first event; until then there is nowhere to write to.
    """
    if not conf.getboolean("gobblin", "copy_watermarks"):
        return
    from airflow.sdk.api.client import ServerResponseError
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor

    newest = {publication.urn: publication for publication in sorted(publications, key=lambda p: p.slot)}
    until = time.monotonic() + _SECONDS
    for n, publication in enumerate(newest.values()):
        if time.monotonic() > until:
            left = many(len(newest) - n, "more dataset")
            log.info("the watermarks of %s are not copied to Airflow: it takes too long", left)
            return
        value = {"watermark": publication.position, "slot": publication.slot, "at": publication.done.isoformat()}
        try:
            AssetStateStoreAccessor(name=asset_uri(publication.ingestion, publication.urn)).set(KEY, value)
        except AirflowRuntimeError as error:
            _log_refused(publication.urn, (error.error.detail or {}).get("status_code"), error)
        except ServerResponseError as error:  # in `airflow dags test`
            _log_refused(publication.urn, error.response.status_code, error)


def _log_refused(urn: str, status: object, error: Exception) -> None:
    """Log that Airflow keeps no watermark.

    :param status: that of its answer, if it gave one.
    """
    if status == HTTPStatus.NOT_FOUND:
        log.info(
            "Airflow doesn't know the asset of dataset %r yet: its watermark is copied there by the next publish", urn
        )
        return
    log.warning(
        "the watermark of dataset %r can't be copied to Airflow: %s. Its rows are published all the same; "
        "copy_watermarks = False in [gobblin] leaves the copy in Airflow out",
        urn,
        error,
    )
