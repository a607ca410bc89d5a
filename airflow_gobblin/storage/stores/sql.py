"""A store in a SQL database, through SQLAlchemy: one row per record, with the key as its primary key.

SQLite serves one host, PostgreSQL serves several. A constraint decides which writer creates a record; no lock outlasts one
statement. Others see a row only after its transaction is durable, if commits wait for the disk. So each connection to SQLite
requests that, and each writing transaction on PostgreSQL, whatever the defaults of server, database and role.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, make_url

from airflow_gobblin.errors import ConfigurationError, MissingExtraError, StoreError, UnknownOutcomeError
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.base import no_journal

TABLE = "gobblin_journal"
_SECONDS_TO_WAIT = 30
_RECORDS_A_QUERY = 500
_KEYS_A_QUERY = 20_000


# A role or database may disable or weaken it: then a decision that was confirmed is lost when the server crashes. It is set per
# transaction, since a pooler may give each one another session.
_WAIT_FOR_THE_DISK = sa.text(
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
)


class SqlStore:
    """Records as rows of the table `gobblin_journal`, which is created if it doesn't exist.

    :param url: an SQLAlchemy URL, `sqlite:////var/lib/journal.db` or `postgresql://user@host/database`.
    :param to_read: whether to create and write nothing.
    :raises ConfigurationError: the URL is invalid.
    :raises NotFoundError: there is no table to read.
    :raises StoreError: the database can't be reached.
    """

    def __init__(self, url: str, *, to_read: bool = False) -> None:
        parsed = database_url(url)
        # The query may contain passwords, too.
        place = (parsed.drivername, parsed.username, None, parsed.host, parsed.port, parsed.database)
        self.name = URL.create(*place).render_as_string()
        self._insert: Any = postgresql.insert if parsed.get_backend_name() == "postgresql" else sqlite.insert
        try:
            self._engine = sa.create_engine(parsed, **_engine_options(parsed, to_read=to_read))
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                operation="open",
                subject=self.name,
                cause=error,
                hint="Install the extra: pip install 'airflow-gobblin[postgres]'.",
            ) from error
        if parsed.get_backend_name() == "sqlite":
            if not to_read:
                self._make_folder(Path(parsed.database or ""))
            sa.event.listen(self._engine, "connect", _only_read if to_read else _make_durable)
        # The "C" collation compares prefixes and keys by their bytes.
        key = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
        self._table = sa.Table(
            TABLE,
            sa.MetaData(),
            sa.Column("key", key, primary_key=True),
            sa.Column("data", sa.LargeBinary, nullable=False),
        )
        if not to_read:
            self._make_table()
        elif not self._has_table():
            self.close()
            raise no_journal(self.name)

    def _has_table(self) -> bool:
        with self._transaction("open", TABLE, StoreError) as connection:
            return sa.inspect(connection).has_table(TABLE)

    def _make_folder(self, database: Path) -> None:
        """Create the database's folder durably; SQLite does the same for its own files."""
        if database.exists():
            return
        folder = LocalFiles(database.parent)
        try:
            folder.make_folder(".")
            folder.sync_folder(".")
        except OSError as error:
            raise StoreError(
                operation="open",
                subject=self.name,
                cause=error,
                hint=f"See that the folder {database.parent} can be made and written.",
            ) from error

    def _make_table(self) -> None:
        try:
            with self._transaction("open", TABLE, StoreError, writes=True) as connection:
                connection.execute(sa.schema.CreateTable(self._table, if_not_exists=True))
        except StoreError:  # in PostgreSQL, two concurrent creations can collide
            if not self._has_table():
                raise

    def put_if_absent(self, key: str, data: bytes) -> bool:
        statement = self._insert(self._table).values(key=key, data=data).on_conflict_do_nothing(index_elements=["key"])
        statement = statement.returning(self._table.c.key)
        # An error may follow the commit: only the statement itself, before it, is known to have failed.
        with self._transaction("write", key, UnknownOutcomeError, writes=True) as connection:
            return connection.execute(statement).scalar() is not None

    def get(self, key: str) -> bytes | None:
        with self._transaction("read", key, StoreError) as connection:
            return connection.execute(sa.select(self._table.c.data).where(self._table.c.key == key)).scalar()

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        for start in range(0, len(keys), _RECORDS_A_QUERY):
            some = keys[start : start + _RECORDS_A_QUERY]
            query = sa.select(self._table.c.key, self._table.c.data).where(self._table.c.key.in_(some))
            with self._transaction("read", some[0], StoreError) as connection:
                found = {row.key: row.data for row in connection.execute(query)}
            yield from ((key, found.get(key)) for key in some)

    def list(self, prefix: str) -> Iterator[str]:
        key = self._table.c.key
        query = sa.select(key).where(key < prefix + "\U0010ffff").order_by(key).limit(_KEYS_A_QUERY)
        found = self._keys(prefix, query.where(key >= prefix))
        while found:
            yield from found
            found = self._keys(prefix, query.where(key > found[-1])) if len(found) == _KEYS_A_QUERY else []

    def _keys(self, prefix: str, query: sa.Select[Any]) -> Sequence[str]:
        with self._transaction("list", prefix, StoreError) as connection:
            return [row.key for row in connection.execute(query)]

    def delete(self, key: str) -> None:
        with self._transaction("delete", key, UnknownOutcomeError, writes=True) as connection:
            connection.execute(sa.delete(self._table).where(self._table.c.key == key))

    def delete_many(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _RECORDS_A_QUERY):
            some = keys[start : start + _RECORDS_A_QUERY]
            with self._transaction("delete", some[0], UnknownOutcomeError, writes=True) as connection:
                connection.execute(sa.delete(self._table).where(self._table.c.key.in_(some)))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(
        self, operation: str, key: str, error_type: type[StoreError], *, writes: bool = False
    ) -> Iterator[Connection]:
        try:
            connection = self._engine.connect()
        except sa.exc.SQLAlchemyError as error:
            raise self._error(operation, key, error, StoreError) from error
        with connection:
            try:
                if writes and self._engine.dialect.name == "postgresql":
                    connection.execute(_WAIT_FOR_THE_DISK)
                yield connection
                connection.commit()
            except sa.exc.SQLAlchemyError as error:
                raise self._error(operation, key, error, error_type) from error

    def _error(
        self, operation: str, key: str, error: sa.exc.SQLAlchemyError, error_type: type[StoreError]
    ) -> StoreError:
        cause = str(getattr(error, "orig", None) or error).strip()  # the driver's message, without statement and values
        return error_type(
            operation=operation,
            subject=f"record {key!r} in {self.name}",
            cause=cause,
            hint="Check that the database is up, and that its user may create and write the table.",
        )


def database_url(text: str) -> URL:
    """Parse the URL of a database, and set the driver used here. Nothing is opened.

    :raises ConfigurationError: it is malformed, isn't a supported database, or has a relative path.
    """
    parsed: URL | None = None
    with suppress(ValueError, sa.exc.ArgumentError):  # their messages may contain the password
        parsed = make_url(text)
    if parsed is None:
        raise ConfigurationError(
            operation="open",
            subject=f"journal store of scheme {text.partition(':')[0]!r}",
            cause="its URL can't be read",
            hint="Its form is 'postgresql://user@host:port/database'; the port is a number, and ':', '/' and '@' in a name "
            "or password are written %3A, %2F and %40.",
        )
    return _driver(parsed)


def holds_secret(url: URL) -> bool:
    """Return whether a URL contains a password, before the host or after the `?`."""
    return bool(url.password) or any(name.lower().endswith(("password", "secret")) for name in url.query)


def _driver(url: URL) -> URL:
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigurationError(
            operation="open",
            subject=f"journal store of scheme {url.drivername!r}",
            cause="it is not supported",
            hint="Use 'postgresql://…', or 'sqlite:////…' for one host.",
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigurationError(
            operation="open",
            subject="journal store sqlite in memory",
            cause="every task of a run is a process of its own and must see the same records",
            hint="Name a file: 'sqlite:////path/to/journal.db'.",
        )
    if url.get_backend_name() == "sqlite" and not str(url.database).startswith("/"):
        raise ConfigurationError(
            operation="open",
            subject=f"journal store 'sqlite:///{url.database}'",
            cause="its path is relative, and tasks run in different folders",
            hint="Give four slashes and an absolute path: 'sqlite:////path/to/journal.db'.",
        )
    return url


def _engine_options(url: URL, *, to_read: bool) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite" and to_read:
        # A missing file isn't created, and no connection stays open, since SQLite keeps extra files beside an open one.
        name = f"file:{quote(url.database or '')}?mode=rw"
        return {
            "creator": lambda: sqlite3.connect(name, uri=True, timeout=_SECONDS_TO_WAIT),
            "poolclass": sa.NullPool,
        }
    if url.get_backend_name() == "sqlite":
        # Closing the last connection checkpoints the WAL file, which is slow: a few stay open.
        return {"pool_size": 2, "connect_args": {"timeout": _SECONDS_TO_WAIT}}
    options: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 2}
    if to_read:
        options["execution_options"] = {"postgresql_readonly": True}
    return {**options, "connect_args": {"connect_timeout": _SECONDS_TO_WAIT}}


def _make_durable(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=EXTRA")  # FULL, even without WAL (on some network file systems)


def _only_read(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only=ON")
