"""The DAG of a shop, as a DAG author writes it. It is put into the DAG folder, beside `gated`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context, task_group
from airflow.sdk.exceptions import AirflowException
from gated import GatedSink, GatedSource, Gates  # type: ignore[import-not-found]

from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.ingestion import open_job
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.work import ExtractKind, UnitState
from airflow_gobblin.operators import (
    CreateWorkUnitsOperator,
    ExecuteCommitStepsOperator,
    FinishOperator,
    GobblinIngestion,
    SparkOptions,
    VerifyRecoverOperator,
    WriteCommitStepsOperator,
    ingestion_params,
)
from airflow_gobblin.plugins.timetables import DatasetCronTimetable
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.extract import missing_units

FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class ExtractHere(BaseOperator):
    """Extract a pack in the task itself: the same units with the same results, without the seconds that Spark takes to start."""

    template_fields: Sequence[str] = ("pack",)

    def __init__(self, *, job: Ingestion, pack: Any, **kwargs: Any) -> None:
        super().__init__(map_index_template="{{ task.pack['label'] }}", **kwargs)
        self.job = job
        self.pack = pack

    def execute(self, context: Context) -> None:
        from airflow_gobblin.rows.extraction import extract_unit
        from airflow_gobblin.rows.sources.snapshots import PackSnapshot

        opened = open_job(self.job)
        pack = opened.staging.pack(self.pack["run"], self.pack["pack"])
        attempt, errors = uuid.uuid4().hex, []
        connections = AirflowConnections()
        with PackSnapshot(self.job.source, connections) as snapshot:
            for plan, unit in list(missing_units(opened, pack)) if pack else ():
                folder, held = opened.staging.token_folder(plan.token), snapshot.of(plan)
                result = extract_unit(self.job.work, plan, unit, attempt, opened.files, folder, connections, held)
                if opened.staging.put_result(plan.token, result).state is not UnitState.SUCCESSFUL:
                    errors.append(result.why)
        if errors:
            raise AirflowException(str(errors[0]))


def shop(
    shops: str,
    name: str,
    *,
    max_packs: int = 1,
    spark: str | None = None,
    conf: Any = None,
    durable: bool = False,
    retries: int = 1,
    urns: tuple[str, str] = ("orders", "countries"),
    journal: str | None = None,
    days: tuple[str, str] | None = None,
    offered: bool = False,
) -> None:
    """Make the DAG of a shop.

    :param days: the first and the last day that it is scheduled for; it then has a table of visits, instead of that of orders,
        and a form to trigger it.
    :param offered: the form offers its datasets, and takes no others.
    :param urns: of the tables of orders and of countries.
    :param journal: a folder of the shop's by default.
    :param spark: the Spark connection of a task group; without it, the same tasks are wired by hand around an extract without
        Spark.
    :param conf: more of Spark's settings.
    :param durable: its drivers outlive the tasks.
    """
    folder = Path(shops) / name
    gates = Gates(str(folder))
    orders = SqlTable("orders", ExtractKind.APPEND_ONLY, delta="id", urn=urns[0])
    schedule: dict[str, Any] = {"schedule": None, "max_active_runs": 4}
    if days is not None:
        first, last = map(datetime.fromisoformat, days)
        orders = SqlTable("visits", ExtractKind.APPEND_ONLY, delta="at", start=first)
        schedule = {
            "schedule": DatasetCronTimetable("@daily"),
            "start_date": first.replace(tzinfo=UTC),
            "end_date": last.replace(tzinfo=UTC),
            "catchup": True,
            "max_active_runs": 4 if first == last else 1,
            "params": ingestion_params(("visits", urns[1]) if offered else ()),
        }
    tables = (orders, SqlTable("countries", ExtractKind.SNAPSHOT_ONLY, urn=urns[1]))
    ingestion = Ingestion(
        name=name,
        source=GatedSource(SqlSource(conn_id=f"shop_{name}", tables=tables), gates),
        sink=GatedSink(ParquetSink(str(folder / "lake")), gates),
        journal=journal or str(folder / "journal"),
        max_packs=max_packs,
        code=("gated",),
    )

    def hold_after(context: Context, result: object) -> None:
        gates.pass_through(f"after-{context['task'].task_id.rsplit('.', 1)[-1]}")

    arguments = {"retries": retries, "retry_delay": timedelta(seconds=1), "post_execute": hold_after}
    with DAG(name, default_args=arguments, **schedule):
        if spark:
            settings = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": FAST_JAVA, **(conf or {})}
            GobblinIngestion(ingestion, spark=SparkOptions(conn_id=spark, conf=settings, durable=durable))
        else:
            wire_by_hand(ingestion)


def wire_by_hand(ingestion: Ingestion) -> None:
    """The tasks of an ingestion, one by one."""
    recover = VerifyRecoverOperator(task_id="verify_recover", job=ingestion)
    plan = CreateWorkUnitsOperator(task_id="create_work_units", job=ingestion)

    @task_group
    def pack(pack: Any) -> None:
        extract = ExtractHere(task_id="extract", job=ingestion, pack=pack)
        write = WriteCommitStepsOperator(task_id="write_commit_steps", job=ingestion, pack=pack)
        execute = ExecuteCommitStepsOperator(task_id="execute_commit_steps", job=ingestion, pack=pack)
        extract >> write >> execute

    packs = pack.expand(pack=plan.output)
    recover >> plan >> packs >> FinishOperator(task_id="finish", job=ingestion, plan=plan)
