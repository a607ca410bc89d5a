"""Where the ingestions are that the page shows: found once a minute, and their journals kept open."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from cachetools import TTLCache, cached

from airflow_gobblin.files import Files
from airflow_gobblin.hooks.registry import Registered, ingestions, open_journal, open_target

if TYPE_CHECKING:
    from airflow_gobblin.journal import Journal

__all__ = ["find", "known", "names", "of_dag", "opened", "target"]

_SECONDS = 60
"""How long a new DAG may be missing in lists, and a deleted one be shown."""
_OPEN_SECONDS = 600
"""How long a journal is kept open, with what was read of it: what a connection says may have changed then."""
_MOST_OPEN = 16


@cached(TTLCache(1, _SECONDS), lock=Lock())
def known() -> tuple[Registered, ...]:
    """All ingestions, by DAG and task."""
    return ingestions()


def of_dag(dag_id: str) -> tuple[Registered, ...]:
    """The ingestions of a DAG. One that isn't known yet is looked for: links lead here from its first run."""
    return tuple(one for one in known() if one.dag_id == dag_id) or ingestions((dag_id,))


def find(dag_id: str, ingestion: str) -> Registered | None:
    """An ingestion of a DAG, if it has this one."""
    return next((one for one in of_dag(dag_id) if one.ingestion == ingestion), None)


@cached(TTLCache(_MOST_OPEN, _OPEN_SECONDS), lock=Lock())
def opened(where: Registered) -> Journal:
    """The journal of an ingestion. Errors as of `registry.open_journal`."""
    return open_journal(where)


@cached(TTLCache(_MOST_OPEN, _OPEN_SECONDS), lock=Lock())
def names(where: Registered) -> dict[str, str]:
    """The URNs of its datasets by key, as far as somebody has searched for them."""
    return {}


@cached(TTLCache(_MOST_OPEN, _OPEN_SECONDS), lock=Lock())
def target(where: Registered) -> Files:
    """What is under its target root. Errors as of `registry.open_target`."""
    return open_target(where)
