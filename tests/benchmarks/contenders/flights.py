"""Pipelines of stages over numbered flights, as a DAG file has them: without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_gobblin import Frame, Ingestion, ParquetSink, Pipeline, Stage
from tests.spark.acme_rows import RowsSource

CODE = ("tests.benchmarks.contenders.flight_stages",)
UNITS = 8
READS = {
    "clean": ("raw",),
    "daily": ("clean",),
    "joined": ("clean", "daily"),
    "report": ("joined",),
    "monthly": ("daily",),
}
WIDE = ("clean", "daily", "joined", "report")
"""Four stages, which have much to do if there are many rows."""
CHAIN = ("clean", "daily", "monthly")
"""Three stages, which are four jobs in a row with the source."""


def flights(name: str, folder: str, rows: int, stages: Iterable[str]) -> Pipeline:
    """A pipeline of some of the stages.

    :param rows: of the source, all of which are in its first version.
    """
    journal = f"{folder}/journal"
    source = RowsSource(UNITS, rows // UNITS)
    raw = Ingestion("raw", source, ParquetSink(f"{folder}/raw"), journal, max_packs=1, code=("tests.spark.acme_rows",))
    made: dict[str, Stage] = {}
    for stage in stages:
        reads = {one: made.get(one, raw["acme.rows0"]) for one in READS[stage]}
        made[stage] = Stage(stage, Frame(f"flights.{stage}"), reads, ParquetSink(f"{folder}/out/{stage}"))
    return Pipeline(name, (raw, *made.values()), journal, CODE)
