"""State of a stage on the tasks of the graph: one decision with the rows, restores, and what is given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gobblin import Frame, ParquetSink, Sql, Stage, State
from airflow_gobblin.admin.views import audit, verify
from airflow_gobblin.errors import ConfigurationError, SourceDataError, StateGivenUpError
from airflow_gobblin.journal import trimming
from airflow_gobblin.journal.records import Action, Note, NoteKind, now
from airflow_gobblin.model.verification import FileState
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.stages.evaluation import Keys
from airflow_gobblin.stages.outputs import Output
from airflow_gobblin.stages.rewind import would_rewind
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.testing import inprocess
from tests.faults import Call, Crash, Faults, FaultyStore
from tests.stages.totals import Totals


@pytest.fixture
def totals(tmp_path: Path) -> Totals:
    return Totals(tmp_path)


def versions_with_state(totals: Totals) -> list[int]:
    return sorted(totals.states())


def state_files(totals: Totals) -> int:
    return sum(1 for _ in (totals.folder / "lake" / "totals" / "_state").glob("*.parquet"))


def test_state_goes_on_from_version_to_version_and_its_readers_see_rows(totals: Totals) -> None:
    for rows in (4, 3):
        totals.grow(rows)
    assert totals.run().rows == 6
    totals.grow(1)
    report = totals.run()
    assert (report.status, report.rows) == ("committed", 1)
    totals.check()
    assert versions_with_state(totals) == [4, 7, 8]
    read = totals.read.read_dataset("totals")
    assert read.rows == 3 + 3 + 1
    assert read.to_arrow().count_rows() == read.rows
    assert not any("/_state/" in path for path in read.paths), "readers of the folder don't find it either"
    at_4 = totals.read.read_dataset("totals", version=datetime.fromtimestamp(4, UTC))
    assert (at_4.rows, len(at_4.files)) == (3, 1)


def test_the_audit_and_verify_count_state_as_what_it_is(totals: Totals) -> None:
    for rows in (4, 3):
        totals.grow(rows)
    totals.run()
    files = open_files(f"{totals.folder}/lake")
    assert [one.detail for one in audit(totals.read, files) if one.level == "problem"] == []
    checked = [*verify(totals.read, files, "totals")]
    assert {one.state for one in checked} == {FileState.OK}
    assert sum("/_state/" in one.path for one in checked) == 4


@pytest.mark.slow
def test_a_restore_goes_on_with_the_state_before_it(totals: Totals) -> None:
    for rows in (4, 3, 5):
        totals.grow(rows)
    totals.run()
    first = totals.states()[4]
    totals.rewind(4)
    totals.grow(0)
    totals.grow(2)
    totals.run()
    assert totals.actions.count(Action.REWIND) == 1
    totals.check()
    assert totals.states()[4] == first


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["d", "o"])
def test_a_run_that_dies_leaves_rows_and_state_of_one_evaluation(totals: Totals, operation: str) -> None:
    for rows in (4, 3):
        totals.grow(rows)
    totals.run()
    totals.grow(5)
    key = f"totals/totals/{operation}/{3:010}"

    def die(call: Call) -> None:
        if call.operation == "put" and call.subject == key:
            raise Crash

    opened = totals.opened()
    opened.journal.store = FaultyStore(opened.journal.store, Faults(hook=die))
    with pytest.raises(Crash):
        inprocess.run(opened, request=RunRequest("dies"))
    totals.run()
    totals.check()
    assert versions_with_state(totals) == [4, 7, 12]


@pytest.mark.slow
def test_the_newest_versions_keep_their_state_and_what_is_below_is_removed(totals: Totals) -> None:
    for _ in range(5):
        totals.grow(3)
        totals.run()
    assert versions_with_state(totals) == [9, 12, 15]
    assert state_files(totals) == 3 * 2
    assert totals.actions.count(Action.FLOOR) == 2
    totals.check()
    state = totals.read.state("totals")
    assert state.floor == state.versions[-3]
    assert totals.run().status == "idle"
    assert totals.actions.count(Action.FLOOR) == 2, "an idle run gives nothing up"


@pytest.mark.slow
def test_a_backlog_gives_up_once_and_clean_up_that_died_is_done_by_the_next_run(totals: Totals) -> None:
    for _ in range(5):
        totals.grow(3)

    def die(call: Call) -> None:
        if call.operation == "put" and call.subject == "totals/totals/o/0000000006":
            raise Crash

    opened = totals.opened()
    opened.journal.store = FaultyStore(opened.journal.store, Faults(hook=die))
    with pytest.raises(Crash):
        inprocess.run(opened, request=RunRequest("dies"))
    assert state_files(totals) == 5 * 2, "nothing is removed before it is given up"
    totals.run()
    assert totals.actions.count(Action.FLOOR) == 1
    assert state_files(totals) == 3 * 2
    totals.check()


@pytest.mark.slow
def test_a_restore_below_what_is_kept_stops_by_name_and_starts_anew_from_the_start(totals: Totals) -> None:
    for _ in range(5):
        totals.grow(3)
    totals.run()
    totals.rewind(6)
    totals.grow(0)
    report = totals.run()
    assert report.status == "failed"
    assert "its state is given up" not in report.detail
    assert "the state of the version before is given up" in report.detail
    assert "Rewind it to its start" in report.detail
    with pytest.raises(StateGivenUpError, match="the oldest that is kept is of version"):
        would_rewind(totals.admin, "totals", datetime.fromtimestamp(3, UTC))
    totals.admin.carry_out(would_rewind(totals.admin, "totals", None), "from the start")
    totals.run()
    totals.check()
    assert versions_with_state(totals)[-1] == 15


@pytest.mark.slow
def test_a_version_can_be_the_last_that_is_kept(totals: Totals) -> None:
    for _ in range(5):
        totals.grow(3)
    totals.run()
    totals.rewind(9)
    totals.grow(0)
    totals.run()
    totals.check()
    assert versions_with_state(totals) == [9, 15]


@pytest.mark.slow
def test_a_trimmed_journal_keeps_the_state_and_its_floor(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "KEPT", 1)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 1)
    for _ in range(6):
        totals.grow(3)
        totals.run()
    opened = totals.opened()
    before = totals.read.state("totals")
    for slot in opened.journal.history("totals").slots:
        if slot.publishes:
            opened.journal.put_note("totals", slot.decision.slot, Note(NoteKind.ANNOUNCED, "", now()))
    trimming.trim(opened.journal, opened.journal.history("totals"))
    assert len(opened.journal.history("totals").trimmed) > 4
    after = totals.read.state("totals")
    assert (after.floor, after.units_of("state")) == (before.floor, before.units_of("state"))
    totals.grow(3)
    totals.run()
    totals.check()
    assert versions_with_state(totals) == [15, 18, 21]


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        (State(key=("key",), buckets=4, keep=3), "state by key in 4 buckets, and version"),
        (State(key=("key", "total"), buckets=2), "it has state by key, total in 2 buckets"),
        (None, "it has no state, and version 1970-01-01T00:00:04+00:00 has state by key in 2 buckets"),
    ],
)
def test_another_state_than_that_of_live_versions_is_refused_by_name(
    totals: Totals, other: State | None, cause: str
) -> None:
    totals.grow(4)
    totals.run()
    totals.grow(4)
    opened = totals.opened()
    work = replace(opened.job.work, state=other, function=Frame("test.totals"))  # type: ignore[type-var]
    opened.job = replace(opened.job, work=work)  # type: ignore[type-var]
    report = inprocess.run(opened, request=RunRequest("other"))["totals"]
    assert report.status == "failed"
    assert cause in report.detail


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        (
            "key bigint, total int, by string",
            "declared with key int64, total int32, by string, and has key int64, total int64",
        ),
        ("key bigint, total bigint", "it is declared with key int64, total int64, and has"),
        ("key bigint, sum bigint, by string", "it is declared with key int64, sum int64, by string"),
        ("key bigint, total array<bigint>, bye string", "it is declared with key int64, total …, bye string, and has"),
    ],
)
def test_a_changed_schema_of_state_is_refused_by_name_before_spark_is_started(
    totals: Totals, schema: str, cause: str
) -> None:
    totals.grow(4)
    totals.run()
    totals.state = State(("key",), schema, buckets=2, keep=3)
    report = totals.run()
    assert report.status == "failed"
    assert cause in report.detail
    assert "Declare what it has; or give the stage another name; or let it make all versions again" in report.detail


@pytest.mark.parametrize(
    "schema",
    [
        "`key` BIGINT NOT NULL, total: long, by STRING",
        "key bigint, total bigint COMMENT 'as, ever', by string",
        "key some_type_of_spark, total bigint, by string",
    ],
)
def test_a_schema_of_state_that_means_the_same_otherwise_is_none_that_changed(totals: Totals, schema: str) -> None:
    totals.grow(4)
    totals.run()
    totals.state = State(("key",), schema, buckets=2, keep=3)
    totals.grow(4)
    assert totals.run().status == "committed"


@pytest.mark.slow
def test_how_many_versions_keep_their_state_may_change(totals: Totals) -> None:
    for _ in range(5):
        totals.grow(3)
    totals.run()
    totals.state = State(key=("key",), buckets=2, keep=4)
    totals.grow(3)
    totals.run()
    assert versions_with_state(totals) == [9, 12, 15, 18], "a state that is given up doesn't come back"
    totals.state = State(key=("key",), buckets=2, keep=1)
    totals.grow(3)
    totals.run()
    assert versions_with_state(totals) == [21]
    totals.check()


def stage(**others: object) -> Stage:
    given: dict[str, object] = {
        "function": Frame("test.totals"),
        "reads": {"rows": Output("raw", "rows")},
        "state": State(key=("key",)),
    }
    return Stage("totals", writes=ParquetSink("/lake"), **{**given, **others})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: State(key="key"), "its key must be columns. Name them in a tuple"),  # type: ignore[arg-type]
        (lambda: State(key=()), "its key must be columns"),
        (
            lambda: State(key=("carrier",), schema="carier string, flights bigint"),
            "its schema has no column 'carrier', which is of its key. Did you mean 'carier'",
        ),
        (lambda: State(key=("key",), buckets=0), "it has no bucket, or is never kept"),
        (lambda: State(key=("key",), keep=0), "it has no bucket, or is never kept"),
        (lambda: stage(function=Sql("SELECT * FROM {rows}")), "a query gives rows, and no state"),
        (
            lambda: stage(reads={"rows": Output("raw", "rows"), "state": Output("raw", "other")}),
            "its input 'state' has the name of its state",
        ),
    ],
)
def test_what_cannot_be_state_is_refused_in_the_dag_file(make: Callable[[], object], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        make()


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_key_is_there_once_in_a_partition_and_whole() -> None:
    keys = Keys(("carrier", "month"), "state")
    keys.take(batch(carrier=["AA", "UA"], month=["1", "1"], flights=[1, 2]))
    keys.take(batch(carrier=["AA"], month=["2"], flights=[3]))
    keys.check()
    keys.take(batch(carrier=["UA"], month=["1"], flights=[4]))
    with pytest.raises(SourceDataError, match=r"2 rows have the key carrier='UA', month='1'\. Give a row for each key"):
        keys.check()
    with pytest.raises(SourceDataError, match="a row has no 'month', which is of the key"):
        keys.take(batch(carrier=["AA"], month=[None], flights=[1]))
