"""Values of a topic decoded in Spark's tasks by a real registry; bad values are kept beside the dataset, in an object store."""

from __future__ import annotations

import json
from pathlib import Path

from airflow_gobblin.rows.converters.base import OnBadRow
from airflow_gobblin.rows.sources.kafka.values import AvroValues
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from tests.rows.sources.test_kafka_avro import AvroLake, encoded, field, of
from tests.services.kafka import Kafka
from tests.services.registry import Registry
from tests.services.s3 import CONNECTION, S3Server
from tests.spark.runs import PlannedRun, Submit


def test_tasks_decode_by_the_registry_and_keep_dead_letters(
    kafka: Kafka, registry: Registry, versitygw: S3Server, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    first, second = of(field("id", "int")), of(field("id", "int"), {"name": "name", "type": "string", "default": "?"})
    ids = [registry.register(f"{topic}-value", schema) for schema in (first, second)]
    for partition in range(2):
        old = [encoded(first, {"id": 10 * partition + n}, ids[0]) for n in range(3)]
        kafka.produce(topic, [*old, encoded(second, {"id": 9, "name": "new"}, ids[1]), b"bad", None], partition)
    place = versitygw.access.url(f"{versitygw.create_bucket()}/lake")
    values = AvroValues(registry="registry", on_bad=OnBadRow.DEAD_LETTER)
    lake = AvroLake(kafka, registry.uri, place, topic, access=versitygw.access, values=values)
    opened = lake.opened
    planned = PlannedRun(tmp_path, opened, create_work_units(opened, RunRequest("first")))

    done = Submit(uris=lake.uris, code=()).run(planned)
    assert done.returncode == 0, done.stdout + done.stderr
    for pack in planned.run.packs:
        write_commit_steps(opened, planned.run, pack)
        execute_commit_steps(opened, planned.run, pack)
    (report,) = finish(opened, planned.run)
    assert report.text == "slot 1: 2 dead letters"

    rows = sorted((row["partition"], row["offset"], row["id"], row["name"]) for row in lake.rows() if row["name"])
    assert rows == [
        (p, n, *row) for p in range(2) for n, row in enumerate([*((10 * p + i, "?") for i in range(3)), (9, "new")])
    ]
    found = lake.journal.read_dead_letters(topic).to_arrow(lake.connections, CONNECTION).to_table().to_pylist()
    assert {one["raw"] for one in found} == {b"bad"}
    assert sorted(json.loads(one["position"])["partition"] for one in found) == [0, 1]
