"""The asset of a dataset, `gobblin://<ingestion>/<key>`: each of its events is a published slot.

The key is the URN itself if that is plain, see `naming.dataset_key`. DAGs that wait for a dataset name it like this::

    with DAG("report", schedule=dataset_asset(ingestion="shop", urn="public.Orders")):
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from airflow.sdk import Asset

from airflow_gobblin.model.naming import check_ingestion_name, dataset_key, is_name

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from pydantic import JsonValue

__all__ = ["SCHEME", "asset_uri", "convert_asset_to_openlineage", "dataset_asset", "sanitize_uri", "versions_asset"]

SCHEME = "gobblin"
_VERSIONS = "_versions"
"""In place of a key: no dataset has this one."""


def asset_uri(ingestion: str, urn: str | None = None) -> str:
    """Return the name and URI of a dataset's asset; without a URN, those of the ingestion's asset alias."""
    return f"{SCHEME}://{ingestion}" + (f"/{dataset_key(urn)}" if urn is not None else "")


def dataset_asset(*, ingestion: str, urn: str, extra: dict[str, JsonValue] | None = None) -> Asset:
    """Return the asset of a dataset, for DAGs that wait for it.

    :raises ConfigurationError: the ingestion's name or the URN is not valid.
    """
    uri = asset_uri(check_ingestion_name(ingestion), urn)
    return Asset(name=uri, uri=uri, extra=extra)


def versions_asset(*, ingestion: str) -> Asset:
    """Return the asset of a job's versions. An event reports that an ingestion's run which seals one has ended, or that a stage
    has made some.

    :raises ConfigurationError: the ingestion's name is not valid.
    """
    uri = f"{asset_uri(check_ingestion_name(ingestion))}/{_VERSIONS}"
    return Asset(name=uri, uri=uri)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the URI of an asset if it can be a dataset's; Airflow calls this for each URI of our scheme.

    :raises ValueError: it can't.
    """
    name = uri.path.removeprefix("/")
    if not (is_name(uri.netloc) and (is_name(name) or name == _VERSIONS)) or uri.query:
        raise ValueError(
            f"{uri.geturl()!r} is not the asset of a dataset: expected {SCHEME}://<ingestion>/<dataset's key>. "
            "Use airflow_gobblin.dataset_asset(ingestion=…, urn=…), which makes the key."
        )
    return uri


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """Return OpenLineage's name for a dataset where only its asset is known: in a DAG that waits for it."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    parts = urlsplit(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{parts.netloc}", name=parts.path.removeprefix("/"))
