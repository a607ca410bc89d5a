"""Decoding of Avro: values of one schema, or of the schemas in a registry, resolved to the planned one."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, MissingExtraError, Remedy, SourceError
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.rows.sources.kafka.values import AvroValues, Decoded
from airflow_gobblin.rows.sources.kafka.values.avro_schemas import arrow_columns, parse_json
from airflow_gobblin.rows.sources.kafka.values.decoding import decoded
from airflow_gobblin.rows.sources.kafka.values.registry import RegisteredSchema, Registry

try:
    from fastavro import parse_schema, schemaless_reader
    from fastavro.schema import expand_schema
except ImportError as error:
    raise MissingExtraError(
        operation="use",
        subject="AvroValues(…)",
        cause=error,
        hint="Install the extra: pip install 'airflow-gobblin[avro]'.",
    ) from error

SCHEMA_ID = "schema_id"
"""The property of a unit that names the registered schema that its values are resolved to."""
_HEAD = struct.Struct(">bI")
"""Confluent's wire format: a zero, and the id of the schema."""


@dataclass(frozen=True)
class PlannedColumns:
    """The columns of a schema, and the properties by which a unit finds it again."""

    columns: pa.Schema
    properties: Mapping[str, Json] = field(default_factory=dict)


def planned_columns(values: AvroValues, subject: str, connections: Connections) -> PlannedColumns:
    """Return the columns of a topic, from the declared schema or from the newest one of its subject.

    :raises SourceError: the registry can't be asked, or has no such subject.
    :raises ConfigurationError: the schema can't be columns.
    """
    if values.schema:
        return PlannedColumns(
            _columns(_Schemas().parsed(values.schema, "the schema of AvroValues(…)"), "AvroValues(…)")
        )
    registry = Registry(values.registry, connections)
    found = registry.newest(subject)
    name = f"schema {found.id}, the newest of subject {subject!r}"
    return PlannedColumns(_columns(_Schemas(registry).registered(found, name), name), {SCHEMA_ID: found.id})


def _columns(schema: Any, name: str) -> pa.Schema:
    return arrow_columns(expand_schema(schema), name)


class _Schemas:
    """A parser of schemas, and of those that they refer to."""

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry

    def registered(self, found: RegisteredSchema, name: str) -> Any:
        """Return a registered schema.

        :raises ConfigurationError: it isn't Avro's.
        :raises SourceError: a schema that it refers to can't be had.
        """
        named: dict[str, Any] = {}
        self._refer(found, named, name)
        return self.parsed(found.text, name, named)

    def _refer(self, found: RegisteredSchema, named: dict[str, Any], name: str) -> None:
        if found.kind != "AVRO":
            raise ConfigurationError(
                operation="use",
                subject=name,
                cause=f"it is of type {found.kind}, and not Avro's",
                hint="Read such values as BytesValues().",
            )
        assert self._registry is not None or not found.references
        for reference in found.references:
            assert self._registry is not None
            other = self._registry.version(reference["subject"], reference["version"])
            self._refer(other, named, name)
            self.parsed(other.text, name, named)

    def parsed(self, text: str, name: str, named: dict[str, Any] | None = None) -> Any:
        """Parse a schema.

        :raises ConfigurationError: it isn't Avro's.
        """
        try:
            return parse_schema(parse_json(text, name), {} if named is None else named)
        except ConfigurationError:
            raise
        except Exception as error:  # fastavro raises anything
            raise ConfigurationError(
                operation="use",
                subject=name,
                cause=f"it is not an Avro schema: {type(error).__name__}: {error}",
                hint="Correct it.",
            ) from error


class AvroDecoder:
    """The decoder of a unit's values.

    :param columns: the planned columns, as the schema's fields are named.
    :param properties: those of the unit.
    """

    def __init__(
        self, values: AvroValues, columns: pa.Schema, properties: Mapping[str, Json], connections: Connections
    ) -> None:
        self._columns = columns
        self._registry = Registry(values.registry, connections) if values.registry else None
        self._schemas = _Schemas(self._registry)
        self._writers: dict[int, Any] = {}
        self._unusable: dict[int, str] = {}
        self._resolved_to = (
            self._schemas.parsed(values.schema, "the schema of AvroValues(…)")
            if values.schema
            else self._planned(properties[SCHEMA_ID])
        )

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values. A schema that the registry doesn't know makes a value bad; a registry that can't be asked doesn't.

        :raises SourceError: the registry can't be asked.
        """
        return decoded(values, self._columns, self._whole)

    def _planned(self, number: Json) -> Any:
        """Return the registered schema that was planned.

        :raises SourceError: the registry can't be asked, or no longer has it.
        """
        assert self._registry is not None
        assert isinstance(number, int)
        found = self._registry.schema(number)
        if found is None:
            raise SourceError(
                operation="read",
                subject=f"schema {number} of a schema registry",
                cause="it was planned with, and the registry doesn't have it any more",
                remedy=Remedy.PLAN,
            )
        return self._schemas.registered(found, f"schema {number}")

    def _whole(self, values: Sequence[bytes]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([self._row(value) for value in values], self._columns)

    def _row(self, value: bytes) -> dict[str, Any]:
        data = io.BytesIO(value)
        writer = self._resolved_to if self._registry is None else self._writer_of(data)
        try:
            row: dict[str, Any] = schemaless_reader(data, writer, self._resolved_to)  # type: ignore[assignment]
        except Exception as error:  # fastavro raises anything
            raise ValueError(f"it can't be decoded: {type(error).__name__}: {error}") from error
        if data.tell() != len(value):
            raise ValueError(f"it has {len(value) - data.tell()} bytes after its record")
        return row

    def _writer_of(self, data: io.BytesIO) -> Any:
        head = data.read(_HEAD.size)
        if len(head) < _HEAD.size or head[0] != 0:
            raise ValueError("it doesn't begin with the id of a registered schema")
        return self._writer(_HEAD.unpack(head)[1])

    def _writer(self, number: int) -> Any:
        """Return a registered schema.

        :raises ValueError: there is none that can be used.
        """
        if number in self._unusable:
            raise ValueError(self._unusable[number])
        if number not in self._writers:
            assert self._registry is not None
            found = self._registry.schema(number)
            try:
                if found is None:
                    raise ValueError(f"the registry has no schema {number}")
                self._writers[number] = self._schemas.registered(found, f"schema {number}")
            except (ValueError, ConfigurationError) as error:
                self._unusable[number] = str(error)
                raise ValueError(str(error)) from error
        return self._writers[number]
