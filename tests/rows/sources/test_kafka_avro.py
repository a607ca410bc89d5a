"""Values in Avro: by a schema of one's own, and by those of a real registry."""

from __future__ import annotations

import io
import json
import struct
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import requests
from airflow.sdk import Connection
from fastavro import parse_schema, schemaless_writer

from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import ConfigurationError, SourceError
from airflow_gobblin.rows.sources.kafka import KafkaSource
from airflow_gobblin.rows.sources.kafka.values import AvroValues
from airflow_gobblin.spark.connections import SparkConnections
from airflow_gobblin.testing import inprocess
from tests.rows.sources.databases import FixedUri
from tests.rows.sources.kafka_lake import Lake, uris
from tests.rows.sources.test_kafka_values import NOWHERE, decode, failure_of
from tests.services.kafka import Kafka
from tests.services.registry import Registry
from tests.services.s3 import S3Access

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
KINDS = {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}


def field(name: str, kind: Any, logical: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": kind, "logicalType": logical, **more} if logical else kind}


def of(*fields: Any, name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": [*fields]}


def encoded(schema: Any, row: Mapping[str, Any], number: int | None = None) -> bytes:
    """Encode a row; with the id of its schema, in the wire format of registries."""
    data = io.BytesIO()
    if number is not None:
        data.write(struct.pack(">bI", 0, number))
    schemaless_writer(data, parse_schema(json.loads(json.dumps(schema))), dict(row))
    return data.getvalue()


ALL = of(
    field("id", "long"),
    field("count", ["null", "int"]),
    field("share", "double"),
    field("rough", "float"),
    field("paid", "boolean"),
    field("name", ["string", "null"]),
    field("raw", "bytes"),
    field("hash", {"type": "fixed", "name": "Hash", "size": 2}),
    field("kind", KINDS),
    field("kinds", {"type": "array", "items": "Kind"}),
    field(
        "prices", {"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}}
    ),
    field("place", ["null", PLACE]),
    field("day", "int", "date"),
    field("at", "long", "timestamp-millis"),
    field("finer", "long", "timestamp-micros"),
    field("local", "long", "local-timestamp-micros"),
    field("hour", "int", "time-millis"),
    field("guid", "string", "uuid"),
)
ROW = {
    "id": 1 << 60,
    "count": None,
    "share": 0.1,
    "rough": 0.5,
    "paid": True,
    "name": "Zürich",
    "raw": b"\xff\x00",
    "hash": b"ab",
    "kind": "PAID",
    "kinds": ["NEW", "PAID"],
    "prices": {"a": Decimal("1.10")},
    "place": {"city": "Bern"},
    "day": date(2026, 2, 28),
    "at": datetime(2026, 1, 31, 8, 0, 0, 5000, UTC),
    "finer": datetime(2026, 1, 31, 8, 0, 0, 5, UTC),
    "local": datetime(2026, 1, 31, 8),  # noqa: DTZ001
    "hour": time(8, 30),
    "guid": uuid.UUID(int=7),
}


def test_avro_has_the_types_of_its_schema() -> None:
    values = AvroValues(json.dumps(ALL))
    rows, bad = decode([encoded(ALL, ROW), None], values)
    assert bad == {}
    assert rows == [{**ROW, "prices": [("a", Decimal("1.10"))], "guid": str(ROW["guid"])}, dict.fromkeys(ROW)]


@pytest.mark.parametrize(
    "value",
    [b"", b"\x02", encoded(ALL, ROW)[:-1], encoded(ALL, ROW) + b"\0", b"\xff" * 200, b'{"id": 1}'],
)
def test_what_is_no_value_of_the_schema_is_bad_alone(value: bytes) -> None:
    rows, bad = decode([encoded(ALL, ROW), value, None], AvroValues(json.dumps(ALL)))
    assert [*bad] == [1]
    assert [row["id"] for row in rows] == [ROW["id"], None, None]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("{", "not JSON"),
        ('"string"', "it is not a record"),
        (json.dumps(of()), "it is not a record with fields"),
        (json.dumps(of(field("x", ["int", "string"]))), "field 'x' is a union of int, string"),
        (json.dumps(of(field("x", ["null"]))), "field 'x' is a union of null alone"),
        (json.dumps(of(field("x", ["null", "shop.Order"]))), "field 'x' is of type 'shop.Order'"),
        (json.dumps(of(field("x", {"type": "array", "items": "null"}))), "'x\\[\\]' is of type 'null'"),
        (json.dumps(of(field("x", "bytes", "decimal", precision=50))), "a decimal of 50 digits"),
        (json.dumps(of(field("x", "nonsense"))), "not an Avro schema"),
    ],
)
def test_a_schema_that_cant_be_columns_is_refused(schema: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        AvroValues(schema).plan("orders", NOWHERE)


def test_neither_schema_nor_registry_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it names neither a schema nor a registry"):
        AvroValues()


# --- With a registry -----------------------------------------------------------------------------------------------------------


class AvroLake(Lake):
    """An ingestion of a topic whose schema is in a registry.

    :param registry: the connection to it.
    """

    def __init__(
        self,
        kafka: Kafka,
        registry: str,
        place: Path | str,
        topic: str,
        access: S3Access | None = None,
        values: AvroValues = AvroValues(registry="registry"),  # noqa: B008
    ) -> None:
        super().__init__(kafka, place, topic, access=access, values=values)
        self.registry = registry

    @property
    def uris(self) -> dict[str, str]:
        """The connections, by id."""
        return {**uris(self.kafka, self.access), "registry": self.registry}

    @property
    def connections(self) -> Connections:
        return SparkConnections(self.uris)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.create_topic()


def test_values_of_older_and_newer_schemas_are_resolved_to_the_newest_at_planning(
    kafka: Kafka, registry: Registry, topic: str, tmp_path: Path
) -> None:
    first = of(field("id", "int"), field("name", "string"))
    second = of(field("id", "long"), {"name": "city", "type": "string", "default": "none"}, field("name", "string"))
    third = of(field("id", "long"), {"name": "late", "type": "string", "default": ""}, *second["fields"][1:])
    one = registry.register(f"{topic}-value", first)
    lake = AvroLake(kafka, registry.uri, tmp_path, topic)
    kafka.produce(topic, [encoded(first, {"id": 1, "name": "ann"}, one), None])
    assert failure_of(lake) == ""
    lake_of_another_type = lake.journal.read_dataset(topic).to_arrow().schema.field("id").type
    assert str(lake_of_another_type) == "int32"

    other = AvroLake(kafka, registry.uri, tmp_path / "other", topic)
    two = registry.register(f"{topic}-value", second)
    kafka.produce(topic, [encoded(second, {"id": 2, "name": "ben", "city": "Bern"}, two)])
    three = registry.register(f"{topic}-else", third)
    kafka.produce(topic, [encoded(third, {"id": 3, "late": "x", "city": "Rome", "name": "cat"}, three)])
    assert failure_of(other) == ""
    assert [(row["id"], row["name"], row["city"]) for row in other.rows()] == [
        (1, "ann", "none"),
        (None, None, None),
        (2, "ben", "Bern"),
        (3, "cat", "Rome"),
    ]
    assert "column 'id' was int32 and is now int64" in failure_of(lake), "the rule for schemas is that of all sources"


def test_a_schema_may_refer_to_others(kafka: Kafka, registry: Registry, topic: str, tmp_path: Path) -> None:
    place = registry.register(f"{topic}-place", {**PLACE, "namespace": "shop"})
    assert place
    schema = of(field("id", "long"), field("place", "shop.Place"))
    reference = {"name": "shop.Place", "subject": f"{topic}-place", "version": 1}
    number = registry.register(f"{topic}-value", schema, references=[reference])
    whole = of(field("id", "long"), field("place", PLACE))
    kafka.produce(topic, [encoded(whole, {"id": 1, "place": {"city": "Bern"}}, number)])
    lake = AvroLake(kafka, registry.uri, tmp_path, topic)
    assert failure_of(lake) == ""
    assert [row["place"] for row in lake.rows()] == [{"city": "Bern"}]


def test_what_a_registry_doesnt_know_is_a_bad_value(
    kafka: Kafka, registry: Registry, topic: str, tmp_path: Path
) -> None:
    schema = of(field("id", "long"))
    number = registry.register(f"{topic}-value", schema)
    kafka.produce(topic, [encoded(schema, {"id": 1}, number), encoded(schema, {"id": 2}, 1 << 30), b"plain"])
    failure = failure_of(AvroLake(kafka, registry.uri, tmp_path, topic))
    assert "2 of the 3 rows of a batch" in failure
    assert f'"offset": 1}}: the registry has no schema {1 << 30}' in failure


def test_a_subject_that_isnt_there_or_isnt_avro_is_named(
    kafka: Kafka, registry: Registry, topic: str, tmp_path: Path
) -> None:
    kafka.produce(topic, [b"x"])
    lake = AvroLake(kafka, registry.uri, tmp_path, topic)
    assert f"subject '{topic}-value' of the schema registry by connection 'registry'" in failure_of(lake)
    registry.register(
        f"{topic}-value", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "JSON"
    )
    assert "it is of type JSON, and not Avro's" in failure_of(lake)


def test_a_registry_that_is_away_stops_its_topics_by_name_and_moves_nothing(
    kafka: Kafka, registry: Registry, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_gobblin.storage import http_session

    monkeypatch.setattr(http_session, "_TRIES", 1)
    number = registry.register(f"{topic}-value", schema := of(field("id", "long")))
    kafka.produce(topic, [encoded(schema, {"id": 1}, number)])
    lake = AvroLake(kafka, "http://ann:canary-word@127.0.0.1:9", tmp_path, topic)
    failure = failure_of(lake)
    assert "schema registry by connection 'registry'" in failure
    assert "canary" not in failure
    assert lake.journal.state(topic).head == 0
    idle = kafka.create_topic()
    source = KafkaSource("kafka", (idle,), values=AvroValues(registry="registry"))
    lake.job = lake.job.__class__("idle", source, lake.job.sink, "unused")
    assert inprocess.run(inprocess.open_job(lake.job, lake.connections))[idle].failure is None, "nothing is to be read"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [("kafka://somewhere", "it is of type 'kafka'"), ("http://", "it names no server")],
)
def test_a_connection_that_cant_work_is_refused(uri: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        AvroValues(registry="registry").plan("orders", FixedUri(uri))


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        (Connection(conn_id="registry", conn_type="http", host="registry", port=81), "http://registry:81"),
        (
            Connection(
                conn_id="registry", conn_type="http", host="registry", schema="https", login="ann", password="pw"
            ),
            "https://registry",
        ),
        (
            Connection(
                conn_id="registry", conn_type="http", host="https://registry", port=443, login="ann", password="pw"
            ),
            "https://registry:443",
        ),
        (
            Connection(conn_id="registry", conn_type="http", host="x", extra='{"url": "https://registry/ccompat/"}'),
            "https://registry/ccompat",
        ),
    ],
)
def test_a_connection_of_airflow_is_asked_by_its_protocol(
    connection: Connection, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, object]] = []

    def get(session: requests.Session, url: str, **options: object) -> requests.Response:
        asked.append((url, session.auth))
        raise requests.ConnectionError("nobody is there")

    monkeypatch.setattr(requests.Session, "get", get)
    with pytest.raises(SourceError, match="nobody is there"):
        AvroValues(registry="registry").plan("orders", FixedUri(connection.get_uri()))
    user = (connection.login, connection.password) if connection.login else None
    assert asked == [(f"{address}/subjects/orders-value/versions/latest", user)]


def test_an_answer_that_is_no_schema_is_named(registry: Registry) -> None:
    elsewhere = f"http://127.0.0.1:{registry.port}/nowhere"
    with pytest.raises(SourceError, match="subject 'orders-value' of the schema registry"):
        AvroValues(registry="registry").plan("orders", FixedUri(f"http://x?url={elsewhere}"))
