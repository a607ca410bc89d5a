"""The work of a stage on a worker: what it waits for, and what it refuses, without any Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin import ExtractKind, Frame, Ingestion, ParquetSink, Pipeline, Stage, frame
from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ConfigurationError, NotFoundError
from airflow_gobblin.job import WorkRequest
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model import schema
from airflow_gobblin.model.checkpoint import Checkpoint, Reads
from airflow_gobblin.model.plan import DatasetNote, Plan
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.stages.frames import FrameBinding
from airflow_gobblin.stages.views import stage_view
from airflow_gobblin.testing import inprocess
from tests.protocol.rows import RowSource, Table
from tests.stages.chains import Chain, at, consumed


@frame("test.same")
def same(rows: Any) -> Any:
    return rows


class Copied:
    """An ingestion of one dataset, and a stage of it."""

    def __init__(self, folder: Path, urn: str = "flights") -> None:
        self.folder, self.rows, self.urn = folder, 0, urn

    @property
    def pipeline(self) -> Pipeline:
        journal, table = f"{self.folder}/journal", Table("flights", ExtractKind.APPEND_ONLY, self.rows)
        raw = Ingestion("raw", RowSource((table,)), ParquetSink(f"{self.folder}/raw"), f"{self.folder}/journal_of_raw")
        copied = Stage("copied", Frame("test.same"), {"rows": raw[self.urn]}, ParquetSink(f"{self.folder}/copied"))
        return Pipeline("pipeline", (raw, copied), journal)

    def opened(self, name: str) -> OpenJob:
        job = self.pipeline[name]
        return inprocess.open_job(job, journal=Journal.create(job.journal, name))

    def grow(self, rows: int) -> None:
        self.rows += rows
        end = datetime.fromtimestamp(self.rows, UTC)
        inprocess.run(self.opened("raw"), request=RunRequest(f"raw/{end}", end, version=end))

    def plan(self, opened: OpenJob | None = None) -> Plan | DatasetNote:
        opened = opened or self.opened("copied")
        run = create_work_units(opened, RunRequest("copied/1"))
        plan = opened.staging.plan(run.packs[0].datasets[0].token) if run.packs else None
        return plan or run.notes[0]


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


def test_a_plan_names_the_files_of_its_version_and_their_schema(copied: Copied) -> None:
    copied.grow(4)
    copied.grow(6)
    plan = copied.plan()
    assert isinstance(plan, Plan)
    ((read,),) = FrameBinding.of(plan).inputs.values()
    (first,) = (f.path for f in Journal.open(copied.pipeline["raw"].journal, "raw").read_dataset("flights").files[:1])
    assert (read.paths, read.rows) == ((first,), 4)
    assert schema.decode(read.schema).names == ["row"]
    assert plan.schema is None, "the first evaluation determines it"


def test_a_stage_waits_for_the_first_run_of_what_it_reads(copied: Copied) -> None:
    note = copied.plan()
    assert isinstance(note, DatasetNote)
    assert note.status == "idle"


class Shared(Copied):
    """A stage of which one input is what two ingestions publish, together."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.published = {"eu": 0, "us": 0}

    @property
    def pipeline(self) -> Pipeline:
        journal = f"{self.folder}/journal"
        eu, us = (
            Ingestion(
                name,
                RowSource((Table(f"in_{name}", ExtractKind.APPEND_ONLY, rows),)),
                ParquetSink(f"{self.folder}/{name}"),
                journal,
            )
            for name, rows in self.published.items()
        )
        reads = {"rows": (eu["in_eu"], us["in_us"])}
        copied = Stage("copied", Frame("test.same"), reads, ParquetSink(f"{self.folder}/copied"))
        return Pipeline("pipeline", (eu, us, copied), journal)

    def seal(self, name: str, version: int, rows: int) -> None:
        self.published[name] += rows
        end = datetime.fromtimestamp(version, UTC)
        inprocess.run(self.opened(name), request=RunRequest(f"{name}/{version}", version=end))

    def waits_for(self) -> str:
        assert isinstance(self.plan(), DatasetNote)
        return stage_view(Journal.open(self.pipeline["copied"].journal, "copied"), NoConnections()).why


def test_an_input_that_several_share_waits_for_each_of_them_and_has_what_is_new_of_all(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    shared.seal("eu", 4, rows=3)
    shared.seal("eu", 8, rows=2)
    Journal.create(shared.pipeline["us"].journal, "us")
    assert shared.waits_for().startswith("it waits for 'us/in_us' to seal version 1970-01-01T00:00:04+00:00")
    shared.seal("us", 8, rows=5)
    plan = shared.plan()
    assert isinstance(plan, Plan)
    (parts,) = FrameBinding.of(plan).inputs.values()
    assert plan.checkpoint is not None
    assert plan.checkpoint.version == datetime.fromtimestamp(8, UTC), "one that not both have is taken with the next"
    assert [part.rows for part in parts] == [5, 5]


def planned_after(copied: Copied, read: str, *channels: str) -> None:
    """Plan a version after one that was made of something, and had some channels."""
    opened, chain, slots = copied.opened("copied"), Chain("copied"), {read: consumed(1)}
    made = Checkpoint(at(1), slots, slots, reads={read: Reads.NEW}, channels=dict.fromkeys(channels, "a schema"))
    chain.publish(made)
    work, states, request = opened.job.work, {"copied": chain.history.state}, WorkRequest(at(2))
    (dataset,) = work.datasets(opened.connections)
    work.plan(dataset, states, request, opened.files, opened.connections)


def test_a_journal_that_is_gone_is_no_first_run(copied: Copied) -> None:
    with pytest.raises(NotFoundError):
        planned_after(copied, "raw/flights")


def test_other_inputs_than_those_of_live_versions_are_refused_by_name(copied: Copied) -> None:
    copied.grow(4)
    with pytest.raises(ConfigurationError, match="it reads 'raw/weather' no longer and 'raw/flights' now, and version"):
        planned_after(copied, "raw/weather")


def test_another_channel_of_what_live_versions_were_made_from_is_refused_by_name(copied: Copied) -> None:
    copied.grow(4)
    with pytest.raises(ConfigurationError, match="it reads 'raw/refused' no longer and 'raw/flights' now, and version"):
        planned_after(copied, "raw/refused")


def test_other_channels_than_those_of_live_versions_are_refused_by_name(copied: Copied) -> None:
    copied.grow(4)
    with pytest.raises(
        ConfigurationError, match=r"its channels are none, and version .* has late\. Give it the channels"
    ):
        planned_after(copied, "raw/flights", "late")


def test_an_unknown_dataset_is_refused_by_name(tmp_path: Path) -> None:
    copied = Copied(tmp_path, "flihgts")
    copied.grow(4)
    note = copied.plan()
    assert isinstance(note, DatasetNote)
    assert "'raw' has no such dataset. Did you mean 'flights'?" in note.detail
