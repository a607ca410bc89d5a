"""The rules by which the columns of a table change: what each does, what it reports, and what it refuses by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_gobblin.errors import SchemaConflictError
from airflow_gobblin.model.schema import is_wider
from airflow_gobblin.tables.arrow.schema_rules import SchemaRule, decide

ID = pa.field("id", pa.int32(), nullable=False, metadata={"PARQUET:field_id": "1"})
TABLE = pa.schema([ID, ("price", pa.decimal128(9, 2)), ("note", pa.string())])
PLAIN = pa.schema([pa.field("id", pa.int32(), nullable=False), *[*TABLE][1:]])


@pytest.mark.parametrize("rule", SchemaRule)
def test_the_same_columns_change_nothing_in_any_order(rule: SchemaRule) -> None:
    for planned in (PLAIN, pa.schema([*PLAIN][::-1])):
        decision = decide(TABLE, planned, rule, "x")
        assert decision.schema.equals(TABLE, check_metadata=True), "it keeps its ids"
        assert not decision.changes


@pytest.mark.parametrize("rule", SchemaRule)
def test_a_new_column_that_can_be_null_is_added_at_the_end_and_reported(rule: SchemaRule) -> None:
    decision = decide(TABLE, pa.schema([("more", pa.date32()), *PLAIN]), rule, "x")
    assert decision.schema.equals(TABLE.append(pa.field("more", pa.date32())))
    assert decision.did == ("column 'more' (date32[day]) is added",)


@pytest.mark.parametrize("rule", SchemaRule)
def test_a_column_that_is_gone_stays_if_it_can_be_null(rule: SchemaRule) -> None:
    assert decide(TABLE, PLAIN.remove(2), rule, "x").schema.equals(TABLE)
    with pytest.raises(SchemaConflictError, match=r"column 'id' \(int32, not null\) is gone"):
        decide(TABLE, PLAIN.remove(0), rule, "x")


def test_a_new_column_that_is_never_null_takes_a_rule() -> None:
    planned = PLAIN.append(pa.field("more", pa.int8(), nullable=False))
    with pytest.raises(
        SchemaConflictError, match=r"new column 'more' \(int8\) is not nullable \(the rule .* 'refuse'\)"
    ):
        decide(TABLE, planned, SchemaRule.REFUSE, "x")
    for rule in (SchemaRule.ADD, SchemaRule.WIDEN):
        decision = decide(TABLE, planned, rule, "x")
        assert decision.schema.field("more") == pa.field("more", pa.int8())
        assert decision.did == ("column 'more' (int8) is added, and can be null",)


def test_a_wider_type_takes_a_rule_and_a_format_that_can() -> None:
    planned = PLAIN.set(0, pa.field("id", pa.int64())).set(1, pa.field("price", pa.decimal128(18, 2)))
    for rule in (SchemaRule.REFUSE, SchemaRule.ADD):
        with pytest.raises(SchemaConflictError, match=r"column 'id' is int32 and would be int64; column 'price' is"):
            decide(TABLE, planned, rule, "x")
    decision = decide(TABLE, planned, SchemaRule.WIDEN, "x")
    assert decision.schema.field("id").equals(pa.field("id", pa.int64(), metadata=ID.metadata), check_metadata=True)
    assert decision.did == (
        "column 'id' goes from int32 to int64",
        "column 'id' can be null",
        "column 'price' goes from decimal128(9, 2) to decimal128(18, 2)",
    )
    with pytest.raises(SchemaConflictError, match="would be int64"):
        decide(TABLE, planned, SchemaRule.WIDEN, "x", widens=lambda narrow, wide: False)


@pytest.mark.parametrize("rule", SchemaRule)
def test_a_column_that_is_wider_already_takes_narrower_values(rule: SchemaRule) -> None:
    table = TABLE.set(0, pa.field("id", pa.int64(), nullable=False))
    assert not decide(table, PLAIN, rule, "x").changes


@pytest.mark.parametrize("rule", SchemaRule)
@pytest.mark.parametrize("kind", [pa.int64(), pa.binary(), pa.date32(), pa.list_(pa.string())], ids=str)
def test_a_type_of_another_kind_is_refused_by_every_rule(rule: SchemaRule, kind: pa.DataType) -> None:
    with pytest.raises(SchemaConflictError, match=r"dataset 'x': column 'note' is string and would be"):
        decide(TABLE, PLAIN.set(2, pa.field("note", kind)), rule, "x")


def test_names_that_readers_take_for_one_are_refused() -> None:
    with pytest.raises(SchemaConflictError, match="new column 'Note' differs from 'note' in case only"):
        decide(TABLE, PLAIN.append(pa.field("Note", pa.string())), SchemaRule.WIDEN, "x")
    with pytest.raises(SchemaConflictError, match="two columns are named 'note'"):
        decide(TABLE, PLAIN.append(pa.field("note", pa.string())), SchemaRule.WIDEN, "x")


NUMBERS = (pa.int8(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64())


def test_wider_is_what_holds_every_value() -> None:
    ends = {kind: _ends(kind) for kind in NUMBERS}
    for narrow, (low, high) in ends.items():
        for wide, (least, most) in ends.items():
            assert is_wider(narrow, wide) == (narrow != wide and least <= low and high <= most), (narrow, wide)
    assert is_wider(pa.float32(), pa.float64())
    assert not is_wider(pa.decimal128(9, 2), pa.decimal128(18, 3))
    assert not is_wider(pa.int32(), pa.float64())


def _ends(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, 2**bits - 1)
