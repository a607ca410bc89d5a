"""Extracting into an object store, on real Spark."""

from __future__ import annotations

from pathlib import Path

from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from tests.services.s3 import CONNECTION, S3Server
from tests.spark.acme_rows import RowsSource
from tests.spark.runs import Submit, planned_run


def test_a_pack_is_extracted_into_uploads_that_are_published(tmp_path: Path, versitygw: S3Server) -> None:
    access = versitygw.access
    uris = {CONNECTION: access.connection}
    planned = planned_run(tmp_path, RowsSource(3), place=access.url(f"{versitygw.create_bucket()}/acme"), uris=uris)
    opened, (pack,) = planned.opened, planned.run.packs

    submitted = Submit(uris=uris).run(planned)

    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert access.secret not in submitted.stdout + submitted.stderr
    assert all(file.upload is not None for result in planned.results.values() for file in result.files)
    folder = planned.plan.folder
    assert [*opened.files.walk(folder)] == []
    write_commit_steps(opened, planned.run, pack)
    (report,) = execute_commit_steps(opened, planned.run, pack)
    assert (report.status, report.rows) == ("committed", 300)
    published = opened.journal.read_dataset(report.urn).to_arrow(access, CONNECTION)
    assert sorted(published.to_table().column("id").to_pylist()) == [*range(300)]
