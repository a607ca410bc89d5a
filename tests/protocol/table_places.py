"""A dataset in a table as `interleavings` plays it: a place of its journal, its workspace and its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.journal import journal
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.work import Pack
from airflow_gobblin.run.here import run_units
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing.memory_files import MemoryFiles
from tests.protocol.attempts import Attempt
from tests.protocol.rows import RowSource
from tests.protocol.table_world import FLIGHTS, ColumnRows, TableWorld, source
from tests.protocol.world import Look, Run


@dataclass(frozen=True)
class TableProcess:
    """A process of the product."""

    opened: OpenJob

    def extract(self, run: RunPlan, pack: Pack, attempt: str) -> None:
        """The work of Spark, without Spark."""
        for token, result in run_units(self.opened, run, NoConnections()):
            self.opened.staging.put_result(token, result)


class TableLook(Look):
    """The content of a place, and whether it is as promised."""

    def __init__(self, world: TableWorld) -> None:
        super().__init__(world.journal(), world.files)
        self._world = world

    def check(self, sources: object, **_: object) -> dict[str, Counter[str]]:
        self._world.check()
        return {}

    def check_complete(self, sources: Sequence[RowSource]) -> None:
        assert isinstance(sources[-1], ColumnRows)
        self._world.check_complete(sources[-1])


@dataclass
class TablePlace:
    """A place. As its tables are of this process, only one copy of it can be played at a time.

    :param put_back: puts the table back as it is where copies begin.
    :param sources: what the source was until now.
    """

    world: TableWorld
    put_back: Callable[[], None] = lambda: None
    sources: list[RowSource] = field(default_factory=list)

    @property
    def store(self) -> MemoryStore:
        return self.world.store

    @property
    def files(self) -> MemoryFiles:
        return self.world.files

    def copy(self) -> TablePlace:
        self.put_back()
        return TablePlace(self.world.copied(), self.put_back, [*self.sources])

    def state(self) -> int:
        """The state of the world, as a number that is equal for equal states."""
        records = ((key, self.store.get(key)) for key in self.store.list(""))
        table = self.world.state(FLIGHTS)
        assert table is not None
        rows = (str(entry) for entry in table.versions[table.head].entries)
        return hash((*records, *self.files.content(), str(table.marks), table.head, *rows))

    def process(self, rows: int, attempt: Attempt | None = None) -> TableProcess:
        """A process of the product, whose calls an attempt makes."""
        return TableProcess(self.world.opened(source([FLIGHTS], rows), attempt))

    def grow(self, rows: int) -> None:
        """Let the source have so many rows from now on."""
        self.sources.append(source([FLIGHTS], rows))

    def look(self) -> TableLook:
        return TableLook(self.world)


def begun(name: str) -> TablePlace:
    """A place with two rows published.

    :param name: of its table.
    """
    place = TablePlace(TableWorld(name, urns=(FLIGHTS,)))
    place.world.forget_tables()
    place.store.put_if_absent(journal._ID, b"0" * 32)
    place.grow(2)
    Run("run 1").carry_out(lambda: place.process(2))
    place.put_back = place.world.tables_as_they_are()
    return place
