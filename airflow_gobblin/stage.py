"""A stage of a pipeline, as defined by a DAG author. Light to import: it is created whenever a DAG file is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from keyword import iskeyword
from typing import ClassVar

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import check_numbers
from airflow_gobblin.model import wire
from airflow_gobblin.model.channels import STATE, is_channel
from airflow_gobblin.model.naming import check_ingestion_name, meant
from airflow_gobblin.model.policy import DEFAULT_ATTEMPTS, DEFAULT_RETENTION, CommitPolicy
from airflow_gobblin.rows.sinks.base import Layout, Sink, TableSink
from airflow_gobblin.stages.frames import FrameWork
from airflow_gobblin.stages.functions import Sql, StageFunction
from airflow_gobblin.stages.outputs import Output, Readable
from airflow_gobblin.stages.state import State

__all__ = ["Stage", "StageJob"]


@dataclass(frozen=True)
class Stage:
    """A step of a pipeline: it makes rows from what other jobs publish, a version at a time.

    Each version is made once, from exactly what its inputs published for it. If any of that is taken back, so are the version
    and all after it, and they are made again.

    :param name: the name of its journal, of its only dataset and of that dataset's folder: permanent.
    :param function: what makes the rows: `Frame("acme.join")`, a PySpark function, or `Sql("select … from {flights}")`.
    :param reads: its inputs, by the names that the function knows: `raw["flights"]`, a dataset of an ingestion, or a stage. From
        each it gets what is new in the version, or everything up to it: `Whole(raw["planes"])`. Several in a tuple, with the same
        columns, are one input with the rows of all.
    :param writes: the sink, with a target root of its own. A sink of tables, which only adds, has a workspace of its own, where
        channels other than the rows are files.
    :param state: what its function keeps from version to version. The function is given it as a parameter `state`, and returns
        `Out(rows=…, state=…)`.
    :param channels: the names of what its function gives besides its rows, `Out(rows=…, refused=…)`. They are outputs of their
        own, which other stages read as `stage["refused"]`, made by the same evaluation and published by the same decision.
    :param attempts: the number of runs that fail to finish a slot before the stage is quarantined.
    :param retention: how long files that were taken back are kept.
    :raises ConfigurationError: the name is not valid, it has no inputs, or the function doesn't fit them.
    """

    name: str
    function: StageFunction
    reads: Mapping[str, Readable | tuple[Readable, ...]]
    writes: Sink
    state: State | None = None
    channels: tuple[str, ...] = ()
    attempts: int = DEFAULT_ATTEMPTS
    retention: timedelta = DEFAULT_RETENTION

    def __post_init__(self) -> None:
        check_ingestion_name(self.name)
        for part in (self.function, self.writes):
            wire.kind_of(part)
        self._check_reads()
        self.function.check_inputs(self.reads)
        if self.state is not None:
            self._check_state()
        self._check_channels()
        self._check_sink()

    @property
    def inputs(self) -> Mapping[str, tuple[Output, ...]]:
        """Its inputs, by the names that the function knows; several may form one together."""
        return {name: tuple(one.output for one in _each(read)) for name, read in self.reads.items()}

    @property
    def output(self) -> Output:
        """Its output, as other stages read it."""
        return Output(self.name, self.name)

    def __getitem__(self, channel: str) -> Output:
        """Return a channel, as other stages read it.

        :raises ConfigurationError: there is none of that name.
        """
        if channel not in self.channels:
            hint = meant([*self.channels], channel, otherwise="Name it in the stage's `channels`.")
            raise self._refused(f"it has no channel {channel!r}", hint)
        return Output(self.name, channel)

    def _check_reads(self) -> None:
        if not self.reads:
            raise self._refused("it reads nothing", "Give it inputs, such as reads={'flights': raw['flights']}.")
        for name, read in self.reads.items():
            if not name.isidentifier() or iskeyword(name):
                raise self._refused(f"the input {name!r} can't be a parameter's name", "Name it as in Python.")
            if not _each(read) or not all(isinstance(one, Readable) for one in _each(read)):
                hint = "Give a dataset of an ingestion, such as raw['flights'], or a stage."
                raise self._refused(f"its input {name!r} is {read!r}", hint)
            if len({one.output.id for one in _each(read)}) < len(_each(read)):
                raise self._refused(f"its input {name!r} has something twice", "Name each once.")

    def _check_state(self) -> None:
        if isinstance(self.function, Sql):
            raise self._refused("a query gives rows, and no state", "Make it a PySpark function: Frame('acme.delays').")
        if STATE in self.reads:
            raise self._refused(f"its input {STATE!r} has the name of its state", "Give the input another name.")

    def _check_channels(self) -> None:
        given: object = self.channels
        if not isinstance(given, tuple):
            raise self._refused(f"its channels are {given!r}", "Name them in a tuple: channels=('refused',).")
        if self.channels and isinstance(self.function, Sql):
            hint = "Make it a PySpark function: Frame('acme.split')."
            raise self._refused("a query gives rows, and no channels", hint)
        for name in self.channels:
            if not is_channel(name) or name == self.name:
                hint = "Use lowercase letters, digits and `_`; and neither `rows`, `state` nor the stage's own name."
                raise self._refused(f"{name!r} can't be the name of a channel", hint)
        if len({*self.channels}) < len(self.channels):
            raise self._refused("two of its channels have one name", "Give each a name of its own.")

    def _check_sink(self) -> None:
        if isinstance(self.writes, TableSink):
            if self.writes.merge:
                hint = "Add its rows to the table, and let a view of it give the newest; an ingestion can merge."
                raise self._refused("its sink merges rows by their key, which no restore could take back", hint)
            return
        if getattr(self.writes, "layout", Layout.FLAT) is not Layout.FLAT:
            hint = "Leave `layout` out: the files of a version are published one by one."
            raise self._refused("its sink has a folder for each unit", hint)

    def _refused(self, cause: str, hint: str) -> ConfigurationError:
        return ConfigurationError(operation="use", subject=f"stage {self.name!r}", cause=cause, hint=hint)


def _each(read: Readable | tuple[Readable, ...]) -> tuple[Readable, ...]:
    return read if isinstance(read, tuple) else (read,)


@dataclass(frozen=True)
class StageJob:
    """A stage as a job of its pipeline, which records where its own journal and those of its inputs are.

    :raises ConfigurationError: a number is too small.
    """

    name: str
    journal: str
    work: FrameWork
    attempts: int = DEFAULT_ATTEMPTS
    retention: timedelta = DEFAULT_RETENTION
    policy: ClassVar[CommitPolicy] = CommitPolicy.FULL
    partial_ok: ClassVar[bool] = False
    max_packs: ClassVar[int] = 1
    max_pack_weight: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        check_numbers(self, f"stage {self.name!r}")
