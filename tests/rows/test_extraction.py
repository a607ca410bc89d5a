"""The path of a row: from a Parquet file as the source, over real converters and checks, to Parquet on a real disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, SchemaConflictError, SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model import schema, wire
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.model.watermark import Json, LongWatermark, Watermark
from airflow_gobblin.model.work import (
    Dataset,
    Extract,
    ExtractKind,
    Limits,
    StagedFile,
    UnitResult,
    UnitState,
    WorkUnit,
)
from airflow_gobblin.rows.converters.base import Converter, OnBadRow, RowCheck
from airflow_gobblin.rows.converters.checks import InRange, NotNull
from airflow_gobblin.rows.converters.columns import AddColumn, DropColumns, RenameColumns
from airflow_gobblin.rows.extraction import conform, converted_schema, extract_unit
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sinks.parquet_files import ParquetFiles
from airflow_gobblin.rows.sources.base import DatasetPlan, PlanRequest, ReadRequest
from airflow_gobblin.rows.work import RowsBinding, RowsWork
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import Files, LocalFiles
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.testing.arrow_memory import arrow_memory
from airflow_gobblin.testing.failing_files import FailingFiles

SECRET = "canary/Pass w0rd"
URI = "postgresql://user:canary%2FPass%20w0rd@db:5432/main?sslkey=another+canary&__extra__=%7B%22key%22%3A%22third+canary%22%7D"
STAGING = "_gobblin/s/t0"
DATASET = Dataset("main.flights", Extract(ExtractKind.APPEND_ONLY, "main", "flights"))


@dataclass(frozen=True)
class OneConnection:
    """Connections of one secret."""

    def uri(self, conn_id: str) -> str:
        return URI


@wire.record("test.file_source")
@dataclass(frozen=True)
class FileSource:
    """Rows [low, high) of a Parquet file, counted from 0; `tells` and `stops_at` make it report something untrue."""

    path: str
    batch_rows: int = 10
    tells: int | None = None
    stops_at: int | None = None
    properties: Mapping[str, Json] = field(default_factory=dict)
    connection_ids: tuple[str, ...] = ("files",)

    def modules(self, connections: Connections) -> tuple[str, ...]:
        return ("pyarrow",)

    def datasets(self, connections: Connections) -> tuple[Dataset, ...]:
        return (DATASET,)

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        rows = pq.read_metadata(self.path).num_rows
        return DatasetPlan(
            (WorkUnit("u0", dataset.urn, LongWatermark(0), LongWatermark(rows)),), pq.read_schema(self.path)
        )

    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> FileReader:
        return FileReader(self, unit, request.limits, connections.uri("files"))


class FileReader:
    def __init__(self, source: FileSource, unit: WorkUnit, limits: Limits, uri: str) -> None:
        self._source = source
        self._uri = uri
        assert isinstance(unit.low, LongWatermark)
        assert isinstance(unit.expected_high, LongWatermark)
        self._next, self._end = unit.low.value, unit.expected_high.value
        if limits.rows is not None:
            self._end = min(self._end, self._next + limits.rows)
        self.closed = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        seen = 0
        with pq.ParquetFile(self._source.path, pre_buffer=False) as file:
            for whole in file.iter_batches(self._source.batch_rows):
                if whole.schema.names[0] == "boom":
                    raise RuntimeError(f"no connection to {self._uri} with {SECRET}, 'another canary' and third canary")
                batch = whole.slice(max(0, self._next - seen), max(0, self._end - max(seen, self._next)))
                seen += whole.num_rows
                self._next += batch.num_rows
                if batch.num_rows:
                    yield batch

    @property
    def actual_high(self) -> Watermark | None:
        assert not self.closed
        return LongWatermark(self._next if self._source.stops_at is None else self._source.stops_at)

    @property
    def expected_rows(self) -> int | None:
        return self._source.tells

    @property
    def properties(self) -> Mapping[str, Json]:
        return self._source.properties

    def close(self) -> None:
        self.closed = True


TABLE = pa.table({"id": pa.array(range(100)), "name": pa.array([None if i % 10 == 7 else f"n{i}" for i in range(100)])})


@dataclass(frozen=True)
class Setup:
    """An extraction that is ready to run."""

    files: LocalFiles
    job: RowsWork
    plan: Plan
    unit: WorkUnit

    def run(self) -> UnitResult:
        result = extract_unit(self.job, self.plan, self.unit, "a0", self.files, STAGING, OneConnection())
        # It crosses from the Spark task to the driver, so it must be able to.
        assert wire.loads(wire.dumps(result), UnitResult, "result") == result
        assert result.metrics.get("rows_added", 0) + result.rows_read >= result.rows_written + result.rows_dropped
        return result

    def staged(self) -> list[str]:
        return list(self.files.walk("_gobblin"))

    def rows(self, result: UnitResult) -> pa.Table:
        return pa.concat_tables(pq.read_table(Path(self.files.root) / f.path) for f in result.files)


def _setup(
    tmp_path: Path,
    *,
    table: pa.Table = TABLE,
    published: pa.Schema | None = None,
    converters: tuple[Converter, ...] = (),
    checks: tuple[RowCheck, ...] = (),
    limits: Limits = Limits(),  # noqa: B008
    **source: Any,
) -> Setup:
    tmp_path.mkdir(exist_ok=True)
    pq.write_table(table, tmp_path / "source.parquet")
    job = RowsWork(
        "flights",
        FileSource(str(tmp_path / "source.parquet"), **source),
        ParquetSink("/target"),
        converters,
        checks,
        limits,
    )
    if published is None:
        published = converted_schema(converters, checks, table.schema)
    unit = WorkUnit("u0", DATASET.urn, LongWatermark(0), LongWatermark(table.num_rows))
    binding, encoded = RowsBinding(schema.encode(table.schema), limits), schema.encode(published)
    plan = Plan("t0", "flights", "k", 0, DATASET.urn, Holds.RANGES, "main.flights", (unit,), binding, encoded)
    return Setup(LocalFiles(tmp_path / "target"), job, plan, unit)


def test_rows_arrive_with_counts_position_and_staged_files(tmp_path: Path) -> None:
    setup = _setup(tmp_path, tells=100, properties={"cursor": [1, {"deep": None}]})

    result = setup.run()

    assert (result.unit, result.attempt, result.state, result.failure) == ("u0", "a0", UnitState.SUCCESSFUL, None)
    assert (result.rows_read, result.rows_written, result.rows_dropped, result.expected_rows) == (100, 100, 0, 100)
    assert result.actual_high == LongWatermark(100)
    assert result.properties == {"cursor": [1, {"deep": None}]}
    assert result.metrics["batches"] == 10
    assert result.metrics["arrow_bytes"] > 800
    assert 0 < result.metrics["read_seconds"] + result.metrics["write_seconds"] <= result.seconds
    assert setup.staged() == [f.path for f in result.files]
    assert setup.rows(result).equals(TABLE)


@wire.record("test.leaving_sink")
@dataclass(frozen=True)
class LeavingSink(ParquetSink):
    """A user's sink, whose writer leaves something for the next run."""

    leaves: Mapping[str, Json] = field(default_factory=dict)

    def open(self, schema: pa.Schema, files: Files, folder: str, stem: str) -> LeavingFiles:
        size, level = self.file_bytes, self.compression_level
        writer = LeavingFiles(schema, files, folder, stem, file_bytes=size, compression_level=level)
        writer.leaves = self.leaves
        return writer


class LeavingFiles(ParquetFiles):
    leaves: Mapping[str, Json]
    closed: int | None = None

    def close(self) -> tuple[StagedFile, ...]:
        staged = super().close()
        self.closed = len(staged)
        return staged

    @property
    def properties(self) -> Mapping[str, Json]:
        return {**self.leaves, "files": self.closed}


def _leaving(setup: Setup, **leaves: Json) -> Setup:
    return replace(setup, job=replace(setup.job, sink=LeavingSink("/target", leaves=leaves)))


def test_reader_and_writer_leave_properties_for_the_next_run(tmp_path: Path) -> None:
    setup = _leaving(_setup(tmp_path, properties={"cursor": 7}), shape=[1, {"deep": None}])
    assert setup.run().properties == {"cursor": 7, "shape": [1, {"deep": None}], "files": 1}


@pytest.mark.parametrize(
    ("leaves", "problem"),
    [
        ({"cursor": 8}, "its reader and its writer both leave the property 'cursor' for the next run"),
        ({"x": float("nan")}, "not JSON compliant"),
    ],
)
def test_what_a_writer_cant_leave_fails_its_unit(tmp_path: Path, leaves: dict[str, Json], problem: str) -> None:
    setup = _leaving(_setup(tmp_path, properties={"cursor": 7}), **leaves)
    result = setup.run()
    assert (result.state, result.properties, setup.staged()) == (UnitState.FAILED, {"cursor": 7}, [])
    assert problem in (result.why or "")


def test_the_next_plan_sees_what_a_users_sink_left(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "source.parquet")
    sink = LeavingSink(str(tmp_path / "target"), leaves={"shape": "round"})
    ingestion = Ingestion("flights", LookingSource(str(tmp_path / "source.parquet")), sink, "unused")
    opened = OpenJob(ingestion, Journal.create(MemoryStore(), "flights"), OneConnection())
    assert inprocess.run(opened, OneConnection())[DATASET.urn].status == "committed"
    SEEN.clear()
    create_work_units(opened, RunRequest("next"))
    assert SEEN == [{"shape": "round", "files": 1}]


SEEN: list[Mapping[str, Json]] = []


@wire.record("test.looking_source")
@dataclass(frozen=True)
class LookingSource(FileSource):
    """Record what the units of the run before left."""

    def plan(
        self, dataset: Dataset, states: Mapping[str, DatasetState], request: PlanRequest, connections: Connections
    ) -> DatasetPlan:
        SEEN.extend(unit.properties for unit in states[dataset.urn].previous_units)
        plan = super().plan(dataset, states, request, connections)
        if states[dataset.urn].watermark is not None:
            return replace(plan, units=())
        return replace(plan, planned=Range(LongWatermark(0), LongWatermark(TABLE.num_rows)))


def test_every_attempt_of_a_spark_task_has_a_folder_of_its_own(tmp_path: Path) -> None:
    setup = _setup(tmp_path)

    (first,), (second,) = setup.run().files, setup.run().files

    assert first.path != second.path
    assert first.path.startswith(f"{STAGING}/a0/u0-")
    assert sorted(setup.staged()) == sorted([first.path, second.path])
    assert first.checksum == second.checksum


def test_an_empty_unit_is_successful_and_reads_nothing(tmp_path: Path) -> None:
    setup = _setup(tmp_path)
    at = LongWatermark(5)

    result = replace(setup, unit=replace(setup.unit, low=at, expected_high=at)).run()

    assert (result.state, result.actual_high, result.rows_read, result.files) == (UnitState.SUCCESSFUL, at, 0, ())
    assert setup.staged() == []


def test_a_limit_ends_a_unit_early(tmp_path: Path) -> None:
    result = _setup(tmp_path, limits=Limits(rows=25)).run()

    assert (result.state, result.rows_written, result.actual_high) == (UnitState.SUCCESSFUL, 25, LongWatermark(25))


def test_converters_and_checks_in_their_order(tmp_path: Path) -> None:
    setup = _setup(
        tmp_path,
        converters=(RenameColumns({"name": "label"}), AddColumn("origin", "NYC")),
        checks=(NotNull(("label",), OnBadRow.DROP), InRange("id", 0, 49, OnBadRow.DROP)),
    )

    result = setup.run()

    assert result.state is UnitState.SUCCESSFUL
    assert (result.rows_read, result.rows_written, result.rows_dropped) == (100, 45, 55)
    assert {k: v for k, v in result.metrics.items() if "dropped" in k} == {
        "rows_dropped_by_not_null": 10,
        "rows_dropped_by_in_range": 45,
    }
    rows = setup.rows(result)
    assert rows.column_names == ["id", "label", "origin"]
    assert rows["id"].to_pylist() == [i for i in range(50) if i % 10 != 7]
    assert set(rows["origin"].to_pylist()) == {"NYC"}


@pytest.mark.parametrize("at_most", [10, 99, 0.1, 0.5])
def test_a_check_may_drop_up_to_its_bound(tmp_path: Path, at_most: float) -> None:
    setup = _setup(tmp_path, checks=(NotNull(("name",), OnBadRow.DROP, at_most),))
    assert (setup.run().state, setup.run().rows_dropped) == (UnitState.SUCCESSFUL, 10)


@pytest.mark.parametrize(
    ("at_most", "bound"), [(9, "at most 9 may"), (0, "at most 0 may"), (0.0999, "at most 9.99 % may")]
)
def test_above_its_bound_the_unit_fails_and_leaves_nothing(tmp_path: Path, at_most: float, bound: str) -> None:
    """A row that another check has dropped before counts, too."""
    checks = (InRange("id", 50, None, OnBadRow.DROP), NotNull(("name",), OnBadRow.DROP, at_most))
    setup = _setup(tmp_path, checks=checks)
    result = setup.run()
    assert result.state is UnitState.FAILED
    assert "10 of its 100 rows fail the check NotNull" in str(result.why)
    assert bound in str(result.why)
    assert [*setup.files.walk(STAGING)] == []


@wire.record("test.explode")
@dataclass(frozen=True)
class Explode:
    """A converter that changes the number of rows: it repeats each `times` times, and drops all if that is 0."""

    times: int

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        return incoming

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.take(pa.array([i for i in range(batch.num_rows) for _ in range(self.times)], pa.int64()))


@pytest.mark.parametrize(("times", "added", "written", "dropped"), [(3, 200, 300, 0), (0, 0, 0, 100)])
def test_rows_that_a_converter_adds_or_drops_are_counted(
    tmp_path: Path, times: int, added: int, written: int, dropped: int
) -> None:
    result = _setup(tmp_path, converters=(Explode(times),)).run()

    assert (result.rows_read, result.rows_written, result.rows_dropped) == (100, written, dropped)
    assert result.metrics["rows_added"] == added
    assert len(result.files) == (1 if written else 0)


def test_a_failing_check_names_itself_the_count_and_a_row(tmp_path: Path) -> None:
    """Row 27 is the first bad one: 7 and 17 are dropped before by a check that is set to drop."""
    setup = _setup(tmp_path, checks=(DropBelow(20), NotNull(("name",))))

    result = setup.run()

    assert result.state is UnitState.FAILED
    assert result.actual_high is None
    assert result.failure is not None
    assert result.why.startswith(
        "CheckFailedError: can't extract unit 'u0' of dataset 'main.flights': 1 of the 10 rows"
    )
    assert "NotNull(columns=('name',)" in result.why
    assert "the first is row 27 of the unit, counted from 0" in result.why
    assert "n2" not in result.why
    assert setup.staged() == []


@wire.record("test.drop_below")
@dataclass(frozen=True)
class DropBelow:
    """A user's own check."""

    least: int
    on_bad: OnBadRow = OnBadRow.DROP

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.greater_equal(batch["id"], self.least)


@wire.record("test.wrong_check")
@dataclass(frozen=True)
class WrongCheck:
    """A check that forgets nulls."""

    on_bad: OnBadRow = OnBadRow.DROP

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.not_equal(batch["name"], "n1")


def test_a_check_that_gives_null_is_refused_by_name(tmp_path: Path) -> None:
    result = _setup(tmp_path, checks=(WrongCheck(),)).run()

    assert result.failure is not None
    assert "ConfigurationError: can't apply check WrongCheck(" in result.why
    assert "with 1 nulls for 10 rows" in result.why


def test_rows_are_published_in_the_frozen_schema(tmp_path: Path) -> None:
    """A column that the source lost is null; the published order holds."""
    published = pa.schema(
        [("name", pa.string()), ("gone", pa.list_(pa.float64())), pa.field("id", pa.int64(), nullable=False)]
    )

    setup = _setup(tmp_path, published=published)
    result = setup.run()

    rows = setup.rows(result)
    assert rows.schema.equals(published)
    assert rows["gone"].null_count == 100
    assert rows["id"].to_pylist() == TABLE["id"].to_pylist()


@pytest.mark.parametrize(
    ("published", "problem"),
    [
        (pa.schema([("id", pa.int32()), ("name", pa.string())]), "column 'id' is int64 and is published as int32"),
        (pa.schema([("id", pa.int64())]), "column 'name' is not in the published schema"),
        (
            pa.schema([("id", pa.int64()), pa.field("name", pa.string(), nullable=False)]),
            "column 'name' is published as not null, and a row has no value there",
        ),
        (
            pa.schema([("id", pa.int64()), ("name", pa.string()), pa.field("more", pa.int8(), nullable=False)]),
            "column 'more' is published as not null",
        ),
    ],
)
def test_a_schema_conflict_fails_the_unit_by_name(tmp_path: Path, published: pa.Schema, problem: str) -> None:
    setup = _setup(tmp_path, published=published)

    result = setup.run()

    assert result.state is UnitState.FAILED
    assert result.failure is not None
    assert result.why.startswith("SchemaConflictError: ")
    assert problem in result.why
    assert setup.staged() == []


def test_a_source_that_changed_since_the_plan_fails_the_unit(tmp_path: Path) -> None:
    setup = _setup(tmp_path)
    pq.write_table(TABLE.rename_columns(["id", "other"]), tmp_path / "source.parquet")

    error = setup.run().why

    assert "planned was id int64, name string, and the source gives id int64, other string" in error


def test_conform_leaves_a_batch_of_the_published_schema_as_it_is() -> None:
    batch = TABLE.to_batches()[0]
    assert conform(batch, TABLE.schema, "x").equals(batch)
    with pytest.raises(SchemaConflictError):
        conform(batch, pa.schema([("id", pa.int64())]), "x")


@pytest.mark.parametrize("expected", [99, 101])
def test_counts_that_differ_fail_the_unit_with_both(tmp_path: Path, expected: int) -> None:
    setup = _setup(tmp_path, tells=expected, properties={"kept": True})

    result = setup.run()

    assert result.state is UnitState.FAILED
    assert (result.rows_read, result.expected_rows) == (100, expected)
    assert result.failure is not None
    assert f"100 rows were read, and the source expects {expected}" in result.why
    assert result.properties == {"kept": True}
    assert setup.staged() == []


@pytest.mark.parametrize("stops_at", [-1, 101])
def test_a_position_outside_of_the_units_range_fails_it(tmp_path: Path, stops_at: int) -> None:
    setup = _setup(tmp_path, stops_at=stops_at)

    result = setup.run()

    assert (result.state, result.actual_high) == (UnitState.FAILED, None)
    assert result.failure is not None
    assert f"it ended at {stops_at}, outside of its range [0, 100)" in result.why
    assert setup.staged() == []


def test_no_secret_in_an_error(tmp_path: Path) -> None:
    """Neither its password nor its query values, as written or decoded; the rest of it is still shown."""
    result = _setup(tmp_path, table=pa.table({"boom": [1]})).run()

    assert result.state is UnitState.FAILED
    assert result.failure is not None
    assert "canary" not in result.why
    assert "w0rd" not in result.why
    assert (
        "GobblinError: can't extract unit 'u0' of dataset 'main.flights': RuntimeError: no connection to "
        "postgresql://***@db:5432/main?sslkey=***&__extra__=" in result.why
    )
    assert "Raised by __iter__ in" in result.why


def test_errors_of_any_bytes_can_be_recorded_and_are_short(tmp_path: Path) -> None:
    """A message from a driver may hold invalid UTF-8, and be very long."""
    setup = _setup(tmp_path, converters=(Grumble("\udcff" * 10_000),), published=TABLE.schema)

    failure = setup.run().failure

    assert failure is not None
    assert len(failure.cause or "") <= 4000


@wire.record("test.grumble")
@dataclass(frozen=True)
class Grumble:
    """A converter that fails."""

    text: str

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        return incoming

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        raise OSError(self.text)


def test_every_disk_error_gives_a_failed_result_and_no_file(tmp_path: Path) -> None:
    """Each call of the file system fails in turn, once or from then on."""
    probe = FailingFiles(tmp_path / "probe", at=-1)
    setup = _setup(tmp_path)
    assert replace(setup, files=probe).run().state is UnitState.SUCCESSFUL
    assert len(probe.calls) > 10

    for at, call in enumerate(probe.calls):
        failing = replace(setup, files=FailingFiles(tmp_path / str(at), at, forever=at % 2 == 0))
        result = failing.run()
        assert (result.state, result.files, result.actual_high) == (UnitState.FAILED, (), None), call
        assert os.strerror(errno.ENOSPC) in (result.why or ""), call
        assert failing.staged() == [], call


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_and_leaves_nothing(tmp_path: Path, interrupt: type[BaseException]) -> None:
    setup = _setup(tmp_path)
    setup = replace(setup, files=FailingFiles(tmp_path / "target", 3, interrupt))

    with pytest.raises(interrupt):
        setup.run()

    assert setup.staged() == []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_unit(tmp_path: Path) -> None:
    """50 MB in batches of 1 MB, through a converter and a check, into files of 1 MB."""
    setup = _setup(tmp_path, checks=(NotNull(("id",)),), converters=(AddColumn("origin", 1),))
    with pq.ParquetWriter(tmp_path / "source.parquet", TABLE.schema) as source:
        for start in range(0, 3_000_000, 100_000):
            ids = pa.array(range(start, start + 100_000))
            source.write_table(pa.table({"id": ids, "name": ids.cast(pa.string())}))
    setup = replace(
        setup,
        job=replace(
            setup.job,
            source=FileSource(str(tmp_path / "source.parquet"), batch_rows=65_536),
            sink=ParquetSink("/target", file_bytes=1 << 20),
        ),
        unit=replace(setup.unit, expected_high=LongWatermark(3_000_000)),
    )

    with arrow_memory() as pool:
        result = setup.run()

        assert result.rows_written == 3_000_000
        assert result.metrics["arrow_bytes"] > 48e6
        assert len(result.files) > 3
        assert pool.max_memory() < 20 << 20
        assert pool.bytes_allocated() < 1 << 20


def test_planning_tries_converters_and_checks_without_rows() -> None:
    converters = (RenameColumns({"id": "key"}), DropColumns(("name",)))
    assert converted_schema(converters, (NotNull(("key",)),), TABLE.schema).names == ["key"]
    with pytest.raises(ConfigurationError, match=r"there is no column 'name' among \['key'\]"):
        converted_schema(converters, (NotNull(("name",)),), TABLE.schema)
    with pytest.raises(ConfigurationError, match=r"it promised id int64, name string and gives id int64"):
        converted_schema((Liar(),), (), TABLE.schema)


def test_an_authors_own_check_has_a_response_that_there_is() -> None:
    with pytest.raises(ConfigurationError, match="there is no such response"):
        converted_schema((), (Misspelt(),), TABLE.schema)


@wire.record("test.misspelt")
@dataclass(frozen=True)
class Misspelt:
    """A check whose response to bad rows is a word of its own."""

    on_bad: ClassVar[Any] = "fails"

    def good(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([False] * batch.num_rows)


@wire.record("test.liar")
@dataclass(frozen=True)
class Liar:
    """A converter that doesn't do what its schema declares."""

    def schema(self, incoming: pa.Schema) -> pa.Schema:
        return incoming

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.drop_columns(["name"])


def test_a_reader_that_does_not_report_where_it_ended_fails_its_unit(tmp_path: Path) -> None:
    setup = _setup(tmp_path)
    silent = replace(setup, job=replace(setup.job, source=SilentSource(str(tmp_path / "source.parquet"))))

    error = silent.run().why

    assert error.startswith(SourceError.__name__)
    assert "its reader doesn't report where it ended" in error


@wire.record("test.silent_source")
@dataclass(frozen=True)
class SilentSource(FileSource):
    def read(self, unit: WorkUnit, schema: pa.Schema, request: ReadRequest, connections: Connections) -> FileReader:
        return SilentReader(self, unit, request.limits, "")


class SilentReader(FileReader):
    @property
    def actual_high(self) -> Watermark | None:
        return None
