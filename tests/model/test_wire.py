"""The wire format: a value is decoded as it was encoded, and anything else is refused by name."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gobblin.errors import ConfigurationError, RecordError, Remedy, UnknownKindError
from airflow_gobblin.journal.records import Shard
from airflow_gobblin.model import wire
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.failure import ErrorKind, Failure
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.watermark import Json, LongWatermark, Watermark, split
from airflow_gobblin.model.work import (
    Dataset,
    DatasetRef,
    Extract,
    ExtractKind,
    Limits,
    Pack,
    StagedFile,
    UnitResult,
    UnitState,
    WorkUnit,
)
from airflow_gobblin.rows.converters.base import OnBadRow
from airflow_gobblin.rows.converters.checks import InRange, NotNull
from airflow_gobblin.rows.converters.columns import AddColumn
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.rows.work import RowsBinding, RowsWork
from airflow_gobblin.steps.base import CommitStep
from airflow_gobblin.steps.publishing import FolderFile, FolderStep, MoveStep
from airflow_gobblin.storage.files import FileIdentity
from tests.model.test_watermark import watermarks

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
jsons: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
properties = st.dictionaries(texts, jsons, max_size=3)
names = st.from_regex(r"[A-Za-z0-9_]+", fullmatch=True)
extracts = st.builds(Extract, st.sampled_from(ExtractKind), texts, texts)
datasets = st.builds(Dataset, texts, extracts)
units = st.builds(
    WorkUnit, names, texts, st.none() | watermarks, st.none() | watermarks, st.integers(0), properties=properties
)
ranges = (
    st.tuples(watermarks, watermarks)
    .filter(lambda two: two[0].kind == two[1].kind and len(split(two[0])) == len(split(two[1])))
    .map(lambda two: Range(*two))
)
plans = st.builds(
    Plan,
    token=texts,
    ingestion=texts,
    run_key=texts,
    generation=st.integers(0),
    urn=texts,
    holds=st.sampled_from(Holds),
    folder=texts,
    units=st.lists(units, max_size=2).map(tuple),
    binding=st.builds(RowsBinding, texts),
    schema=texts,
    planned=st.none() | ranges,
    replaces=st.lists(st.builds(UnitRef, st.integers(), names), max_size=2).map(tuple),
)
failures = st.builds(
    Failure,
    st.sampled_from(ErrorKind),
    texts,
    texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | st.sampled_from(Remedy),
    st.booleans(),
)
results = st.builds(
    UnitResult,
    names,
    texts,
    st.sampled_from(UnitState),
    st.none() | watermarks,
    st.lists(st.builds(StagedFile, texts, st.integers(0), texts, st.integers(0), texts), max_size=2).map(tuple),
    expected_rows=st.none() | st.integers(0),
    seconds=numbers,
    metrics=st.dictionaries(texts, numbers, max_size=2),
    properties=properties,
    failure=st.none() | failures,
)
packs = st.builds(
    Pack, st.integers(), texts, st.lists(st.builds(DatasetRef, texts, texts, st.integers()), max_size=3).map(tuple)
)
steps = st.builds(
    MoveStep,
    texts,
    texts,
    texts,
    st.builds(FileIdentity, st.integers(), st.integers(), st.text()),
    texts,
    st.integers(),
)
inside = st.builds(
    FolderFile, texts, st.builds(FileIdentity, st.integers(), st.integers(), st.text()), texts, st.integers()
)
folders = st.builds(FolderStep, texts, texts, texts, st.lists(inside, max_size=3).map(tuple))
records = st.one_of(plans, results, packs, steps, folders)


@wire.record("test.watermarked")
@dataclass(frozen=True)
class LongWatermarked:
    number: float
    watermark: LongWatermark


@pytest.mark.slow
@given(records)
def test_what_is_decoded_is_what_was_encoded(value: Any) -> None:
    stored = wire.dumps(value)
    found = wire.loads(stored, type(value), "record")
    assert found == value
    assert wire.dumps(found) == stored, "one spelling"
    assert json.loads(stored)["record"]["kind"] == wire.kind_of(value)


@pytest.fixture
def _tables_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TABLE_FROM", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("_tables_soon")
@given(records)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_decoded_from_tables_is_what_was_encoded(value: Any) -> None:
    stored = wire.dumps(value)
    found = wire.loads(stored, type(value), "record")
    assert found == value
    assert wire.dumps(found) == stored


@pytest.mark.slow
@given(records, st.data())
def test_a_torn_or_changed_record_is_refused(value: Any, data: st.DataObject) -> None:
    stored = wire.dumps(value)
    cut = data.draw(st.integers(0, len(stored) - 1))
    flipped = bytes([*stored[:cut], stored[cut] ^ data.draw(st.integers(1, 255)), *stored[cut + 1 :]])

    with pytest.raises(RecordError, match="the record"):
        wire.loads(stored[:cut], type(value), "the record")
    try:
        found = wire.loads(flipped, type(value), "the record")
    except RecordError:
        return
    assert found == value, "only a change that means the same may pass"


@given(st.binary() | jsons.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError, match="the record"):
        wire.loads(data, Plan, "the record")


@pytest.mark.slow
@given(jsons)
def test_any_json_under_a_whole_digest_is_refused_as_a_record(body: Json) -> None:
    data = wire.canonical({"digest": wire.digest(wire.canonical(body)), "record": body})
    with pytest.raises((RecordError, UnknownKindError)):
        wire.loads(data, Plan, "the record")


def _signed(body: bytes) -> bytes:
    """A record of these bytes, whole by its digest."""
    return b'{"digest":"' + wire.digest(body).encode() + b'","record":' + body + b"}"


RECORD = wire.dumps(LongWatermarked(1.5, LongWatermark(5)))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_a_record_in_another_encoding_is_unreadable(encoding: str) -> None:
    with pytest.raises(RecordError, match="the record: it is torn or no record"):
        wire.loads(RECORD.decode().encode(encoding), LongWatermarked, "the record")


@pytest.mark.parametrize("version", ["-1", "0", "true", "false", "NaN", "Infinity", "1.0", "1e0", "null", '"1"', "[1]"])
def test_a_version_that_is_none_is_unreadable(version: str) -> None:
    body = RECORD[RECORD.index(b'"record":') + 9 : -1]
    assert _signed(body) == RECORD
    changed = body.replace(b'"version":1', b'"version":' + version.encode())
    assert changed != body
    with pytest.raises(
        RecordError,
        match=r"the record: (ValueError: expected a 'test.watermarked' with a version|it is torn or no record)",
    ):
        wire.loads(_signed(changed), LongWatermarked, "the record")
    with pytest.raises(RecordError, match="with a version"):
        wire.loads(_signed(body.replace(b',"version":1', b"")), LongWatermarked, "the record")


@pytest.mark.parametrize("version", [-1, True, 1.0])
def test_a_version_of_a_table_that_is_none_is_unreadable(version: object) -> None:
    shard = Shard(tuple(MoveStep("a", f"b{n}", "u", FileIdentity(1, 2, "3"), "c", 4) for n in range(wire.TABLE_FROM)))
    document: Any = wire.to_json(shard)
    assert document["steps"]["version"] == 1
    document["steps"]["version"] = version
    with pytest.raises(RecordError, match="the shard"):
        wire.loads(_signed(wire.canonical(document)), Shard, "the shard")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_none_is_unreadable(number: str) -> None:
    body = RECORD[RECORD.index(b'"record":') + 9 : -1].replace(b"1.5", number.encode())
    with pytest.raises(RecordError, match=r"the record: it is torn or no record .*is not a number in JSON"):
        wire.loads(_signed(body), LongWatermarked, "the record")


def test_protocols_are_decoded_to_what_is_registered() -> None:
    job = RowsWork(
        "flights",
        source=SqlSource("db", (SqlTable("flights", ExtractKind.SNAPSHOT_ONLY),)),
        sink=ParquetSink("/target"),
        converters=(AddColumn("a", 1), AddColumn("b", "x")),
        checks=(NotNull(("a",), OnBadRow.DROP), InRange("a", 1)),
        limits=Limits(rows=5),
        options={"deep": [1, {"x": None}]},
        code=("module",),
    )
    assert wire.loads(wire.dumps(job), RowsWork, "job") == job


NO_SOURCE = RowsWork("flights", source=ParquetSink("/no source"), sink=ParquetSink("/target"))  # type: ignore[arg-type]


def test_a_protocol_takes_no_record_of_another_kind() -> None:
    with pytest.raises(
        RecordError, match=r"'source' of RowsWork: expected a Source, not a 'parquet_sink', which has no"
    ):
        wire.loads(wire.dumps(NO_SOURCE), RowsWork, "the job")
    watermark = replace(NO_SOURCE, source=LongWatermark(5))  # type: ignore[arg-type]
    with pytest.raises(RecordError, match=r"'source' of RowsWork: expected a Source, not a 'long', which has no"):
        wire.loads(wire.dumps(watermark), RowsWork, "the job")
    with pytest.raises(RecordError, match=r"expected a Watermark, not a 'parquet_sink', which has no"):
        wire.from_json(Watermark, wire.to_json(ParquetSink("/target")), "a watermark")
    document = wire.to_json(EVERYTHING)
    assert isinstance(document, dict)
    wrong = document | {"maybe": {"kind": "multi_long", "value": [1]}}
    with pytest.raises(RecordError, match=r"'maybe' of Everything: expected a LongWatermark, not a 'multi_long'"):
        wire.from_json(Everything, wrong, "everything")


def test_a_step_of_an_unknown_kind_shows_the_way_out() -> None:
    step = MoveStep("a", "b", "u", FileIdentity(1, 2, "3"), "c", 4)
    document = wire.to_json(Shard((step,)))
    assert wire.from_json(Shard, document, "steps") == Shard((step,))
    unknown = json.loads(json.dumps(document).replace("move_step", "acme.step"))
    with pytest.raises(UnknownKindError, match=r"'acme.step'.*code="):
        wire.from_json(Shard, unknown, "steps")
    with pytest.raises(RecordError, match=r"expected a CommitStep, not a 'parquet_sink', which has no"):
        wire.from_json(Shard, {**document, "steps": [wire.to_json(ParquetSink("/target"))]}, "steps")  # type: ignore[dict-item]


MOVES = tuple(MoveStep(f"from {n}", f"to {n}", "u", FileIdentity(n, 2, "3"), "c", n) for n in range(20))


def test_many_values_of_a_class_are_a_table_and_as_a_list_they_are_the_same() -> None:
    document: Any = wire.to_json(Shard(MOVES))
    table = document["steps"]
    assert table.keys() == {"kind", "version", "columns", "all"}
    assert table["columns"]["rows"] == [*range(20)]
    assert table["columns"]["identity"] == {"columns": {"inode": [*range(20)]}, "all": {"size": 2, "stamp": "3"}}
    assert table["all"] == {"unit": "u", "checksum": "c"}
    as_list = [wire.to_json(step) for step in MOVES]
    for steps in (table, as_list):
        assert wire.from_json(Shard, document | {"steps": steps}, "steps") == Shard(MOVES)
    folder = FolderStep("from", "to", "u", (FolderFile("a", FileIdentity(1, 2, "3"), "c", 4),))
    mixed: tuple[CommitStep, ...] = (*MOVES, folder)
    assert wire.loads(wire.dumps(Shard(mixed)), Shard, "steps") == Shard(mixed)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": {}},
        {"columns": []},
        {"columns": {"rows": [1] * 20}},
        {"columns": {"unknown": [1]}},
        {"all": {}},
        {"all": []},
        {"all": {"unit": 1, "checksum": "c"}},
        {"all": {"unit": "u", "checksum": "c", "rows": 1}},
        {"all": {"unit": "u", "checksum": "c", "unknown": 1}},
        {"rows": []},
        {"kind": "parquet_sink"},
        {"kind": "high_watermark_step"},
        {"version": 2},
    ],
)
def test_a_wrong_table_is_refused(change: dict[str, Any]) -> None:
    document: Any = wire.to_json(Shard(MOVES))
    with pytest.raises(RecordError, match="the record"):
        wire.from_json(Shard, document | {"steps": document["steps"] | change}, "the record")


@pytest.mark.parametrize("column", [[1] * 20, ["u"] * 19, [True] * 20, "u" * 20, None, {"columns": {"a": ["u"] * 20}}])
def test_a_wrong_column_is_refused(column: Any) -> None:
    document: Any = wire.to_json(Shard(MOVES))
    document["steps"]["columns"]["unit"] = column
    with pytest.raises(RecordError, match="the record"):
        wire.from_json(Shard, document, "the record")


@dataclass(frozen=True)
class Cell:
    value: Json


@dataclass(frozen=True)
class Cells:
    """Parts of a record whose values are equal, and not the same."""

    first: object
    second: object
    inner: Cell | None = None


@pytest.mark.parametrize("pair", [(1, True), (0, False), (1, 1.0), (0.0, -0.0), ("", None), ([1], [True]), ({}, [])])
def test_rows_keep_values_that_are_equal_and_not_the_same(pair: tuple[Json, Json]) -> None:
    rows = tuple(Cells(n, one, Cell(one)) for n, one in enumerate(pair * 10))
    document: Any = wire.to_json(rows)
    found = wire.from_json(tuple[Cells, ...], document, "the rows")
    assert repr(found) == repr(rows)


@pytest.mark.parametrize("value", ["a", 1, True, None, 0.5, -0.0, (), (1,), {"a": 1}])
def test_rows_that_share_an_object_are_encoded_as_those_that_have_one_each(value: Any) -> None:
    """Records are compared by their bytes, and one that was read has an object for each row."""
    shared = Cell(value)
    rows = tuple(Cells(n, value, shared) for n in range(20))
    each = tuple(Cells(n, ast.literal_eval(repr(value)), Cell(ast.literal_eval(repr(value)))) for n in range(20))
    read = wire.from_json(tuple[Cells, ...], json.loads(json.dumps(wire.to_json(rows))), "the rows")
    assert wire.to_json(rows) == wire.to_json(each) == wire.to_json(read)


def test_a_table_of_rows_that_are_all_the_same_shows_how_many_they_are() -> None:
    rows = (Cells("a", Colour.RED, Cell(None)),) * 20
    document: Any = wire.to_json(rows)
    assert document == {"columns": {"first": ["a"] * 20}, "all": {"second": "red", "inner": {"value": None}}}
    assert wire.to_json(wire.from_json(tuple[Cells, ...], document, "the rows")) == document


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_what_is_nested_without_end_is_refused(opening: bytes) -> None:
    with pytest.raises(RecordError, match="the record"):
        wire.loads(opening * 100_000, Plan, "the record")


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    kind: str
    value: int


@wire.record("test.everything")
@dataclass(frozen=True)
class Everything:
    """One field per shape."""

    at: datetime
    pair: tuple[int, str]
    unique: frozenset[str]
    colour: Colour
    scalar: int | float | str | bool
    inner: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    anything: Json = None
    maybe: LongWatermark | None = None
    lasts: timedelta | None = None


EVERYTHING = Everything(
    datetime(2013, 1, 1, tzinfo=UTC),
    (1, "a"),
    frozenset({"b", "a"}),
    Colour.RED,
    True,
    (Inner("k", 1),),
    {"x": Inner("y", 2)},
    [1, {"kind": "no record"}],
    LongWatermark(5),
    timedelta(hours=1, microseconds=1),
)


@pytest.mark.parametrize("scalar", [1, 1.0, True, "1"])
def test_every_shape(scalar: float | str) -> None:
    value = replace(EVERYTHING, scalar=scalar)
    found = wire.loads(wire.dumps(value), Everything, "everything")
    assert found == value
    assert type(found.scalar) is type(scalar)


@pytest.mark.parametrize(
    "change",
    [
        {"at": "yesterday"},
        {"at": 5},
        {"pair": [1]},
        {"pair": ["1", "a"]},
        {"pair": [True, "a"]},
        {"unique": 5},
        {"colour": "blue"},
        {"scalar": None},
        {"scalar": [1]},
        {"inner": {"kind": "k", "value": 1}},
        {"inner": [{"kind": "k"}]},
        {"inner": [{"kind": "k", "value": 1, "more": 2}]},
        {"maybe": {"kind": "long", "value": "5"}},
        {"unknown": 1},
        {"version": 2},
        {"version": "1"},
    ],
)
def test_a_wrong_field_is_refused(change: dict[str, Any]) -> None:
    document = wire.to_json(EVERYTHING)
    assert isinstance(document, dict)
    with pytest.raises(RecordError, match="the record"):
        wire.from_json(Everything, document | change, "the record")


def test_a_missing_field_is_refused_unless_it_has_a_default() -> None:
    document = wire.to_json(EVERYTHING)
    assert isinstance(document, dict)
    without = {k: v for k, v in document.items() if k not in ("inner", "by_name", "anything", "maybe")}
    assert wire.from_json(Everything, without, "x") == replace(
        EVERYTHING, inner=(), by_name={}, anything=None, maybe=None
    )
    del without["pair"]
    with pytest.raises(RecordError, match="pair"):
        wire.from_json(Everything, without, "x")


def test_a_newer_version_is_refused_by_name() -> None:
    document = wire.to_json(NotNull(("a",)))
    assert isinstance(document, dict)
    with pytest.raises(
        RecordError,
        match=r"of version 2, and the airflow-gobblin installed here knows 1.*Upgrade",
    ):
        wire.from_json(NotNull, document | {"version": 2}, "x")


def test_an_unknown_kind_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnknownKindError, match=r"'acme.source'.*code="):
        wire.from_json(NotNull, {"kind": "acme.source", "version": 1}, "x")


def test_one_record_is_not_taken_for_another() -> None:
    with pytest.raises(RecordError, match="expected a InRange"):
        wire.loads(wire.dumps(NotNull(("a",))), InRange, "x")


def test_a_class_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Inner: the class is not registered.*@record"):
        wire.dumps(Inner("k", 1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(list[int], [1]), (list, [1]), (dict, {"a": 1}), (bytes, b"a"), (Path, Path("a")), (date, date(2026, 1, 1))],
    ids=str,
)
def test_a_field_of_a_type_that_records_have_not_is_refused_with_those_that_they_have(kind: Any, value: Any) -> None:
    @dataclass(frozen=True)
    class Odd:
        field: Any

    Odd.__annotations__["field"] = kind
    with pytest.raises(
        RecordError, match=r"(?s)field of type .*records have no fields of this type.*`tuple\[X, \.\.\.\]`"
    ):
        wire.from_json(Odd, {"field": str(value)}, "x")


def test_a_record_is_a_frozen_dataclass() -> None:
    with pytest.raises(ConfigurationError, match=r"Changing: it is not a frozen dataclass\. Write @dataclass"):

        @wire.record("test.changing")
        @dataclass
        class Changing:
            """Its fields may be set."""


def test_a_kind_belongs_to_one_class() -> None:
    @dataclass(frozen=True)
    class Mine:
        pass

    with pytest.raises(
        ConfigurationError, match=r"'not_null'.*it belongs to airflow_gobblin.rows.converters.checks.NotNull"
    ):
        wire.record("not_null")(Mine)
    assert wire.record("not_null")(NotNull) is NotNull


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_json_cannot_be_stored(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        wire.dumps(AddColumn("a", number))


@given(st.binary(min_size=1, max_size=40).filter(lambda name: not {0, 47} & {*name}))
def test_the_name_of_a_file_is_kept_byte_for_byte_whether_it_is_utf8_or_not(name: bytes) -> None:
    """Many of them, as in a table, too."""
    one = StagedFile(os.fsdecode(name), 1, "", 0, "1")
    for count in (1, wire.TABLE_FROM):
        record = wire.dumps(UnitResult("u0", "a0", UnitState.SUCCESSFUL, files=(one,) * count))
        assert record.decode().isprintable() or not os.fsdecode(name).isprintable(), "it is UTF-8"
        assert json.loads(record), "and JSON"
        (found, *_) = wire.loads(record, UnitResult, "a result").files
        assert os.fsencode(found.path) == name
