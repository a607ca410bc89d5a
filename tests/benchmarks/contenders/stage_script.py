"""The same functions as in `pipeline`, one after another in one Spark script, each of which reads and writes plain files."""

from __future__ import annotations

from tests.benchmarks.contenders import flight_stages
from tests.benchmarks.contenders.flights import READS, UNITS, WIDE
from tests.benchmarks.contenders.parquet_rows import parquet_rows
from tests.benchmarks.contenders.reporting import Laps, arguments, cpu_seconds, print_figures
from tests.benchmarks.contenders.spark_session import start_session


def main() -> None:
    asked = arguments(folder="", rows="")
    spark = start_session()
    spark.range(0, int(asked.rows), numPartitions=UNITS).write.parquet(f"{asked.folder}/raw")
    clock, every = Laps(), cpu_seconds()
    for stage in WIDE:
        places = (f"{asked.folder}/{'raw' if one == 'raw' else f'out/{one}'}" for one in READS[stage])
        made = getattr(flight_stages, stage)(*(spark.read.parquet(place) for place in places))
        made.write.parquet(f"{asked.folder}/out/{stage}")
        clock.lap(stage)
    every = cpu_seconds() - every
    spark.stop()
    print_figures(sum(clock.phases.values()), clock.phases, every, rows=parquet_rows(f"{asked.folder}/out"))


if __name__ == "__main__":
    main()
