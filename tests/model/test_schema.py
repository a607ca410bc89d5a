from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gobblin.errors import RecordError, SchemaConflictError
from airflow_gobblin.model import schema

types = st.sampled_from(
    [
        pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.decimal128(38, 9),
        pa.timestamp("us", "Europe/Berlin"), pa.list_(pa.int8()), pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))]),
    ]
)  # fmt: skip
fields = st.builds(pa.field, st.text("abc", min_size=1, max_size=2), types, nullable=st.booleans())
schemas = st.lists(fields, max_size=6, unique_by=lambda f: f.name).map(pa.schema)


@given(schemas)
def test_what_is_decoded_is_what_was_encoded(given_schema: pa.Schema) -> None:
    text = schema.encode(given_schema.with_metadata({"pandas": "{}"}))
    assert text.isascii()
    assert schema.decode(text).equals(given_schema, check_metadata=True)


@pytest.mark.parametrize("text", ["", "é", "AAAA", "no schema", base64.b64encode(b"\xff" * 100).decode()])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="an Arrow schema"):
        schema.decode(text)


@given(schemas, schemas)
def test_what_it_allows_can_be_read_over_old_files(published: pa.Schema, planned: pa.Schema) -> None:
    """The evolved schema holds every published column as it was, then the new ones, and each row of either fits it."""
    try:
        evolved = schema.evolve(published, planned, "x")
    except SchemaConflictError:
        return
    assert list(evolved)[: len(published)] == list(published)
    for field in evolved:
        if field.name not in published.names or field.name not in planned.names:
            assert field.nullable
        if field.name in planned.names:
            assert field.type == planned.field(field.name).type
            assert field.nullable or not planned.field(field.name).nullable
    assert set(evolved.names) == {*published.names, *planned.names}
    assert schema.evolve(evolved, planned, "x").equals(evolved)


@given(schemas)
def test_the_same_schema_and_the_first_one_are_taken(given_schema: pa.Schema) -> None:
    assert schema.evolve(given_schema, given_schema, "x").equals(given_schema)
    assert schema.evolve(None, given_schema, "x").equals(given_schema)


PUBLISHED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("old", pa.date32())])
ID, NAME, OLD = PUBLISHED


def test_a_new_nullable_column_comes_last_and_a_lost_one_stays() -> None:
    evolved = schema.evolve(PUBLISHED, pa.schema([("new", pa.bool_()), NAME, ID]), "x")
    assert evolved.names == ["id", "name", "old", "new"]
    assert evolved.field("id") == ID


@pytest.mark.parametrize(
    ("planned", "problem"),
    [
        ([pa.field("id", pa.int32(), nullable=False), NAME, OLD], "column 'id' was int64 and is now int32"),
        ([ID, pa.field("name", pa.large_string()), OLD], "column 'name' was string and is now large_string"),
        ([pa.field("id", pa.int64()), NAME, OLD], "column 'id' was not null and may now be null"),
        ([NAME, OLD], r"column 'id' \(int64, not null\) is gone"),
        ([*PUBLISHED, pa.field("new", pa.int8(), nullable=False)], r"new column 'new' \(int8\) is not nullable"),
        ([*PUBLISHED, NAME], "two columns are named 'name'"),
    ],
)
def test_what_does_not_fit_stops_the_dataset_by_name(planned: list[pa.Field], problem: str) -> None:
    with pytest.raises(SchemaConflictError, match=f"dataset 'main.x': {problem}"):
        schema.evolve(PUBLISHED, pa.schema(planned), "main.x")


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(SchemaConflictError, match=r"column 'id'.*; column 'name'") as raised:
        schema.evolve(PUBLISHED, pa.schema([("name", pa.int8())]), "x")
    assert "casts" in str(raised.value)


def test_the_first_schema_must_have_distinct_names() -> None:
    with pytest.raises(SchemaConflictError, match="two columns are named 'name'"):
        schema.evolve(None, pa.schema([NAME, ID, NAME]), "x")
