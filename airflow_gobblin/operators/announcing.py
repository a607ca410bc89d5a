"""How a task announces what was published: by the events of its outlet, and by all else once it has succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow.sdk import AssetAlias

from airflow_gobblin.events.announcement import announce
from airflow_gobblin.events.assets import asset_uri
from airflow_gobblin.operators.run_requests import run_request

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from airflow.sdk import Context

    from airflow_gobblin.events.announcement import Announcement
    from airflow_gobblin.job import Job
    from airflow_gobblin.run.open_job import OpenJob

__all__ = ["announce_published", "let_announce"]


class _Announcing(Protocol):
    """An operator that announces."""

    job: Job
    outlets: list[Any]
    on_success_callback: Any
    announcement: Announcement | None


def let_announce(task: _Announcing) -> None:
    """Give a task the outlet that `announce_published` needs, and note what was announced once the task has succeeded."""
    task.outlets = [*task.outlets, AssetAlias(asset_uri(task.job.name))]
    task.on_success_callback = [*task.on_success_callback, _note_announced]


def announce_published(task: _Announcing, opened: OpenJob, urns: Iterable[str] | None, context: Context) -> None:
    """Emit the events of these datasets' slots that have had none, no matter which run published them."""
    task.announcement = announce(opened, urns, run_request(context).run_key(task.job.name), context)


def _note_announced(context: Context) -> None:
    """Note the slots that were announced, once Airflow has the events: not before the task has succeeded."""
    announcement: Announcement | None = getattr(context["task"], "announcement", None)
    if announcement is not None:
        announcement.succeeded(context)
