"""The lookup of the ingestions that the page shows, once a minute; their journals are kept open."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from cachetools import TTLCache, cached

from airflow_gobblin.hooks.registry import Registered, ingestions, open_journal, open_target
from airflow_gobblin.storage.files import Files

if TYPE_CHECKING:
    from airflow_gobblin.journal.journal import Journal

__all__ = ["find", "known", "names", "of_dag", "opened", "target"]

_SECONDS = 60
"""Seconds for which lists may lack a new DAG, or show a deleted one."""
_OPEN_SECONDS = 600
"""Seconds for which a journal is kept open, with what was read of it; its connection may have changed by then."""
_MOST_OPEN = 16


@cached(TTLCache(1, _SECONDS), lock=Lock())
def known() -> tuple[Registered, ...]:
    """Return all ingestions, by DAG and task."""
    return ingestions()


def of_dag(dag_id: str) -> tuple[Registered, ...]:
    """Return the ingestions of a DAG. An unknown DAG is looked up: links lead here from its first run."""
    return tuple(one for one in known() if one.dag_id == dag_id) or ingestions((dag_id,))


def find(dag_id: str, ingestion: str) -> Registered | None:
    """Return an ingestion of a DAG, or `None` if the DAG doesn't have it."""
    return next((one for one in of_dag(dag_id) if one.ingestion == ingestion), None)


@cached(TTLCache(_MOST_OPEN, _OPEN_SECONDS), lock=Lock())
def opened(where: Registered) -> Journal:
    """Return the journal of an ingestion. Errors as for `registry.open_journal`."""
    return open_journal(where)


@cached(TTLCache(_MOST_OPEN, _OPEN_SECONDS), lock=Lock())
def names(where: Registered) -> dict[str, str]:
    """Return the URNs of an ingestion's datasets by key, as far as users have searched for them."""
    return {}


@cached(TTLCache(_MOST_OPEN, _OPEN_SECONDS), lock=Lock())
def target(where: Registered) -> Files:
    """Return the files under an ingestion's target root. Errors as for `registry.open_target`."""
    return open_target(where)
