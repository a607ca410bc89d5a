"""Everything that would make a run fail, found ahead of it: for any source, and without a trace."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.errors import ClaimError, TargetError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.checking import Check, checks
from airflow_gobblin.storage.stores.memory import MemoryStore
from tests.lab import BrokenSource, Lab
from tests.protocol.rows import Table

A, B = (Table(urn, ExtractKind.APPEND_ONLY, 10) for urn in "ab")


def failing(lab: Lab) -> Iterator[Check]:
    journal = Journal.open(lab.store, "lab")
    return (one for one in checks(lab.ingestion, "lab_dag", journal, NoConnections()) if one.error is not None)


def test_a_dataset_that_cannot_be_planned_is_found_beside_those_that_can(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    lab.run()
    before = lab.records()
    assert [*failing(lab)] == []
    lab.ingestion = replace(lab.ingestion, source=BrokenSource((A, B), unplannable=("b",)))
    (found,) = failing(lab)
    assert (found.what, found.subject) == ("dataset", "b")
    assert "it is gone" in str(found.error)
    assert lab.records() == before


def test_a_target_that_is_not_mounted_is_found(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lake", A)
    lab.run()
    shutil.move(tmp_path / "lake", tmp_path / "elsewhere")
    (found,) = failing(lab)
    assert found.what == "target"
    assert isinstance(found.error, TargetError)
    assert not (tmp_path / "lake").exists()


def test_a_folder_that_another_ingestion_claims_is_found(tmp_path: Path) -> None:
    Lab(tmp_path, A).run()
    (found,) = failing(Lab(tmp_path, A, store=MemoryStore()))
    assert (found.what, type(found.error)) == ("dataset", ClaimError)
