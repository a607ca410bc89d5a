"""KafkaSource by TLS and SASL, on a real broker: refused clients learn it at once, and no password is shown."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from airflow_gobblin.errors import SourceError
from airflow_gobblin.rows.sources.kafka import KafkaSource
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.rows.sources.databases import FixedUri
from tests.rows.sources.kafka_lake import Lake, numbered
from tests.services.kafka import PASSWORDS, Kafka

WRONG = "wr0ng-c4nary"


def connection(settings: Mapping[str, str]) -> FixedUri:
    """An Airflow connection with such an extra."""
    return FixedUri(f"kafka:///?__extra__={quote(json.dumps(settings))}")


class SecureLake(Lake):
    """A lake whose connection is by the secure listener. :ivar settings: the client's."""

    settings: Mapping[str, str]

    @property
    def connections(self) -> FixedUri:
        return connection(self.settings)


@pytest.fixture
def lake(kafka: Kafka, tmp_path: Path) -> SecureLake:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, numbered(20))
    lake = SecureLake(kafka, tmp_path / "lake", topic)
    lake.settings = kafka.secure_settings()
    return lake


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_topic_is_read_by_tls_and_sasl(lake: SecureLake, kafka: Kafka, mechanism: str) -> None:
    lake.settings = kafka.secure_settings(mechanism)
    assert lake.run().status == "committed"
    lake.expect_all()


def test_a_certificate_may_be_in_the_connection(lake: SecureLake, kafka: Kafka) -> None:
    settings = kafka.secure_settings()
    settings["ssl.ca.pem"] = Path(settings.pop("ssl.ca.location")).read_text()
    lake.settings = settings
    assert lake.run().status == "committed"
    lake.expect_all()


@pytest.mark.parametrize(
    ("mechanism", "change", "cause"),
    [
        ("PLAIN", {"sasl.password": WRONG}, "Correct user, password and security protocol"),
        ("SCRAM-SHA-512", {"sasl.password": WRONG}, "Correct user, password and security protocol"),
        ("PLAIN", {"sasl.username": "nobody"}, "Correct user, password and security protocol"),
        ("PLAIN", {"ssl.ca.location": ""}, "Correct `security.protocol` of the connection, or give the certificate"),
    ],
)
def test_a_refused_client_learns_it_at_once(
    lake: SecureLake, kafka: Kafka, mechanism: str, change: dict[str, str], cause: str
) -> None:
    settings = kafka.secure_settings(mechanism) | change
    settings = {name: value for name, value in settings.items() if value}
    started = time.monotonic()
    with pytest.raises(SourceError, match=cause) as raised:
        KafkaSource("kafka", (lake.topic,)).datasets(connection(settings))
    assert time.monotonic() - started < 15
    assert not any(secret in str(raised.value) for secret in (WRONG, *PASSWORDS.values()))


def test_who_may_read_no_more_after_the_plan_fails_by_name(lake: SecureLake, kafka: Kafka, tmp_path: Path) -> None:
    opened = lake.opened
    plan = create_work_units(opened, RunRequest("one"))
    wrong = connection(kafka.secure_settings(password=WRONG))
    report = inprocess.go_on(opened, plan, wrong)[lake.topic]
    assert report.status == "failed"
    assert "Authentication failed" in report.text
    written = [path.read_bytes() for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    assert not any(secret.encode() in data for data in written for secret in (WRONG, *PASSWORDS.values()))
    assert lake.run().status == "committed"
    lake.expect_all()


def test_a_topic_that_the_user_may_not_read_fails_and_the_others_go_on(lake: SecureLake, kafka: Kafka) -> None:
    denied = kafka.create_topic()
    kafka.produce(denied, numbered(5))
    kafka.deny(denied)
    lake.change(topics=(lake.topic, denied))
    reports = inprocess.run(lake.opened, lake.connections)
    assert reports[denied].status == "failed"
    assert "Give the user of the connection the rights to describe and read the topic" in reports[denied].text
    assert reports[lake.topic].status == "committed"
    lake.expect_all()
