"""What runs in a Spark task: some units, one after the other; each gives a result, whatever becomes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from airflow_gobblin import wire
from airflow_gobblin.extraction import extract_unit
from airflow_gobblin.files import open_files
from airflow_gobblin.guarded import GuardedConnections
from airflow_gobblin.kinds import import_kinds
from airflow_gobblin.redaction import redacted_output
from airflow_gobblin.spark.connections import VARIABLE, SparkConnections
from airflow_gobblin.staging import Staging

__all__ = ["RESULTS", "Order", "run_order"]

RESULTS = pa.schema([("token", pa.string()), ("result", pa.binary())])


@dataclass(frozen=True)
class Order:
    """What one Spark task is to do; it travels in the task's closure, with the secrets, and so is kept small.

    Spark writes a closure of a megabyte or more to a file on the driver's disk. Job and plans may be large: the task reads
    them from staging.

    :param code: the author's modules, imported before anything is decoded.
    :param target: the target root, and :param staging: the ingestion's staging folder below it.
    :param run: whose job it is. :param units: by the token of each plan, the units that this task runs.
    :param snapshots: by the token of each plan that wants one, the name of the snapshot that the driver holds.
    """

    code: tuple[str, ...]
    target: str
    staging: str
    attempt: str
    run: str
    units: Mapping[str, tuple[str, ...]]
    snapshots: Mapping[str, str]
    connections: SparkConnections


def run_order(order: Order) -> Iterator[pa.RecordBatch]:
    """Run the units of an order; a row a result.

    What a failing task raises is in Spark's event log, on its pages and in the logs of executors: so is nothing secret of it.
    """
    os.environ.pop(VARIABLE, None)  # in local mode executors are started by the driver's process
    connections = order.connections.guarded()
    with redacted_output(connections.redactor), connections.redactor.guarding("run", "a Spark task"):
        yield from _results(order, connections)


def _results(order: Order, connections: GuardedConnections) -> Iterator[pa.RecordBatch]:
    import_kinds(order.code)
    staging = Staging(open_files(order.target, connections), order.staging)
    job = staging.job(order.run)
    for token, units in order.units.items():
        plan = staging.plan(token)
        if plan is None:
            continue  # swept since: it can win no more
        folder = staging.token_folder(token)
        wanted, snapshot = frozenset(units), order.snapshots.get(token, "")
        of_order = (unit for unit in staging.units(plan) if unit.id in wanted)
        for unit in islice(of_order, len(wanted)):
            started = time.time()
            result = extract_unit(job, plan, unit, order.attempt, staging.files, folder, connections, snapshot)
            times = {"started": started, "finished": time.time()}
            result = replace(result, metrics={**result.metrics, **times})
            yield pa.RecordBatch.from_pydict({"token": [token], "result": [wire.dumps(result)]}, RESULTS)
