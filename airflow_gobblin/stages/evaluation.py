"""The evaluation of a version on Spark: its function is called on the driver, and Spark tasks write what it makes.

Each task writes the rows of its partition as staged files, in a folder that only it writes to, and reports them to the driver.
Only files that Spark returned count: those of a speculative or dead task are never looked for.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, SchemaConflictError, SourceDataError
from airflow_gobblin.journal.published import read_parquet
from airflow_gobblin.model import schema as schemas
from airflow_gobblin.model import wire
from airflow_gobblin.model.channels import ROWS, STATE
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.table import DataFile, TableTarget
from airflow_gobblin.model.work import MadeChannel, StagedFile, UnitResult, UnitState, WorkUnit
from airflow_gobblin.redaction import redacted_output
from airflow_gobblin.rows.sinks.base import Sink, TableSink, TableWriter, Writer
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.tables import place_of
from airflow_gobblin.spark.connections import VARIABLE, SparkConnections
from airflow_gobblin.spark.failures import cause_of
from airflow_gobblin.spark.worker import forget_zips
from airflow_gobblin.stages.agreement import check_agreement
from airflow_gobblin.stages.ddl import declared_otherwise
from airflow_gobblin.stages.frames import ConsumedInput, FrameBinding, FrameWork, as_dataset, published_stem
from airflow_gobblin.stages.functions import Out
from airflow_gobblin.stages.state import State
from airflow_gobblin.stages.tables import FoundTable, found_table
from airflow_gobblin.storage.files import open_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_gobblin.job import Attempt


def evaluate(work: FrameWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> UnitResult:
    """Evaluate a version, and stage what its function makes.

    :return: a SUCCESSFUL result, with the schema of its rows; or a FAILED one.
    :raises BaseException: only one that isn't an `Exception` and shows no secret.
    """
    started = time.monotonic()
    given = attempt.connections
    guarded = given.guarded() if isinstance(given, SparkConnections) else GuardedConnections(given)
    try:
        made = _evaluated(work, unit, plan, attempt)
    except BaseException as error:
        if not isinstance(error, Exception) and not guarded.redactor.shows_secret(error):
            raise
        failure = Failure.of(_described(error, work, plan), guarded.redactor.brief)
        return UnitResult(unit.id, attempt.id, UnitState.FAILED, failure=failure, ended=time.time())
    return UnitResult(
        unit=unit.id,
        attempt=attempt.id,
        state=UnitState.SUCCESSFUL,
        files=tuple(file for written in made.values() for file in written.files),
        rows_read=FrameBinding.of(plan).rows,
        rows_written=made[ROWS].rows,
        seconds=time.monotonic() - started,
        ended=time.time(),
        schema=made[ROWS].schema,
        channels=tuple(
            MadeChannel(name, written.schema, len(written.files)) for name, written in made.items() if name != ROWS
        ),
        data_files=made[ROWS].data_files,
        table=made[ROWS].table,
    )


@dataclass(frozen=True)
class WrittenChannel:
    """A channel of a version as it is staged.

    :param schema: encoded.
    :param data_files: the files of rows that go to a table, which is `table`.
    """

    schema: str
    files: tuple[StagedFile, ...]
    rows: int
    data_files: tuple[DataFile, ...] = ()
    table: TableTarget | None = None


def _evaluated(work: FrameWork, unit: WorkUnit, plan: Plan, attempt: Attempt) -> Mapping[str, WrittenChannel]:
    """Call the function, once, and write what it makes; return its channels.

    :raises ConfigurationError: it can't be called with its inputs. No Airflow task checks that, as its module loads Spark.
    """
    spark = attempt.spark
    if spark is None:
        raise ConfigurationError(
            operation="evaluate", subject=f"stage {work.stage!r}", cause="a stage needs Spark, and there is none here"
        )
    work.function.check_code(work.parameters)
    before = _state_before(spark, work, plan)
    inputs = {name: _read(spark, work, name, some) for name, some in FrameBinding.of(plan).inputs.items()}
    given = inputs if before is None else {**inputs, STATE: before}
    with _parts(work.state, attempt):
        made = _channels(work, work.function.evaluate(spark, given))
    known = {} if plan.checkpoint is None else plan.checkpoint.channels
    published = {**known, ROWS: plan.schema, STATE: _state_schema(plan, before)}
    found = {channel: _schema(work, channel, frame, published[channel]) for channel, frame in made.items()}
    if work.state is not None:
        _check_key(work, work.state, found[STATE])
    check_agreement(work.stage, made)
    table = _table(work, plan, attempt, found[ROWS])
    if table is not None:
        found[ROWS] = table.schema
    return {
        channel: _write(work, unit, plan, attempt, channel, made[channel], found[channel], table) for channel in made
    }


def _table(work: FrameWork, plan: Plan, attempt: Attempt, made: pa.Schema) -> FoundTable | None:
    """Return the table that rows go to, if they go to one."""
    if not isinstance(work.sink, TableSink):
        return None
    owner = FrameBinding.of(plan).owner
    assert owner is not None
    return found_table(work.sink, as_dataset(work.stage), plan, owner, made, attempt.files, attempt.connections)


def _write(
    work: FrameWork,
    unit: WorkUnit,
    plan: Plan,
    attempt: Attempt,
    channel: str,
    rows: DataFrame,
    schema: pa.Schema,
    found: FoundTable | None,
) -> WrittenChannel:
    """Have a channel of a version written: state in its buckets and as Parquet, rows for the table, if there is one."""
    assert isinstance(attempt.connections, SparkConnections)
    state = work.state if channel == STATE else None
    table = None if found is None or channel != ROWS else found.target
    order = WriteOrder(
        work.workspace,
        _sink(work, channel),
        schema,
        unit.id,
        attempt.id,
        f"{attempt.folder}/{attempt.id}",
        published_stem(plan, channel),
        attempt.connections,
        channel,
        () if state is None else state.key,
        table,
        plan.token,
    )
    rows = rows.select(*map(_quoted, schema.names))
    if state is not None:
        rows = rows.repartition(state.buckets, *map(_quoted, state.key))
    with _parts(state, attempt):
        parts = _written(rows, order)
    files = tuple(file for part in parts for file in part.files)
    data_files = tuple(file for part in parts for file in part.data_files)
    return WrittenChannel(schemas.encode(schema), files, sum(part.rows_written for part in parts), data_files, table)


_LEAST_READ = "spark.sql.files.minPartitionNum"
"""The setting for the least number of parts in which Spark reads files."""
_PART_SHUFFLED = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
"""The setting for how much shuffled data Spark puts together for a task."""
_LEAST_SHUFFLED = ("spark.sql.adaptive.coalescePartitions.minPartitionSize", "1m")
"""The setting for how much of it is worth a task, and its default."""


@contextlib.contextmanager
def _parts(state: State | None, attempt: Attempt) -> Iterator[None]:
    """Have Spark keep buckets of state apart for a while, as far as each is worth a task.

    By itself it puts them together until there are as many as there are cores: with a large state on few cores, the rows that a
    task gathers then go through the disk. A setting of people's own stays.
    """
    spark = attempt.spark
    if spark is None or state is None or state.buckets <= attempt.count_cores():
        yield
        return
    apart = {_LEAST_READ: str(state.buckets), _PART_SHUFFLED: str(spark.conf.get(*_LEAST_SHUFFLED))}
    unset = [name for name in apart if spark.conf.get(name, None) is None]
    for name in unset:
        spark.conf.set(name, apart[name])
    try:
        yield
    finally:
        for name in unset:
            spark.conf.unset(name)


def _channels(work: FrameWork, outcome: object) -> Mapping[str, DataFrame]:
    """Return what a function gives, by channel.

    :raises ConfigurationError: it gives something other than its stage publishes.
    """
    from pyspark.sql import DataFrame

    others = [*work.channels, *([] if work.state is None else [STATE])]
    found: dict[str, Any] = dict(outcome.by_channel) if isinstance(outcome, Out) else {ROWS: outcome}
    if {*found} == {ROWS, *others} and all(isinstance(one, DataFrame) for one in found.values()):
        return found
    given = f" with {', '.join(name or 'rows' for name in found)}" if isinstance(outcome, Out) else ""
    wanted = ", ".join(f"{name}=…" for name in ("rows", *others))
    raise ConfigurationError(
        operation="evaluate",
        subject=f"stage {work.stage!r}",
        cause=f"its function gives a {type(outcome).__name__}{given}",
        hint=f"Return Out({wanted}), with a DataFrame of Spark's for each."
        if others
        else "Return a DataFrame of Spark's.",
    )


def _state_before(spark: SparkSession, work: FrameWork, plan: Plan) -> DataFrame | None:
    """Return the state of the version before; for the first, one without rows that has the declared columns.

    :raises SchemaConflictError: it has other columns than declared, which only Spark could determine: the plan compared what is
        known without it.
    """
    if work.state is None:
        return None
    before = FrameBinding.of(plan).state
    declared = spark.createDataFrame([], work.state.schema or "struct<>")
    if before is None:
        return declared
    found, wanted = schemas.decode(before.schema), _as_arrow(declared)
    if work.state.schema and _types(found) != _types(wanted):
        raise declared_otherwise(work.stage, _columns(wanted), _columns(found))
    state: DataFrame = read_parquet(spark, before.schema, before.paths)
    return state


def _state_schema(plan: Plan, before: DataFrame | None) -> str | None:
    """Return the schema that the state of a version must have, encoded; `None` for the first, which may have any."""
    known = None if plan.checkpoint is None or plan.checkpoint.state is None else plan.checkpoint.state.schema
    if known is not None or before is None or not before.columns:
        return known
    return schemas.encode(_as_arrow(before))


def _check_key(work: FrameWork, state: State, schema: pa.Schema) -> None:
    """Check that a state has the columns of its key.

    :raises ConfigurationError: it lacks one.
    """
    for name in state.key:
        if name not in schema.names:
            raise ConfigurationError(
                operation="evaluate",
                subject=f"stage {work.stage!r}",
                cause=f"its state has no column {name!r}, which is of its key: it has {_columns(schema)}",
                hint=meant(schema.names, name, otherwise="Give it that column, or its stage another key."),
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
                cause=f"{of.label} has {_columns(found)}, and {work.inputs[name][0].label} has {_columns(columns[0])}",
                hint="Give each a name of its own in `reads`, and put them together in the function.",
            )
    together: DataFrame = reduce(lambda one, other: one.unionByName(other), frames)
    return together


def _schema(work: FrameWork, channel: str, outcome: DataFrame, published: str | None) -> pa.Schema:
    """Return the schema to publish a channel with: the one that it has, or the one that its first version gives, all nullable.

    :raises SchemaConflictError: the function gives other columns than before, or some that can't be written.
    """
    try:
        made = _sink(work, channel).schema(_as_arrow(outcome), None, work.stage)
    except SchemaConflictError as error:
        raise SchemaConflictError(
            operation="evaluate",
            subject=f"stage {work.stage!r}",
            cause=error.cause,
            hint="Rename, cast or drop them in its function.",
        ) from error
    if published is None and made.names:
        return made
    before = schemas.decode(published) if published is not None else pa.schema([])
    if made.names and _types(made) == _types(before):
        return before
    what = "" if channel == ROWS else f", as {channel},"
    raise SchemaConflictError(
        operation="evaluate",
        subject=f"stage {work.stage!r}",
        cause=f"its function gives{what} {_columns(made)}, and gave {_columns(before)}"
        if before.names
        else f"its {channel or 'outcome'} has no columns",
        hint="Give the columns that it gave, with their types; or a stage with other columns another name; or drop it, with its "
        "files, and it makes all versions again.",
    )


def _sink(work: FrameWork, channel: str) -> Sink:
    return work.sink if channel == ROWS else ParquetSink(work.target)


def _as_arrow(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([_nullable(field).remove_metadata() for field in to_arrow_schema(frame.schema)])


def _nullable(field: pa.Field) -> pa.Field:
    """Return a field as nullable, with all that is nested in it: Spark's report of that depends on how a row was made."""
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_nullable(one) for one in kind])
    elif pa.types.is_map(kind):
        key = _nullable(kind.key_field).with_nullable(False)
        kind = pa.map_(key, _nullable(kind.item_field))
    return field.with_type(kind).with_nullable(True)


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the types of columns, regardless of whether they, or others nested in them, may be null."""
    return {field.name: _nullable(field).type for field in schema}


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"


@dataclass(frozen=True)
class WriteOrder:
    """All that each task of a version needs to write its partition. It travels in closures, with the secrets, so it is small.

    :param staging: the folder of the attempt's staged files, below the workspace root.
    :param stem: what the paths of published files begin with.
    :param key: for a channel that has a key, the columns that distinguish rows: each partition has all rows of its keys.
    :param table: the table that its rows go to.
    :param token: the plan's token.
    """

    workspace: str
    sink: Sink
    schema: pa.Schema
    unit: str
    attempt: str
    staging: str
    stem: str
    connections: SparkConnections
    channel: str = ROWS
    key: tuple[str, ...] = ()
    table: TableTarget | None = None
    token: str = ""


def _written(rows: DataFrame, order: WriteOrder) -> list[UnitResult]:
    """Have all partitions written, in one Spark job, and return the result of each."""

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
        name, rows = f"{order.channel or order.unit}-{partition}", 0
        writer = _writer(order, name, connections)
        keys = Keys(order.key, order.channel)
        try:
            for batch in batches:
                rows += batch.num_rows
                writer.write(keys.take(_of_schema(batch, order.schema)))
            keys.check()
            files = writer.close()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to report
                writer.abort()
            raise
    result = UnitResult(order.unit, order.attempt, UnitState.SUCCESSFUL, files=files, rows_written=rows)
    if order.table is None:
        return result
    return replace(result, files=(), data_files=cast("TableWriter", writer).data_files)


def _writer(order: WriteOrder, name: str, connections: Connections) -> Writer:
    """Start the staged files of a partition, where only this task writes.

    :param name: the partition's name.
    """
    files = open_files(order.workspace, connections)
    if order.table is not None:
        files, folder = place_of(order.table, order.token, order.unit, order.attempt, order.staging, files, connections)
        return order.sink.open(order.schema, files, folder, order.unit)
    staged = f"{order.staging}/{name}-{secrets.token_hex(8)}/{name}"
    return order.sink.open(order.schema, files, staged, order.stem + name)


class Keys:
    """The keys of a partition, each of which only one row may have. They are kept until all are seen.

    :param columns: the columns of the key; if there are none, there is nothing to check.
    """

    def __init__(self, columns: tuple[str, ...], channel: str) -> None:
        self._columns = columns
        self._channel = channel
        self._taken: list[pa.RecordBatch] = []

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the keys of a batch, and return it.

        :raises SourceDataError: a key has a null.
        """
        for name in self._columns:
            if batch[name].null_count:
                raise self._refused(f"a row has no {name!r}, which is of the key", "Fill it, or leave such rows out.")
        if self._columns:
            self._taken.append(batch.select([*self._columns]))
        return batch

    def check(self) -> None:
        """Check that each key occurs once.

        :raises SourceDataError: one isn't.
        """
        if not self._taken:
            return
        taken = pa.Table.from_batches(self._taken)
        if self._grouped(taken).num_rows == taken.num_rows:
            return
        counts = self._grouped(taken, ([], "count_all"))
        row = counts.filter(pc.field("count_all") > 1).slice(0, 1).to_pylist()[0]
        named = ", ".join(f"{name}={row[name]!r}" for name in self._columns)
        raise self._refused(f"{row['count_all']} rows have the key {named}", "Give a row for each key: aggregate it.")

    def _grouped(self, taken: pa.Table, *what: tuple[list[str], str]) -> pa.Table:
        """Return a row for each key. More threads would only take cores from other tasks."""
        return taken.group_by([*self._columns], use_threads=False).aggregate(what)

    def _refused(self, cause: str, hint: str) -> SourceDataError:
        return SourceDataError(operation="write", subject=f"the {self._channel} of a stage", cause=cause, hint=hint)


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
