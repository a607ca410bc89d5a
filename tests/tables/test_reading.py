"""Datasets in tables are read by their journal: as they are now, and as they were at a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_gobblin.errors import ConfigurationError, NotFoundError
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.request import RunRequest
from tests.proofs import one_in
from tests.protocol.rows import Table
from tests.tables.formats import Delta, Iceberg, Postgres
from tests.tables.labs import TableLab

pytestmark = one_in(2, "table_lab")

A = Table("a", ExtractKind.APPEND_ONLY, 12)
S = Table("s", ExtractKind.SNAPSHOT_ONLY, 4)
NewLab = Callable[..., TableLab]


def at(end: int) -> datetime:
    return datetime.fromtimestamp(end, UTC)


def sealed(lab: TableLab, end: int, *tables: Table) -> None:
    """Make a scheduled run, which seals the version that it comes to."""
    lab.run(*tables, request=RunRequest(f"up to {end}", at(end), version=at(end)))


def rows(lab: TableLab, urn: str = "a", version: datetime | None = None) -> Counter[str]:
    found = lab.journal.read_dataset(urn, version=version)
    assert found.table == lab.table(urn)
    return Counter(row["row"].rstrip(" ") for row in found.to_arrow(lab.connections).to_table().to_pylist())


def first(end: int) -> Counter[str]:
    return Counter(A.row(n) for n in range(end))


def test_a_dataset_is_read_as_it_is_now(table_lab: NewLab) -> None:
    lab = table_lab(A)
    lab.run()
    assert rows(lab) == A.all_rows()
    found = lab.journal.read_dataset("a")
    assert (found.slot, found.files, found.table_version) == (1, (), "")
    with pytest.raises(ConfigurationError, match="its rows are in"):
        found.paths  # noqa: B018


@pytest.mark.slow
def test_a_table_that_spark_can_not_read_is_refused_with_the_way_out(table_lab: NewLab, spark: SparkSession) -> None:
    """By this session, which has no format's jar; or by any."""
    lab = table_lab(A)
    lab.run()
    found = lab.journal.read_dataset("a")
    jar = "delta-spark" if isinstance(lab.format, Delta) else "iceberg-spark" if isinstance(lab.format, Iceberg) else ""
    cause = f"DATA_SOURCE_NOT_FOUND.*{jar}" if jar else "no reader"
    with pytest.raises(ConfigurationError, match=rf"{cause}.*to_arrow\(connections\)"):
        found.to_spark(spark, lab.connections)
    assert spark.createDataFrame(found.to_arrow(lab.connections).to_table()).count() == A.rows


def test_a_version_is_read_as_its_table_was_then(table_lab: NewLab) -> None:
    lab = table_lab(A, S, seals=True)
    sealed(lab, 4)
    sealed(lab, 8, A, Table("s", ExtractKind.SNAPSHOT_ONLY, 3, 1))
    if not lab.format.has_versions:
        with pytest.raises(NotFoundError, match="it may keep none"):
            rows(lab, version=at(4))
        return
    assert rows(lab, version=at(4)) == first(4)
    assert rows(lab, version=at(8)) == first(8)
    assert rows(lab, "s", at(4)) == S.all_rows()
    with pytest.raises(NotFoundError, match="no such version"):
        rows(lab, version=at(5))


def test_a_version_of_which_rows_were_replaced_or_taken_back_is_refused_by_name(table_lab: NewLab) -> None:
    lab = table_lab(A, seals=True)
    if not lab.format.has_versions:
        return
    for end in (4, 8):
        sealed(lab, end)
    lab.run(Table("a", ExtractKind.APPEND_ONLY, 12, 1), request=RunRequest("again", 4, ("a",), 0, True))
    with pytest.raises(NotFoundError, match="slot 3 replaced rows of it since"):
        rows(lab, version=at(4))
    lab.admin.rewind("a", LongWatermark(4), "wrong")
    with pytest.raises(NotFoundError, match="no such version"):
        rows(lab, version=at(8))


@pytest.mark.slow
def test_a_version_that_has_expired_is_named(table_lab: NewLab) -> None:
    lab = table_lab(A, seals=True)
    if not lab.format.has_versions:
        return
    sealed(lab, 4)
    lab.admin.rewind("a", LongWatermark(0), "wrong")
    sealed(lab, 8)
    sealed(lab, 12)
    lab.admin.rewind("a", LongWatermark(8), "wrong")
    lab.format.forget("a")
    found = lab.journal.read_dataset("a", version=at(8))
    assert found.table_version
    if not isinstance(lab.format, Delta):
        with pytest.raises(NotFoundError, match=found.table_version):
            found.to_arrow(lab.connections)
    else:  # vacuum keeps files that were written into a version, and removed from it in one commit
        assert Counter(r["row"].rstrip(" ") for r in found.to_arrow(lab.connections).to_table().to_pylist()) == first(8)


def test_files_of_an_old_version_that_vacuum_removed_are_named(tmp_path: Path) -> None:
    lab = TableLab(tmp_path / "work", Delta(tmp_path / "tables"), A, seals=True)
    sealed(lab, 8)
    (version,) = {slot.table_version for slot in lab.journal.history("a").slots}
    lab.admin.rewind("a", LongWatermark(4), "wrong")
    lab.format.forget("a")
    with pytest.raises(NotFoundError, match="VACUUM"):
        lab.open("a").read(version)
    with pytest.raises(NotFoundError, match="version 99"):
        lab.open("a").read("99")


def test_a_table_of_postgresql_has_no_versions(tmp_path: Path, postgres_database: str) -> None:
    lab = TableLab(tmp_path / "work", Postgres(postgres_database), A)
    lab.run()
    with pytest.raises(NotFoundError, match="PostgreSQL keeps no versions"):
        lab.open("a").read("1")
