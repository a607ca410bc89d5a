"""Formats of the values of records: which columns a value becomes, in addition to those of its record.

    KafkaSource("kafka", ("clicks",), values=JsonValues({"id": "int64", "at": "timestamp[UTC]", "tags": ["string"]}))

DAG files import this module, so Arrow and the libraries of a format are loaded only when a topic is planned or read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.wire import record
from airflow_gobblin.rows.converters.base import OnBadRow, Refuser, check_refuser

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AvroValues",
    "BytesValues",
    "Decoded",
    "Decoder",
    "JsonValues",
    "PlannedValues",
    "TextValues",
    "ValueFormat",
]


@dataclass(frozen=True)
class PlannedValues:
    """The columns of a topic's values, fixed when it is planned.

    :param columns: each may be null: a record without a value has none of them.
    :param properties: what each unit keeps, to be decoded by the same schema.
    """

    columns: pa.Schema
    properties: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Decoded:
    """Values as columns, a row for each value.

    :param columns: null in the rows of values that are null or bad.
    :param bad: why a value can't be decoded, by its number in the batch.
    """

    columns: Sequence[pa.Array]
    bad: Mapping[int, str] = field(default_factory=dict)


class Decoder(Protocol):
    """The decoder of a unit's values."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode a batch of values.

        :raises SourceError: something that it needs for that can't be had, such as the schema that a value was written by.
        """


class ValueFormat(Refuser, Protocol):
    """The format of a topic's values: a frozen dataclass, registered with `wire.record`.

    Values that can't be decoded are treated like rows that a row check refuses: by `on_bad` and, if the format has it, by
    `at_most` of a unit.
    """

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connections that planning and decoding need."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that decoding needs and that can't be shipped."""

    def plan(self, topic: str, connections: Connections) -> PlannedValues:
        """Return the columns of a topic's values.

        :raises SourceError: the schema can't be had.
        :raises ConfigurationError: it can't be columns.
        """

    def decoder(self, columns: pa.Schema, properties: Mapping[str, Json], connections: Connections) -> Decoder:
        """Return the decoder of a unit, to the columns and by the properties that were planned."""


@record("kafka_bytes")
@dataclass(frozen=True)
class BytesValues:
    """Values as plain bytes, in a column `value`. None is bad."""

    on_bad = OnBadRow.FAIL
    connection_ids = ()
    modules = ()

    def plan(self, topic: str, connections: Connections) -> PlannedValues:
        import pyarrow as pa

        return PlannedValues(pa.schema([pa.field("value", pa.binary())]))

    def decoder(self, columns: pa.Schema, properties: Mapping[str, Json], connections: Connections) -> Decoder:
        from airflow_gobblin.rows.sources.kafka.values.decoding import BytesDecoder

        return BytesDecoder()


@record("kafka_text")
@dataclass(frozen=True)
class TextValues:
    """Values as text in UTF-8, in a column `value`.

    :param on_bad: what becomes of values that aren't text.
    :param at_most: the most of them in a unit, above which it fails: an integer, or a share of its rows.
    """

    on_bad: OnBadRow = OnBadRow.FAIL
    at_most: int | float | None = None
    connection_ids = ()
    modules = ()

    def __post_init__(self) -> None:
        check_refuser(self, self.on_bad, self.at_most)

    def plan(self, topic: str, connections: Connections) -> PlannedValues:
        import pyarrow as pa

        return PlannedValues(pa.schema([pa.field("value", pa.string())]))

    def decoder(self, columns: pa.Schema, properties: Mapping[str, Json], connections: Connections) -> Decoder:
        from airflow_gobblin.rows.sources.kafka.values.decoding import TextDecoder

        return TextDecoder(columns)


@record("kafka_json")
@dataclass(frozen=True)
class JsonValues:
    """Values as JSON objects (RFC 8259), whose declared fields are columns; other fields are left out.

    A missing field is null. A number that doesn't fit its type, a text for a number, a date that doesn't exist and the like make
    a value bad: no conversion loses anything, except that `float64` rounds.

    :param schema: the type of each field: `int64`, `float64`, `string`, `bool`, `date`, `timestamp`, `timestamp[UTC]` (both in
        ISO 8601, a zone's offset only with the second) or `decimal(precision,scale)`; a mapping of fields for an object; a list
        of one type for a list: `{"id": "int64", "address": {"city": "string"}, "tags": ["string"]}`.
    :param prefix: put before the columns' names, if one is also a column of the record, such as `key` or `timestamp`.
    :param on_bad: what becomes of values that aren't such objects.
    :param at_most: the most of them in a unit, above which it fails: an integer, or a share of its rows.
    :raises ConfigurationError: there is no field, or no such type.
    """

    schema: Mapping[str, Json]
    prefix: str = ""
    on_bad: OnBadRow = OnBadRow.FAIL
    at_most: int | float | None = None
    connection_ids = ()
    modules = ()

    def __post_init__(self) -> None:
        from airflow_gobblin.rows.sources.kafka.values.json_types import check_fields

        check_fields(self.schema)
        check_refuser(self, self.on_bad, self.at_most)

    def plan(self, topic: str, connections: Connections) -> PlannedValues:
        from airflow_gobblin.rows.sources.kafka.values.json_types import arrow_fields

        return PlannedValues(prefixed(arrow_fields(self.schema), self.prefix))

    def decoder(self, columns: pa.Schema, properties: Mapping[str, Json], connections: Connections) -> Decoder:
        from airflow_gobblin.rows.sources.kafka.values.decoding import JsonDecoder

        return JsonDecoder(unprefixed(columns, self.prefix))


@record("kafka_avro")
@dataclass(frozen=True)
class AvroValues:
    """Values in Avro, whose fields are columns.

    With a registry, a value begins with the id of the schema that it was written by (Confluent's wire format). Each plan takes
    the subject's newest schema, and values written by others are resolved to it, by Avro's rules: a field that a value lacks
    has its default. Without one, all values are written by `schema`.

    :param schema: a schema of type record, as JSON text. With a registry, the schema that all values are resolved to, in place
        of the subject's newest.
    :param registry: an Airflow connection of type HTTP to a schema registry: host, port, user, password. Its extra holds
        headers, and `url` for an address other than `http://host:port`.
    :param subject: the subject of a topic's values.
    :param prefix: put before the columns' names, if one is also a column of the record, such as `key` or `timestamp`.
    :param on_bad: what becomes of values that can't be decoded.
    :param at_most: the most of them in a unit, above which it fails: an integer, or a share of its rows.
    :raises ConfigurationError: it has neither schema nor registry, or the schema isn't JSON.
    """

    schema: str = field(default="", repr=False)
    registry: str = ""
    subject: str = "{topic}-value"
    prefix: str = ""
    on_bad: OnBadRow = OnBadRow.FAIL
    at_most: int | float | None = None

    def __post_init__(self) -> None:
        if not self.schema and not self.registry:
            raise ConfigurationError(
                operation="use",
                subject="AvroValues() as the format of values",
                cause="it names neither a schema nor a registry",
                hint="Give AvroValues(registry='my_registry'), a connection; or AvroValues(schema='{…}').",
            )
        from airflow_gobblin.rows.sources.kafka.values.avro_schemas import parse_json

        if self.schema:
            parse_json(self.schema, "the schema of AvroValues(…)")
        check_refuser(self, self.on_bad, self.at_most)

    @property
    def connection_ids(self) -> tuple[str, ...]:
        return (self.registry,) if self.registry else ()

    @property
    def modules(self) -> tuple[str, ...]:
        return ("fastavro", "requests") if self.registry else ("fastavro",)

    def plan(self, topic: str, connections: Connections) -> PlannedValues:
        from airflow_gobblin.rows.sources.kafka.values.avro import planned_columns

        found = planned_columns(self, self.subject.replace("{topic}", topic), connections)
        return PlannedValues(prefixed(found.columns, self.prefix), found.properties)

    def decoder(self, columns: pa.Schema, properties: Mapping[str, Json], connections: Connections) -> Decoder:
        from airflow_gobblin.rows.sources.kafka.values.avro import AvroDecoder

        return AvroDecoder(self, unprefixed(columns, self.prefix), properties, connections)


def prefixed(columns: pa.Schema, prefix: str) -> pa.Schema:
    """Return the columns with a prefix before their names."""
    import pyarrow as pa

    return pa.schema([one.with_name(prefix + one.name) for one in columns])


def unprefixed(columns: pa.Schema, prefix: str) -> pa.Schema:
    """Return the columns under the names of the values' fields."""
    import pyarrow as pa

    return pa.schema([one.with_name(one.name.removeprefix(prefix)) for one in columns])
