"""Spark's own Kafka reader and Parquet writer, as a batch or as a stream of what there is. Spark is started before the clock."""

from __future__ import annotations

from tests.benchmarks.contenders.parquet_rows import parquet_rows, sync_parquet
from tests.benchmarks.contenders.reporting import Laps, arguments, cpu_seconds, print_figures
from tests.benchmarks.contenders.spark_session import start_session

COLUMNS = ("partition", "offset", "timestamp", "key", "value")


def main() -> None:
    asked = arguments(folder="", servers="", topic="", way="", jars="")
    clock = Laps()
    spark = start_session(asked.jars)
    spark.sparkContext.setLogLevel("WARN")
    clock.lap("Spark start")
    before = cpu_seconds()
    options = {"kafka.bootstrap.servers": asked.servers, "subscribe": asked.topic, "startingOffsets": "earliest"}
    out = f"{asked.folder}/out"
    if asked.way == "batch":
        spark.read.format("kafka").options(**options).load().select(*COLUMNS).write.parquet(out)
    else:
        rows = spark.readStream.format("kafka").options(**options).load().select(*COLUMNS)
        writer = rows.writeStream.format("parquet").option("path", out)
        query = writer.option("checkpointLocation", f"{asked.folder}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
    seconds = clock.lap("data")
    sync_parquet(out)
    seconds += clock.lap("sync")
    cpu = cpu_seconds() - before
    spark.stop()
    print_figures(seconds, clock.phases, cpu, rows=parquet_rows(out))


if __name__ == "__main__":
    main()
