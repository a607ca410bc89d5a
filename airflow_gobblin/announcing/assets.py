"""The asset of a dataset, `gobblin://<ingestion>/<key>`: an event of it is a slot that was published.

The key is the URN itself where that is plain, as `naming.dataset_key` has it. DAGs that wait for a dataset name it so::

    with DAG("report", schedule=dataset_asset(ingestion="shop", urn="public.Orders")):
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from airflow.sdk import Asset

from airflow_gobblin.naming import check_ingestion_name, dataset_key, is_name

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from pydantic import JsonValue

__all__ = ["SCHEME", "asset_uri", "convert_asset_to_openlineage", "dataset_asset", "sanitize_uri"]

SCHEME = "gobblin"


def asset_uri(ingestion: str, urn: str | None = None) -> str:
    """The name and URI of a dataset's asset; without a URN that of the ingestion's asset alias."""
    return f"{SCHEME}://{ingestion}" + (f"/{dataset_key(urn)}" if urn is not None else "")


def dataset_asset(*, ingestion: str, urn: str, extra: dict[str, JsonValue] | None = None) -> Asset:
    """The asset of a dataset, for DAGs that wait for it.

    :raises ConfigurationError: the ingestion's name or the URN can't be one.
    """
    uri = asset_uri(check_ingestion_name(ingestion), urn)
    return Asset(name=uri, uri=uri, extra=extra)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """A URI of an asset, if it can be a dataset's: Airflow asks this of each of our scheme.

    :raises ValueError: it can't.
    """
    if not (is_name(uri.netloc) and is_name(uri.path.removeprefix("/"))) or uri.query:
        raise ValueError(
            f"{uri.geturl()!r} is no dataset's asset: expected {SCHEME}://<ingestion>/<dataset's key>. "
            "Use airflow_gobblin.announcing.assets.dataset_asset(ingestion=…, urn=…), which makes the key."
        )
    return uri


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """A dataset's asset as OpenLineage names it where nothing but the asset is known: in a DAG that waits for it."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    parts = urlsplit(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{parts.netloc}", name=parts.path.removeprefix("/"))
