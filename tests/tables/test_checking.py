"""`verify` and `audit` compare what a table has with its journal, and with what the source had: each finding is made here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_gobblin.admin.findings import AuditLevel
from airflow_gobblin.admin.views import audit, verify
from airflow_gobblin.errors import TableError
from airflow_gobblin.model.verification import FileState
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.storage.stores import open_store
from tests.proofs import one_in
from tests.protocol.rows import Table
from tests.tables.formats import Delta
from tests.tables.labs import TableLab, up_to

pytestmark = one_in(2, "table_lab")

A = Table("a", ExtractKind.APPEND_ONLY, 12)
NewLab = Callable[..., TableLab]


def findings(lab: TableLab) -> list[tuple[AuditLevel, str, str]]:
    return [(one.level, one.check, one.detail) for one in audit(lab.journal, lab.opened().files, "a", lab.connections)]


def only(lab: TableLab, level: AuditLevel, check: str, text: str) -> None:
    """There is one finding, and it is this one."""
    found = findings(lab)
    assert [(one[0], one[1]) for one in found] == [(level, check)], found
    assert text in found[0][2]


def states(lab: TableLab) -> dict[FileState, int]:
    found = [one.state for one in verify(lab.journal, lab.opened().files, "a", connections=lab.connections)]
    return {state: found.count(state) for state in FileState if state in found}


@pytest.fixture
def lab(table_lab: NewLab) -> TableLab:
    """Return an ingestion that published three slots."""
    made = table_lab(A)
    for end in (4, 8, 12):
        made.run(request=up_to(end))
    return made


def test_a_dataset_that_adds_up_has_no_finding(lab: TableLab) -> None:
    assert findings(lab) == []
    assert states(lab) == {FileState.OK: sum(1 for _ in lab.journal.history("a").state.live)}


def test_rows_that_somebody_deleted_are_found(lab: TableLab) -> None:
    lab.format.delete("a", A.row(5))
    assert FileState.OK in states(lab)
    assert states(lab).keys() & {FileState.CHANGED, FileState.MISSING}
    found = findings(lab)
    assert {one[:2] for one in found} == {(AuditLevel.PROBLEM, "rows")}, found


def test_rows_of_others_are_noted(lab: TableLab) -> None:
    lab.format.append("a", ["theirs", "theirs, too"])
    only(lab, AuditLevel.NOTE, "rows", "2 rows of others")
    assert states(lab).keys() == {FileState.OK}


def test_units_that_somebody_compacted_are_noted(lab: TableLab) -> None:
    if lab.format.compact("a"):
        only(lab, AuditLevel.NOTE, "rows", "can't be distinguished")
        assert states(lab).keys() == {FileState.MISSING}


def test_a_table_that_is_gone_is_found(lab: TableLab) -> None:
    lab.format.drop("a")
    only(lab, AuditLevel.PROBLEM, "table", "is gone")
    with pytest.raises(TableError, match="gone"):
        states(lab)


def test_a_table_that_was_taken_over_is_found(lab: TableLab) -> None:
    heir = lab.other("heir")
    heir.admin.take_over("a", heir.table("a"), "its journal is lost")
    only(lab, AuditLevel.PROBLEM, "table", f"belongs to {heir.owner('a')}: it was taken over")
    found = findings(heir)
    assert [one[:2] for one in found] == [(AuditLevel.NOTE, "rows")], "the former owner's rows are others'"


def test_a_journal_that_was_restored_is_found(lab: TableLab) -> None:
    records = lab.records()
    lab.run(Table("a", ExtractKind.APPEND_ONLY, 16))
    for key in lab.records().keys() - records.keys():
        lab.store.delete(key)
    lab.reopened()
    found = findings(lab)
    assert (AuditLevel.PROBLEM, "table") in {one[:2] for one in found}
    assert any("one of the two was restored" in one[2] for one in found)


def test_a_pending_slot_that_has_committed_is_noted(lab: TableLab) -> None:
    more = Table("a", ExtractKind.APPEND_ONLY, 16)
    opened, _ = lab.decide(more)
    slot = lab.journal.history("a").pending
    assert slot is not None
    for step in lab.journal.steps(slot.decision):
        step.execute(opened.committer._context_of(slot.decision))
    notes = [one for one in findings(lab) if one[1] == "table"]
    assert [one[0] for one in notes] == [AuditLevel.NOTE]
    assert "only its outcome is missing" in notes[0][2]


def test_staged_files_of_a_pending_slot_that_are_gone_are_found(lab: TableLab) -> None:
    more = Table("a", ExtractKind.APPEND_ONLY, 16)
    lab.decide(more)
    slot = lab.journal.history("a").pending
    assert slot is not None
    staged = lab.staged("a", slot.decision.token)
    assert staged
    for path in staged:
        lab.lake("a").unlink(path)
    found = [one for one in findings(lab) if one[0] is AuditLevel.PROBLEM]
    assert [one[1] for one in found] == ["files"]
    assert "abandon the slot" in found[0][2]


def test_files_of_the_table_that_are_gone_are_found(lab: TableLab) -> None:
    if not lab.format.has_files:
        return
    token = lab.journal.history("a").slot(2).decision.token
    for path in lab.staged("a", token):
        lab.lake("a").unlink(path)
    found = [one for one in findings(lab) if one[1] == "files"]
    assert [one[0] for one in found] == [AuditLevel.PROBLEM]
    assert "are gone, with their rows" in found[0][2]
    assert "VACUUM" in found[0][2]


def test_files_that_were_staged_in_vain_are_noted(lab: TableLab) -> None:
    if not lab.format.has_files:
        return
    lab.stage_late("a", "0" * 32)
    only(lab, AuditLevel.NOTE, "files", "1 file staged")
    assert "named by no slot" in findings(lab)[0][2]


@pytest.mark.slow
def test_a_look_for_the_page_loads_neither_arrow_nor_a_table_s_library(tmp_path: Path) -> None:
    lab = TableLab(tmp_path / "work", Delta(tmp_path / "tables"), A, store=open_store(str(tmp_path / "journal")))
    lab.run()
    lab.decide(Table("a", ExtractKind.APPEND_ONLY, 16))
    program = (
        "import sys; from datetime import UTC, datetime; from airflow_gobblin.admin.views import dataset_detail;"
        "from airflow_gobblin.journal.journal import Journal; from airflow_gobblin.storage.files import open_files;"
        "journal, files = Journal.open(sys.argv[1], 'lab'), open_files(sys.argv[2]);"
        "detail = dataset_detail(journal, files, 'a', datetime.now(UTC), tables=False);"
        "assert journal.read_dataset('a').table is not None;"
        "print([str(step.status) for step in detail.steps.steps], detail.view.last_commit.version,"
        " sorted({'pyarrow', 'deltalake', 'numpy'} & sys.modules.keys()))"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "journal"), str(lab.folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['unknown', 'todo'] 1 []", done.stderr
