"""Iceberg's partition transforms over Arrow arrays, by its specification; null stays null."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.tables.port import PartitionField

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOST_INT = 2**31 - 1
_EXACT = Context(prec=76)


def result_type(field: PartitionField, kind: pa.DataType) -> pa.DataType:
    """Return the type of a field's values: a day is a date, and years, months, hours and buckets are integers.

    :param kind: the type of the column.
    :raises ConfigurationError: there is no such transform of this type.
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
        return _masked((_hashes(values) & _MOST_INT) % field.width, values, kind)
    return _masked(_period(values, field.transform), values, kind)


def _fits(name: str, kind: pa.DataType) -> bool:
    is_ = pa.types
    text = is_.is_string(kind) or is_.is_large_string(kind)
    binary = is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind)
    whole = is_.is_signed_integer(kind) or kind in (pa.uint8(), pa.uint16(), pa.uint32())
    if name == "identity":
        return not is_.is_nested(kind) and not is_.is_null(kind)
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


def _masked(numbers: NDArray[np.int64], values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return numbers as an array that is null where the values are."""
    nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(numbers.astype(np.int32), pa.int32(), mask=nulls).cast(kind)


def _integers(values: pa.Array) -> NDArray[np.int64]:
    """Return integers, or dates and times by the unit of their type; null as 0."""
    width = pa.int32() if values.type.bit_width == 32 and pa.types.is_temporal(values.type) else pa.int64()
    numbers: NDArray[np.int64] = pc.fill_null(values.cast(width), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _period(values: pa.Array, name: str) -> NDArray[np.int64]:
    numbers = _integers(values)
    if name == "hour":
        return numbers // (3600 * _PER_SECOND[values.type.unit])
    days = numbers if pa.types.is_date32(values.type) else numbers // (86_400 * _PER_SECOND[values.type.unit])
    if name == "day":
        return days
    unit = {"year": "datetime64[Y]", "month": "datetime64[M]"}[name]
    periods: NDArray[np.int64] = days.astype("datetime64[D]").astype(unit).astype(np.int64)
    return periods


def _hashes(values: pa.Array) -> NDArray[np.int64]:
    """Return the hash of each value, not negative yet; that of a null has no meaning."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        numbers = _integers(values)
        if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
            per_second = _PER_SECOND[kind.unit]
            numbers = numbers // (per_second // 10**6) if per_second > 10**6 else numbers * (10**6 // per_second)
        return _murmur3(numbers.astype("<i8").view(np.uint8).reshape(-1, 8))
    encoded = pc.dictionary_encode(values)
    each = encoded.dictionary.to_pylist()
    if pa.types.is_decimal(kind):
        raw = [_bytes_of(value, kind.scale) for value in each]
    else:
        raw = [value.encode() if isinstance(value, str) else value for value in each]
    of_each = np.append(_hashes_of(raw), 0)
    found: NDArray[np.int64] = of_each[pc.fill_null(encoded.indices, len(raw)).to_numpy(zero_copy_only=False)]
    return found


def _bytes_of(value: Decimal, scale: int) -> bytes:
    """Return the unscaled value as the fewest bytes that hold it with its sign, the highest first."""
    unscaled = int(value.scaleb(scale, _EXACT))
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _hashes_of(values: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the hashes of byte strings, those of one length together."""
    hashes = np.zeros(len(values), np.int64)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    for length in np.unique(lengths):
        which = np.flatnonzero(lengths == length).tolist()
        rows = np.frombuffer(b"".join(values[n] for n in which), np.uint8).reshape(len(which), int(length))
        hashes[which] = _murmur3(rows)
    return hashes


def _murmur3(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the 32-bit Murmur3 hash (x86, seed 0) of each row of bytes, as a number without sign."""
    count, length = rows.shape
    whole = length // 4 * 4
    blocks = np.ascontiguousarray(rows[:, :whole]).view("<u4").reshape(count, whole // 4)
    found = np.zeros(count, np.uint32)
    with np.errstate(over="ignore"):
        for block in blocks.T:
            found ^= _mixed(block.astype(np.uint32))
            found = _rotated(found, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        if whole < length:
            tail = np.zeros(count, np.uint32)
            for place, byte in enumerate(rows[:, whole:].T):
                tail |= byte.astype(np.uint32) << np.uint32(8 * place)
            found ^= _mixed(tail)
        found ^= np.uint32(length)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            found ^= found >> np.uint32(shift)
            found *= np.uint32(factor)
        found ^= found >> np.uint32(16)
    return found.astype(np.int64)


def _mixed(block: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return _rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(values: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))


def _truncated(values: pa.Array, width: int) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind):
        numbers = _integers(values)
        nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        return pa.array(numbers - numbers % width, pa.int64(), mask=nulls).cast(kind)
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
