"""The evaluation of a version on Spark: its function is called on the driver, and what it makes is written by Spark tasks.

Each task writes the rows of its partition as staged files, in a folder that only it writes to, and tells the driver of them. Only
what Spark returned counts: files of a speculative or dead task are never looked for.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, SchemaConflictError
from airflow_gobblin.journal.published import read_parquet
from airflow_gobblin.model import schema as schemas
from airflow_gobblin.model import wire
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import UnitResult, UnitState, WorkUnit
from airflow_gobblin.redaction import redacted_output
from airflow_gobblin.rows.sinks.base import Sink
from airflow_gobblin.spark.connections import VARIABLE, SparkConnections
from airflow_gobblin.spark.failures import cause_of
from airflow_gobblin.spark.worker import forget_zips
from airflow_gobblin.stages.frames import ConsumedInput, FrameBinding, FrameWork, published_stem
from airflow_gobblin.storage.files import open_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_gobblin.job import Attempt


def evaluate(work: FrameWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
    """Evaluate a version, and stage what its function makes.

    :return: a SUCCESSFUL result, with the schema of its rows; or a FAILED one.
    :raises BaseException: only if it is no `Exception` and shows no secret.
    """
    started = time.monotonic()
    given = attempt.connections
    guarded = given.guarded() if isinstance(given, SparkConnections) else GuardedConnections(given)
    try:
        parts, schema = _evaluated(work, unit, plan, attempt)
    except BaseException as error:
        if not isinstance(error, Exception) and not guarded.redactor.shows_secret(error):
            raise
        failure = Failure.of(_described(error, work, plan), guarded.redactor.brief)
        return UnitResult(unit.id, attempt.id, UnitState.FAILED, failure=failure, ended=time.time())
    return UnitResult(
        unit=unit.id,
        attempt=attempt.id,
        state=UnitState.SUCCESSFUL,
        files=tuple(file for part in parts for file in part.files),
        rows_read=FrameBinding.of(plan).rows,
        rows_written=sum(part.rows_written for part in parts),
        seconds=time.monotonic() - started,
        ended=time.time(),
        schema=schema,
    )


def _evaluated(work: FrameWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> tuple[list[UnitResult], str]:
    """Return what each partition gave, and the schema."""
    spark = attempt.spark
    if spark is None:
        raise ConfigurationError(
            operation="evaluate", subject=f"stage {work.stage!r}", cause="a stage needs Spark, and there is none here"
        )
    inputs = {name: _read(spark, work, name, some) for name, some in FrameBinding.of(plan).inputs.items()}
    outcome = _checked(work, work.function.evaluate(spark, inputs))
    schema = _schema(work, plan, outcome)
    assert isinstance(attempt.connections, SparkConnections)
    order = WriteOrder(
        work.workspace,
        work.sink,
        schema,
        unit.id,
        attempt.id,
        f"{attempt.folder}/{attempt.id}",
        published_stem(plan),
        attempt.connections,
    )
    return _written(outcome.select(*(f"`{name.replace('`', '``')}`" for name in schema.names)), order), schemas.encode(
        schema
    )


def _read(spark: SparkSession, work: FrameWork, name: str, some: tuple[ConsumedInput, ...]) -> DataFrame:
    """Return an input: all rows of its parts, which have the same columns.

    :raises SchemaConflictError: they don't.
    """
    frames = [read_parquet(spark, one.schema, one.paths) for one in some]
    columns = [schemas.decode(one.schema) for one in some]
    for of, found in zip(work.inputs[name], columns, strict=True):
        if _types(found) != _types(columns[0]):
            raise SchemaConflictError(
                operation="read",
                subject=f"input {name!r} of stage {work.stage!r}",
                cause=f"{of.id} has {_columns(found)}, and {work.inputs[name][0].id} has {_columns(columns[0])}",
                hint="Give each a name of its own in `reads`, and put them together in the function.",
            )
    together: DataFrame = reduce(lambda one, other: one.unionByName(other), frames)
    return together


def _checked(work: FrameWork, outcome: object) -> DataFrame:
    from pyspark.sql import DataFrame

    if isinstance(outcome, DataFrame):
        return outcome
    raise ConfigurationError(
        operation="evaluate",
        subject=f"stage {work.stage!r}",
        cause=f"its function gives a {type(outcome).__name__}",
        hint="Return a DataFrame of Spark's.",
    )


def _schema(work: FrameWork, plan: Plan, outcome: DataFrame) -> pa.Schema:
    """Return the schema to publish by: the one that the stage has, or what its first version gives, all of it nullable.

    :raises SchemaConflictError: the function gives other columns than before, or some that can't be written.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    given = pa.schema([field.with_nullable(True).remove_metadata() for field in to_arrow_schema(outcome.schema)])
    try:
        made = work.sink.schema(given, None, plan.urn)
    except SchemaConflictError as error:
        raise SchemaConflictError(
            operation="evaluate",
            subject=f"stage {work.stage!r}",
            cause=error.cause,
            hint="Rename, cast or drop them in its function.",
        ) from error
    if plan.schema is None and made.names:
        return made
    before = schemas.decode(plan.schema) if plan.schema is not None else pa.schema([])
    if made.names and _types(made) == _types(before):
        return before
    raise SchemaConflictError(
        operation="evaluate",
        subject=f"stage {work.stage!r}",
        cause=f"its function gives {_columns(made)}, and gave {_columns(before)}"
        if before.names
        else "it has no columns",
        hint="Give the columns that it gave, with their types; or a stage with other columns another name.",
    )


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"


@dataclass(frozen=True)
class WriteOrder:
    """What each task of a version needs to write its partition. It travels in closures, with the secrets, and so is small.

    :param staging: the folder of the attempt's staged files, below the workspace root.
    :param stem: what the paths of published files begin with.
    """

    workspace: str
    sink: Sink
    schema: pa.Schema
    unit: str
    attempt: str
    staging: str
    stem: str
    connections: SparkConnections


def _written(rows: DataFrame, order: WriteOrder) -> list[UnitResult]:
    """Have all partitions written, in one Spark job, and return what each gave."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        result = write_partition(order, context.partitionId(), batches)
        yield pa.RecordBatch.from_pydict({"result": pa.array([wire.dumps(result)], pa.binary())})
        forget_zips()

    found = rows.mapInArrow(task, "result binary").collect()
    return [wire.loads(bytes(row.result), UnitResult, "a result from a Spark task") for row in found]


def write_partition(order: WriteOrder, partition: int, batches: Iterable[pa.RecordBatch]) -> UnitResult:
    """Write the rows of a partition as staged files: the code of a Spark task.

    :raises Exception: without a secret; nothing of it counts then.
    """
    os.environ.pop(VARIABLE, None)
    connections = order.connections.guarded()
    with redacted_output(connections.redactor), connections.redactor.guarding("run", "a Spark task"):
        name, rows = f"{order.unit}-{partition}", 0
        staged = f"{order.staging}/{name}-{secrets.token_hex(8)}/{name}"
        writer = order.sink.open(order.schema, open_files(order.workspace, connections), staged, order.stem + name)
        try:
            for batch in batches:
                rows += batch.num_rows
                writer.write(_of_schema(batch, order.schema))
            files = writer.close()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to report
                writer.abort()
            raise
    return UnitResult(order.unit, order.attempt, UnitState.SUCCESSFUL, files=files, rows_written=rows)


def _of_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of Spark's as it is published: its times have the session's zone."""
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
    )


def _described(error: BaseException, work: FrameWork, plan: Plan) -> GobblinError:
    if isinstance(error, GobblinError):
        return error
    version = "" if plan.checkpoint is None else f"version {plan.checkpoint.version.isoformat()} of "
    at = traceback.extract_tb(error.__traceback__)[-1]
    of_spark = type(error).__module__.startswith(("pyspark.", "py4j."))
    return GobblinError(
        operation="evaluate",
        subject=f"{version}stage {work.stage!r}",
        cause=cause_of(error) if of_spark and isinstance(error, Exception) else error,
        hint="" if of_spark else f"Raised by {at.name} in {at.filename}, line {at.lineno}",
    )
