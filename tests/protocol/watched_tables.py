"""Tables whose calls are made through the faults of the files that they are opened with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest import mock

import pyarrow as pa
import pyarrow.dataset as ds

from airflow_gobblin.connections import Connections
from airflow_gobblin.model.table import Mark, Owner
from airflow_gobblin.storage.files import Files
from airflow_gobblin.tables.port import Change, Count, Look, OpenTable, PartitionField
from tests.faults import Call, Caller, Effect, FaultyFiles

T = TypeVar("T")


class WatchedTable:
    """An open table.

    :param name: its name, as the subject of its calls.
    """

    def __init__(self, table: OpenTable, name: str, faults: Caller) -> None:
        self._table, self._name, self._faults = table, name, faults

    def _call(self, operation: str, effect: Effect, do: Callable[[], T]) -> T:
        return self._faults.call(Call("table", operation, self._name, effect), do)

    def look(self, owner: Owner) -> Look:
        return self._call("look", Effect.READ, lambda: self._table.look(owner))

    def create(self, owner: Owner, schema: pa.Schema, partition: tuple[PartitionField, ...]) -> None:
        self._call("create", Effect.PUT, lambda: self._table.create(owner, schema, partition))

    def commit(self, look: Look, change: Change, owner: Owner, mark: Mark) -> None:
        self._call("commit", Effect.PUT, lambda: self._table.commit(look, change, owner, mark))

    def take_over(self, look: Look, owner: Owner, mark: Mark | None = None) -> None:
        self._call("take over", Effect.PUT, lambda: self._table.take_over(look, owner, mark))

    def count(self, units: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Count]:
        return self._call("count", Effect.READ, lambda: self._table.count(units))

    def total(self) -> Count:
        return self._call("total", Effect.READ, self._table.total)

    def read(self, version: str = "") -> ds.Dataset:
        return self._call("read", Effect.READ, lambda: self._table.read(version))

    def files(self) -> Iterator[str]:
        return self._call("files", Effect.READ, lambda: iter([*self._table.files()]))


@contextmanager
def watching(*formats: type[Any]) -> Iterator[None]:
    """Let the calls of all tables of some formats be made through the faults of the process that has them open.

    :param formats: the classes that name tables, such as `DeltaLakeTable`.
    """
    with ExitStack() as stack:
        for of in formats:
            stack.enter_context(mock.patch.object(of, "open", _watched(of.open)))
        yield


def _watched(
    open_table: Callable[[Any, Connections, Files], OpenTable],
) -> Callable[[Any, Connections, Files], OpenTable]:
    def opened(self: Any, connections: Connections, files: Files) -> OpenTable:
        table = open_table(self, connections, files)
        return WatchedTable(table, self.name, files._faults) if isinstance(files, FaultyFiles) else table

    return opened
