"""Records of a topic as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from airflow_gobblin.errors import ConfigurationError

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
RECORD = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(_HEADER)),
    ]
)
"""A record without its value, whose columns follow: all null for a record without one, which marks its key as deleted."""
SCHEMA = RECORD.append(pa.field("value", pa.binary()))
"""A raw record."""
_NO_TIME = 0
"""The timestamp type of a record that has none."""


def with_values(columns: pa.Schema, topic: str) -> pa.Schema:
    """Return the columns of a topic's records, with those of their values.

    :raises ConfigurationError: a column of the value has the name of one of the record, or of another one.
    """
    names = Counter([*RECORD.names, *columns.names])
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise ConfigurationError(
            operation="plan",
            subject=f"topic {topic!r}",
            cause=f"its values have a field {', '.join(map(repr, twice))}, and so has each record: two columns of one name",
            hint="Put a prefix before the fields' names: JsonValues(…, prefix='value_'), or AvroValues(…, prefix='value_').",
        )
    return pa.schema([*RECORD, *columns])


def batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return records as a batch of rows.

    A column is made with one call per record, and these calls are most of what reading costs. So no line of Python runs for a
    record unless it has headers, or no time.
    """
    columns = [
        _column(Message.partition, messages, 0),
        _column(Message.offset, messages, 1),
        _timestamps(messages),
        _column(Message.key, messages, 3),
        _headers([*map(Message.headers, messages)]),
        _column(Message.value, messages, 5),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _column(get: Callable[[Message], object], messages: Sequence[Message], number: int) -> pa.Array:
    return pa.array([*map(get, messages)], SCHEMA.field(number).type)


def _timestamps(messages: Sequence[Message]) -> pa.Array:
    kinds, times = zip(*map(Message.timestamp, messages), strict=True) if messages else ((), ())
    if _NO_TIME in kinds:
        times = tuple(None if kind == _NO_TIME else time for kind, time in zip(kinds, times, strict=True))
    return pa.array(times, pa.int64()).cast(SCHEMA.field(2).type)


def _headers(headers: Sequence[Any]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), RECORD.field(4).type)
    rows = [None if some is None else [{"key": key, "value": value} for key, value in some] for some in headers]
    return pa.array(rows, RECORD.field(4).type)
