"""Iceberg's partition transforms over Arrow arrays, by its specification; null stays null. By Arrow alone, as executors may lack
NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.tables.port import PartitionField

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOST_INT = 2**31 - 1
_EXACT = Context(prec=76)


def result_type(field: PartitionField, kind: pa.DataType) -> pa.DataType:
    """Return the type of a field's values: a day is a date, and years, months, hours and buckets are integers.

    :param kind: the type of the column.
    :raises ConfigurationError: the transform doesn't apply to this type.
    """
    if not _fits(field.transform, kind):
        raise ConfigurationError(
            operation="partition",
            subject=f"by {str(field)!r}",
            cause=f"column {field.column!r} is {kind}, of which there is no {field.transform}",
            hint="Use another transform, or cast the column.",
        )
    if field.transform == "day":
        return pa.date32()
    return kind if field.transform in ("identity", "truncate") else pa.int32()


def transform(values: pa.Array, field: PartitionField) -> pa.Array:
    """Return the field's value for each value of its column.

    :raises ConfigurationError: as `result_type`.
    """
    kind = result_type(field, values.type)
    if field.transform == "identity":
        return values
    if field.transform == "truncate":
        return _truncated(values, field.width)
    if field.transform == "bucket":
        hashes = pc.bit_wise_and(_hashes(values).cast(pa.int64()), _MOST_INT)
        return pc.subtract(hashes, _floored(hashes, field.width)).cast(kind)
    return _period(values, field.transform).cast(pa.int32()).cast(kind)


def _fits(name: str, kind: pa.DataType) -> bool:
    is_ = pa.types
    text = is_.is_string(kind) or is_.is_large_string(kind)
    binary = is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind)
    whole = is_.is_signed_integer(kind) or kind in (pa.uint8(), pa.uint16(), pa.uint32())
    if name == "identity":
        return not (is_.is_nested(kind) or is_.is_null(kind) or isinstance(kind, pa.BaseExtensionType))
    if name == "truncate":
        return whole or text or is_.is_decimal128(kind) or (binary and not is_.is_fixed_size_binary(kind))
    if name == "bucket":
        return (
            whole
            or text
            or binary
            or is_.is_decimal128(kind)
            or is_.is_date32(kind)
            or is_.is_time64(kind)
            or is_.is_timestamp(kind)
        )
    return is_.is_timestamp(kind) or (is_.is_date32(kind) and name != "hour")


def _integers(values: pa.Array) -> pa.Array:
    """Return integers, or dates and times by the unit of their type."""
    narrow = values.type.bit_width == 32 and pa.types.is_temporal(values.type)
    return values.cast(pa.int32() if narrow else pa.int64()).cast(pa.int64())


def _quotients(numbers: pa.Array, by: int) -> pa.Array:
    """Return integers divided by another one, rounded down."""
    toward_zero = pc.divide(numbers, by)
    return pc.subtract(toward_zero, pc.less(numbers, pc.multiply(toward_zero, by)).cast(pa.int64()))


def _floored(numbers: pa.Array, width: int) -> pa.Array:
    """Return integers rounded down to multiples of a width."""
    return pc.multiply(_quotients(numbers, width), width)


def _period(values: pa.Array, name: str) -> pa.Array:
    numbers = _integers(values)
    if name == "hour":
        return _quotients(numbers, 3600 * _PER_SECOND[values.type.unit])
    days = numbers if pa.types.is_date32(values.type) else _quotients(numbers, 86_400 * _PER_SECOND[values.type.unit])
    if name == "day":
        return days
    dates = days.cast(pa.int32()).cast(pa.date32())
    years = pc.subtract(pc.year(dates), 1970)
    return years if name == "year" else pc.add(pc.multiply(years, 12), pc.subtract(pc.month(dates), 1))


def _hashes(values: pa.Array) -> pa.Array:
    """Return the hash of each value, without sign."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        numbers = _integers(values)
        if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
            per_second = _PER_SECOND[kind.unit]
            coarse = per_second <= 10**6
            numbers = pc.multiply(numbers, 10**6 // per_second) if coarse else _quotients(numbers, per_second // 10**6)
        bits = numbers.view(pa.uint64())
        halves = (pc.bit_wise_and(bits, _uint64(0xFFFFFFFF)), pc.shift_right(bits, _uint64(32)))
        return _murmur3([half.cast(pa.uint32()) for half in halves], [], len(bits))
    encoded = pc.dictionary_encode(values)
    if pa.types.is_decimal(kind):
        each = pa.array([_bytes_of(value, kind.scale) for value in encoded.dictionary.to_pylist()], pa.binary())
    else:
        each = encoded.dictionary.cast(pa.binary())
    return _hashes_of(each).take(encoded.indices)


def _bytes_of(value: Decimal, scale: int) -> bytes:
    """Return the unscaled value as the fewest bytes that hold it with its sign, the highest first."""
    unscaled = int(value.scaleb(scale, _EXACT))
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _hashes_of(values: pa.BinaryArray) -> pa.Array:
    """Return the hashes of byte strings, computed together for those of one length."""
    lengths = pc.binary_length(values)
    places, hashes = [pa.array([], pa.uint64())], [pa.array([], pa.uint32())]
    for length in pc.unique(lengths).to_pylist():
        places.append(pc.indices_nonzero(pc.equal(lengths, length)))
        some, whole = values.take(places[-1]), length // 4 * 4
        blocks = [_cut(some, start, 4).view(pa.uint32()) for start in range(0, whole, 4)]
        tail = [_cut(some, at, 1).view(pa.uint8()).cast(pa.uint32()) for at in range(whole, length)]
        hashes.append(_murmur3(blocks, tail, len(some), length))
    return pa.concat_arrays(hashes).take(pc.sort_indices(pa.concat_arrays(places)))


def _cut(values: pa.BinaryArray, start: int, size: int) -> pa.Array:
    return pc.binary_slice(values, start, start + size).cast(pa.binary(size))


def _murmur3(blocks: Sequence[pa.Array], tail: Sequence[pa.Array], rows: int, length: int = 8) -> pa.Array:
    """Return the 32-bit Murmur3 hash (x86, seed 0) of each row of bytes.

    :param blocks: the blocks of four bytes, and `tail` the single bytes after these.
    :param length: how many bytes a row has.
    """
    found = pa.repeat(_uint32(0), rows)
    for block in blocks:
        found = pc.bit_wise_xor(found, _mixed(block))
        found = pc.add(pc.multiply(_rotated(found, 13), _uint32(5)), _uint32(0xE6546B64))
    if tail:
        rest = pa.repeat(_uint32(0), rows)
        for place, byte in enumerate(tail):
            rest = pc.bit_wise_or(rest, pc.shift_left(byte, _uint32(8 * place)))
        found = pc.bit_wise_xor(found, _mixed(rest))
    found = pc.bit_wise_xor(found, _uint32(length))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = pc.multiply(pc.bit_wise_xor(found, pc.shift_right(found, _uint32(shift))), _uint32(factor))
    return pc.bit_wise_xor(found, pc.shift_right(found, _uint32(16)))


def _mixed(block: pa.Array) -> pa.Array:
    return pc.multiply(_rotated(pc.multiply(block, _uint32(0xCC9E2D51)), 15), _uint32(0x1B873593))


def _rotated(values: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(values, _uint32(by)), pc.shift_right(values, _uint32(32 - by)))


def _uint32(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint32())


def _uint64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())


def _truncated(values: pa.Array, width: int) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind):
        return _floored(_integers(values), width).cast(kind)
    if pa.types.is_decimal(kind):
        return _truncated_decimals(values, width)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(values, 0, width)
    return pc.binary_slice(values, 0, width)


def _truncated_decimals(values: pa.Array, width: int) -> pa.Array:
    scale, encoded = values.type.scale, pc.dictionary_encode(values)
    cut = []
    for value in encoded.dictionary.to_pylist():
        unscaled = int(value.scaleb(scale, _EXACT))
        cut.append(Decimal(unscaled - unscaled % width).scaleb(-scale, _EXACT))
    return pa.array(cut, values.type).take(encoded.indices)
