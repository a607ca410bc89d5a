"""The rules that every job keeps, whatever its work is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.ingestion import check_job
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.job import connections_of
from airflow_gobblin.model.wire import record
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.sql import SqlSource
from airflow_gobblin.rows.work import RowsWork
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.storage.locations import path_below
from tests.lab import Lab

SHOP = Ingestion("shop", SqlSource("db", ()), ParquetSink("s3://aws@bucket/lake"), "/journal")


@record("test.staged_elsewhere")
@dataclass(frozen=True)
class StagedElsewhere(RowsWork):
    """The work on rows, which stages them at another root."""

    @property
    def workspace(self) -> str:
        """Another root."""
        return "/scratch"


@dataclass(frozen=True)
class Elsewhere(Ingestion):
    """An ingestion with that work."""

    @property
    def work(self) -> RowsWork:
        """Its work."""
        return StagedElsewhere(self.name, self.source, self.sink)


def test_files_are_staged_under_the_root_that_they_are_published_under(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    elsewhere = Elsewhere("lab", lab.ingestion.source, lab.ingestion.sink, str(tmp_path / "journal"))
    with pytest.raises(ConfigurationError, match="staged under one root"):
        check_job(elsewhere)
    with pytest.raises(ConfigurationError, match="staged under one root"):
        OpenJob(elsewhere, lab.journal, NoConnections())


def test_spark_gets_the_connections_of_source_and_target_each_once() -> None:
    assert connections_of(SHOP.work) == ("db", "aws")
    assert connections_of(replace(SHOP, sink=ParquetSink("s3://db@bucket/lake")).work) == ("db",)
    assert connections_of(replace(SHOP, sink=ParquetSink("/lake")).work) == ("db",)


@pytest.mark.parametrize(
    ("root", "location", "path"),
    [
        ("/srv", "/srv", "."),
        ("/srv", "file:///srv/photos/", "photos"),
        ("file:///srv/", "/srv/a/../photos", "photos"),
        ("/", "/srv/photos", "srv/photos"),
        ("/srv/photo", "/srv/photos", None),
        ("/srv/photos", "/srv", None),
        ("s3://c@bucket", "s3://c@bucket/photos/2026", "photos/2026"),
        ("s3://c@bucket/photos", "s3://c@bucket/photos", "."),
        ("s3://c@bucket", "s3://d@bucket/photos", None),
        ("s3://bucket", "gs://bucket/photos", None),
        ("/bucket", "s3://bucket/photos", None),
    ],
)
def test_the_path_of_a_location_below_a_root(root: str, location: str, path: str | None) -> None:
    assert path_below(root, location) == path
