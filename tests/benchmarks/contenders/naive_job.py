"""Our units read by our reader and written as plain Parquet files: no results, no checksums, no sync."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from airflow_gobblin.model import schema, wire
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.rows.sources.base import ReadRequest
from airflow_gobblin.rows.work import RowsBinding
from airflow_gobblin.spark.connections import SparkConnections
from tests.benchmarks.contenders.gobblin import SHOP, ingestion
from tests.benchmarks.contenders.reporting import DATABASE, arguments

DONE = pa.schema([("unit", pa.string())])


def write_unit(folder: str, table: str, key: str, index: int, connections: SparkConnections) -> str:
    """One unit, one file.

    :return: its id.
    """
    plan = wire.loads(Path(folder, "plan").read_bytes(), Plan, "plan")
    unit, incoming = plan.units[index], schema.decode(RowsBinding.of(plan).source_schema)
    reader = ingestion(folder, table, key).source.read(unit, incoming, ReadRequest(), connections)
    path = f"{folder}/tmp/{unit.id}.parquet"
    with pq.ParquetWriter(path, incoming, compression="zstd", compression_level=1) as writer:
        for batch in reader:
            writer.write_batch(batch)
    reader.close()
    return unit.id


def main() -> None:
    asked = arguments(folder="", table="", key="")
    folder, table, key = asked.folder, asked.table, asked.key
    spark = SparkSession.builder.getOrCreate()
    began, connections = time.time(), SparkConnections({SHOP: os.environ[DATABASE]})
    count = len(wire.loads(Path(folder, "plan").read_bytes(), Plan, "plan").units)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                unit = write_unit(folder, table, key, index, connections)
                yield pa.RecordBatch.from_pydict({"unit": [unit]}, DONE)

    done = spark.range(0, count, 1, count).mapInArrow(run, "unit string").collect()
    assert len(done) == count
    Path(folder, "times.json").write_text(json.dumps({"data": time.time() - began}))
    spark.stop()


if __name__ == "__main__":
    main()
