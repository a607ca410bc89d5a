"""The slots that a DAG run published, by the asset events of its tasks in Airflow's database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.models.asset import AssetEvent, AssetModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_gobblin.events.assets import asset_uri
from airflow_gobblin.hooks.registry import Registered

__all__ = ["Published", "published_by"]

_MOST = 1000
"""The number of events shown of one run."""


@dataclass(frozen=True)
class Published:
    """A slot that a DAG run announced: as a rule its own, but it may be one that an earlier run had left.

    :param rows: `None` in a mirror.
    :param deleted: how many files it deleted, in a mirror.
    """

    urn: str
    slot: int
    rows: int | None
    files: int
    deleted: int | None
    watermark: str


def published_by(where: Registered, run_id: str) -> tuple[Published, ...]:
    """Return the slots of an ingestion's datasets that a DAG run announced, by URN and slot."""
    events = (
        select(AssetEvent.extra)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetEvent.source_dag_id == where.dag_id, AssetEvent.source_run_id == run_id)
        .where(AssetModel.uri.startswith(f"{asset_uri(where.ingestion)}/", autoescape=True))
        .limit(_MOST)
    )
    with create_session() as session:
        extras = [*session.scalars(events)]
    found = {_published(extra) for extra in extras if {"urn", "slot", "files"} <= set(extra or {})}
    return tuple(sorted(found, key=lambda one: (one.urn, one.slot)))


def _published(extra: Mapping[str, Any]) -> Published:
    watermark = extra.get("watermark")
    text = watermark if isinstance(watermark, str) else json.dumps(watermark)
    rows, deleted = extra.get("rows"), extra.get("deleted")
    return Published(extra["urn"], extra["slot"], rows, extra["files"], deleted, "" if watermark is None else text)
