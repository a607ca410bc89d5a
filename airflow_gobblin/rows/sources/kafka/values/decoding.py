"""Decoders of values: bytes, text and JSON, a batch at a time. A batch with a bad value is halved until that value is alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.json as pj

from airflow_gobblin.rows.sources.kafka.values import Decoded

Whole = Callable[[Sequence[bytes]], pa.RecordBatch]
"""A function that decodes values, none of which is null, each to a row. One bad value is a `ValueError`, and then none counts."""

_AT_ONCE = 64 << 20
"""The most bytes that are decoded together; a larger value is decoded alone."""


class BytesDecoder:
    """The decoder of values that stay as they are."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Return them."""
        return Decoded((values,))


class TextDecoder:
    """The decoder of text."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Return text; a value that isn't UTF-8 is bad."""
        return decoded(values, self._columns, self._whole)

    def _whole(self, values: Sequence[bytes]) -> pa.RecordBatch:
        try:
            text = pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            raise ValueError("it is not UTF-8 text") from None
        return pa.RecordBatch.from_arrays([text], schema=self._columns)


class JsonDecoder:
    """The decoder of JSON objects, by Arrow's reader of lines.

    It must read values together as it would one by one. Each value begins with `{` and ends with `}`, so none continues in the
    next one: within an object or a list, `}` can't be followed by `{`, and a text can't hold the line end between them.
    So each gives at least one row, and as many rows as values are exactly one for each.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([_as_read(one) for one in columns]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        )

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Return the declared fields; a value that isn't one JSON object, or doesn't fit a type, is bad."""
        return decoded(values, self._columns, self._whole)

    def _whole(self, values: Sequence[bytes]) -> pa.RecordBatch:
        lines = [value.strip(b" \t\r\n") for value in values]
        if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
            raise ValueError("it is not a JSON object")
        data = b"\n".join(lines)
        try:
            data.decode()  # the reader takes any bytes for text
        except UnicodeDecodeError:
            raise ValueError("it is not UTF-8 text") from None
        size = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            table = pj.read_json(pa.BufferReader(data), size, self._options)
        except pa.ArrowInvalid as error:
            raise ValueError(_reason(error)) from None
        if table.num_rows != len(values):
            raise ValueError(f"it holds {table.num_rows} JSON objects")
        return one_batch(table.cast(self._columns), self._columns)


def _reason(error: pa.ArrowInvalid) -> str:
    """Return why a value is bad, in words for those who know the field and not Arrow's row."""
    found = re.sub(r"Column\(/(.+)\) changed from (\w+) to (\w+)", r"its field '\1' is a \3, and not a \2", str(error))
    return re.sub(r"^JSON parse error: | in row \d+$", "", found)


def _as_read(column: pa.Field) -> pa.Field:
    """Return a column as Arrow's reader takes it from JSON: it knows dates as numbers only, and overlooks whether a time has an
    offset.
    """
    return column.with_type(_type_as_read(column.type))


def _type_as_read(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_read(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_as_read(one) for one in kind])
    return kind


def decoded(array: pa.BinaryArray, columns: pa.Schema, whole: Whole) -> Decoded:
    """Decode values together as far as none of them is bad."""
    values: Sequence[bytes | None] = array.to_pylist()
    bad: dict[int, str] = {}
    pieces: list[pa.RecordBatch] = []
    present = [number for number, value in enumerate(values) if value is not None]
    for part in _bounded(values, present):
        _halve(values, part, whole, pieces, bad)
    rows = one_batch(pa.Table.from_batches(pieces, columns), columns)
    if rows.num_rows < len(values):
        numbers = iter(range(rows.num_rows))
        places = [None if value is None or number in bad else next(numbers) for number, value in enumerate(values)]
        rows = rows.take(pa.array(places, pa.int64()))
    return Decoded(rows.columns, bad)


def _bounded(values: Sequence[bytes | None], present: Sequence[int]) -> Sequence[Sequence[int]]:
    """Return the numbers of the values in parts of bounded size."""
    parts: list[list[int]] = []
    size = 0
    for number in present:
        length = len(values[number] or b"")
        if not parts or size + length > _AT_ONCE:
            parts.append([])
            size = 0
        parts[-1].append(number)
        size += length
    return parts


def _halve(
    values: Sequence[bytes | None],
    part: Sequence[int],
    whole: Whole,
    pieces: list[pa.RecordBatch],
    bad: dict[int, str],
) -> None:
    """Decode a part of the values; if one of them is bad, decode its halves."""
    try:
        pieces.append(whole([value for number in part if (value := values[number]) is not None]))
    except ValueError as error:  # Arrow's are, too
        if len(part) == 1:
            bad[part[0]] = str(error)
            return
        middle = len(part) // 2
        _halve(values, part[:middle], whole, pieces, bad)
        _halve(values, part[middle:], whole, pieces, bad)


def one_batch(table: pa.Table, columns: pa.Schema) -> pa.RecordBatch:
    """Return a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], columns)
