"""The barrier: the version that a stage may make next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations

from airflow_gobblin.model.checkpoint import Slots
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.stages.versions import Available, reaches, united

__all__ = ["Blocked", "Upstream", "blocked", "next_ready", "same_roots"]


@dataclass(frozen=True)
class Upstream:
    """A dataset of a source, or a stage, as a stage reads it.

    :param id: the dataset's id.
    :param reach: the ids of the sources' datasets that it is made from, except those that only an optional upstream brings.
    :param required: whether the stage waits for it.
    :param at_most: how far the part of it that a version has may be behind the version, if it isn't required; `None`: no limit.
    """

    id: str
    reach: frozenset[str]
    required: bool = True
    at_most: timedelta | None = None


def next_ready(
    upstreams: Sequence[Upstream], available: Mapping[str, Available], state: DatasetState
) -> datetime | None:
    """Return the oldest version after a stage's newest that every required upstream has sealed itself, on the same roots.

    A version that one of them skipped is taken with the next one that all have. The other upstreams just can't be too far behind
    it. The reason for a look doesn't matter: an event that came too early, twice or never changes nothing.

    :param available: what each upstream has, by its id.
    :param state: the stage's own.
    """
    required = [upstream for upstream in upstreams if upstream.required]
    every = sorted(frozenset.intersection(*_sealed(required, available, state).values()))
    close = (v for v in every if all(_close_enough(one, v, available[one.id], state) for one in upstreams))
    return next((version for version in close if same_roots(version, required, available)), None)


@dataclass(frozen=True)
class Blocked:
    """The reason why a version that an upstream has sealed isn't ready.

    :param sealed: the required upstreams that have sealed it.
    :param unsealed: those that haven't.
    :param behind: if there are none of these, the optional upstreams that are too far behind it.
    :param apart: if there are none of these either, the upstreams that were made from different slots of a source.
    """

    version: datetime
    sealed: tuple[str, ...]
    unsealed: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    apart: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        version = f"version {self.version.isoformat()}"
        if self.unsealed:
            have = "has" if len(self.sealed) == 1 else "have"
            return f"it waits for {_named(self.unsealed)} to seal {version}, which {_named(self.sealed)} {have} sealed"
        if self.behind:
            return f"it waits for {_named(self.behind)}, further behind {version} than an optional input may be"
        pairs = " and ".join(f"{one!r} has not come as far as {other!r}, or further" for one, other in self.apart)
        return f"it waits until {version} of its inputs is made from the same slots of their sources: {pairs}"


def blocked(upstreams: Sequence[Upstream], available: Mapping[str, Available], state: DatasetState) -> Blocked | None:
    """Return why a version isn't ready, though an upstream has sealed it. If no version is sealed by all, this is about the first
    that could be: an upstream never seals what it has skipped.

    :param available: all that each upstream has after the stage's newest version.
    :return: `None` if no version is sealed, or one is ready.
    """
    required = [upstream for upstream in upstreams if upstream.required]
    sealed = _sealed(required, available, state)
    every = frozenset.intersection(*sealed.values())
    some = frozenset().union(*sealed.values())
    if not some or next_ready(upstreams, available, state) is not None:
        return None
    version = max(every) if every else max(min(versions) for versions in sealed.values() if versions)
    have = tuple(name for name, versions in sealed.items() if version in versions)
    if not every:
        return Blocked(version, have, unsealed=tuple(name for name in sealed if name not in have))
    behind = tuple(one.id for one in upstreams if not _close_enough(one, version, available[one.id], state))
    pairs = ((one, other) for one, other in combinations(required, 2))
    apart = ((one.id, other.id) for one, other in pairs if not same_roots(version, [one, other], available))
    return Blocked(version, have, behind=behind, apart=() if behind else tuple(apart))


def _sealed(
    required: Iterable[Upstream], available: Mapping[str, Available], state: DatasetState
) -> Mapping[str, frozenset[datetime]]:
    """Return the versions after a stage's newest that each required upstream has sealed."""
    newest = max((one.version for one in state.checkpoints.values()), default=None)
    return {
        one.id: frozenset(version for version in available[one.id].sealed if newest is None or version > newest)
        for one in required
    }


def _named(ids: Iterable[str]) -> str:
    return " and ".join(map(repr, ids))


def _close_enough(upstream: Upstream, version: datetime, available: Available, state: DatasetState) -> bool:
    if upstream.required or upstream.at_most is None:
        return True
    upto = reaches(upstream.id, version, available, state)
    return upto is not None and version - upto <= upstream.at_most


def same_roots(version: datetime, upstreams: Sequence[Upstream], available: Mapping[str, Available]) -> bool:
    """Return whether all that upstreams have up to a version was made from the same slots of each source that two reach."""
    common = {(one.id, other.id): one.reach & other.reach for one, other in combinations(upstreams, 2)}
    meeting = {name for pair, datasets in common.items() if datasets for name in pair}
    roots = {name: united(slot.roots for slot in available[name].up_to(version)) for name in meeting}
    return all(_agree(roots[one], roots[other], datasets) for (one, other), datasets in common.items() if datasets)


def _agree(one: Slots, other: Slots, datasets: frozenset[str]) -> bool:
    return all(one.get(dataset, ()) == other.get(dataset, ()) for dataset in datasets)
