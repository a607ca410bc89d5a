"""The plugin that Airflow loads by the entry point `airflow.plugins` in each of its processes; nothing heavy is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from airflow_gobblin.links import NAME
from airflow_gobblin.plugins.timetables import DatasetCronTimetable, StageTimetable

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["GobblinPlugin"]

_TITLE = "Gobblin"


async def _page(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the page, imported on the first request: only the API server needs it."""
    from airflow_gobblin.plugins.page.app import app

    await app(scope, receive, send)


_VIEWS = [
    {
        "name": _TITLE,
        "href": f"{NAME}/{href}",
        "destination": destination,
        "url_route": route,
        "icon": f"{NAME}/static/icon.svg",
        "icon_dark_mode": f"{NAME}/static/icon-dark.svg",
        **({"category": "browse"} if destination == "nav" else {}),
    }
    for destination, route, href in (
        ("nav", NAME, ""),
        ("dag", f"{NAME}_dag", "?dag_id={DAG_ID}"),
        ("dag_run", f"{NAME}_run", "run?dag_id={DAG_ID}&run_id={RUN_ID}"),
    )
]
"""Where the page is shown: in the navigation, on each DAG and on each run. Addresses are relative to Airflow's own."""
_APPS = [{"app": _page, "url_prefix": f"/{NAME}", "name": _TITLE}]
_TIMETABLES = [DatasetCronTimetable, StageTimetable]


class GobblinPlugin(AirflowPlugin):
    """Add timetables and a page of datasets to Airflow, beside the operators."""

    name = NAME
    timetables = _TIMETABLES
    fastapi_apps = _APPS
    external_views = _VIEWS
