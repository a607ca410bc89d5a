"""A table of a real PostgreSQL: what one commit does, and that it takes hold once, however late others come."""

from __future__ import annotations

import datetime as dt
import io
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gobblin.errors import ConfigurationError, SchemaConflictError, TableError, TableMovedError
from airflow_gobblin.model.table import TableTarget
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.tables.port import Change, Count, DataFile, Look, Mark, Merge, Owner, PartitionField, TableUnit
from airflow_gobblin.tables.postgres import PostgresTable
from airflow_gobblin.tables.postgres.table import UNIT, OpenPostgresTable
from airflow_gobblin.tables.postgres.types import check_values, held_by
from airflow_gobblin.testing.files import write
from airflow_gobblin.testing.tables import FOREIGN_ROW, ForeignAct, Row, TableContract
from tests.services.postgres import running_postgres

OURS = Owner("journal-1", "shop", "main.orders\0of ours")
THEIRS = Owner("journal-2", "shop", "main.orders")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


class Warehouse:
    """A database with a table that may be there, and staged files for it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.record = PostgresTable("warehouse", "public", "orders", lock_seconds=60)
        self.table = self.opened()
        self._staged = 0

    def opened(self, url: str = "", **other: Any) -> OpenPostgresTable:
        return OpenPostgresTable(replace(self.record, **other), url or self.url, LocalFiles(self.folder))

    def look(self, owner: Owner = OURS) -> Look:
        return self.table.look(owner)

    def made(self, schema: pa.Schema = SCHEMA) -> Look:
        self.table.create(OURS, schema, ())
        return self.look()

    def change(self, *units: tuple[str, pa.Table], **more: Any) -> Change:
        """Return a change that adds staged rows of some units."""
        files = tuple(self._stage(unit, rows) for unit, rows in units)
        return Change(lambda: iter(files), len(files), sum(file.rows for file in files), **more)

    def commit(self, slot: int, *units: tuple[str, pa.Table], **more: Any) -> None:
        self.table.commit(self.look(), self.change(*units, **more), OURS, Mark(slot, f"t{slot}", done=True))

    def rows(self, columns: str = "id, name", of: str = "orders") -> list[tuple[Any, ...]]:
        return self.sql(f"SELECT {columns} FROM {of} ORDER BY 1")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _stage(self, unit: str, rows: pa.Table) -> DataFile:
        self._staged += 1
        path = self.folder / f"{self._staged}.parquet"
        pq.write_table(rows, path)
        return DataFile(path.name, path.stat().st_size, rows.num_rows, unit)


@pytest.fixture
def warehouse(postgres_database: str, tmp_path: Path) -> Warehouse:
    return Warehouse(postgres_database, tmp_path)


def orders(*ids: int, name: str = "n") -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids)}, schema=SCHEMA)


def test_there_is_no_table_at_first_and_looking_makes_nothing(warehouse: Warehouse) -> None:
    assert warehouse.look() == Look("")
    assert not warehouse.sql("SELECT 1 FROM pg_namespace WHERE nspname = '_gobblin'")


def test_a_created_table_is_its_owners_and_empty(warehouse: Warehouse) -> None:
    look = warehouse.made()
    assert (look.owner, look.mark, look.in_history, look.schema) == (OURS, None, True, SCHEMA)
    assert warehouse.look(THEIRS).owner == OURS
    warehouse.table.create(THEIRS, SCHEMA, ())
    assert warehouse.look() == look
    assert warehouse.table.total() == Count(rows=0)


def test_a_commit_adds_rows_and_leaves_its_mark(warehouse: Warehouse) -> None:
    before = warehouse.made()
    warehouse.commit(1, ("a", orders(1, 2)), ("a", orders(3)), ("b", orders(4)))
    look = warehouse.look()
    assert (look.id, look.form, look.mark) == (before.id, before.form, Mark(1, "t1", done=True))
    assert warehouse.rows() == [(1, "n"), (2, "n"), (3, "n"), (4, "n")]
    units = [("t1", "a"), ("t1", "b"), ("t1", "c"), ("t2", "a")]
    assert warehouse.table.count(units) == {("t1", "a"): Count(2, 3), ("t1", "b"): Count(1, 1)}
    assert warehouse.table.total().rows == 4
    assert warehouse.look(THEIRS).mark is None


def test_a_late_commit_after_the_same_one_does_nothing(warehouse: Warehouse) -> None:
    look, change, mark = warehouse.made(), warehouse.change(("a", orders(1))), Mark(1, "t1", done=True)
    warehouse.table.commit(look, change, OURS, mark)
    for late in (look, warehouse.look()):
        with pytest.raises(TableMovedError):
            warehouse.table.commit(late, change, OURS, mark)
    assert warehouse.rows() == [(1, "n")]


def test_a_late_commit_after_a_fence_does_nothing(warehouse: Warehouse) -> None:
    look = warehouse.made()
    warehouse.table.commit(look, Change(), OURS, Mark(1, "t1", done=False))
    with pytest.raises(TableMovedError, match="its mark is slot 1"):
        warehouse.table.commit(look, warehouse.change(("a", orders(1))), OURS, Mark(1, "t1", done=True))
    assert warehouse.look().mark == Mark(1, "t1", done=False)
    assert warehouse.rows() == []


def test_a_late_commit_after_later_slots_does_nothing(warehouse: Warehouse) -> None:
    look = warehouse.made()
    for slot in (1, 2, 3):
        warehouse.commit(slot, ("a", orders(slot)))
    with pytest.raises(TableMovedError):
        warehouse.table.commit(look, warehouse.change(("a", orders(1))), OURS, Mark(1, "t1", done=True))
    assert [row[0] for row in warehouse.rows()] == [1, 2, 3]


def test_of_two_at_once_one_takes_hold(warehouse: Warehouse) -> None:
    for slot in range(1, 9):
        look = warehouse.made()
        change = warehouse.change(("a", orders(*range(slot * 100, slot * 100 + 50))))
        start = threading.Barrier(3)
        attempt = partial(_attempt, warehouse, start, look)
        marks = [Mark(slot, f"t{slot}", done) for done in (True, True, False)]
        with ThreadPoolExecutor(3) as pool:
            won = list(pool.map(attempt, (change, change, Change()), marks))
        assert sum(won) == 1
        mark = warehouse.look().mark
        assert mark is not None
        assert mark.done is not won[2]
        assert len(warehouse.sql(f"SELECT 1 FROM orders WHERE id / 100 = {slot}")) == (50 if mark.done else 0)


def _attempt(warehouse: Warehouse, start: threading.Barrier, look: Look, change: Change, mark: Mark) -> bool:
    start.wait()
    try:
        warehouse.opened().commit(look, change, OURS, mark)
    except TableMovedError:
        return False
    return True


def test_a_commit_that_waits_for_too_long_reports_it(warehouse: Warehouse) -> None:
    look = warehouse.made()
    with psycopg.connect(warehouse.url) as other:
        other.execute("SELECT 1 FROM _gobblin.owners FOR UPDATE")
        with pytest.raises(TableError, match=r"lock timeout.*Another transaction holds it") as caught:
            warehouse.opened(lock_seconds=1).commit(look, Change(), OURS, Mark(1, "t1", done=False))
    assert not isinstance(caught.value, TableMovedError)


class Cut:
    """A session that dies, or loses an answer, at its nth act."""

    def __init__(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.after = -1, False
        self.acts = 0
        from airflow_gobblin.tables.postgres import table as postgres_table

        for name in ("rows", "run", "copy", "commit"):
            original = getattr(postgres_table._Session, name)

            def act(session: Any, *values: Any, original: Callable[..., Any] = original) -> Any:
                self.acts += 1
                if self.acts - 1 != self.at:
                    return original(session, *values)
                if self.after:
                    original(session, *values)
                    raise ConnectionError("the answer was lost")
                pid = session.rows("SELECT pg_backend_pid()")[0][0]
                warehouse.sql(f"SELECT pg_terminate_backend({pid}, 5000)")
                return original(session, *values)

            monkeypatch.setattr(postgres_table._Session, name, act)

    def set(self, at: int, after: bool) -> None:
        self.at, self.after, self.acts = at, after, 0


def test_a_commit_cut_anywhere_is_whole_or_nothing(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    cut, key = Cut(warehouse, monkeypatch), Merge(("id",))
    warehouse.made()
    warehouse.commit(1, ("a", orders(1)), merge=key)
    cut.set(-1, False)
    warehouse.commit(2, ("a", orders(2)), merge=key)
    acts, slot, whole = cut.acts, 2, 0
    for at in range(acts):
        for after in (False, True):
            slot += 1
            cut.set(-1, False)
            look, change = warehouse.look(), warehouse.change(("a", orders(slot)), merge=key)
            count = cut.acts
            cut.set(at, after)
            if at < acts - count:
                with pytest.raises(TableError) as caught:
                    warehouse.table.commit(look, change, OURS, Mark(slot, f"t{slot}", done=True))
                assert not isinstance(caught.value, TableMovedError)
            else:
                warehouse.table.commit(look, change, OURS, Mark(slot, f"t{slot}", done=True))
            cut.set(-1, False)
            done = warehouse.look().mark == Mark(slot, f"t{slot}", done=True)
            assert done is bool(warehouse.sql(f"SELECT 1 FROM orders WHERE id = {slot}"))
            assert done or warehouse.look().mark == look.mark
            whole += done
    assert whole > 0


def test_rows_of_units_are_replaced_in_the_same_commit(warehouse: Warehouse) -> None:
    warehouse.made()
    warehouse.commit(1, ("a", orders(1, 2)), ("b", orders(3)))
    warehouse.sql("INSERT INTO orders (id, name) VALUES (9, 'theirs')")
    removes = (TableUnit("t1", "a", 1, 2),)
    warehouse.commit(2, ("c", orders(5)), removes=removes)
    assert [row[0] for row in warehouse.rows()] == [3, 5, 9]
    assert warehouse.table.count([("t1", "a"), ("t1", "b"), ("t2", "c")]).keys() == {("t1", "b"), ("t2", "c")}
    with pytest.raises(TableError, match="0 rows of unit 'a' of t1 are there, and 2 were published"):
        warehouse.commit(3, removes=removes)
    assert warehouse.look().mark == Mark(2, "t2", done=True)


def test_rows_that_somebody_deleted_stop_their_replacement(warehouse: Warehouse) -> None:
    warehouse.made()
    warehouse.commit(1, ("a", orders(1, 2)))
    warehouse.sql("DELETE FROM orders WHERE id = 1")
    with pytest.raises(TableError, match="1 rows of unit 'a' of t1 are there, and 2 were published"):
        warehouse.commit(2, removes=(TableUnit("t1", "a", 1, 2),))
    assert [row[0] for row in warehouse.rows()] == [2]


def test_a_snapshot_takes_the_place_of_everything_while_readers_see_the_old_one(warehouse: Warehouse) -> None:
    warehouse.made()
    warehouse.commit(1, ("a", orders(1, 2)))
    with psycopg.connect(warehouse.url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert reader.execute("SELECT count(*) FROM _gobblin.marks").fetchone() == (1,)
        warehouse.sql("INSERT INTO orders (id, name) VALUES (9, 'theirs')")
        warehouse.commit(2, ("a", orders(7)), removes_all=True)
        assert reader.execute("SELECT id FROM orders ORDER BY 1").fetchall() == [(1,), (2,)]
    assert [row[0] for row in warehouse.rows()] == [7]
    assert warehouse.table.count([("t1", "a"), ("t2", "a")]) == {("t2", "a"): Count(1, 1)}


VERSIONED = pa.schema(
    [pa.field("id", pa.int64()), pa.field("at", pa.int64()), pa.field("place", pa.int64()), ("v", pa.string())]
)


def versions(*rows: tuple[int, int | None, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(VERSIONED.names, row, strict=True)) for row in rows], schema=VERSIONED)


def test_the_newest_version_of_a_key_stays(warehouse: Warehouse) -> None:
    warehouse.made(VERSIONED)
    merge = Merge(("id",), "at", ("place",))
    warehouse.commit(
        1,
        ("a", versions((1, 5, 0, "a"), (1, 6, 0, "b"), (2, 1, 1, "old"), (2, 1, 2, "tie"), (3, None, 9, "x"))),
        merge=merge,
    )
    assert warehouse.rows("id, v") == [(1, "b"), (2, "tie"), (3, "x")]
    late = versions((1, 5, 99, "late"), (2, 1, 1, "tie lost"), (2, 1, 3, "tie won"), (3, 0, 0, "y"), (4, None, 0, "z"))
    warehouse.commit(2, ("a", late), merge=merge)
    assert warehouse.rows("id, v") == [(1, "b"), (2, "tie won"), (3, "y"), (4, "z")]
    assert warehouse.table.count([("t1", "a"), ("t2", "a")]) == {}


def test_a_key_without_a_value_is_refused(warehouse: Warehouse) -> None:
    warehouse.made(VERSIONED)
    rows = pa.Table.from_pylist([{"id": None, "at": 1, "place": 1, "v": "x"}], schema=VERSIONED)
    with pytest.raises(TableError, match="has no value in its key"):
        warehouse.commit(1, ("a", rows), merge=Merge(("id",), "at"))


@pytest.mark.parametrize("merge", [Merge(("id",), "at", ("place",)), Merge(("id",))])
def test_two_newest_versions_of_a_key_are_refused(warehouse: Warehouse, merge: Merge) -> None:
    warehouse.made(VERSIONED)
    rows = versions((7, 5, 1, "a"), (7, 5, 1, "b"), (7, 4, 1, "c"), (8, 1, 1, "d"))
    with pytest.raises(TableError, match=r'of the key \("id"\) = \[7\] there are two rows'):
        warehouse.commit(1, ("a", rows), merge=merge)
    older = versions((7, 4, 1, "a"), (7, 4, 1, "b"), (7, 5, 1, "c"))
    warehouse.commit(1, ("a", older), merge=Merge(("id",), "at"))
    assert warehouse.rows("id, v") == [(7, "c")]


def test_a_merge_uses_the_tables_own_key(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE orders (id bigint, name text, PRIMARY KEY (id) INCLUDE (name))")
    warehouse.commit(1, ("a", orders(1, 2)), merge=Merge(("id",)))
    warehouse.commit(2, ("a", orders(2, 3, name="m")), merge=Merge(("id",), "name"))
    warehouse.commit(3, ("a", orders(2, 3, name="z")), merge=Merge(("id",)))
    assert warehouse.rows() == [(1, "n"), (2, "n"), (3, "m")]
    indexes = warehouse.sql("SELECT count(*) FROM pg_index WHERE indrelid = 'orders'::regclass AND indisunique")
    assert indexes == [(1,)]


def test_columns_are_added_and_widened_in_the_same_commit(warehouse: Warehouse) -> None:
    before = warehouse.made(pa.schema([("id", pa.int32()), ("amount", pa.decimal128(5, 2))]))
    warehouse.commit(
        1,
        ("a", pa.table({"id": pa.array([1], pa.int32()), "amount": pa.array([Decimal("1.20")], pa.decimal128(5, 2))})),
    )
    wide = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(12, 4)), ("note", pa.string())])
    rows = pa.table({"id": [1 << 40], "amount": [Decimal("1.2345")], "note": ["x"]}, schema=wide)
    warehouse.commit(2, ("a", rows), schema=wide)
    look = warehouse.look()
    assert look.schema == wide
    assert (look.id, look.form != before.form) == (before.id, True)
    assert warehouse.rows("id, amount, note") == [(1, Decimal("1.2000"), None), (1 << 40, Decimal("1.2345"), "x")]
    with pytest.raises(SchemaConflictError, match="'note' has string, which isn't widened to int64"):
        warehouse.commit(3, schema=pa.schema([("note", pa.int64())]))


def test_a_column_changed_by_somebody_else_moves_the_table(warehouse: Warehouse) -> None:
    look = warehouse.made()
    warehouse.sql("ALTER TABLE orders ADD COLUMN more integer")
    with pytest.raises(TableMovedError, match="columns were changed"):
        warehouse.table.commit(look, warehouse.change(("a", orders(1))), OURS, Mark(1, "t1", done=True))
    assert warehouse.look().form != look.form
    warehouse.commit(1, ("a", orders(1)))
    assert warehouse.rows("id, more") == [(1, None)]


@pytest.mark.parametrize("anew", [False, True])
def test_a_dropped_table_moves_and_one_made_anew_is_another(warehouse: Warehouse, anew: bool) -> None:
    warehouse.made()
    warehouse.commit(1, ("a", orders(1)))
    look = warehouse.look()
    warehouse.sql("DROP TABLE orders")
    if anew:
        warehouse.sql("CREATE TABLE orders (id bigint NOT NULL, name text, _gobblin_unit bigint)")
    with pytest.raises(TableMovedError):
        warehouse.table.commit(look, warehouse.change(("a", orders(1))), OURS, Mark(2, "t2", done=True))
    found = warehouse.look()
    assert (found.id != look.id, found.owner, found.mark, bool(found.id)) == (True, None, None, anew)


def test_a_table_of_somebody_becomes_its_datasets_by_a_commit(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE orders (id bigint, name varchar(20), total numeric GENERATED ALWAYS AS (id * 2) STORED)"
    )
    warehouse.sql("INSERT INTO orders VALUES (9, 'theirs')")
    look = warehouse.look()
    assert look.owner is None
    warehouse.commit(1, ("a", orders(1)))
    assert (warehouse.look().id, warehouse.look().form, warehouse.look().owner) == (look.id, look.form, OURS)
    assert warehouse.rows("id, name, total") == [(1, "n", 2), (9, "theirs", 18)]
    with pytest.raises(TableMovedError, match="another dataset"):
        warehouse.table.commit(look, Change(), THEIRS, Mark(1, "t1", done=True))


def test_a_table_taken_over_takes_no_commit_of_its_former_owner(warehouse: Warehouse) -> None:
    warehouse.made()
    warehouse.commit(1, ("a", orders(1)))
    late = warehouse.look()
    warehouse.table.take_over(warehouse.look(THEIRS), THEIRS)
    with pytest.raises(TableMovedError, match="another dataset"):
        warehouse.table.commit(late, Change(), OURS, Mark(2, "t2", done=True))
    look = warehouse.look(THEIRS)
    assert (look.owner, look.mark, warehouse.look().mark) == (THEIRS, None, late.mark)
    warehouse.table.commit(look, warehouse.change(("a", orders(2))), THEIRS, Mark(1, "t1-of-them", done=True))
    assert [row[0] for row in warehouse.rows()] == [1, 2]
    with pytest.raises(TableMovedError):
        warehouse.table.take_over(late, OURS)


_local = dt.datetime.fromisoformat
D = Decimal
UTC = dt.UTC
EXACT: Sequence[tuple[pa.DataType, Sequence[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127]),
    (pa.uint8(), [0, 255]),
    (pa.int16(), [-(1 << 15), None]),
    (pa.uint16(), [65535]),
    (pa.int32(), [-(1 << 31), 1]),
    (pa.uint32(), [(1 << 32) - 1]),
    (pa.int64(), [-(1 << 63), (1 << 63) - 1, None]),
    (pa.uint64(), [(1 << 64) - 1]),
    (pa.float32(), [float("inf"), -0.0, 1.1754943508222875e-38]),
    (pa.float64(), [float("-inf"), 5e-324, 1.7976931348623157e308, None]),
    (pa.decimal128(10, 2), [D("-12345678.90"), D("0.01"), D("0.00"), None]),
    (pa.decimal128(38, 38), [D("1E-38"), D("-0.99999999999999999999999999999999999999")]),
    (pa.decimal256(76, 4), [D("9" * 72 + ".9999"), D("10000.0000")]),
    (pa.string(), ["", "é€😀", "a\tb\\N\n", None]),
    (pa.large_string(), ["x" * 100_000]),
    (pa.binary(), [b"", bytes(range(256)), None]),
    (pa.binary(3), [b"\0\1\2"]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(1899, 12, 31), dt.date(1582, 10, 10), dt.date(9999, 12, 31), None]),
    (pa.time64("us"), [dt.time(0, 0), dt.time(23, 59, 59, 999999)]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4000)]),
    (pa.timestamp("us"), [_local("0001-01-01T00:00:00.000001"), _local("9999-12-31T23:59:59.999999"), None]),
    (pa.timestamp("ms"), [_local("1850-01-01T12:00")]),
    (pa.timestamp("us", "UTC"), [dt.datetime(1850, 1, 1, 0, 0, 0, 1, UTC), dt.datetime(9999, 12, 31, tzinfo=UTC)]),
    (pa.timestamp("us", "Europe/Berlin"), [dt.datetime(1850, 1, 1, 0, 0, 0, 1, UTC)]),
    (pa.list_(pa.int64()), [[1, None], [], None]),
    (pa.list_(pa.string()), [["a", "", None, '{,"}'], []]),
    (pa.list_(pa.decimal128(10, 2)), [[D("1.50"), None]]),
    (pa.list_(pa.timestamp("us", "UTC")), [[dt.datetime(1850, 1, 1, tzinfo=UTC)]]),
    (pa.large_list(pa.binary()), [[b"\0", b""]]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None]),
]


@pytest.mark.parametrize(("kind", "values"), EXACT, ids=[str(kind) for kind, _ in EXACT])
def test_values_come_back_exactly(warehouse: Warehouse, kind: pa.DataType, values: Sequence[Any]) -> None:
    rows = pa.table({"v": pa.array(values, kind)})
    look = warehouse.made(rows.schema)
    assert look.schema is not None
    assert look.schema.field("v").type == held_by(kind)
    warehouse.commit(1, ("a", rows))
    found = pa.array([_plain(value) for (value,) in warehouse.sql("SELECT v FROM orders ORDER BY ctid")], held_by(kind))
    assert found.equals(pa.array(values, kind).cast(found.type))
    assert str(found) == str(pa.array(values, kind).cast(found.type))


NUL = pa.array(["good", "b\0d", "good", None])
TEXTS_BEHIND_NULLS = pa.StringArray.from_buffers(
    2, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])), pa.py_buffer(b"\0x"), pa.py_buffer(b"\2")
)


@pytest.mark.parametrize(
    ("array", "refused"),
    [
        (NUL, True),
        (NUL.slice(1, 1), True),
        (NUL.slice(0, 1), False),
        (NUL.slice(2), False),
        (NUL.slice(0, 0), False),
        (TEXTS_BEHIND_NULLS, False),
        (pa.array([["good"], ["good", "b\0d"], None]), True),
        (pa.array([["good"], ["good"], []]), False),
        (pa.array([["b\0d"], ["good"]]).slice(1), False),
        (pa.array([None, None], pa.string()), False),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": "\0"}'])), True),
        (pa.array([b"\0"]), False),
        (pa.array([-2_440_589], pa.date32()), True),
        (pa.array([-2_440_588], pa.date32()), False),
    ],
    ids=str,
)
def test_a_value_that_it_can_not_hold_is_refused_by_column(array: pa.Array, refused: bool) -> None:
    rows = pa.record_batch({"id": pa.array(range(len(array))), "v": array})
    refusal = pytest.raises(TableError, match="column 'v' of unit 'u1'") if refused else nullcontext()
    with refusal:
        check_values(rows, "unit 'u1'")


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


def test_json_keeps_its_text(warehouse: Warehouse) -> None:
    kind = pa.json_()
    array = pa.ExtensionArray.from_storage(kind, pa.array(['{"b": 1,  "a": 1, "a": 2}', None]))
    assert warehouse.made(pa.schema([("v", kind)])).schema == pa.schema([("v", kind)])
    warehouse.commit(1, ("a", pa.table({"v": array})))
    assert warehouse.sql("SELECT v::text FROM orders ORDER BY ctid") == [('{"b": 1,  "a": 1, "a": 2}',), (None,)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns"),
        pa.time64("ns"),
        pa.duration("us"),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.struct([("a", pa.int64())])),
        pa.decimal128(5, -2),
        pa.decimal128(5, 7),
        pa.null(),
    ],
    ids=str,
)
def test_a_type_that_it_has_not_is_refused_by_column(warehouse: Warehouse, kind: pa.DataType) -> None:
    with pytest.raises(SchemaConflictError, match="column 'v'"):
        warehouse.made(pa.schema([("v", kind)]))


@pytest.mark.parametrize("name", ["_gobblin_unit", "ctid", "x" * 64, "", "a\0"])
def test_a_reserved_or_cut_name_is_refused_by_column(warehouse: Warehouse, name: str) -> None:
    with pytest.raises(SchemaConflictError, match="column '"):
        warehouse.made(pa.schema([(name, pa.int64())]))


@pytest.mark.parametrize(
    ("kind", "value", "cause"),
    [
        (pa.date32(), -(1 << 31) + 10_957, "a date or time that PostgreSQL doesn't"),
        (pa.date32(), (1 << 31) - 1, "a date or time that PostgreSQL doesn't"),
        (pa.timestamp("us"), -(1 << 63) + 1, "a date or time that PostgreSQL doesn't"),
        (pa.timestamp("ms"), 1 << 60, "column 'v'"),
    ],
)
def test_a_value_that_it_has_not_is_refused_by_column(
    warehouse: Warehouse, kind: pa.DataType, value: int, cause: str
) -> None:
    bits = pa.int32() if kind == pa.date32() else pa.int64()
    rows = pa.table({"v": pa.array([value], bits).view(kind)})
    warehouse.made(rows.schema)
    with pytest.raises(TableError, match=cause) as caught:
        warehouse.commit(1, ("a", rows))
    assert "column 'v'" in str(caught.value)


def test_a_text_with_a_nul_is_refused_by_column(warehouse: Warehouse) -> None:
    warehouse.made()
    with pytest.raises(TableError, match=r"0x00.*column name"):
        warehouse.commit(1, ("a", orders(1, name="a\0b")))


def test_columns_of_types_that_rows_cannot_be_written_to_are_distinguished(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE orders (a jsonb, b char(3), c timestamp(3), d numeric, e uuid, f char(2)[], g varchar(4))"
    )
    schema = warehouse.look().schema
    assert schema is not None
    assert [isinstance(field.type, pa.OpaqueType) for field in schema] == [True] * 6 + [False]


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        ("CREATE UNLOGGED TABLE orders (id bigint)", "unlogged"),
        ("CREATE VIEW orders AS SELECT 1 AS id", "no table"),
        ("CREATE SEQUENCE orders", "no table"),
    ],
)
def test_what_rows_do_not_stay_in_is_refused(warehouse: Warehouse, made: str, cause: str) -> None:
    warehouse.sql(made)
    with pytest.raises(TableError, match=cause):
        warehouse.look()


def test_partitions_are_refused(warehouse: Warehouse) -> None:
    with pytest.raises(TableError, match="without partitions"):
        warehouse.table.create(OURS, SCHEMA, (PartitionField("id"),))


def test_a_staged_file_that_is_gone_or_torn_is_reported(warehouse: Warehouse) -> None:
    warehouse.made()
    for spoil in (Path.unlink, lambda path: path.write_bytes(b"PAR1")):
        change = warehouse.change(("a", orders(1)), ("b", orders(2)))
        *_, last = change.files()
        spoil(warehouse.folder / last.path)
        with pytest.raises(TableError, match=f"staged file '{last.path}'"):
            warehouse.table.commit(warehouse.look(), change, OURS, Mark(1, "t1", done=True))
    assert warehouse.rows() == []


def test_rows_that_a_trigger_leaves_out_are_missed(warehouse: Warehouse) -> None:
    warehouse.made()
    warehouse.sql("CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    warehouse.sql("CREATE TRIGGER skip BEFORE INSERT ON orders FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION skip()")
    with pytest.raises(TableError, match="have 2 rows, and 1 were taken"):
        warehouse.commit(1, ("a", orders(1, 2)))


@pytest.fixture
def guest(warehouse: Warehouse) -> Iterator[str]:
    """The URL of a user who may do nothing."""
    warehouse.sql("DROP ROLE IF EXISTS guest")
    warehouse.sql("CREATE ROLE guest LOGIN PASSWORD 'sesame-open'")
    head, _, tail = warehouse.url.partition("@")
    assert head
    yield f"postgresql://guest:sesame-open@{tail}"
    warehouse.sql("DROP OWNED BY guest")
    warehouse.sql("DROP ROLE guest")


def test_a_user_without_the_right_is_refused_by_name(warehouse: Warehouse, guest: str) -> None:
    theirs = warehouse.opened(guest)
    with pytest.raises(TableError, match=r'table "public"."orders" of connection \'warehouse\'.*permission denied'):
        theirs.create(OURS, SCHEMA, ())
    look = warehouse.made()
    with pytest.raises(TableError, match="permission denied") as caught:
        theirs.commit(look, warehouse.change(("a", orders(1))), OURS, Mark(1, "t1", done=True))
    assert "sesame" not in str(caught.value)


def test_a_server_that_is_out_of_reach_is_reported_without_secrets(warehouse: Warehouse) -> None:
    for url in (
        "postgresql://me:sesame-open@127.0.0.1:1/x",
        "postgresql://me:sesame-open@host:port/x",
        warehouse.url.replace("@", "sesame-open@"),
    ):
        with pytest.raises(TableError, match="connection 'warehouse'") as caught:
            warehouse.opened(url).look(OURS)
        assert "sesame-open" not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("namespace", "table", "cause"),
    [
        ("public", "x" * 64, "longer than the 63 bytes"),
        ("public", "", "is not a name"),
        ("_gobblin", "t", "where the marks"),
    ],
)
def test_a_table_by_a_name_that_it_cannot_have_is_refused(namespace: str, table: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        PostgresTable("warehouse", namespace, table)


def test_two_tables_have_two_names() -> None:
    names = {PostgresTable("c", *where).name for where in (('a"."b', "c"), ("a", 'b"."c'), ("a", "b"))}
    assert len(names) == 3


class Proxy:
    """A way to the server that doesn't pass on anything after a COMMIT was sent.

    :param passes: whether the COMMIT itself reaches the server at once, or only when it is let go.
    """

    def __init__(self, url: str, *, passes: bool) -> None:
        head, _, rest = url.rpartition("127.0.0.1:")
        port, _, database = rest.partition("/")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{head}127.0.0.1:{self._listener.getsockname()[1]}/{database}"
        self._port, self._passes = int(port), passes
        self._threads: list[threading.Thread] = []
        self.let_go = threading.Event()
        self._start(self._accept)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.let_go.set()
        for thread in self._threads:
            thread.join()

    def _start(self, run: Callable[..., None], *values: Any) -> None:
        self._threads.append(threading.Thread(target=run, args=values))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._start(self._requests, client, server)
                self._start(self._answers, server, client)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with server, suppress(OSError):
            while data := client.recv(1 << 16):
                if b"COMMIT;" in data or b"COMMIT\0" in data:
                    client.shutdown(socket.SHUT_RDWR)
                    if not self._passes:
                        self.let_go.wait()
                    server.sendall(data)
                    self.let_go.wait()
                    return
                server.sendall(data)

    @staticmethod
    def _answers(server: socket.socket, client: socket.socket) -> None:
        with client, suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)


@pytest.mark.parametrize("passes", [True, False])
def test_a_commit_whose_answer_is_lost_is_known_by_its_mark(warehouse: Warehouse, passes: bool) -> None:
    look, mark = warehouse.made(), Mark(1, "t1", done=True)
    fence = Mark(1, "t1", done=False)
    proxy = Proxy(warehouse.url, passes=passes)
    try:
        with pytest.raises(TableError) as caught:
            warehouse.opened(proxy.url).commit(look, warehouse.change(("a", orders(1))), OURS, mark)
        assert not isinstance(caught.value, TableMovedError)
        if not passes:  # COMMIT is on its way: nobody can shut it out before it is over, and nobody takes it for lost
            assert warehouse.look().mark is None
            with pytest.raises(TableError, match="lock timeout") as caught:
                warehouse.opened(lock_seconds=1).commit(look, Change(), OURS, fence)
            assert not isinstance(caught.value, TableMovedError)
            proxy.let_go.set()
    finally:
        proxy.let_go.set()
        with pytest.raises(TableMovedError):
            warehouse.table.commit(look, Change(), OURS, fence)
        proxy.close()
    assert warehouse.look().mark == mark
    assert warehouse.rows() == [(1, "n")]


@pytest.mark.slow
def test_a_server_killed_in_a_commit_has_all_of_it_or_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    folder.chmod(0o755)
    with running_postgres(folder) as server:
        warehouse = Warehouse(server.create_database("shop"), tmp_path)
        warehouse.made()
        warehouse.commit(1, ("a", orders(1)))
        look, change = warehouse.look(), warehouse.change(("a", orders(*range(2, 200_000))))
        (*files,) = change.files()

        def dying() -> Iterator[DataFile]:
            yield from files
            if seen:  # they were numbered, and now they are copied
                server.kill()
            seen.append(1)

        seen: list[int] = []
        with pytest.raises(TableError, match="connection 'warehouse'"):
            warehouse.table.commit(look, replace(change, files=dying), OURS, Mark(2, "t2", done=True))
        with pytest.raises(TableError, match="connection 'warehouse'"):
            warehouse.look()
        server.start()
        assert warehouse.look() == look
        assert warehouse.rows() == [(1, "n")]
        warehouse.table.commit(look, change, OURS, Mark(2, "t2", done=True))
        server.kill()
        server.start()
        assert warehouse.look().mark == Mark(2, "t2", done=True)
        assert warehouse.table.total().rows == 199_999


class Bench:
    """The bench of a table in PostgreSQL."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._name = f"orders {uuid.uuid4().hex}"
        self.table = PostgresTable("warehouse", "public", self._name, lock_seconds=20)
        self.files = LocalFiles(folder)
        self.connections = self
        self.acts = frozenset(
            {ForeignAct.APPEND, ForeignAct.DELETE, ForeignAct.COMPACT, ForeignAct.DROP, ForeignAct.ADD_COLUMN}
        )
        self.merges = True

    def uri(self, conn_id: str) -> str:
        return self._url

    def stage(self, target: TableTarget, token: str, unit: str, rows: Sequence[Row], schema: pa.Schema) -> DataFile:
        assert not target.location
        path = f"data/gobblin/{token}/a/{unit}-{uuid.uuid4().hex[:8]}/0.parquet"
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([*rows], schema), out)
        self.files.make_folder(path.rpartition("/")[0])
        return DataFile(path, write(self.files, path, out.getvalue()).size, len(rows), unit)

    def rows(self) -> Iterable[Row]:
        with psycopg.connect(self._url, row_factory=psycopg.rows.dict_row) as connection:
            found = connection.execute(f'SELECT * FROM "{self._name}"').fetchall()
        return [{name: value for name, value in row.items() if name != UNIT} for row in found]

    def act(self, act: ForeignAct) -> None:
        statements = {
            ForeignAct.APPEND: f'INSERT INTO "{self._name}" (id, text, changed, position) VALUES '
            f"({', '.join(repr(value) for value in FOREIGN_ROW.values())})",
            ForeignAct.DELETE: f'DELETE FROM "{self._name}" WHERE id = 1',
            ForeignAct.COMPACT: f'VACUUM FULL "{self._name}"',
            ForeignAct.DROP: f'DROP TABLE "{self._name}"',
            ForeignAct.ADD_COLUMN: f'ALTER TABLE "{self._name}" ADD COLUMN theirs text',
        }
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statements[act])


class TestPostgresTable(TableContract):
    @pytest.fixture
    def new_bench(self, postgres_database: str, tmp_path: Path) -> Callable[[], Bench]:
        return lambda: Bench(postgres_database, tmp_path)
