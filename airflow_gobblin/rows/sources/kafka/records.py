"""Records of a topic as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from confluent_kafka import Message

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(_HEADER)),
        pa.field("value", pa.binary()),
    ]
)
"""A record as it is. A record without a value, which marks its key as deleted, has none here, either."""
_NO_TIME = 0
"""The type of a timestamp that a record doesn't have."""


def batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return records as a batch of rows."""
    headers = [message.headers() for message in messages]
    stamps = [message.timestamp() for message in messages]
    columns = [
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([None if kind == _NO_TIME else ms for kind, ms in stamps], pa.int64()).cast(SCHEMA.field(2).type),
        pa.array([message.key() for message in messages], pa.binary()),
        _headers(headers),
        pa.array([message.value() for message in messages], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _headers(headers: Sequence[Any]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), SCHEMA.field(4).type)
    rows = [None if some is None else [{"key": key, "value": value} for key, value in some] for some in headers]
    return pa.array(rows, SCHEMA.field(4).type)
