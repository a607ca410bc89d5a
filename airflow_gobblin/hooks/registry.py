"""The ingestions that exist, and where: read from Airflow's serialized DAGs, so no DAG's code runs to look at them.

`CreateWorkUnitsOperator` keeps its ingestion's location in a templated field. It holds URLs and ids of connections, no secret:
`hooks.ingestion.check_job` refuses a URL with one when the DAG is parsed, and so does everything here that takes a URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.ingestion import check_journal
from airflow_gobblin.model.naming import check_ingestion_name
from airflow_gobblin.storage.files import Files, check_target, open_files
from airflow_gobblin.storage.locations import is_place

if TYPE_CHECKING:
    from airflow_gobblin.admin.actions import Administration
    from airflow_gobblin.job import Job
    from airflow_gobblin.journal.journal import Journal

__all__ = ["Registered", "ingestions", "location_of", "open_administration", "open_journal", "open_target"]

_LOCATION = "location"
_TEXTS = frozenset(("ingestion", "journal", "target"))


@dataclass(frozen=True)
class Registered:
    """An ingestion of a DAG, and where it is.

    :param task_id: the task that plans it.
    :param journal: as the DAG's author wrote it.
    :param target: as the DAG's author wrote it.
    :param source: its source's kind and connections; empty if unknown.
    :param workspace: the root of its own files; empty if it is the target.
    :param code: modules with the author's own classes; shown to people, and never imported because a DAG names them.
    """

    dag_id: str
    task_id: str
    ingestion: str
    journal: str
    target: str
    code: tuple[str, ...] = ()
    source: str = ""
    workspace: str = ""


def location_of(job: Job) -> dict[str, Any]:
    """Return the location of a job, for its serialized DAG."""
    return {
        "ingestion": job.name,
        "journal": job.journal,
        "target": job.work.target,
        "workspace": job.work.workspace,
        "source": job.work.source_identity,
        "code": [*job.work.code],
    }


def ingestions(dag_ids: Sequence[str] | None = None) -> tuple[Registered, ...]:
    """Return the ingestions of the DAGs that Airflow knows, by DAG and task, from the newest version of each.

    :param dag_ids: only these DAGs; `None` for all.
    """
    from airflow.models.dag import DagModel
    from airflow.models.dag_version import DagVersion
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from sqlalchemy import String, cast, func, or_, select

    newest = select(DagVersion.dag_id, func.max(DagVersion.version_number).label("number")).group_by(DagVersion.dag_id)
    if dag_ids is not None:
        newest = newest.where(DagVersion.dag_id.in_(dag_ids))
    of = newest.subquery()
    rows = (
        select(SerializedDagModel)
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .join(of, (DagVersion.dag_id == of.c.dag_id) & (DagVersion.version_number == of.c.number))
        .join(DagModel, DagModel.dag_id == SerializedDagModel.dag_id)
        .where(DagModel.is_stale.is_(False))
        # Most DAGs have no ingestion and needn't be read; compressed ones can't be searched.
        .where(or_(SerializedDagModel._data.is_(None), cast(SerializedDagModel._data, String).contains('"journal"')))
    )
    with create_session() as session:
        found = [one for row in session.scalars(rows) for one in registered(row.dag_id, row.data or {})]
    return tuple(sorted(found, key=lambda one: (one.dag_id, one.task_id)))


def registered(dag_id: str, serialized: Mapping[str, Any]) -> Iterator[Registered]:
    """Yield the ingestions of a serialized DAG."""
    for task in serialized.get("dag", {}).get("tasks", ()):
        fields = task.get("__var", task)
        location = fields.get(_LOCATION)
        if isinstance(location, dict) and all(isinstance(location.get(name), str) for name in _TEXTS):
            texts = {name: location[name] for name in _TEXTS}
            known = {name: str(location.get(name, "")) for name in ("source", "workspace")}
            yield Registered(dag_id, fields["task_id"], code=tuple(location.get("code", ())), **texts, **known)


def open_journal(where: Registered) -> Journal:
    """Open the journal of an ingestion for reading; nothing is created.

    :raises NotFoundError: it doesn't exist.
    :raises ConfigurationError: its URL holds a secret, or its connection isn't known.
    :raises StoreError: it can't be reached.
    """
    from airflow_gobblin.journal.journal import Journal

    return Journal.open(*_place(where))


def open_target(where: Registered) -> Files:
    """Open the files under the target root of an ingestion.

    :raises ConfigurationError: the root is not valid, holds a secret, or its connection isn't known.
    """
    root = where.workspace or where.target
    check_target(root)
    return open_files(root, AirflowConnections())


def open_administration(where: Registered, actor: str, *, new: bool = False) -> Administration:
    """Open the actions on an ingestion's datasets. Parameters and errors as for `open_journal` and `open_target`.

    :param actor: the acting user.
    :param new: the journal may be one that no run has created yet.
    """
    from airflow_gobblin.admin.actions import Administration
    from airflow_gobblin.journal.journal import Journal

    journal = Journal.create(*_place(where)) if new else Journal.open(*_place(where), write=True)
    return Administration(journal, open_target(where), actor, AirflowConnections())


def open_preview(where: Registered, actor: str) -> Administration:
    """Open the actions on an ingestion whose journal doesn't exist, to preview them on an empty one. Nothing is created.

    Parameters and errors as for `open_administration`.
    """
    from airflow_gobblin.admin.actions import Administration
    from airflow_gobblin.journal.journal import Journal
    from airflow_gobblin.storage.stores.memory import MemoryStore

    journal = Journal.create(MemoryStore(), where.ingestion)
    return Administration(journal, open_target(where), actor, AirflowConnections())


def _place(where: Registered) -> tuple[str, str, AirflowConnections]:
    """Return the arguments of `Journal.open` and `Journal.create`, and import all kinds of records."""
    from airflow_gobblin.model.registry import import_kinds

    check_ingestion_name(where.ingestion)
    check_journal(where.journal)
    import_kinds()
    connections = AirflowConnections()
    return where.journal if is_place(where.journal) else connections.uri(where.journal), where.ingestion, connections
