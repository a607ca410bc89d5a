"""Checkpoints: what a version of a stage was made from, as kept in the decision of its slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

__all__ = ["Checkpoint", "ConsumedSlot", "Reads", "Slots", "StateForm"]


@dataclass(frozen=True, order=True, slots=True)
class ConsumedSlot:
    """A slot of an upstream as a version consumed it: all of its units that were live then.

    A slot never gains units, so their number shows whether it has lost any since.

    :param token: the token of its decision, since a journal that was put back may have another slot with this number.
    :param units: the number of these units.
    """

    slot: int
    token: str
    units: int


class Reads(StrEnum):
    """The part of an upstream that a version of a stage reads: the new, everything up to it, or each by an input of its own."""

    NEW = "new"
    WHOLE = "whole"
    BOTH = "both"


Slots = Mapping[str, tuple[ConsumedSlot, ...]]
"""Slots of datasets, by the datasets' ids (`naming.dataset_id`)."""


@dataclass(frozen=True)
class StateForm:
    """The form of a version's state, which the next version's state shares.

    :param key: the columns that distinguish its rows.
    :param buckets: the number of parts that it is written in, by a hash of the key.
    :param schema: its schema, encoded; `None` in a plan of the first version, as it is known only once that is evaluated.
    """

    key: tuple[str, ...]
    buckets: int
    schema: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The record of what a version of a stage was made from.

    :param version: the version: the end of a data interval of its sources.
    :param parents: the slots of its upstreams that it consumed: those that came after what earlier live versions consumed.
    :param roots: the slots of sources that these were made from.
    :param late: the optional upstreams that hadn't sealed the version, each with the newest earlier version up to which this one
        has what they published; `None` if they had sealed none.
    :param reads: what it reads of its upstreams.
    :param state: the form of its state, if the stage has any.
    :param channels: the schema of each channel published alongside its rows, encoded; `None` in a plan of the first version.
    """

    version: datetime
    parents: Slots
    roots: Slots
    late: Mapping[str, datetime | None] = field(default_factory=dict)
    reads: Mapping[str, Reads] = field(default_factory=dict)
    state: StateForm | None = None
    channels: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def knows_schemas(self) -> bool:
        """Whether the schemas of its channels and its state are known."""
        return None not in self.channels.values() and (self.state is None or self.state.schema is not None)

    def knowing(self, state: str | None, channels: Mapping[str, str]) -> Checkpoint:
        """Return it with the schemas that its evaluation gave, except where they were known before."""
        form = self.state
        if form is not None and form.schema is None:
            form = replace(form, schema=state)
        known = {name: channels.get(name) if schema is None else schema for name, schema in self.channels.items()}
        return replace(self, state=form, channels=known)
