from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model import wire
from airflow_gobblin.rows.converters.base import Converter
from airflow_gobblin.rows.converters.columns import AddColumn, DropColumns, RenameColumns

BATCH = pa.record_batch(
    {"a": [1, 2], "b": ["x", None]}, pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])
)


@pytest.mark.parametrize(
    ("converter", "expected"),
    [
        (RenameColumns({"a": "b", "b": "a"}), {"b": [1, 2], "a": ["x", None]}),
        (RenameColumns({}), {"a": [1, 2], "b": ["x", None]}),
        (DropColumns(("b",)), {"a": [1, 2]}),
        (AddColumn("c", "EU"), {"a": [1, 2], "b": ["x", None], "c": ["EU", "EU"]}),
        (AddColumn("c", 1.0), {"a": [1, 2], "b": ["x", None], "c": [1.0, 1.0]}),
        (AddColumn("c", True), {"a": [1, 2], "b": ["x", None], "c": [True, True]}),
    ],
)
def test_they_convert_as_declared(converter: Converter, expected: dict[str, list[object]]) -> None:
    converted = converter.convert(BATCH)

    assert converted.to_pydict() == expected
    assert list(converted.schema.names) == list(expected)
    assert converted.schema.equals(converter.schema(BATCH.schema))
    assert converter.convert(BATCH.slice(0, 0)).schema.equals(converter.schema(BATCH.schema))


@pytest.mark.parametrize(
    ("converter", "problem"),
    [
        (RenameColumns({"z": "y"}), r"RenameColumns\(.*there is no column 'z' among \['a', 'b'\]"),
        (RenameColumns({"a": "b"}), "two columns would be named 'b'"),
        (DropColumns(("a", "y", "z")), "there is no column 'y', 'z'"),
        (AddColumn("b", 1), "there is a column 'b' already"),
    ],
)
def test_what_does_not_fit_is_refused_at_planning(converter: Converter, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        converter.schema(BATCH.schema)


@pytest.mark.parametrize(
    "converter",
    [RenameColumns({"a": "ä"}), DropColumns(("a", "b")), AddColumn("c", 1), AddColumn("c", True), AddColumn("c", 2.0)],
)
def test_they_cross_processes(converter: RenameColumns | DropColumns | AddColumn) -> None:
    found = wire.loads(wire.dumps(converter), type(converter), "converter")
    assert found == converter
    assert repr(found) == repr(converter)  # 1, 1.0 and True are equal, but not the same
