"""The uploads of a stage's channels to a real object store: those that a try leaves open are aborted once it can win no more."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from airflow_gobblin import ParquetSink
from airflow_gobblin.job import Attempt
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.testing import inprocess
from tests.services.s3 import S3Access, S3Server
from tests.stages.totals import Totals


class TotalsInABucket(Totals):
    """The stage publishes to a bucket; the rest is on the disk."""

    def __init__(self, folder: Path, access: S3Access, bucket: str) -> None:
        super().__init__(folder)
        self.connections, self.lake = access, access.url(f"{bucket}/lake")

    def sink(self, name: str) -> ParquetSink:
        return ParquetSink(self.lake) if name == "lake" else super().sink(name)

    def uploads(self) -> list[str]:
        """The folders of those that are open."""
        uploads = open_files(self.lake, self.connections).uploads
        assert uploads is not None
        return sorted(posixpath.dirname(target) for target, _ in uploads.open_below("."))


@pytest.fixture
def totals(tmp_path: Path, versitygw: S3Server) -> TotalsInABucket:
    return TotalsInABucket(tmp_path, versitygw.access, versitygw.create_bucket())


ROWS_AND_STATE = ["totals", "totals/_state", "totals/_state"]


def test_what_a_try_has_uploaded_whose_results_nobody_accepted_is_aborted(totals: TotalsInABucket) -> None:
    totals.grow(4)
    opened = totals.opened()
    run = create_work_units(opened, RunRequest("totals/1"))
    assert len([*inprocess.run_units(opened, run, totals.connections)]) == 1
    assert totals.uploads() == ROWS_AND_STATE
    assert inprocess.go_on(opened, run, totals.connections)["totals"].status == "committed"
    assert totals.uploads() == []


def test_what_a_late_try_uploads_of_a_version_that_is_published_is_aborted_by_the_next_run(
    totals: TotalsInABucket,
) -> None:
    totals.grow(4)
    opened = totals.opened()
    run = create_work_units(opened, RunRequest("totals/1"))
    plan = opened.staging.plan(run.packs[0].datasets[0].token)
    assert plan is not None
    (unit,) = opened.staging.units(plan)
    assert inprocess.go_on(opened, run, totals.connections)["totals"].status == "committed"
    folder = opened.staging.token_folder(plan.token)
    opened.job.work.run(unit, plan, Attempt("late", opened.files, folder, totals.connections))
    assert totals.uploads() == ROWS_AND_STATE
    assert totals.run().status == "idle"
    assert totals.uploads() == []
