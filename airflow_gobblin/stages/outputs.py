"""The outputs of jobs, as stages name and read them. Light to import, as a DAG file and each Spark task import it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.naming import check_urn, dataset_id

if TYPE_CHECKING:
    from airflow_gobblin.stages.barrier import Upstream

__all__ = ["Input", "OptionalInput", "Output", "Readable", "Whole"]


@dataclass(frozen=True)
class Output:
    """An output of a job of a pipeline: a dataset of an ingestion; or a stage, or a channel of it.

    :param job: the job's name.
    :param urn: the dataset's URN; for a stage, its name, or the channel's.
    :param whole: as in `Input`, like the others.
    :raises ConfigurationError: the URN is not valid.
    """

    job: str
    urn: str
    whole: bool = False
    required: bool = True
    at_most: timedelta | None = None

    def __post_init__(self) -> None:
        check_urn(self.urn)

    @property
    def id(self) -> str:
        """Its id among all outputs."""
        return dataset_id(self.job, self.urn)

    @property
    def output(self) -> Output:
        """This output, as stages read it."""
        return self


@runtime_checkable
class Readable(Protocol):
    """Anything that stages can read: an output, a stage, or one of these in `Whole` or `OptionalInput`."""

    @property
    def output(self) -> Output:
        """The output, and how it is read."""


@dataclass(frozen=True)
class Whole:
    """An input of which a stage is given everything up to each version, not only what is new in it: `Whole(raw["planes"])`."""

    of: Readable

    @property
    def output(self) -> Output:
        """The output, read whole."""
        return replace(self.of.output, whole=True)


@dataclass(frozen=True)
class OptionalInput:
    """An input that a stage doesn't wait for. A version has what this input has sealed by then, up to that version, whatever its
    schedule is; anything that it seals later belongs to the next version.

    :param at_most: how far the newest version that it has sealed, up to the stage's, may be behind the stage's; otherwise the
        stage's isn't made. `None`: no limit.
    :raises ConfigurationError: that is negative.
    """

    of: Readable
    at_most: timedelta | None = None

    def __post_init__(self) -> None:
        if self.at_most is not None and self.at_most < timedelta(0):
            raise ConfigurationError(
                operation="use",
                subject=f"optional input {self.of.output.id!r}",
                cause=f"`at_most` is {self.at_most}, which is negative",
                hint="Give `at_most` of zero or more.",
            )

    @property
    def output(self) -> Output:
        """The output, not required."""
        return replace(self.of.output, required=False, at_most=self.at_most)


@dataclass(frozen=True)
class Input:
    """An output of another job, which a stage reads: a dataset of a source, or a stage.

    :param journal: the location of its job's journal, or the id of its connection.
    :param ingestion: the name of its job.
    :param reach: for a stage, the ids of the sources' datasets that it is made from; empty for a source's dataset.
    :param required: whether the stage waits for it.
    :param at_most: how far it may be behind a version, if the stage doesn't wait for it; `None`: no limit.
    :param whole: whether the stage reads everything up to a version, instead of what is new in it.
    :param channel: which channel of a stage it is; `ROWS` for its rows.
    """

    journal: str
    ingestion: str
    urn: str
    reach: frozenset[str] = frozenset()
    required: bool = True
    at_most: timedelta | None = None
    whole: bool = False
    channel: str = ROWS

    @property
    def id(self) -> str:
        """The id of its dataset, by which checkpoints name their parents: all channels of a slot are there, or none is."""
        return dataset_id(self.ingestion, self.urn)

    @property
    def label(self) -> str:
        """Its id among all outputs, as people name it."""
        return dataset_id(self.ingestion, self.channel or self.urn)

    @property
    def upstream(self) -> Upstream:
        """Its part in the barrier."""
        from airflow_gobblin.stages.barrier import Upstream

        return Upstream(self.id, self.reach or frozenset({self.id}), self.required, self.at_most)
