"""What runs in a Spark task: some units, one after the other; each gives a result, whatever becomes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from airflow_gobblin import wire
from airflow_gobblin.extraction import extract_unit
from airflow_gobblin.job import ExtractJob
from airflow_gobblin.kinds import import_kinds
from airflow_gobblin.plan import Plan
from airflow_gobblin.spark.connections import VARIABLE, SparkConnections
from airflow_gobblin.staging import Staging

__all__ = ["RESULTS", "Order", "run_order"]

RESULTS = pa.schema([("token", pa.string()), ("result", pa.binary())])


@dataclass(frozen=True)
class Order:
    """What one Spark task is to do; it travels in the task's closure.

    :param code: the author's modules, imported before anything is decoded.
    :param job: the encoded `ExtractJob`. :param plans: encoded plans, each with only those of its units that this task runs.
    """

    code: tuple[str, ...]
    root: str
    staging: str
    attempt: str
    job: bytes
    plans: tuple[bytes, ...]
    connections: SparkConnections


def run_order(order: Order) -> Iterator[pa.RecordBatch]:
    """Run the units of an order; a row a result."""
    os.environ.pop(VARIABLE, None)  # in local mode executors are started by the driver's process
    import_kinds(order.code)
    job = wire.loads(order.job, ExtractJob, "the job of a Spark task")
    staging = Staging.at(order.root, order.staging)
    for data in order.plans:
        plan = wire.loads(data, Plan, "the plan of a Spark task")
        folder = staging.token_folder(plan.token)
        for unit in plan.units:
            started = time.time()
            result = extract_unit(job, plan, unit, order.attempt, staging.files, folder, order.connections)
            times = {"started": started, "finished": time.time()}
            result = replace(result, metrics={**result.metrics, **times})
            yield pa.RecordBatch.from_pydict({"token": [plan.token], "result": [wire.dumps(result)]}, RESULTS)
