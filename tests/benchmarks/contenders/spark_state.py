"""The same totals by Spark's own stateful aggregation: RocksDB with changelog checkpoints, on a Spark that was just started."""

from __future__ import annotations

import os
import time

from pyspark.sql import DataFrame

from airflow_gobblin.spark.session import submit_options
from tests.benchmarks.contenders.keyed import RANGES, counted, ranges
from tests.benchmarks.contenders.parquet_rows import parquet_rows
from tests.benchmarks.contenders.reporting import Laps, arguments, cpu_seconds, print_figures
from tests.benchmarks.contenders.spark_session import start_session

CONF = {
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
}


def main() -> None:
    asked = arguments(folder="", version="", keys="", share="0.01")
    folder, version = asked.folder, int(asked.version)
    out = f"{folder}/out/{version}"

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.parquet(f"{out}/{batch}")

    os.environ["SPARK_SUBMIT_OPTS"] = submit_options()  # as ours
    clock = Laps()
    spark = start_session(conf=CONF)
    clock.lap("Spark start")
    found = spark.createDataFrame(ranges(version, int(asked.keys), float(asked.share)), RANGES)
    found.coalesce(1).write.mode("append").parquet(f"{folder}/ranges")
    clock.lap("")
    every = cpu_seconds()
    stream = counted(spark.readStream.schema(RANGES).parquet(f"{folder}/ranges"))
    writer = (
        stream.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds, every = clock.lap("version"), cpu_seconds() - every
    if version == 0:
        time.sleep(20)  # until a snapshot of all keys is there: a later start isn't to read the changes one by one
    spark.stop()
    del clock.phases[""]
    print_figures(seconds + clock.phases["Spark start"], clock.phases, every, rows=parquet_rows(out))


if __name__ == "__main__":
    main()
