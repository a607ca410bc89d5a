"""The barrier: the version that a stage may make next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    """

    id: str
    reach: frozenset[str]
    required: bool = True


def next_ready(
    upstreams: Sequence[Upstream], available: Mapping[str, Available], state: DatasetState
) -> datetime | None:
    """Return the oldest version after a stage's newest that every required upstream has sealed itself, on the same roots.

    A version that one of them skipped is taken with the next one that all have. What made anybody look is no matter: an event
    that came too early, twice or never changes nothing.

    :param available: what each upstream has, by its id.
    :param state: the stage's own.
    """
    newest = max((one.version for one in state.checkpoints.values()), default=None)
    required = [upstream for upstream in upstreams if upstream.required]
    sealed = frozenset.intersection(*(frozenset(available[upstream.id].sealed) for upstream in required))
    later = (version for version in sorted(sealed) if newest is None or version > newest)
    return next((version for version in later if same_roots(version, required, available)), None)


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
