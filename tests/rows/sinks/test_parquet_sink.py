"""ParquetSink, on a real disk and with real Parquet."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError, StepLostError
from airflow_gobblin.model import wire
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.work import MIB, Dataset, Extract, ExtractKind, StagedFile, UnitResult, UnitState
from airflow_gobblin.rows.sinks import parquet_files
from airflow_gobblin.rows.sinks.base import Layout, Sink, Writer
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.work import RowsBinding
from airflow_gobblin.steps.base import StepContext, StepStatus
from airflow_gobblin.steps.publishing import FolderStep, MoveStep
from airflow_gobblin.storage.files import Files, LocalFiles, open_files
from airflow_gobblin.testing import SinkContract
from airflow_gobblin.testing.arrow_memory import arrow_memory
from airflow_gobblin.testing.failing_files import FailingFiles
from airflow_gobblin.testing.sinks import Row
from tests.services.environment import ROOT
from tests.services.s3 import S3Server

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
FOLDER = "_gobblin/s/t0/a0/u0-ff"
DATASET = Dataset("main.flights", Extract(ExtractKind.APPEND_ONLY, "main", "flights"))
PLAN = Plan("t0", "flights", "key", 0, DATASET.urn, Holds.RANGES, "main.flights", (), RowsBinding(""))


def _batch(start: int, rows: int) -> pa.RecordBatch:
    ids = np.arange(start, start + rows)
    return pa.record_batch([pa.array(ids), pa.array(ids.astype(str))], SCHEMA)


def _random(rows: int, seed: int) -> pa.RecordBatch:
    """Rows of 1,008 bytes that can't be compressed."""
    data = np.random.default_rng(seed).bytes(rows * 1000)
    return pa.record_batch(
        [pa.array(np.arange(rows)), pa.array([data[i : i + 1000] for i in range(0, len(data), 1000)])], ["id", "data"]
    )


def _written(sink: ParquetSink, files: LocalFiles, *batches: pa.RecordBatch) -> tuple[StagedFile, ...]:
    return _finish(sink.open(batches[0].schema, files, f"{FOLDER}/u0", "table/token-u0"), *batches)


def _finish(writer: Writer, *batches: pa.RecordBatch) -> tuple[StagedFile, ...]:
    for batch in batches:
        writer.write(batch)
    return writer.close()


def _result(*staged: StagedFile) -> UnitResult:
    return UnitResult("u0", "a0", UnitState.SUCCESSFUL, files=staged)


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    sink: Sink = ParquetSink(str(tmp_path))

    writer = sink.open(SCHEMA, files, f"{FOLDER}/u0", "table/token-u0")
    for batch in (_batch(0, 10), _batch(10, 0), _batch(10, 5)):
        writer.write(batch)
    (staged,) = writer.close()

    path = tmp_path / staged.path
    assert staged.path == f"{FOLDER}/u0-0.parquet"
    assert (staged.size, staged.stamp) == (path.stat().st_size, str(path.stat().st_mtime_ns))
    assert staged.checksum == hashlib.sha256(path.read_bytes()).hexdigest()
    assert staged.rows == 15
    assert pq.read_table(path).equals(pa.Table.from_batches([_batch(0, 15)]))
    assert pq.read_schema(path).equals(SCHEMA)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


class TestParquetSink(SinkContract):
    @pytest.fixture(params=Layout)
    def sink(self, target: str, request: pytest.FixtureRequest) -> Sink:
        return ParquetSink(target, file_bytes=1 << 20, layout=request.param)

    @pytest.fixture
    def read(self) -> Callable[[bytes], Iterable[Row]]:
        return lambda content: pq.read_table(pa.BufferReader(content)).to_pylist()


class TestParquetSinkOfManyFiles(TestParquetSink):
    """Each batch is a file, so that folders are published by a rename."""

    @pytest.fixture
    def batches(self) -> Sequence[pa.RecordBatch]:
        return [_random(50, seed) for seed in range(3)]

    @pytest.fixture(params=Layout)
    def sink(self, target: str, request: pytest.FixtureRequest) -> Sink:
        return ParquetSink(target, file_bytes=50_000, layout=request.param)


class TestParquetSinkOnS3(TestParquetSink):
    @pytest.fixture
    def target(self, versitygw: S3Server) -> str:
        return versitygw.access.url(f"{versitygw.create_bucket()}/lake")

    @pytest.fixture
    def files(self, target: str, versitygw: S3Server) -> Files:
        return open_files(target, versitygw.access)


EVERY_NUMBER = {
    "int8": pa.array([n % 128 for n in range(1000)], pa.int8()),
    "int64": pa.array([n * n * 1_000_003 if n % 7 else None for n in range(1000)], pa.int64()),
    "ends": pa.array(
        [(-(2**63), 2**63 - 1)[n % 2] + (n // 2 if n % 2 == 0 else -n // 2) for n in range(1000)], pa.int64()
    ),
    "uint64": pa.array([2**64 - 1 - n for n in range(1000)], pa.uint64()),
    "float": pa.array([n / 7 for n in range(1000)], pa.float64()),
    "date": pa.array(range(-500, 500), pa.date32()),
    "time": pa.array(range(1000), pa.time64("us")),
    "local": pa.array(range(-500, 500), pa.timestamp("us")),
    "instant": pa.array(range(0, 1_000_000, 1000), pa.timestamp("us", "UTC")),
    "nanoseconds": pa.array(range(1000), pa.timestamp("ns")),
    "decimal9": pa.array([Decimal(n) / 100 for n in range(-500, 500)], pa.decimal128(9, 2)),
    "decimal18": pa.array([Decimal(10**18 - 1 - n) / 100 for n in range(1000)], pa.decimal128(18, 2)),
    "decimal38": pa.array([Decimal(n) for n in range(1000)], pa.decimal128(38, 2)),
    "nulls": pa.nulls(1000, pa.int64()),
    "list": pa.array([[n, None] for n in range(1000)], pa.list_(pa.int64())),
    "names": pa.array([[{"a.b": str(n % 3)}] for n in range(1000)], pa.list_(pa.struct([("a.b", pa.string())]))),
}


@pytest.mark.parametrize("times", [1, 3], ids=["distinct", "repeated"])
def test_every_kind_of_number_is_what_it_was(tmp_path: Path, times: int) -> None:
    batch = pa.record_batch([pa.concat_arrays([values] * times) for values in EVERY_NUMBER.values()], [*EVERY_NUMBER])
    (staged,) = _written(ParquetSink(str(tmp_path)), LocalFiles(tmp_path), batch)
    read = pq.read_table(tmp_path / staged.path)
    assert read.equals(pa.Table.from_batches([batch]))
    assert read.schema.equals(batch.schema)


@pytest.mark.slow
def test_what_hardly_repeats_is_written_without_a_dictionary(tmp_path: Path) -> None:
    rows = 100_000
    ids = np.arange(rows)
    price = pa.array([Decimal(int(n) * 7919 % 9_999_991).scaleb(-2) for n in ids], pa.decimal128(14, 2))
    customer = np.random.default_rng(1).integers(0, 20_000, rows) * 2**40
    batch = pa.record_batch(
        [
            *(pa.array(ids), pa.array(ids % 12), pa.array(ids * 0.37)),
            *(price, pa.array((ids % 500).astype(str)), pa.array(customer)),
            *(pa.array([f"note {n}" if n % 3 else None for n in ids]), pa.array([b"%d" % n for n in ids])),
        ],
        ["id", "quantity", "ratio", "price", "product", "customer", "note", "key"],
    )
    (staged,) = _written(ParquetSink(str(tmp_path)), LocalFiles(tmp_path), batch)

    group = pq.read_metadata(tmp_path / staged.path).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    looked_for = {"DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "RLE_DICTIONARY"}
    assert {name: set(column.encodings) & looked_for for name, column in columns.items()} == {
        "id": {"DELTA_BINARY_PACKED"},
        "quantity": {"RLE_DICTIONARY"},
        "ratio": set(),
        "price": {"DELTA_BINARY_PACKED"},
        "product": {"RLE_DICTIONARY"},
        "customer": {"RLE_DICTIONARY"},
        "note": {"DELTA_LENGTH_BYTE_ARRAY"},
        "key": {"DELTA_LENGTH_BYTE_ARRAY"},
    }
    assert pq.read_table(tmp_path / staged.path).equals(pa.Table.from_batches([batch]))
    assert columns["price"].physical_type == "INT64"
    assert columns["id"].total_compressed_size < rows / 50


@pytest.mark.parametrize(
    ("rows", "compressed"), [(10_000, {"id", "note", "one"}), (100, {"id", "key", "note", "one", "ratio"})]
)
def test_what_hardly_gets_smaller_is_not_compressed(tmp_path: Path, rows: int, compressed: set[str]) -> None:
    """In a file of many rows."""
    drawn = np.random.default_rng(1)
    columns = {
        "id": pa.array(np.arange(rows)),
        "key": pa.array(drawn.integers(0, 2**62, rows)),
        "ratio": pa.array(drawn.random(rows)),
        "note": pa.array([f"{n:032x}" for n in drawn.integers(0, 2**62, rows)]),
        "one": pa.array(["one"] * rows),
    }
    batch = pa.RecordBatch.from_arrays([*columns.values()], [*columns])
    (staged,) = _written(ParquetSink(str(tmp_path)), LocalFiles(tmp_path), batch)
    group = pq.read_metadata(tmp_path / staged.path).row_group(0)
    written = [group.column(n) for n in range(group.num_columns)]
    assert {column.path_in_schema for column in written if column.compression == "ZSTD"} == compressed
    assert {column.compression for column in written} <= {"ZSTD", "UNCOMPRESSED"}
    assert pq.read_table(tmp_path / staged.path).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("batch_rows", [10, 100, 5000])
def test_files_are_of_about_the_target_size(tmp_path: Path, batch_rows: int) -> None:
    sink = ParquetSink(str(tmp_path), file_bytes=500_000)
    batches = [_random(batch_rows, seed) for seed in range(5000 // batch_rows)]

    staged = _written(sink, LocalFiles(tmp_path), *batches)

    assert [Path(s.path).name for s in staged] == [f"u0-{i}.parquet" for i in range(len(staged))]
    assert sum(s.rows for s in staged) == 5000
    assert all(400_000 < s.size < 650_000 for s in staged[:-1]), [s.size for s in staged]
    assert len(staged) in range(8, 14)
    published = ds.dataset([str(tmp_path / s.path) for s in staged]).to_table()
    assert published.equals(pa.Table.from_batches(batches).combine_chunks())


def test_a_file_has_several_row_groups_and_is_near_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "ROW_GROUP_BYTES", 110_000)

    staged = _written(
        ParquetSink(str(tmp_path), file_bytes=500_000), LocalFiles(tmp_path), *(_random(50, i) for i in range(60))
    )

    assert all(abs(s.size - 500_000) < 60_000 for s in staged[:-1]), [s.size for s in staged]
    assert pq.ParquetFile(tmp_path / staged[0].path).metadata.num_row_groups == 5


@pytest.mark.slow
def test_memory_does_not_grow_with_the_unit(tmp_path: Path) -> None:
    """800 MB of Arrow data, given in batches of 4 MB, take no more than about a row group and one batch."""
    sink = ParquetSink(str(tmp_path))
    writer = sink.open(_zeros(1).schema, LocalFiles(tmp_path), f"{FOLDER}/u0", "table/token-u0")
    with arrow_memory() as pool:
        for _ in range(200):
            writer.write(_zeros(500_000))
        staged = writer.close()

        assert sum(s.rows for s in staged) == 100_000_000
        assert parquet_files.ROW_GROUP_BYTES / 2 < pool.max_memory() < 2 * parquet_files.ROW_GROUP_BYTES
        assert pool.bytes_allocated() < MIB


def _zeros(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.repeat(0, rows)], ["zero"])


def test_one_huge_batch_is_cut(tmp_path: Path) -> None:
    staged = _written(ParquetSink(str(tmp_path), file_bytes=100_000), LocalFiles(tmp_path), _random(2000, 0))

    assert len(staged) > 10
    assert sum(s.rows for s in staged) == 2000


def test_publish_names_files_by_token_unit_and_index(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    sink = ParquetSink(str(tmp_path), file_bytes=100_000)
    staged = _written(sink, files, *(_random(50, seed) for seed in range(5)))

    steps = list(sink.publish(PLAN, [_result(*staged)], files))

    assert [s.files()[0].path for s in steps] == [f"main.flights/t0-u0-{i}.parquet" for i in range(3)]
    assert [(s.source, s.rows, s.checksum) for s in steps if isinstance(s, MoveStep)] == [
        (f.path, f.rows, f.checksum) for f in staged
    ]
    context = StepContext(files)
    for step in steps:
        assert step.verify(context) is StepStatus.TODO
        step.execute(context)
        assert step.verify(context) is StepStatus.DONE
    assert sorted(files.walk("main.flights")) == sorted(s.files()[0].path for s in steps)
    assert ds.dataset(str(tmp_path / "main.flights")).count_rows() == 250


def test_a_folder_per_unit_is_published_by_one_rename(tmp_path: Path) -> None:
    files = FailingFiles(tmp_path, at=-1)
    sink = ParquetSink(str(tmp_path), file_bytes=100_000, layout=Layout.FOLDER_PER_UNIT)
    batches = [_random(50, seed) for seed in range(5)]
    staged = _written(sink, files, *batches)
    assert [f.path for f in staged] == [f"{FOLDER}/u0/{i}.parquet" for i in range(3)]
    syncs = [call for call in files.calls if call.startswith("sync")]
    assert syncs == [*(f"sync_file {s.path}" for s in staged), f"sync_folder {FOLDER}/u0"]

    (step,) = sink.publish(PLAN, [_result(*staged)], files)

    assert isinstance(step, FolderStep)
    assert (step.source, step.target) == (f"{FOLDER}/u0", "main.flights/t0-u0")
    assert [(f.path, f.rows, f.checksum) for f in step.files()] == [
        (f"main.flights/t0-u0/{i}.parquet", f.rows, f.checksum) for i, f in enumerate(staged)
    ]
    step.execute(StepContext(files))
    assert step.verify(StepContext(files)) is StepStatus.DONE
    assert ds.dataset(str(tmp_path / "main.flights")).count_rows() == 250


def test_a_unit_of_one_file_or_of_too_many_is_published_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same names."""
    files = LocalFiles(tmp_path)
    sink = ParquetSink(str(tmp_path), layout=Layout.FOLDER_PER_UNIT, file_bytes=100_000)
    one = _finish(sink.open(SCHEMA, files, f"{FOLDER}/one", "main.flights/t0-one"), _batch(0, 10))
    many = _written(sink, files, *(_random(50, seed) for seed in range(5)))
    monkeypatch.setattr("airflow_gobblin.rows.sinks.base.FILES_PER_FOLDER", 2)
    results = [UnitResult("one", "a0", UnitState.SUCCESSFUL, files=one), _result(*many)]

    steps = list(sink.publish(PLAN, results, files))

    names = ["t0-one/0", *(f"t0-u0/{i}" for i in range(3))]
    assert [s.files()[0].path for s in steps] == [f"main.flights/{name}.parquet" for name in names]
    for step in steps:
        assert isinstance(step, MoveStep)
        step.execute(StepContext(files))
        assert step.verify(StepContext(files)) is StepStatus.DONE
    assert sorted(files.walk("main.flights")) == [s.files()[0].path for s in steps]


def test_an_unknown_layout_is_refused_by_name() -> None:
    assert ParquetSink("/target", layout="folder_per_unit").layout is Layout.FOLDER_PER_UNIT  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"no such layout. Use one of 'flat', 'folder_per_unit'"):
        ParquetSink("/target", layout="nested")  # type: ignore[arg-type]


def test_publish_refuses_what_is_gone_or_changed(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    sink = ParquetSink(str(tmp_path))
    (staged,) = _written(sink, files, _batch(0, 10))
    path = tmp_path / staged.path

    os.utime(path, ns=(int(staged.stamp), int(staged.stamp) + 1))
    with pytest.raises(StepLostError, match="it is gone, or was changed"):
        list(sink.publish(PLAN, [_result(staged)], files))
    path.unlink()
    with pytest.raises(StepLostError, match=f"{staged.path!r} of unit 'u0': it is gone"):
        list(sink.publish(PLAN, [_result(staged)], files))


def test_the_schema_evolves_by_the_rules() -> None:
    sink = ParquetSink("/target")
    wider = SCHEMA.append(pa.field("more", pa.float64()))
    assert sink.schema(wider, SCHEMA, "x").equals(wider)
    with pytest.raises(SchemaConflictError, match="column 'id' was int64 and is now int32"):
        sink.schema(pa.schema([pa.field("id", pa.int32(), nullable=False), ("text", pa.string())]), SCHEMA, "x")


def test_a_type_that_parquet_lacks_is_refused_at_planning() -> None:
    with pytest.raises(SchemaConflictError, match=r"dataset 'x': Parquet has no type for column 'i' \(month_day_nano"):
        ParquetSink("/target").schema(pa.schema([("ok", pa.int8()), ("i", pa.month_day_nano_interval())]), None, "x")


@pytest.mark.parametrize("wrong", [{"file_bytes": 0}, {"compression_level": 0}, {"compression_level": 23}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ParquetSink("/target", **wrong)


def test_it_crosses_processes() -> None:
    sink = ParquetSink("file:///target", file_bytes=1 << 20, compression_level=9, layout=Layout.FOLDER_PER_UNIT)
    assert wire.loads(wire.dumps(sink), ParquetSink, "sink") == sink


def test_the_example_of_the_page_of_layouts() -> None:
    page = (ROOT / "docs" / "sinks.md").read_text()
    (code,) = re.findall(r"<!-- test: layout -->\n```python\n(.*?)```", page, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(code, "layout", "exec"), defined)
    assert defined["sink"] == ParquetSink("/lake/shop", layout=Layout.FOLDER_PER_UNIT)
    assert all(f"`{layout}`" in page for layout in Layout)
