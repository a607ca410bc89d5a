"""The barrier: the version that a stage may make next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations

from airflow_gobblin.model.checkpoint import Slots
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.stages.versions import Available, united

__all__ = ["Upstream", "next_ready", "same_roots"]


@dataclass(frozen=True)
class Upstream:
    """A dataset of a source, or a stage, as a stage reads it.

    :param id: the dataset's id.
    :param reach: the ids of the sources' datasets that it is made from, but for those that only an optional upstream brings.
    :param required: whether the stage waits for it.
    :param at_most: how far it may be behind a version, if it isn't required; `None`: any far.
    """

    id: str
    reach: frozenset[str]
    required: bool = True
    at_most: timedelta | None = None


def next_ready(
    upstreams: Sequence[Upstream], available: Mapping[str, Available], state: DatasetState
) -> datetime | None:
    """Return the oldest version after a stage's newest that every required upstream has sealed itself, on the same roots.

    A version that one of them skipped is taken with the next one that all have. The other upstreams only mustn't be too far
    behind it. What made anybody look is no matter: an event
    that came too early, twice or never changes nothing.

    :param available: what each upstream has, by its id.
    :param state: the stage's own.
    """
    newest = max((one.version for one in state.checkpoints.values()), default=None)
    required = [upstream for upstream in upstreams if upstream.required]
    sealed = frozenset.intersection(*(frozenset(available[upstream.id].sealed) for upstream in required))
    later = (version for version in sorted(sealed) if newest is None or version > newest)
    reached = {one.id: _reached(one.id, available[one.id], state) for one in upstreams if one.at_most is not None}
    close = (version for version in later if all(_close_enough(one, version, reached) for one in upstreams))
    return next((version for version in close if same_roots(version, required, available)), None)


def _reached(upstream: str, available: Available, state: DatasetState) -> datetime | None:
    """Return the newest version that an upstream has sealed, as far as was read, or as the stage took it."""
    took = (one.version for one in state.checkpoints.values() if upstream not in one.late)
    return max((*available.sealed, *took), default=None)


def _close_enough(upstream: Upstream, version: datetime, reached: Mapping[str, datetime | None]) -> bool:
    if upstream.required or upstream.at_most is None:
        return True
    newest = reached[upstream.id]
    return newest is not None and version - newest <= upstream.at_most


def same_roots(version: datetime, upstreams: Sequence[Upstream], available: Mapping[str, Available]) -> bool:
    """Return whether what upstreams have up to a version was made from the same slots, of each source that two of them reach."""
    roots = {
        upstream.id: united(slot.roots for slot in available[upstream.id].up_to(version)) for upstream in upstreams
    }
    return all(
        _agree(roots[one.id], roots[other.id], one.reach & other.reach) for one, other in combinations(upstreams, 2)
    )


def _agree(one: Slots, other: Slots, datasets: frozenset[str]) -> bool:
    return all(one.get(dataset, ()) == other.get(dataset, ()) for dataset in datasets)
