"""The import of one DAG's file for its ingestions: for the commands used ahead of a run, `verify` of a mirror, and `take-over`.

No other command runs a DAG's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError, NotFoundError
from airflow_gobblin.model.naming import meant

if TYPE_CHECKING:
    from airflow.models.dag import DagModel

    from airflow_gobblin.job import Job

__all__ = ["Described", "described"]


_NOT_READ = "Is the DAG processor running, and the DAG free of import errors? `airflow dags reserialize` reads its file at once."


@dataclass(frozen=True)
class Described:
    """An ingestion as a DAG file describes it.

    :param spark: how each of its `extract` tasks is submitted: arguments of `check_spark_connection`.
    """

    job: Job
    spark: tuple[Submit, ...]


@dataclass(frozen=True)
class Submit:
    """How an `extract` task is submitted.

    :param mode: the deploy mode that the task itself sets.
    """

    conn_id: str
    mode: str | None
    durable: bool


def described(dag_id: str, ingestion: str | None) -> tuple[Described, ...]:
    """Import the file of a DAG, and return its ingestions.

    :param ingestion: only the one of this name.
    :raises NotFoundError: Airflow knows no such DAG, or it has no such ingestion.
    :raises ConfigurationError: its file can't be imported.
    """
    tasks = [_arguments(task) for task in _imported(dag_id).tasks]
    submits = [(given["job"], _submit(given)) for kind, given in tasks if _is(kind, "extract")]
    every = [given["job"] for kind, given in tasks if _is(kind, "create_work_units")]
    found = tuple(
        Described(one, tuple(dict.fromkeys(submit for of, submit in submits if of.name == one.name)))
        for one in every
        if ingestion in (None, one.name)
    )
    if not found:
        names = [one.name for one in every]
        raise NotFoundError(
            operation="find",
            subject=f"ingestion {ingestion!r} of DAG {dag_id!r}" if ingestion else f"the ingestions of DAG {dag_id!r}",
            cause=f"it has {', '.join(map(repr, names))}" if names else "it has none",
            hint="Name one of these by --ingestion."
            if names
            else "Name a DAG with a `GobblinIngestion`, a `GobblinMirror` or a job of a `Pipeline`.",
        )
    return found


def _is(operator: type, task: str) -> bool:
    """Return whether an operator is that of a task of the graph; its own code is a floor above."""
    return getattr(operator, "graph_task", None) == task


def _arguments(task: Any) -> tuple[type, dict[str, Any]]:
    """Return the class of a task, and its relevant arguments; of a mapped task, those that all instances share."""
    if hasattr(task, "partial_kwargs"):
        return task.operator_class, task.partial_kwargs
    names = ("job", "durable", "conf", "_conn_id", "_deploy_mode", "_conf")
    return type(task), {name.removeprefix("_"): getattr(task, name) for name in names if hasattr(task, name)}


def _submit(given: dict[str, Any]) -> Submit:
    conf = given.get("conf") or {}
    mode = given.get("deploy_mode") or conf.get("spark.submit.deployMode")
    return Submit(given.get("conn_id") or "spark_default", mode, bool(given.get("durable")))


def _imported(dag_id: str) -> Any:
    """Import a DAG from its file."""
    from airflow.dag_processing.dagbag import BundleDagBag

    model = _model(dag_id)
    bundle = _bundle_path(model)
    file = Path(model.fileloc or "")
    if not file.exists() and model.relative_fileloc:
        file = bundle / model.relative_fileloc
    bag = BundleDagBag(
        dag_folder=file, bundle_path=bundle, bundle_name=model.bundle_name, safe_mode=False, load_op_links=False
    )
    dag = bag.dags.get(dag_id)
    if dag is not None:
        return dag
    errors = [text.strip().splitlines()[-1] for text in bag.import_errors.values() if text.strip()]
    raise ConfigurationError(
        operation="import",
        subject=f"DAG {dag_id!r} from {file}",
        cause=errors[0]
        if errors
        else "the file has no such DAG any more"
        if file.exists()
        else "there is no such file",
        hint="Fix the file; `airflow dags list-import-errors` shows the whole error."
        if errors
        else "Type it where the DAG files are, as on the DAG processor's host.",
    )


def _model(dag_id: str) -> DagModel:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        model = session.get(DagModel, dag_id)
        known = [] if model is not None else [*session.scalars(select(DagModel.dag_id))]
        if model is not None:
            session.expunge(model)
            return model
    raise NotFoundError(
        operation="find",
        subject=f"DAG {dag_id!r}",
        cause="Airflow knows none of this id",
        hint=meant(known, dag_id, otherwise=_NOT_READ),
    )


def _bundle_path(model: DagModel) -> Path:
    """Return the folder from which a DAG file's own imports start."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    bundle = DagBundlesManager().get_bundle(model.bundle_name)  # type: ignore[no-untyped-call]
    bundle.initialize()
    return Path(bundle.path)
