"""Spark reads datasets in tables by their journal, with the jars of their formats."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.request import RunRequest
from tests.protocol.rows import Table
from tests.tables.formats import format_of
from tests.tables.labs import TableLab
from tests.tables.test_reading import at

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

A = Table("a", ExtractKind.APPEND_ONLY, 12)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["delta", "iceberg", "delta on versitygw", "iceberg on versitygw"])
def test_spark_reads_a_table_as_it_is_now_and_as_it_was_at_a_version(
    request: pytest.FixtureRequest, form: str, tmp_path: Path, spark_of_tables: SparkSession
) -> None:
    lab = TableLab(tmp_path / "work", format_of(form, tmp_path / "tables", request.getfixturevalue), A, seals=True)
    for end in (4, 12):
        lab.run(request=RunRequest(f"up to {end}", at(end), version=at(end)))
    for version, rows in ((None, 12), (at(12), 12), (at(4), 4)):
        found = lab.journal.read_dataset("a", version=version).to_spark(spark_of_tables, lab.connections)
        read = Counter(row["row"].rstrip(" ") for row in found.toArrow().to_pylist())
        assert read == Counter(A.row(n) for n in range(rows))
