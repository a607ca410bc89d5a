"""A load that takes a table whole shows one state of it, however many units it has and whatever is written meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest

from airflow_gobblin.errors import SourceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import Plan, RunPlan
from airflow_gobblin.model.work import ExtractKind, UnitState, WorkUnit
from airflow_gobblin.rows.extraction import extract_unit
from airflow_gobblin.rows.sinks.parquet import ParquetSink
from airflow_gobblin.rows.sources.base import Consistency, ReadRequest
from airflow_gobblin.rows.sources.snapshots import PackSnapshot
from airflow_gobblin.rows.sources.sql import SqlSource, SqlTable
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.extract import missing_units
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.memory import MemoryStore
from tests.rows.sources.databases import PostgresDatabase, SqliteDatabase, runs

ACCOUNTS = 1000
EACH = 100
TAKES_ALL = [ExtractKind.SNAPSHOT_ONLY, ExtractKind.SNAPSHOT_APPEND]
CREATE = "CREATE TABLE accounts (id int PRIMARY KEY, cents bigint NOT NULL)"


class Bank:
    """Accounts with even numbers, between which money is moved, and which get other numbers; their count and their sum
    stay the same."""

    def __init__(self, url: str) -> None:
        self.database = PostgresDatabase(url)
        self.database.run(
            CREATE, f"INSERT INTO accounts SELECT 2 * n, {EACH} FROM generate_series(0, {ACCOUNTS - 1}) n"
        )
        self._moved = 0

    def move(self) -> None:
        """Move money from an early account to a late one, and back the next time; and the last account to the front."""
        low, high = (4, ACCOUNTS) if self._moved % 2 else (ACCOUNTS, 4)
        self.renumber(2 * (ACCOUNTS - self._moved - 1), 2 * self._moved + 1)
        with psycopg.connect(self.database.url) as connection:
            connection.execute("UPDATE accounts SET cents = cents - 7 WHERE id = %s", [low])
            connection.execute("UPDATE accounts SET cents = cents + 7 WHERE id = %s", [high])
        self._moved += 1

    def renumber(self, old: int, new: int) -> None:
        self.database.run(f"UPDATE accounts SET id = {new} WHERE id = {old}")


@pytest.fixture
def bank(postgres_database: str) -> Bank:
    return Bank(postgres_database)


class Ledger:
    """The ingestion of a bank's accounts, run in this process."""

    def __init__(self, folder: Path, bank: Bank, kind: ExtractKind) -> None:
        self.bank = bank
        table = SqlTable("accounts", kind, delta="id", primary_keys=("id",), unit_bytes=2000, max_units=8)
        source, sink = SqlSource("bank", (table,)), ParquetSink(str(folder))
        self.ingestion = Ingestion("ledger", source, sink, "unused")
        self.journal = Journal.create(MemoryStore(), "ledger")
        self.opened = OpenJob(self.ingestion, self.journal, bank.database)

    def planned(self) -> tuple[RunPlan, Plan]:
        run = create_work_units(self.opened, RunRequest(uuid.uuid4().hex))
        plan = self.opened.staging.plan(run.packs[0].datasets[0].token)
        assert plan is not None
        assert len(plan.units) == 8
        return run, plan

    def extract(
        self, run: RunPlan, between: Callable[[WorkUnit], None], only: Collection[WorkUnit] | None = None
    ) -> None:
        """A driver's run, between whose units something happens.

        :param only: all that it reaches.
        """
        with PackSnapshot(self.ingestion.source, self.bank.database) as snapshot:
            for plan, unit in missing_units(self.opened, run.packs[0]):
                if only is not None and unit not in only:
                    continue
                between(unit)
                folder, held = self.opened.staging.token_folder(plan.token), snapshot.of(plan)
                job, files = self.ingestion.work, self.opened.files
                result = extract_unit(job, plan, unit, "a", files, folder, self.bank.database, held)
                assert result.state is UnitState.SUCCESSFUL, result.why
                self.opened.staging.put_result(plan.token, result)

    def publish(self, run: RunPlan) -> DatasetReport:
        write_commit_steps(self.opened, run, run.packs[0])
        execute_commit_steps(self.opened, run, run.packs[0])
        (report,) = finish(self.opened, run)
        return report

    def published(self) -> tuple[int, int]:
        """How many accounts are published, and their sum."""
        rows = ds.dataset([str(path) for path in self.journal.read_dataset("accounts").paths]).to_table().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return len(rows), sum(row["cents"] for row in rows)


@pytest.mark.parametrize("kind", TAKES_ALL)
def test_rows_that_move_between_units_while_they_are_read_come_once_and_no_transfer_is_torn(
    tmp_path: Path, bank: Bank, kind: ExtractKind
) -> None:
    ledger = Ledger(tmp_path, bank, kind)
    run, _ = ledger.planned()
    ledger.extract(run, lambda unit: bank.move())
    assert ledger.publish(run).status == "committed"
    assert ledger.published() == (ACCOUNTS, ACCOUNTS * EACH)


def test_rows_that_came_after_planning_are_in_a_snapshot_wherever_they_are(tmp_path: Path, bank: Bank) -> None:
    ledger = Ledger(tmp_path, bank, ExtractKind.SNAPSHOT_ONLY)
    run, _ = ledger.planned()
    bank.renumber(10, -(1 << 31))
    bank.renumber(12, (1 << 31) - 1)
    bank.database.run("ALTER TABLE accounts DROP CONSTRAINT accounts_pkey, ALTER id DROP NOT NULL")
    bank.database.run("UPDATE accounts SET id = NULL WHERE id = 14")
    ledger.extract(run, lambda unit: None)
    assert ledger.publish(run).status == "committed"
    assert ledger.published() == (ACCOUNTS, ACCOUNTS * EACH)


def test_a_try_with_another_snapshot_uses_no_result_of_the_one_before(tmp_path: Path, bank: Bank) -> None:
    ledger = Ledger(tmp_path, bank, ExtractKind.SNAPSHOT_ONLY)
    run, plan = ledger.planned()

    def die_at_the_third(unit: WorkUnit) -> None:
        if unit.id == "u0003":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.extract(run, die_at_the_third)
    bank.move()
    assert len([*missing_units(ledger.opened, run.packs[0])]) == len(plan.units)
    ledger.extract(run, lambda unit: None)
    assert [*missing_units(ledger.opened, run.packs[0])] == []
    assert ledger.publish(run).status == "committed"
    assert ledger.published() == (ACCOUNTS, ACCOUNTS * EACH)


def test_results_of_two_snapshots_make_no_whole(tmp_path: Path, bank: Bank) -> None:
    ledger = Ledger(tmp_path, bank, ExtractKind.SNAPSHOT_ONLY)
    run, plan = ledger.planned()
    for some in (plan.units[:3], plan.units[3:]):
        ledger.extract(run, lambda unit: None, some)
    report = ledger.publish(run)
    assert report.status == "failed"
    assert "it was not extracted to its end" in report.detail


def test_a_snapshot_that_nobody_holds_any_more_is_named_with_the_way_on(bank: Bank) -> None:
    loads = runs(bank.database, "accounts", ExtractKind.SNAPSHOT_ONLY)
    plan = loads.plan()
    with loads.source.snapshot(bank.database) as name:
        pass
    with pytest.raises(
        SourceError, match=r"snapshot that its units are read in can't be read any more.*Then extract it again"
    ):
        loads.source.read(plan.units[0], plan.schema, ReadRequest(snapshot=name), bank.database)
    with loads.source.snapshot(bank.database) as other:
        mixed = f"{other.split('/')[0]}/{'0' * 16}/{'0' * 16}"
        with pytest.raises(SourceError, match=r"is another one by now"):
            loads.source.read(plan.units[0], plan.schema, ReadRequest(snapshot=mixed), bank.database)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("accounts", "TRUNCATE accounts"),
        ("accounts", "ALTER TABLE accounts ADD filler uuid DEFAULT gen_random_uuid()"),
        ("parted", "TRUNCATE part"),
        ("seen", "TRUNCATE part"),
    ],
)
def test_a_table_that_is_truncated_while_its_units_are_read_is_named(bank: Bank, table: str, change: str) -> None:
    """A snapshot from before shows it empty then, and not as it was."""
    bank.database.run(
        "CREATE TABLE parted (id int, cents bigint) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (1000000)",
        "INSERT INTO parted SELECT * FROM accounts",
        "CREATE VIEW seen AS SELECT * FROM parted",
    )
    loads = runs(bank.database, table, ExtractKind.SNAPSHOT_ONLY, columns=("id", "cents"))
    plan = loads.plan()

    def read(snapshot: str) -> int:
        with closing(
            loads.source.read(plan.units[0], plan.schema, ReadRequest(snapshot=snapshot), bank.database)
        ) as reader:
            return sum(batch.num_rows for batch in reader)

    with loads.source.snapshot(bank.database) as name:
        assert read(name) == ACCOUNTS
        bank.database.run(change)
        with pytest.raises(
            SourceError,
            match=rf"{change.rsplit(maxsplit=1)[-1] if 'part' in change else 'accounts'}' was truncated or rew",
        ):
            read(name)


@pytest.mark.parametrize("kind", [ExtractKind.SNAPSHOT_ONLY, ExtractKind.APPEND_ONLY])
def test_a_table_that_is_reloaded_while_its_only_unit_waits_for_it_is_named(bank: Bank, kind: ExtractKind) -> None:
    """TRUNCATE and INSERT in one transaction: its reader began before that ended, and sees neither the old rows nor the new."""
    loads = runs(bank.database, "accounts", kind, delta="id")
    plan = loads.plan()

    def read() -> int:
        with closing(loads.source.read(plan.units[0], plan.schema, ReadRequest(), bank.database)) as reader:
            return sum(batch.num_rows for batch in reader)

    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(bank.database.url) as reloading:
            reloading.execute("CREATE TEMPORARY TABLE kept AS SELECT * FROM accounts")
            reloading.execute("TRUNCATE accounts")
            reading = pool.submit(read)
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'accounts'::regclass"
            with psycopg.connect(bank.database.url, autocommit=True) as watching:
                while watching.execute(waits).fetchone() == (0,) and not reading.done():
                    pass
            reloading.execute("INSERT INTO accounts SELECT * FROM kept")
        with pytest.raises(
            SourceError, match=r"table 'accounts' was truncated or rewritten since.*Then extract it again"
        ):
            reading.result()
    assert read() == ACCOUNTS


def test_a_database_that_ends_idle_transactions_leaves_the_one_that_holds_a_snapshot(bank: Bank) -> None:
    bank.database.run("ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = 100")
    try:
        source = SqlSource("bank", ())
        with source.snapshot(bank.database), psycopg.connect(bank.database.url) as connection:
            held = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid() "
                "AND datname = current_database()"
            )
            connection.execute("SELECT pg_sleep(0.3)")
            connection.rollback()
            left = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid() "
                "AND datname = current_database()"
            )
            assert (held.fetchone(), left.fetchone()) == ((1,), (1,))
    finally:
        bank.database.run("ALTER ROLE CURRENT_USER RESET idle_in_transaction_session_timeout")


@pytest.mark.parametrize("kind", TAKES_ALL)
def test_sqlite_which_has_no_snapshot_to_share_is_read_by_one_unit(tmp_path: Path, kind: ExtractKind) -> None:
    database = SqliteDatabase(tmp_path / "bank.db")
    database.run(CREATE)
    database.insert("accounts", [(n, EACH) for n in range(ACCOUNTS)])
    loads = runs(database, "accounts", kind, delta="id", unit_bytes=100)
    plan = loads.plan()
    assert (len(plan.units), plan.consistency) == (1, Consistency.ONE_UNIT)
    assert len(loads.run()[0].table) == ACCOUNTS
    if kind is ExtractKind.SNAPSHOT_APPEND:
        database.insert("accounts", [(n + ACCOUNTS, EACH) for n in range(ACCOUNTS)])
        assert len(loads.run()) > 1  # new rows come by their positions, and are split as usual


def test_only_what_takes_a_table_whole_wants_one_snapshot(bank: Bank) -> None:
    def consistency(kind: ExtractKind, **options: Any) -> tuple[Consistency, bool]:
        plan = runs(bank.database, "accounts", kind, delta="id", **options).plan()
        return plan.consistency, len(plan.units) > 1

    for kind in TAKES_ALL:
        assert consistency(kind, unit_bytes=2000) == (Consistency.ONE_SNAPSHOT, True)
        assert consistency(kind) == (Consistency.ONE_UNIT, False)
    assert consistency(ExtractKind.APPEND_ONLY, unit_bytes=2000) == (Consistency.ONE_UNIT, True)
