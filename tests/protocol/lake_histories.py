"""Histories of real tables with kills: runs through the whole library to Delta, Iceberg and PostgreSQL, which die or get an
error at any call of the journal, the workspace and the table; late tasks, rewinds, replaced ranges, abandons; another ingestion
that takes tables over, and its former owner that takes them back. After every run readers outside read all tables: each of
them finds the rows that a table has by the journal of its owner, and those that were there when the owner got it.

Some of the runs are processes of their own, which are killed by SIGKILL.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from os import getpid, kill
from pathlib import Path
from typing import Any, Protocol

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import Connections
from airflow_gobblin.errors import GobblinError, LostRaceError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.model.table import Owner, TableRecord
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import Dataset, Extract
from airflow_gobblin.rows.sinks.base import Sink, TableSink
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.tables.port import OpenTable, table_of
from airflow_gobblin.testing import inprocess
from tests.faults import Crash, Fault, Faults, FaultyFiles, FaultyStore
from tests.protocol.table_world import (
    FLIGHTS,
    KINDS,
    Inherited,
    Row,
    expect_rows,
    positions_of,
    rows_since,
    source,
    units_in_table,
)
from tests.protocol.watched_tables import watching

NAME = "lake"
_FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ANSWER_LOST, Fault.ERROR)
Read = Callable[[str], Counter[Row]]
"""Reads the table of a dataset."""


class Format(Protocol):
    """Tables of a format.

    :param record: the class that names a table.
    :param readers: how others read the table of a dataset, by their names.
    """

    @property
    def name(self) -> str: ...

    @property
    def place(self) -> str:
        """Where its tables are: with its name it is known to another process."""

    @property
    def record(self) -> type[Any]: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def readers(self) -> Mapping[str, Read]: ...

    def sink(self, urn: str, workspace: str) -> Sink:
        """Return the sink of a dataset."""


@dataclass
class Lake:
    """Datasets in tables of one format: an ingestion each, with a journal and a workspace on disk.

    :param folder: holds these.
    :param rows: how many rows the source has, and `version` which it shows.
    :param plans: of each dataset, with the ingestion that made them.
    :param whose: which of the two ingestions of a dataset has its table.
    :param inherited: what the tables that were taken over had then.
    """

    of: Format
    folder: Path
    seed: int
    rows: int = 4
    version: int = 0
    runs: int = 0
    kills: int = 0
    plans: dict[str, list[tuple[int, RunPlan]]] = field(default_factory=lambda: {urn: [] for urn in KINDS})
    whose: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    inherited: dict[str, Inherited] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    # Events

    def play(self, runs: int, real_kills: float = 0.0) -> None:
        """Play a history of some runs.

        :param real_kills: the share of the runs that a process of their own carries out, until it is killed.
        :raises AssertionError: a promise is broken.
        """
        with watching(self.of.record):
            while self.runs < runs:
                self._something(real_kills)
                self.check()
            for urn in KINDS:
                self._rest(urn)
            self.check()

    def _something(self, real_kills: float) -> None:
        urn = self.chance.choice([*KINDS])
        if self.chance.random() < 0.6:
            self.rows += self.chance.randint(1, 3)
            self.version += self.chance.randint(0, 1)
        event = self.chance.choices([self._run, self._late, self._person, self._take_over], [6, 2, 1, 1])[0]
        if event == self._run and self.chance.random() < real_kills:
            event = self._run_to_be_killed
        event(urn)

    def _request(self, urn: str) -> RunRequest:
        name = f"run {len(self.log)}"
        if urn == FLIGHTS and self.chance.random() < 0.25:
            start = self.chance.randrange(self.rows)
            return RunRequest(name, self.rows, (urn,), start, True)
        return RunRequest(name)

    def _run(self, urn: str) -> None:
        """A run that dies or gets an error at some call, or doesn't."""
        at = self.chance.choice([None, self.chance.randrange(60), self.chance.randrange(160)])
        faults, request = Faults(at, self.chance.choice(_FAULTS)), self._request(urn)
        # An ingestion that never had a table would have it, if there is none.
        who = self.chance.choice([self.whose[urn], 0, 1]) if urn in self.inherited else self.whose[urn]
        self.runs += 1
        asked = f"{request.dag_run} of {who} {request.start or ''}"
        self.log.append(f"{urn}: {asked}, {faults._fault if at is not None else 'no fault'} at {at}")
        with suppress(Crash, GobblinError, OSError):
            opened = self.opened(urn, faults, who)
            verify_recover(opened, request)
            plan = create_work_units(opened, request)
            self.plans[urn].append((who, plan))
            inprocess.publish(opened, plan, self.of.connections)
            finish(opened, plan)
        self.kills += faults.dead

    def _run_to_be_killed(self, urn: str) -> None:
        """A run in a process of its own, which is killed at some call."""
        at, request = self.chance.randrange(20, 120), f"run {len(self.log)}"
        self.runs += 1
        who = self.whose[urn]
        self.log.append(f"{urn}: {request} of {who}, killed by SIGKILL at {at}")
        word = json.dumps(
            [self.of.name, self.of.place, str(self.folder), urn, who, self.rows, self.version, request, at]
        )
        done = subprocess.run(
            [sys.executable, "-m", "tests.protocol.lake_formats", word], check=False, capture_output=True, text=True
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        self.kills += done.returncode != 0

    def _late(self, urn: str) -> None:
        """A task of an earlier run, whose process has not died, or which is cleared."""
        if not self.plans[urn]:
            return
        who, plan = self.chance.choice(self.plans[urn][-3:])
        task = self.chance.choice([write_commit_steps, execute_commit_steps])
        self.log.append(f"{urn}: late {task.__name__} of {plan.run} of {who}")
        with suppress(GobblinError):
            for pack in plan.packs:
                task(self.opened(urn, who=who), plan, pack)

    def _person(self, urn: str) -> None:
        """A person abandons what is pending; or rewinds."""
        pending = [who for who in (0, 1) if self._is_pending(urn, who)]
        who = self.chance.choice(pending or [self.whose[urn]])
        self.log.append(f"{urn}: {'abandon' if pending else 'rewind'} of {who}")
        with suppress(GobblinError):
            if pending:
                self._ann(urn, who).abandon(urn, "for the test")
            elif urn == FLIGHTS:
                self._ann(urn, who).rewind(urn, LongWatermark(self.chance.randrange(self.rows)), "for the test")

    def _take_over(self, urn: str) -> None:
        """The ingestion that hasn't got a table takes it over, or dies or gets an error at some call: then it is finished, or
        abandoned.
        """
        heir, table = 1 - self.whose[urn], self.table(urn)
        if not table.look(self._owner(urn)).id:
            return
        with suppress(GobblinError):  # what it decided when it last had the table
            self._abandon(urn, heir)
        live, rows = self.journal(urn, who=heir).history(urn).state.live, self._expected(urn)
        faults = Faults(self.chance.choice([None, self.chance.randrange(40)]), self.chance.choice(_FAULTS))
        self.log.append(f"{urn}: {heir} takes it over, {faults._fault} at {faults._at}")
        with suppress(Crash, GobblinError, OSError):
            self._ann(urn, heir, faults).take_over(urn, self._record(urn), "for the test")
        self.kills += faults.dead
        if self._is_pending(urn, heir) and self.chance.random() < 0.5:
            verify_recover(self.opened(urn, who=heir), RunRequest(f"run {len(self.log)}"))
        self._abandon(urn, heir)
        if table.look(self._owner(urn, heir)).owner == self._owner(urn, heir):
            self.whose[urn] = heir
            self.inherited[urn] = Inherited(self._owner(urn), rows, {**live}, {})
            self.log.append(f"{urn}: {heir} has it")

    def _abandon(self, urn: str, who: int) -> None:
        """Abandon what is pending, if anything is; it may be done."""
        if self._is_pending(urn, who):
            with suppress(LostRaceError):
                self._ann(urn, who).abandon(urn, "for the test")

    def _rest(self, urn: str) -> None:
        """Without faults everything is published, once."""
        self._abandon(urn, 1 - self.whose[urn])
        for number in range(3):
            found = inprocess.run(self.opened(urn), self.of.connections, RunRequest(f"rest {number}"))
            self.log.append(f"{urn}: rest: {', '.join(f'{r.status.value} {r.detail}' for r in found.values())}")
        live = self.journal(urn).history(urn).state.live
        assert self.journal(urn).history(urn).pending is None, f"{self}: {urn} is pending"
        (table,) = source([urn], self.rows, self.version).tables
        found_at = Counter(position for _, position in positions_of(live.values()))
        assert found_at == Counter(range(table.rows)), f"{self}: {urn} has {sorted(found_at)}"

    # Checks

    def check(self) -> None:
        """Every reader finds in every table the rows of the journal.

        :raises AssertionError: one doesn't.
        """
        for urn in KINDS:
            look = self.table(urn).look(self._owner(urn))
            if not look.id:
                continue
            assert look.owner == self._owner(urn), f"{self}\n{urn} belongs to {look.owner}"
            expected = self._expected(urn)
            for name, read in self.of.readers.items():
                expect_rows(f"{self}\n{urn} by {name}", read(urn), expected)

    def _expected(self, urn: str) -> Counter[Row]:
        """Return the rows that a table must have, by the journal of its owner."""
        look = self.table(urn).look(self._owner(urn))
        live = units_in_table(self.journal(urn).history(urn), look.mark, look.id)
        return rows_since(urn, self.inherited.get(urn), live, lambda row: row[3])

    def __str__(self) -> str:
        return "\n".join((f"history {self.seed} of {self.of.name}", *self.log))

    # The parts

    # Of one of the two ingestions of a dataset; by default of the one that has the table.

    def files(self, urn: str, who: int | None = None) -> LocalFiles:
        return LocalFiles(self._folder(self._named("work", urn, who), urn))

    def journal(self, urn: str, faults: Faults | None = None, who: int | None = None) -> Journal:
        store = LocalStore(LocalFiles(self._folder(self._named("journal", urn, who), urn)))
        return Journal.create(store if faults is None else FaultyStore(store, faults), NAME)

    def _named(self, name: str, urn: str, who: int | None) -> str:
        return f"{name}-{self.whose[urn] if who is None else who}"

    def _owner(self, urn: str, who: int | None = None) -> Owner:
        return Owner(self.journal(urn, who=who).id, NAME, urn)

    def _is_pending(self, urn: str, who: int) -> bool:
        return self.journal(urn, who=who).history(urn).pending is not None

    def _ann(self, urn: str, who: int, faults: Faults | None = None) -> Administration:
        """A person at work."""
        files = FaultyFiles(self.files(urn, who), faults or Faults())
        return Administration(self.journal(urn, faults, who), files, "ann", self.of.connections)

    def _folder(self, name: str, urn: str) -> Path:
        folder = self.folder / name / urn
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def opened(self, urn: str, faults: Faults | None = None, who: int | None = None) -> OpenJob:
        """A process of the product."""
        faults, files = faults or Faults(), self.files(urn, who)
        sink = self.of.sink(urn, files.root)
        of = source([urn], self.rows, self.version)
        job = Ingestion(NAME, of, sink, "unused", retention=timedelta(0), attempts=100)
        return OpenJob(job, self.journal(urn, faults, who), self.of.connections, FaultyFiles(files, faults))

    def table(self, urn: str) -> OpenTable:
        """The table of a dataset, open."""
        return table_of(self._record(urn)).open(self.of.connections, self.files(urn))

    def _record(self, urn: str) -> TableRecord:
        sink = self.of.sink(urn, self.files(urn).root)
        assert isinstance(sink, TableSink)
        return sink.table_of(Dataset(urn, Extract(KINDS[urn], "test", urn)))


def run_and_die(word: str, of: Callable[[str, str], Format]) -> None:
    """Carry out a run in this process, and kill it at a call.

    :param word: the description by `Lake._run_to_be_killed`.
    :param of: opens a format by its name and place.
    """
    name, place, folder, urn, who, rows, version, request, at = json.loads(word)
    lake = Lake(of(name, place), Path(folder), 0, rows, version)
    lake.whose[urn] = who
    faults = Faults(at, Fault.CRASH_BEFORE, die=lambda: kill(getpid(), signal.SIGKILL))
    with watching(lake.of.record), suppress(GobblinError):
        inprocess.run(lake.opened(urn, faults), lake.of.connections, RunRequest(request))
