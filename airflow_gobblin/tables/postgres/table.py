"""An open PostgreSQL table. Its content and its marks are in one database, so a commit is one transaction.

Our own tables are in the schema `_gobblin` of that database:

* `owners` has a row for each table that belongs to a dataset. Each commit locks that row, so commits to a table follow one
  another: a late one waits until the one before it is over, and then finds another mark.
* `marks` has a row for each slot that committed or was shut out. The newest one of a dataset counts; none is ever removed.
* `units` numbers the units in a table. A row has its unit's number in `_gobblin_unit`, a column of ours: eight bytes, found
  through a BRIN index of a few pages. Token and unit would cost a hundred bytes, and a side table a join by keys that not every
  table has.

All three name tables by their object ids. A table that is dropped and created again doesn't keep its id, so its marks are
nobody's.

Rows are removed by DELETE, never by TRUNCATE, which would lock readers out until the commit and show an empty table to readers
with an older snapshot. Autovacuum reclaims the space.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from airflow_gobblin.errors import GobblinError, MissingExtraError, NotFoundError, TableError, TableMovedError
from airflow_gobblin.model.wire import digest
from airflow_gobblin.redaction import Redactor
from airflow_gobblin.storage.adbc_postgres import DRIVER, connected
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.arrow.reading import opened
from airflow_gobblin.tables.port import Change, Count, Look, Mark, Merge, Owner, PartitionField
from airflow_gobblin.tables.postgres import OWN_SCHEMA, PostgresTable, quoted, types

UNIT = "_gobblin_unit"
"""The column with the number of a row's unit; null in others' rows."""
_STAGED = "_gobblin_staged"
_ROWS_A_BATCH = 32_768
_UNITS_A_QUERY = 5_000
_LOCK = 0x60BB11
"""The advisory lock under which our schema is made, and tables are."""
_IDLE_SECONDS = 600
_MOVED = ("3F000", "42P01")
"""SQLSTATEs: no such schema, no such table."""
_ACTS = ("commit to", "take over")
_TAKEN = "23505"
"""The SQLSTATE of a key that already exists."""
_MAKE = f"""
    CREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA};
    CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.owners (
        relation oid PRIMARY KEY, owner text NOT NULL, dataset text NOT NULL, since timestamptz NOT NULL DEFAULT now());
    CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.marks (
        id bigint GENERATED ALWAYS AS IDENTITY, relation oid, owner text, slot bigint, token text NOT NULL,
        done boolean NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (relation, owner, slot));
    CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.units (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, relation oid NOT NULL, token text NOT NULL, unit text NOT NULL,
        files bigint NOT NULL, merged boolean NOT NULL, UNIQUE (relation, token, unit))"""
_COLUMNS = """
    SELECT a.attname::text, CASE WHEN b.typnamespace = 'pg_catalog'::regnamespace THEN b.typname::text ELSE
               format_type(b.oid, -1) END, CASE WHEN b.oid = t.oid THEN a.atttypmod ELSE t.typtypmod END,
           CASE WHEN e.oid IS NULL THEN '' WHEN e.typnamespace = 'pg_catalog'::regnamespace THEN e.typname::text
               ELSE format_type(e.oid, -1) END,
           NOT (a.attnotnull OR t.typnotnull), a.attgenerated <> '' OR a.attidentity = 'a', a.attnum::int
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    JOIN pg_catalog.pg_type b ON b.oid = COALESCE(NULLIF(t.typbasetype, 0), t.oid)
    LEFT JOIN pg_catalog.pg_type e ON e.typarray = b.oid
    WHERE a.attrelid = {relation} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_TRIGGERS = """
    SELECT 1 FROM pg_catalog.pg_trigger WHERE tgrelid = {relation} AND NOT tgisinternal AND tgenabled <> 'D' LIMIT 1"""
"""The first trigger that may silently leave out rows that a process copies."""
_UNIQUE = """
    SELECT 1 FROM pg_catalog.pg_index i
    WHERE i.indrelid = {relation} AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
      AND i.indexprs IS NULL AND i.indnkeyatts = {count} AND NOT EXISTS (
        SELECT 1 FROM generate_series(0, i.indnkeyatts - 1) n
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]
        WHERE a.attname::text NOT IN (SELECT jsonb_array_elements_text($1::jsonb)))"""


class _Session:
    """A connection in a transaction, for our statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    def rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Return what a query finds.

        :param values: the texts of its parameters.
        """
        self._cursor.execute(query, list(values) or None)
        found: list[tuple[Any, ...]] = self._cursor.fetchall()
        return found

    def table(self, query: str) -> pa.Table:
        """Return what a query finds, as Arrow."""
        self._cursor.execute(query)
        found: pa.Table = self._cursor.fetch_arrow_table()
        return found

    def run(self, statement: str, *values: str) -> None:
        """Carry out a statement without a result."""
        self._cursor.execute(statement, list(values) or None)

    def copy(self, reader: pa.RecordBatchReader, table: str, namespace: str | None) -> int:
        """Copy rows into a table by binary COPY, and return how many were sent.

        :param namespace: the table's schema; `None` for a temporary table.
        """
        where: dict[str, Any] = {"temporary": True} if namespace is None else {"db_schema_name": namespace}
        return int(self._cursor.adbc_ingest(table, reader, mode="append", **where))

    def commit(self) -> None:
        """Commit the transaction."""
        self._connection.commit()

    def close(self) -> None:
        """Close the connection, and with it an uncommitted transaction."""
        with suppress(Exception):
            self._cursor.close()
        with suppress(Exception):
            self._connection.close()


@dataclass(frozen=True)
class _Relation:
    """A table, as it was found.

    :param columns: those that aren't ours.
    :param numbered: whether it has the column for units.
    """

    oid: int
    columns: tuple[types.PresentColumn, ...]
    numbered: bool
    form: str

    @property
    def id(self) -> str:
        return str(self.oid)


@dataclass(frozen=True)
class _Seen:
    """The state that a commit must find unchanged, besides what the look shows.

    :param by: the owner that looked, whose mark the look has.
    """

    relation: _Relation
    by: Owner


class OpenPostgresTable:
    """A table of PostgreSQL.

    :param uri: the connection's URI, with its password.
    :param files: those of the workspace, where data files are staged.
    :raises MissingExtraError: the driver isn't installed.
    """

    def __init__(self, table: PostgresTable, uri: str, files: Files) -> None:
        try:
            importlib.import_module(DRIVER)
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                operation="open",
                subject=table.name,
                cause=error,
                hint="Install the extra: pip install 'airflow-gobblin[sql]'.",
            ) from error
        self._table, self._uri, self._files = table, uri, files
        self._redactor = Redactor([uri])
        self._quoted = table.quoted

    # ── the port ──

    def look(self, owner: Owner) -> Look:
        with self._session("look at", to_read=True) as session:
            relation = self._relation(session)
            if relation is None:
                return Look("")
            whose, mark, version = None, None, ""
            if self._is_prepared(session):
                whose, mark = self._owner(session, relation.oid), self._mark(session, relation.oid, owner)
                version = self._version(session, relation.oid)
        return Look(
            relation.id,
            owner=whose,
            mark=mark,
            form=relation.form,
            schema=pa.schema([pa.field(c.name, c.type, c.nullable) for c in relation.columns]),
            version=version,
            at=_Seen(relation, owner),
        )

    def create(self, owner: Owner, schema: pa.Schema, partition: tuple[PartitionField, ...]) -> None:
        if partition:
            raise TableError(
                operation="create",
                subject=self._table.name,
                cause="tables are made without partitions here",
                hint="Leave them out, or create the table yourself, partitioned.",
            )
        columns = [
            f"{quoted(f.name)} {types.sql_type(f.type)}{'' if f.nullable else ' NOT NULL'}"
            for f in types.fitted(schema, self._table.name)
        ]
        self._prepare()
        with self._session("create") as session:
            session.run(f"SELECT pg_advisory_xact_lock({_LOCK})")
            if self._relation(session) is not None:
                return
            session.run(f"CREATE TABLE {self._quoted} ({', '.join([*columns, f'{UNIT} bigint'])})")
            session.run(f"CREATE INDEX ON {self._quoted} USING brin ({UNIT})")
            made = self._relation(session)
            assert made is not None
            self._claim(session, made.oid, owner)
            session.commit()

    def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        if look.mark is not None and mark.slot <= look.mark.slot:
            raise self._moved(f"its mark is {look.mark}, and {mark} isn't after it")
        if look.owner is None:  # else our schema has shown whose it is
            self._prepare()
        with self._session("commit to") as session:
            whose = owner if look.owner is None or not change.empty else look.owner
            relation = self._hold(session, look, whose, exclusive=change.schema is not None)
            if change.schema is not None:
                relation = self._altered(session, relation, change.schema)
            if change.removes_all:
                self._remove_all(session, relation)
            elif change.removes:
                self._remove(session, relation, change)
            if change.count:
                self._add(session, relation, change, mark)
            self._put_mark(session, relation.oid, owner, mark)
            session.commit()

    def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
        if look.owner is None:  # else our schema has shown whose it is
            self._prepare()
        with self._session("take over") as session:
            relation = self._hold(session, look, owner if look.owner is None else look.owner)
            session.run(
                f"UPDATE {OWN_SCHEMA}.owners SET owner = $1, dataset = $2, since = now() WHERE relation = {relation.oid}",
                owner.key,
                _written(owner),
            )
            if mark is not None:
                self._put_mark(session, relation.oid, owner, mark)
            session.commit()

    def count(self, units: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Count]:
        wanted = iter(units)
        found: dict[tuple[str, str], Count] = {}
        with self._session("count the rows of", to_read=True) as session:
            relation = self._relation(session)
            if relation is None or not relation.numbered or not self._is_prepared(session):
                return found
            while some := list(islice(wanted, _UNITS_A_QUERY)):
                known = self._numbers(session, relation, some, "AND NOT u.merged")
                rows = self._rows_of(session, f"SELECT {UNIT} FROM {self._quoted}", known)
                found |= {unit: Count(files, rows[number]) for number, (unit, files) in known.items() if number in rows}
        return found

    def total(self) -> Count:
        with self._session("count the rows of", to_read=True) as session:
            ((rows,),) = session.rows(f"SELECT count(*) FROM {self._quoted}")
        return Count(rows=rows)

    def read(self, version: str = "") -> ds.Dataset:
        if version:
            raise NotFoundError(
                operation="read",
                subject=f"version {version} of {self._table.name}",
                cause="PostgreSQL keeps no versions of a table",
                hint="Read it as it is now.",
            )
        with self._session("read", to_read=True) as session:
            relation = self._relation(session)
            if relation is None:
                raise TableError(operation="read", subject=self._table.name, cause="there is no such table")
            names = ", ".join(quoted(column.name) for column in relation.columns)
            return ds.dataset(session.table(f"SELECT {names} FROM {self._quoted}"))

    def files(self) -> Iterator[str]:
        return iter(())

    # ── sessions ──

    @contextmanager
    def _session(self, operation: str, *, to_read: bool = False) -> Iterator[_Session]:
        """Open a short-lived connection with a transaction, and convert its errors.

        :param to_read: whether all its queries see one state, and change nothing.
        """
        session: _Session | None = None
        try:
            session = _Session(connected(self._uri))
            if to_read:
                session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            else:
                session.run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
            self._limit(session)
            yield session
        except GobblinError:
            raise
        except Exception as error:
            raise self._error(error, operation, connected=session is not None) from None
        finally:
            if session is not None:
                session.close()

    def _limit(self, session: _Session) -> None:
        """Set a transaction's own limits: how long it waits, and that its commit is on disk before it is answered."""
        limits = {
            "lock_timeout": f"{self._table.lock_seconds}s",
            "statement_timeout": f"{self._table.statement_seconds}s",
            "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS}s",
            "tcp_keepalives_idle": "60",
            "tcp_keepalives_interval": "10",
            "tcp_keepalives_count": "6",
            "TimeZone": "UTC",
        }
        calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in limits.items())
        session.rows(f"SELECT {calls}")
        session.rows(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
        )

    def _error(self, error: Exception, operation: str, *, connected: bool) -> GobblinError:
        """Return a driver's error as one of ours, without secrets."""
        state = getattr(error, "sqlstate", None) or ""
        moved = state in _MOVED or (state == _TAKEN and "marks_pkey" in str(error))
        kind = TableMovedError if moved and operation in _ACTS else TableError
        hints = {
            "42501": "Grant its user that, or let somebody who may create the schema _gobblin and its tables.",
            "55P03": "Another transaction holds it: see pg_stat_activity.",
            "57014": f"A statement may take {self._table.statement_seconds} s here.",
        }
        hint = hints.get(state, "" if connected else "See that the server of the connection can be reached.")
        return kind(
            operation=operation,
            subject=self._table.name,
            cause=self._redactor.brief(_one_line(error)),
            hint=hint or None,
        )

    def _prepare(self) -> None:
        """Create our schema, unless it exists."""
        with self._session("prepare the marks of", to_read=True) as session:
            if self._is_prepared(session):
                return
        with self._session("prepare the marks of") as session:
            session.run(f"SELECT pg_advisory_xact_lock({_LOCK})")
            for statement in _MAKE.split(";"):
                session.run(statement)
            session.commit()

    def _is_prepared(self, session: _Session) -> bool:
        """Return whether our schema exists, as a whole: its three tables are made in one transaction."""
        ((found,),) = session.rows(
            "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = '{OWN_SCHEMA}' AND c.relname IN ('owners', 'marks', 'units') AND c.relkind = 'r'"
        )
        return bool(found == 3)

    # ── looking ──

    def _relation(self, session: _Session) -> _Relation | None:
        """Return the table, or `None` if there is none.

        :raises TableError: the relation of that name isn't a table that keeps rows for good.
        """
        found = session.rows(
            "SELECT c.oid::bigint, c.relkind::text, c.relpersistence::text, "
            "COALESCE(pg_catalog.pg_get_partkeydef(c.oid), '') "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = $1 AND c.relname = $2",
            self._table.namespace,
            self._table.table,
        )
        if not found:
            return None
        ((oid, kind, persistence, partition),) = found
        if kind not in ("r", "p") or persistence != "p":
            what = "unlogged, so that a crash of the server empties it" if kind in ("r", "p") else "no table"
            raise TableError(operation="use", subject=self._table.name, cause=f"it is {what}")
        rows = session.rows(_COLUMNS.format(relation=oid))
        others = [row for row in rows if row[0] != UNIT]
        columns = tuple(
            types.PresentColumn(name, types.arrow_type(base, modifier, element), nullable, computed)
            for name, base, modifier, element, nullable, computed, _ in others
        )
        form = digest(json.dumps([others, partition]).encode())[:32]
        return _Relation(oid, columns, len(others) < len(rows), form)

    def _owner(self, session: _Session, oid: int, lock: str = "") -> Owner | None:
        found = session.rows(f"SELECT dataset FROM {OWN_SCHEMA}.owners WHERE relation = {oid} {lock}")
        return Owner(*json.loads(found[0][0])) if found else None

    def _mark(self, session: _Session, oid: int, owner: Owner) -> Mark | None:
        found = session.rows(
            f"SELECT slot, token, done FROM {OWN_SCHEMA}.marks WHERE relation = {oid} AND owner = $1 "
            "ORDER BY slot DESC LIMIT 1",
            owner.key,
        )
        return Mark(*found[0]) if found else None

    def _version(self, session: _Session, oid: int) -> str:
        """Return the number of the newest mark, whoever owns it."""
        query = f"SELECT COALESCE(max(id)::text, '') FROM {OWN_SCHEMA}.marks WHERE relation = {oid}"
        return str(session.rows(query)[0][0])

    # ── committing ──

    def _hold(self, session: _Session, look: Look, owner: Owner, *, exclusive: bool = False) -> _Relation:
        """Lock the owner's row and the table, then compare both with a look: the result holds until the transaction ends.

        Each statement sees what was committed when it began, so those after the lock see everything done under it.

        :param exclusive: whether its columns will be changed.
        :raises TableMovedError: something isn't as in the look.
        """
        if not isinstance(look.at, _Seen):
            raise self._moved("there was no table")
        seen = look.at.relation
        if look.owner is None:
            self._claim(session, seen.oid, owner)
        if self._owner(session, seen.oid, "FOR UPDATE") != owner:
            raise self._moved("it belongs to another dataset")
        mode = "ACCESS EXCLUSIVE" if exclusive or not seen.numbered else "ROW EXCLUSIVE"
        session.run(f"LOCK TABLE {self._quoted} IN {mode} MODE")
        found = self._relation(session)
        if found is None or found.oid != seen.oid:
            raise self._moved("it was dropped, or made anew")
        if found.form != seen.form:
            raise self._moved("its columns were changed")
        mark = self._mark(session, found.oid, look.at.by)
        if mark != look.mark:
            raise self._moved(f"its mark is {mark}, and was {look.mark}")
        return found

    def _moved(self, cause: str) -> TableMovedError:
        return TableMovedError(operation="commit to", subject=self._table.name, cause=cause)

    def _put_mark(self, session: _Session, oid: int, owner: Owner, mark: Mark) -> None:
        session.run(
            f"INSERT INTO {OWN_SCHEMA}.marks (relation, owner, slot, token, done) "
            f"VALUES ({oid}, $1, {mark.slot:d}, $2, {mark.done})",
            owner.key,
            mark.token,
        )

    def _claim(self, session: _Session, oid: int, owner: Owner) -> None:
        """Give the table to a dataset, if it is nobody's."""
        session.run(
            f"INSERT INTO {OWN_SCHEMA}.owners (relation, owner, dataset) VALUES ({oid}, $1, $2) ON CONFLICT DO NOTHING",
            owner.key,
            _written(owner),
        )

    def _altered(self, session: _Session, relation: _Relation, schema: pa.Schema) -> _Relation:
        """Give the table the columns of a schema."""
        actions = types.changes(relation.columns, types.fitted(schema, self._table.name), self._table.name)
        if not actions:
            return relation
        session.run(f"ALTER TABLE {self._quoted} {', '.join(actions)}")
        altered = self._relation(session)
        assert altered is not None  # the table is locked
        return altered

    def _remove_all(self, session: _Session, relation: _Relation) -> None:
        session.run(f"DELETE FROM {self._quoted}")
        session.run(f"DELETE FROM {OWN_SCHEMA}.units WHERE relation = {relation.oid}")

    def _remove(self, session: _Session, relation: _Relation, change: Change) -> None:
        """Remove the rows of units; they must be as many as their slots published.

        :raises TableError: they aren't.
        """
        for start in range(0, len(change.removes), _UNITS_A_QUERY):
            some = change.removes[start : start + _UNITS_A_QUERY]
            known = self._numbers(session, relation, [(unit.token, unit.unit) for unit in some])
            gone = {} if not relation.numbered else self._rows_of(session, f"DELETE FROM {self._quoted}", known)
            rows = {unit: gone.get(number, 0) for number, (unit, _) in known.items()}
            for unit in some:
                present = rows.get((unit.token, unit.unit), 0)
                if present != unit.rows:
                    raise TableError(
                        operation="replace rows of",
                        subject=self._table.name,
                        cause=f"{present} rows of unit {unit.unit!r} of {unit.token} are there, and {unit.rows} were "
                        "published: somebody deleted or changed some",
                    )
            if known:
                session.run(f"DELETE FROM {OWN_SCHEMA}.units WHERE id IN ({_listed(known)})")

    def _numbers(
        self, session: _Session, relation: _Relation, units: Sequence[tuple[str, str]], condition: str = ""
    ) -> dict[int, tuple[tuple[str, str], int]]:
        """Return units by number, each with how many files it came from."""
        found = session.rows(
            f"SELECT u.id, u.token, u.unit, u.files FROM {OWN_SCHEMA}.units u "
            "JOIN jsonb_array_elements($1::jsonb) w ON u.token = w ->> 0 AND u.unit = w ->> 1 "
            f"WHERE u.relation = {relation.oid} {condition}",
            json.dumps(units),
        )
        return {number: ((token, unit), files) for number, token, unit, files in found}

    def _rows_of(self, session: _Session, act: str, units: Mapping[int, object]) -> dict[int, int]:
        """Return how many rows units have, by their numbers.

        :param act: the statement about the rows, without its condition: it selects or deletes them.
        """
        if not units:
            return {}
        returning = f" RETURNING {UNIT}" if act.startswith("DELETE") else ""
        query = f"WITH found AS ({act} WHERE {UNIT} IN ({_listed(units)}){returning}) "
        return dict(session.rows(f"{query} SELECT {UNIT}, count(*) FROM found GROUP BY 1"))

    def _add(self, session: _Session, relation: _Relation, change: Change, mark: Mark) -> None:
        """Add the rows of the data files."""
        if not relation.numbered:
            session.run(f"ALTER TABLE {self._quoted} ADD COLUMN {UNIT} bigint")
            session.run(f"CREATE INDEX ON {self._quoted} USING brin ({UNIT})")
        numbers = self._numbered(session, relation, change, mark)
        columns = pa.schema([pa.field(c.name, c.type, c.nullable) for c in relation.columns if not c.computed])
        stream = _Stream(self._files, change, columns, numbers, self._table.name)
        if change.merge is None:
            copied = stream.into(session, self._table.table, self._table.namespace)
            if session.rows(_TRIGGERS.format(relation=relation.oid)):
                known = dict.fromkeys(numbers.values())
                copied = sum(self._rows_of(session, f"SELECT {UNIT} FROM {self._quoted}", known).values())
        else:
            copied = self._merge(session, relation, change.merge, stream)
        if copied != change.rows:
            raise TableError(
                operation="commit to",
                subject=self._table.name,
                cause=f"the staged files have {change.rows} rows, and {copied} were taken",
                hint="See whether a trigger of the table leaves rows out.",
            )

    def _numbered(self, session: _Session, relation: _Relation, change: Change, mark: Mark) -> Mapping[str, int]:
        """Number the units of the data files."""
        files: dict[str, int] = {}
        for file in change.files():
            files[file.unit] = files.get(file.unit, 0) + 1
        numbers: dict[str, int] = {}
        rest = iter(files.items())
        while some := list(islice(rest, _UNITS_A_QUERY)):
            numbers |= dict(
                session.rows(
                    f"INSERT INTO {OWN_SCHEMA}.units (relation, token, unit, files, merged) "
                    f"SELECT {relation.oid}, $1, w ->> 0, (w ->> 1)::bigint, {change.merge is not None} "
                    "FROM jsonb_array_elements($2::jsonb) w RETURNING unit, id",
                    mark.token,
                    json.dumps(some),
                )
            )
        return numbers

    def _merge(self, session: _Session, relation: _Relation, merge: Merge, stream: _Stream) -> int:
        """Merge in the newest row of each key, unless the table has a newer one; return how many rows were copied."""
        self._see_key(session, relation, merge)
        names = [quoted(name) for name in (*stream.names, UNIT)]
        listed, keys = ", ".join(names), ", ".join(quoted(key) for key in merge.keys)
        session.run(
            f"CREATE TEMPORARY TABLE {_STAGED} ON COMMIT DROP AS SELECT {listed} FROM {self._quoted} WITH NO DATA"
        )
        copied = stream.into(session, _STAGED, None)
        order = [quoted(name) for name in merge.versions]
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in names)
        newest = f"SELECT {listed} FROM {_STAGED}"
        if self._has_keys_twice(session, merge, copied):
            self._see_ties(session, merge)
            newest = (
                f"SELECT DISTINCT ON ({keys}) {listed} FROM {_STAGED} "
                f"ORDER BY {', '.join([keys, *(f'{name} DESC NULLS LAST' for name in order)])}"
            )
        session.run(
            f"INSERT INTO {self._quoted} AS present ({listed}) {newest} "
            f"ON CONFLICT ({keys}) DO UPDATE SET {sets} WHERE {_newer(order)}"
        )
        return copied

    def _has_keys_twice(self, session: _Session, merge: Merge, rows: int) -> bool:
        """Return whether a key has two rows; the newest is sought only then.

        :param rows: the number of rows.
        :raises TableError: a row has no value in its key.
        """
        keys = ", ".join(quoted(key) for key in merge.keys)
        null = " OR ".join(f"{quoted(key)} IS NULL" for key in merge.keys)
        # This sorts the keys; grouping by them takes up to six times as long.
        ((different, lacking),) = session.rows(f"SELECT count(DISTINCT ({keys})), bool_or({null}) FROM {_STAGED}")
        if lacking:
            raise TableError(
                operation="merge into", subject=self._table.name, cause=f"a row has no value in its key ({keys})"
            )
        return bool(different < rows)

    def _see_ties(self, session: _Session, merge: Merge) -> None:
        """Check that one row of each key is its newest version.

        :raises TableError: two are, and nothing decides between them.
        """
        keys = ", ".join(quoted(key) for key in merge.keys)
        order = ", ".join(f"{quoted(name)} DESC NULLS LAST" for name in merge.versions)
        ranked = (
            f"SELECT {keys}, rank() OVER (PARTITION BY {keys} {order and f'ORDER BY {order}'}) AS place FROM {_STAGED}"
        )
        found = session.rows(
            f"SELECT json_build_array({keys})::text FROM ({ranked}) AS ranked WHERE place = 1 "
            f"GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        )
        if found:
            raise TableError(
                operation="merge into",
                subject=self._table.name,
                cause=f"of the key ({keys}) = {found[0][0]} there are two rows, and nothing shows which one is newer",
                hint="Merge by positions too, or leave one of them out.",
            )

    def _see_key(self, session: _Session, relation: _Relation, merge: Merge) -> None:
        """Make sure that an index keeps keys unique."""
        query = _UNIQUE.format(relation=relation.oid, count=len(merge.keys))
        if not session.rows(query, json.dumps(merge.keys)):
            keys = ", ".join(quoted(key) for key in merge.keys)
            session.run(f"CREATE UNIQUE INDEX {quoted(f'_gobblin_key_{relation.oid}')} ON {self._quoted} ({keys})")


class _Stream:
    """The rows of data files as one stream, with one batch in memory at a time.

    :param columns: those of the table that can be written. Those that the first file lacks are left out.
    :param numbers: those of units.
    """

    def __init__(
        self, files: Files, change: Change, columns: pa.Schema, numbers: Mapping[str, int], subject: str
    ) -> None:
        self._files, self._numbers, self._subject = files, numbers, subject
        self._change = change
        first = next(iter(change.files()))
        with opened(self._files, first, subject) as parquet:
            present = parquet.schema_arrow.names
        strange = [name for name in present if name not in columns.names]
        if strange:
            raise TableError(
                operation="write", subject=subject, cause=f"it has no column {', '.join(map(repr, strange))}"
            )
        self._columns = pa.schema([field for field in columns if field.name in present])
        self._error: BaseException | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns that are written."""
        return list(self._columns.names)

    def into(self, session: _Session, table: str, namespace: str | None) -> int:
        """Copy all rows into a table, and return how many."""
        fields = [pa.field(f.name, pa.string() if types.is_json(f.type) else f.type) for f in self._columns]
        schema = pa.schema([*fields, pa.field(UNIT, pa.int64())])
        try:
            return session.copy(pa.RecordBatchReader.from_batches(schema, self._batches(schema)), table, namespace)
        except Exception:
            if self._error is not None:  # the driver only reports its text
                raise self._error from None
            raise

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for file in self._change.files():
                with opened(self._files, file, self._subject) as parquet:
                    for batch in parquet.iter_batches(_ROWS_A_BATCH):
                        arrays = types.converted(batch, self._columns, self._subject)
                        numbers = pa.repeat(pa.scalar(self._numbers[file.unit], pa.int64()), batch.num_rows)
                        yield pa.RecordBatch.from_arrays([*arrays, numbers], schema=schema)
        except BaseException as error:
            self._error = error
            raise


def _written(owner: Owner) -> str:
    """Return an owner as JSON, since a URN may have characters that PostgreSQL's text can't have."""
    return json.dumps([owner.journal, owner.ingestion, owner.urn])


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(f"{number:d}" for number in numbers)


def _newer(order: Sequence[str]) -> str:
    """Return the condition that a row is newer than the present one: column by column, null before all values."""
    if not order:
        return "false"
    new, old = f"EXCLUDED.{order[0]}", f"present.{order[0]}"
    newer = f"{new} > {old} OR ({new} IS NOT NULL AND {old} IS NULL)"
    return f"({newer} OR ({new} IS NOT DISTINCT FROM {old} AND {_newer(order[1:])}))"


def _one_line(error: Exception) -> str:
    """Return the message of the server or the driver, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
