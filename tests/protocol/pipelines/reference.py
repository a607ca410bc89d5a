"""The content that a pipeline has to have at rest: one pass over what its sources published, in plain Python.

It knows nothing of the model, nor of the package: neither attempts nor lineage, barriers or restores. It gets the slots that the
sources published, the seals that they made and the versions at which each stage cut its output, and computes that output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Rows = dict[str, str]
"""Values by key."""


@dataclass(frozen=True)
class Published:
    """A slot of a dataset.

    :param takes_back: whether it is a rewind, and no replacement.
    :param units: rows, by unit.
    """

    slot: int
    takes_back: bool
    retires: frozenset[str]
    units: Mapping[str, Rows]


@dataclass(frozen=True)
class Sealed:
    """A seal, as far as one dataset goes.

    :param waits: whether the dataset was held or paused.
    """

    version: int
    head: int
    waits: bool


@dataclass(frozen=True)
class Cut:
    """A version of a stage.

    :param reached: the version of each upstream up to which it has what that published.
    """

    version: int
    reached: Mapping[str, int]


@dataclass(frozen=True)
class Shape:
    """A stage.

    :param reads: its upstreams; `one.marks` is the second channel of `one`.
    :param whole: those of which it reads everything up to a version.
    """

    name: str
    reads: Sequence[str]
    stateful: bool
    cuts: Sequence[Cut]
    whole: frozenset[str]


@dataclass(frozen=True)
class Expected:
    """The content that a stage must hold, by version: the rows of each, and the state after each."""

    rows: Mapping[int, Rows]
    states: Mapping[int, Mapping[str, frozenset[str]]]


def by_version(slots: Sequence[Published], seals: Sequence[Sealed]) -> dict[int, Rows]:
    """Return the rows of a dataset by the version that they belong to.

    A slot belongs to the lowest version whose seal has it, of those of which nothing was taken back since; a slot that replaces
    units belongs where the oldest of them did.
    """
    belongs: dict[str, int] = {}
    live: dict[str, Rows] = {}
    spoiled: list[tuple[int, int]] = []
    for slot in slots:
        oldest = min((belongs[name] for name in slot.retires), default=slot.slot)
        if slot.takes_back:
            spoiled.append((slot.slot, oldest))
        for name in slot.retires:
            del live[name]
        for name, rows in slot.units.items():
            live[name], belongs[name] = rows, oldest
    good = [seal for seal in seals if not any(oldest <= seal.head < at for at, oldest in spoiled)]
    found: dict[int, Rows] = {}
    for name, rows in live.items():
        versions = [seal.version for seal in good if seal.head >= belongs[name]]
        if versions:
            found.setdefault(min(versions), {}).update(rows)
    return found


def one_pass(datasets: Mapping[str, Mapping[int, Rows]], stages: Sequence[Shape]) -> dict[str, Expected]:
    """Compute every stage from what its upstreams have at its versions.

    :param stages: upstreams come first.
    """
    have: dict[str, Mapping[int, Rows]] = {**datasets}
    expected = {}
    for stage in stages:
        rows: dict[int, Rows] = {}
        states: dict[int, Mapping[str, frozenset[str]]] = {}
        taken = dict.fromkeys(stage.reads, 0)
        state: dict[str, frozenset[str]] = {}
        for cut in stage.cuts:
            inputs = []
            for name in stage.reads:
                upstream = name.partition(".")[0]
                upto = cut.reached[upstream]
                after = 0 if upstream in stage.whole else taken[name]
                new = [found for version, found in sorted(have[name].items()) if after < version <= upto]
                inputs.append({key: value for found in new for key, value in found.items()})
                taken[name] = upto
            if stage.stateful:
                rows[cut.version], state = _grouped(stage.name, cut.version, inputs, state)
                states[cut.version] = state
            else:
                rows[cut.version] = _together(stage.name, inputs)
        have[stage.name] = rows
        have[f"{stage.name}.marks"] = {version: marks(made) for version, made in rows.items()}
        expected[stage.name] = Expected(rows, states)
    return expected


def marks(rows: Rows) -> Rows:
    """Return the second channel of a version with some rows."""
    return {key: f"mark({value})" for key, value in rows.items()}


def _together(name: str, inputs: Sequence[Rows]) -> Rows:
    keys = {key for rows in inputs for key in rows}
    return {key: f"{name}({'+'.join(rows[key] for rows in inputs if key in rows)})" for key in keys}


def _grouped(
    name: str, version: int, inputs: Sequence[Rows], before: Mapping[str, frozenset[str]]
) -> tuple[Rows, dict[str, frozenset[str]]]:
    state = dict(before)
    touched = set()
    for rows in inputs:
        for key, value in rows.items():
            group = "odd" if int(key[-1], 36) % 2 else "even"
            touched.add(group)
            state[group] = state.get(group, frozenset()) | {value}
    return {f"{name}:{version}:{group}": f"{name}[{_digest(state[group])}]" for group in touched}, state


def _digest(values: frozenset[str]) -> str:
    return hashlib.sha256("\n".join(sorted(values)).encode()).hexdigest()[:12]
