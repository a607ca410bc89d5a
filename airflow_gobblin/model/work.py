"""Datasets, work units, packs and unit results: the work to do, and its results.

Nothing here is state: the state of a work unit is derived from the records that exist (`journal.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.channels import ROWS, channel_of, unit_of
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.failure import Failure
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.table import DataFile, TableTarget
from airflow_gobblin.model.watermark import Json, Watermark
from airflow_gobblin.model.wire import record

MIB = 1 << 20
"""The bytes of a mebibyte, in which sizes of units and files are given."""


class ExtractKind(StrEnum):
    """How the rows of a dataset arrive from run to run."""

    SNAPSHOT_ONLY = "snapshot_only"
    """Each run replaces the dataset's files."""
    APPEND_ONLY = "append_only"
    """Each run adds new rows, from the start value on."""
    SNAPSHOT_APPEND = "snapshot_append"
    """The first run takes everything, later ones only new rows."""

    @property
    def holds(self) -> Holds:
        """The kind of content that the slots of such a dataset hold."""
        return Holds.SNAPSHOT if self is ExtractKind.SNAPSHOT_ONLY else Holds.RANGES


@dataclass(frozen=True)
class Extract:
    """The description of a dataset's rows. Source: Gobblin's ``Extract``."""

    kind: ExtractKind
    namespace: str
    table: str


@dataclass(frozen=True)
class Dataset:
    """The unit of commit and isolation of a source: a table, a topic, a directory.

    :param read_from: a description of its origin without secrets, if namespace and table don't identify it: two DAGs that read
        one URN of an ingestion from two origins would mix their rows.
    """

    urn: str
    extract: Extract
    read_from: str = ""

    @property
    def origin(self) -> str:
        """The origin that it is read from."""
        return self.read_from or ".".join(filter(None, (self.extract.namespace, self.extract.table)))

    @property
    def holds(self) -> Holds:
        """The kind of content that its slots hold."""
        return self.extract.kind.holds


@dataclass(frozen=True)
class Limits:
    """The most that one work unit reads; `None` means no limit. The next run continues exactly where it stopped."""

    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "bytes", "seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigurationError(
                    operation="use",
                    subject=f"limit {name}={value!r}",
                    cause="it lets nothing through",
                    hint="Give a number above zero, or None for no limit.",
                )

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return (self.rows, self.bytes, self.seconds) != (None, None, None)


@dataclass(frozen=True, slots=True)
class BegunUnit:
    """A unit of an earlier plan of which parts are done.

    :param token: the plan's.
    """

    token: str
    unit: str


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A piece of one dataset, [low, expected high).

    :param id: its name within its plan; part of the names of published files, so only letters, digits and `_`.
    :param low: where it starts; `None` where the dataset has no positions (a whole table).
    :param expected_high: where it should end; `None` if that is unknown: the source determines its end.
    :param weight: estimated cost, in bytes by default.
    :param properties: its own properties. They override the ingestion's options, which are never copied here.
    :param files: the number of files that it copies, in a mirror.
    :param bytes: their size.
    :param finished: files that earlier plans or tries finished and that it may take, by their paths in the dataset.
    :param begun: units of earlier plans whose parts are the same as its own.
    """

    id: str
    urn: str
    low: Watermark | None = None
    expected_high: Watermark | None = None
    weight: int = 0
    properties: Mapping[str, Json] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    finished: Mapping[str, StagedFile] = field(default_factory=dict)
    begun: tuple[BegunUnit, ...] = ()

    def __post_init__(self) -> None:
        if not self.id or not self.id.isascii() or not self.id.replace("_", "a").isalnum():
            raise ConfigurationError(
                operation="make",
                subject=f"work unit {self.id!r} of dataset {self.urn!r}",
                cause="its id is a part of file names",
                hint="Make it of letters, digits and underscores.",
            )

    @property
    def empty(self) -> bool:
        """Whether there is known to be nothing to read: low = expected high."""
        return self.low is not None and self.expected_high is not None and Range(self.low, self.expected_high).empty

    def option(self, name: str, options: Mapping[str, Json], default: Json = None) -> Json:
        """Return a property of the unit, else the ingestion's option, else the default."""
        return self.properties.get(name, options.get(name, default))


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A reference to the plan of a dataset: `token` names it in staging.

    :param planned: the range to cover, if the dataset has positions; it remains known after the plan is swept.
    :param open_end: whether its last unit continues beyond that range to an unknown end.
    """

    urn: str
    token: str
    weight: int
    planned: Range | None = None
    open_end: bool = False


@record("pack")
@dataclass(frozen=True)
class Pack:
    """A list of datasets' work units that one Spark application runs. A pack contains whole datasets.

    :param label: its label in Airflow, printable and short.
    """

    index: int
    label: str
    datasets: tuple[DatasetRef, ...]

    @property
    def weight(self) -> int:
        """The estimated load."""
        return sum(d.weight for d in self.datasets)


NO_RESULT = "it has no result: it was not extracted to its end"
"""Why a unit failed that has no failure of its own."""


class UnitState(StrEnum):
    """The state of a work unit, derived from a record."""

    SUCCESSFUL = "successful"
    COMMITTED = "committed"
    """Successful, in a slot that is done: no record has this state, as it follows from the outcome (`Slot.unit_states`)."""
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload to an object store that isn't completed: its parts are stored but not visible.

    :param id: the store's id of the upload.
    :param etags: the ETags of its parts, in order.
    """

    id: str
    etags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """The place of a small file's bytes in a staged object that holds the bytes of many.

    :param path: the object, relative to the target root.
    :param start: the number of bytes before them.
    :param modified: the time that the file keeps, in ns since 1970, if it keeps one.
    """

    path: str
    start: int
    modified: int | None = None


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file in staging.

    :param path: relative to the target root, with `/`; for an upload or a segment, its future path.
    :param size: bytes.
    :param checksum: SHA-256 in hex, computed while writing.
    :param rows: number of rows.
    :param stamp: its modification time when it was closed, in ns, or its future ETag; part of its identity.
    :param upload: the upload behind it, where staged files are uploads.
    :param segment: the place of its bytes, if it is staged together with others.
    :param mark: the mark in its metadata by which its own copies are known, if the store made it from another object.
    """

    path: str
    size: int
    checksum: str
    rows: int
    stamp: str
    upload: Upload | None = None
    segment: Segment | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class MadeChannel:
    """A channel of a version, as its evaluation made it.

    :param schema: its schema, encoded.
    :param files: how many files hold it.
    """

    name: str
    schema: str
    files: int


@record("unit_result")
@dataclass(frozen=True, slots=True)
class UnitResult:
    """The result of running a work unit (Gobblin's ``WorkUnitState``).

    :param attempt: the attempt (one run of a Spark driver) that it belongs to.
    :param state: SUCCESSFUL, FAILED or SKIPPED.
    :param actual_high: where the unit really ended: the first position that it did not read. A failed one has it if its files
        hold everything before it, so that they can be published.
    :param files: its staged files. Even a failed unit's are whole.
    :param expected_rows: the number of rows in the range according to the source, if known; compared with `rows_read`.
    :param properties: values that the source or the writer leaves for the next run.
    :param failure: the first error, if it failed.
    :param ended: end time in seconds since 1970, for people to read; no rule relies on it (I13).
    :param snapshot: the snapshot that it was read in, if its plan requires one: results of two snapshots are never published
        together.
    :param replaced: how many of its files take the place of others, in a mirror.
    :param deleted: how many files publishing it deletes, in a mirror.
    :param dead_letters: how many refused rows its last files hold.
    :param dead_letter_files: how many files hold them.
    :param schema: the schema of its rows, encoded, where it is known only once the unit has run.
    :param channels: what it made alongside its rows, in the order of its last files.
    :param data_files: the files staged for a table, which hold its rows instead of `files`.
    :param table: the table that these are staged for, where it is known only once the unit has run.
    """

    unit: str
    attempt: str
    state: UnitState
    actual_high: Watermark | None = None
    files: tuple[StagedFile, ...] = ()
    rows_read: int = 0
    rows_written: int = 0
    rows_dropped: int = 0
    expected_rows: int | None = None
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    properties: Mapping[str, Json] = field(default_factory=dict)
    failure: Failure | None = None
    ended: float = 0.0
    snapshot: str = ""
    replaced: int = 0
    deleted: int = 0
    dead_letters: int = 0
    dead_letter_files: int = 0
    schema: str | None = None
    channels: tuple[MadeChannel, ...] = ()
    data_files: tuple[DataFile, ...] = ()
    table: TableTarget | None = None

    @property
    def why(self) -> str:
        """Why it failed; empty if it didn't."""
        return "" if self.failure is None else str(self.failure)

    @property
    def files_of_rows(self) -> tuple[StagedFile, ...]:
        """Its files except those of dead letters."""
        return self.files[: len(self.files) - self.dead_letter_files]

    @property
    def files_of_dead_letters(self) -> tuple[StagedFile, ...]:
        """Its files of dead letters."""
        return self.files[len(self.files) - self.dead_letter_files :]

    def files_of(self, channel: str) -> tuple[StagedFile, ...]:
        """Return its files of a channel."""
        end = len(self.files)
        for made in reversed(self.channels):
            start = end - made.files
            if made.name == channel:
                return self.files[start:end]
            end = start
        return self.files[:end] if channel == ROWS else ()

    @property
    def cut(self) -> UnitResult | None:
        """The part of it that can be published if it failed: everything before its actual high."""
        if self.state is not UnitState.FAILED or self.actual_high is None:
            return None
        return replace(self, state=UnitState.SUCCESSFUL)

    @property
    def bytes_written(self) -> int:
        """The total size of its files."""
        return sum(f.size for f in self.files) + sum(f.size for f in self.data_files)


@dataclass(frozen=True, slots=True)
class UnitSummary:
    """The summary of a unit in the journal: a row of the dataset's history, available to the source at the next run.

    :param replaced: how many of its files take the place of others, in a mirror.
    :param deleted: how many files publishing it deletes, in a mirror.
    :param dead_letters: how many refused rows some of its files hold.
    """

    unit: str
    state: UnitState
    low: Watermark | None
    expected_high: Watermark | None
    actual_high: Watermark | None
    rows_read: int
    rows_written: int
    rows_dropped: int
    files: int
    bytes: int
    weight: int
    seconds: float
    properties: Mapping[str, Json] = field(default_factory=dict)
    failure: Failure | None = None
    replaced: int = 0
    deleted: int = 0
    dead_letters: int = 0

    @property
    def channel(self) -> str:
        """The channel of a version that this unit is."""
        return channel_of(self.unit)

    @property
    def why(self) -> str:
        """Why it failed; empty if it didn't."""
        if self.failure is not None:
            return str(self.failure)
        return NO_RESULT if self.state is UnitState.FAILED else ""

    @property
    def cut(self) -> bool:
        """Whether it failed, and is published up to the point where it did."""
        return self.state is UnitState.SUCCESSFUL and self.failure is not None

    @property
    def range(self) -> Range | None:
        """The committed range: [low, actual high)."""
        if self.low is None or self.actual_high is None:
            return None
        return Range(self.low, self.actual_high)

    @property
    def stuck(self) -> bool:
        """Whether it made no progress: it failed, or ended where it began although something was left."""
        if self.state is UnitState.FAILED:
            return True
        return self.state is UnitState.SUCCESSFUL and self.short and self.range is not None and self.range.empty

    @property
    def short(self) -> bool:
        """Whether it stopped below its expected high."""
        if self.low is None or self.actual_high is None or self.expected_high is None:
            return False
        return not Range(self.actual_high, self.expected_high).empty


def summarize(unit: WorkUnit, result: UnitResult | None) -> UnitSummary:
    """Summarize a unit from its accepted result; without one it failed."""
    if result is None:
        result = UnitResult(unit.id, "", UnitState.FAILED)
    made: tuple[StagedFile | DataFile, ...] = ()
    if result.state is UnitState.SUCCESSFUL:
        made = result.data_files or result.files_of(ROWS)
    return UnitSummary(
        unit=unit.id,
        state=result.state,
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=result.actual_high,
        rows_read=result.rows_read,
        rows_written=result.rows_written,
        rows_dropped=result.rows_dropped,
        files=len(made),
        bytes=sum(file.size for file in made),
        weight=unit.weight,
        seconds=result.seconds,
        properties=result.properties,
        failure=result.failure,
        replaced=result.replaced,
        deleted=result.deleted,
        dead_letters=result.dead_letters,
    )


def summaries(unit: WorkUnit, result: UnitResult | None) -> Iterator[UnitSummary]:
    """Summarize a unit and each of its other channels, which is published and retired as a unit of its own."""
    yield summarize(unit, result)
    if result is None:
        return
    for channel in result.channels:
        made = result.files_of(channel.name)
        yield UnitSummary(
            unit=unit_of(unit.id, channel.name),
            state=result.state,
            low=None,
            expected_high=None,
            actual_high=None,
            rows_read=0,
            rows_written=sum(file.rows for file in made),
            rows_dropped=0,
            files=len(made),
            bytes=sum(file.size for file in made),
            weight=0,
            seconds=0.0,
        )


def first_failure(units: Iterable[UnitSummary]) -> Failure | None:
    """Return the first error that a unit had itself."""
    return next((unit.failure for unit in units if unit.failure is not None), None)


def first_cause(units: Iterable[UnitSummary], otherwise: str = NO_RESULT) -> str:
    """Return why units are not published: the first error that one of them had itself, or that one has no result.

    :param otherwise: returned if none failed.
    """
    failed = [unit for unit in units if unit.state is UnitState.FAILED or unit.cut]
    failure = first_failure(failed)
    return str(failure) if failure is not None else NO_RESULT if failed else otherwise
