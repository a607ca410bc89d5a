"""Deliberate faults in the model of pipelines: the histories must notice each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.protocol.mutants import Patch
from tests.protocol.pipelines import chains, sources, stages
from tests.protocol.pipelines.chains import Chain, Decision, Fold, Process, Row, U
from tests.protocol.pipelines.histories import BrokenError, play
from tests.protocol.pipelines.sources import content, valid_seals
from tests.protocol.pipelines.stages import DatasetOf, Look, Plan, Reading, Stage, State, Version


def only_the_newest_versions_parents() -> Sequence[Patch]:
    """Only the parents of the newest version are looked up."""
    oldest = stages.oldest_to_restore
    return (Patch(stages, "oldest_to_restore", lambda versions, retired: oldest(versions[-1:], retired)),)


def no_look_at_decision() -> Sequence[Patch]:
    """Lineage is looked up when a version is planned, and not when it is decided."""

    def look(stage: Stage, own: Fold[Version], version: Version) -> Process[Look]:
        yield
        return Look(frozenset(), own.looked)

    return (Patch(stages, "look_to_decide", look),)


def own_parents_left_out_at_decision() -> Sequence[Patch]:
    """When a version is decided, the parents of live versions are looked up, and not its own."""
    return (Patch(stages, "look_to_decide", lambda stage, own, version: stage.look(own, [*own.live.values()])),)


def no_barrier() -> Sequence[Patch]:
    """A version is made as soon as one upstream has sealed it."""

    def ready(stage: Stage, own: Fold[Version], readings: Mapping[str, Reading]) -> int | None:
        newest = max((version.version for version in own.live.values()), default=0)
        return min((v for reading in readings.values() for v in reading.sealed if v > newest), default=None)

    return (Patch(stages, "next_ready", ready),)


def no_roots() -> Sequence[Patch]:
    """The branches of a diamond are taken as they are."""
    return (Patch(stages, "same_roots", lambda stage, version, readings: True),)


def state_apart() -> Sequence[Patch]:
    """The state of a version is a record of its own, which the first evaluation writes."""

    def keep(stage: Stage, name: str, plan: Plan, state: State) -> str:
        file = f"{stage.name}/{plan.version}/{plan.generation}"
        stage.states.setdefault(file, state)
        stage.written.setdefault(file, state)
        return file

    return (Patch(stages, "keep_state", keep),)


def state_in_one_place() -> Sequence[Patch]:
    """There is one file of state, which each evaluation overwrites."""

    def keep(stage: Stage, name: str, plan: Plan, state: State) -> str:
        stage.states["newest"] = stage.written["newest"] = state
        return "newest"

    return (Patch(stages, "keep_state", keep),)


def state_of_the_last_evaluation() -> Sequence[Patch]:
    """A version goes on with the state that was written last, also by an evaluation that lost or was taken back."""

    def before(stage: Stage, own: Fold[Version]) -> State | None:
        if not stage.stateful:
            return None
        return next(reversed(stage.states.values())) if own.live else State("")

    return (Patch(stages, "state_before", before),)


def channel_apart() -> Sequence[Patch]:
    """The second channel of a version is a record of its own, which the first evaluation writes."""

    def keep(stage: Stage, name: str, plan: Plan, marks: Mapping[str, Row]) -> Mapping[str, Row]:
        return stage.apart.setdefault((plan.version, plan.generation), marks)

    return (Patch(stages, "keep_channel", keep),)


def channel_as_it_is_now() -> Sequence[Patch]:
    """A version reads all that there is by now of a second channel, and not that of the slots whose rows it reads."""
    of_channel = stages.rows_of_channel

    def read(channel: str, units: frozenset[str], reading: Reading) -> Mapping[str, Row]:
        return of_channel(channel, frozenset(reading.units) if channel else units, reading)

    return (Patch(stages, "rows_of_channel", read),)


def seal_before_the_last_slot() -> Sequence[Patch]:
    """A version is sealed by the end of its run, whatever its datasets cover."""
    return (Patch(sources, "all_in", lambda version, folds, heads, waiting: True),)


def restored_to_the_newest_good_version() -> Sequence[Patch]:
    """A restore keeps everything up to the newest version whose own parents are all live."""

    def oldest(versions: Sequence[Version], retired: frozenset[str]) -> int | None:
        after = None
        for version in reversed(versions):
            if not retired & frozenset().union(*version.parents.values()):
                return after
            after = version.version
        return after

    return (Patch(stages, "oldest_to_restore", oldest),)


def no_floor() -> Sequence[Patch]:
    """State is removed without a decision that gives it up."""

    def give_up(stage: Stage, own: Fold[Version], floor: int) -> Process[bool]:
        yield
        return True

    return (Patch(stages, "give_up_state", give_up),)


def look_past_a_slot_without_outcome() -> Sequence[Patch]:
    """A look goes on record as far as there are decisions."""
    return (Patch(stages, "looked_upto", lambda chain: chain.head),)


def chains_before_seals() -> Sequence[Patch]:
    """An upstream's slots are read before its seals, which may name more."""

    def read(self: DatasetOf) -> Process[Reading]:
        folds = yield from self.source.folds()
        yield
        seals, fold = tuple(self.source.seals), folds[self.name]
        valid = valid_seals(seals, folds)
        return Reading({seal.version: content(seal.heads[self.name], fold) for seal in valid}, fold.live)

    return (Patch(DatasetOf, "read", read),)


def boundaries_that_move() -> Sequence[Patch]:
    """A version that is sealed again takes all that every dataset has by then."""
    return (Patch(sources, "head_for", lambda version, dataset, fold, seals: fold.slot),)


def seals_that_stay_valid_for_ever() -> Sequence[Patch]:
    """A rewind voids no seal."""
    return (Patch(sources, "intact", lambda seal, dataset, fold: True),)


def replacement_in_the_next_version() -> Sequence[Patch]:
    """A slot that replaces units belongs to the next version, and not to theirs."""
    followed = chains.followed

    def follow(before: Fold[U], slot: int, decision: Decision[U]) -> Fold[U]:
        after = followed(before, slot, decision)
        return replace(after, origins={**after.origins, **dict.fromkeys((u.name for u in decision.units), slot)})

    return (Patch(chains, "followed", follow),)


def replacement_in_the_newest_version() -> Sequence[Patch]:
    """A slot that replaces units of several versions belongs to the newest of them."""
    followed = chains.followed

    def follow(before: Fold[U], slot: int, decision: Decision[U]) -> Fold[U]:
        after = followed(before, slot, decision)
        newest = max((before.origins[name] for name in decision.retires if name in before.live), default=slot)
        return replace(after, origins={**after.origins, **dict.fromkeys((u.name for u in decision.units), newest)})

    return (Patch(chains, "followed", follow),)


def nothing_found_behind_a_trim() -> Sequence[Patch]:
    """A look sees the slots that are left, though the upstream was trimmed since the last one."""

    def retired(parents: frozenset[str], chain: Chain[Any], fold: Fold[Any], since: int) -> frozenset[str]:
        return parents & chain.retired_since(max(since, chain.trimmed), fold.slot)

    return (Patch(stages, "retired_of", retired),)


def snapshot_without_spoiled_heads() -> Sequence[Patch]:
    """A snapshot doesn't keep which heads were spoiled: after a trim, void seals are valid again."""
    return (Patch(chains, "kept", lambda fold: replace(fold, spoiled=())),)


def snapshot_without_origins() -> Sequence[Patch]:
    """A snapshot doesn't keep whose versions its units have."""
    return (Patch(chains, "kept", lambda fold: replace(fold, origins=fold.slots)),)


def plan_bound_to_its_generation_only() -> Sequence[Patch]:
    """A version is decided though another one was since its plan."""
    return (Patch(stages, "still_holds", lambda plan, own: plan.generation == own.generation),)


def whole_as_what_is_new() -> Sequence[Patch]:
    """A version reads what is new in it, also of what it is to read whole."""
    return (Patch(stages, "to_read", lambda stage, upstream, version, parents, own, reading: parents),)


def whole_as_it_is_now() -> Sequence[Patch]:
    """A version reads all that an upstream has by now of what it is to read whole, also what comes after the version."""

    def read(
        stage: Stage, upstream: str, version: int, parents: frozenset[str], own: Fold[Version], reading: Reading
    ) -> frozenset[str]:
        return frozenset(reading.units) if upstream in stage.whole else parents

    return (Patch(stages, "to_read", read),)


def late_without_bound() -> Sequence[Patch]:
    """An optional upstream may be behind as far as it likes."""
    return (Patch(stages, "close_enough", lambda stage, version, own, readings: True),)


def optional_only_by_its_very_version() -> Sequence[Patch]:
    """An optional upstream that hasn't sealed a version itself gives it nothing."""

    def reach(version: int, upstream: str, own: Fold[Version], reading: Reading) -> int:
        return version if version in reading.sealed else stages.reached_before(upstream, own)

    return (Patch(stages, "to_reach", reach),)


def optional_since_the_newest_version() -> Sequence[Patch]:
    """Of an optional upstream only the versions after the stage's newest are looked at."""

    def reach(version: int, upstream: str, own: Fold[Version], reading: Reading) -> int:
        newest = max((one.version for one in own.live.values()), default=0)
        later = (one for one in reading.sealed if newest < one <= version)
        return max([stages.reached_before(upstream, own), *later])

    return (Patch(stages, "to_reach", reach),)


def optional_that_falls_back() -> Sequence[Patch]:
    """How far an optional upstream was taken is forgotten where its seal is void."""

    def reach(version: int, upstream: str, own: Fold[Version], reading: Reading) -> int:
        return max((one for one in reading.sealed if one <= version), default=0)

    return (Patch(stages, "to_reach", reach),)


def behind_by_what_came_later() -> Sequence[Patch]:
    """How far an optional upstream is behind is measured by the newest version that it has, also one that comes later."""
    close_enough = stages.close_enough

    def close(stage: Stage, version: int, own: Fold[Version], readings: Mapping[str, Reading]) -> bool:
        newest = max((max(readings[name].sealed, default=0) for name in stage.optional), default=0)
        return close_enough(stage, max(version, newest), own, readings)

    return (Patch(stages, "close_enough", close),)


MUTANTS: Mapping[str, Callable[[], Sequence[Patch]]] = {
    mutant.__name__: mutant
    for mutant in (
        only_the_newest_versions_parents,
        no_look_at_decision,
        own_parents_left_out_at_decision,
        no_barrier,
        no_roots,
        state_apart,
        state_in_one_place,
        state_of_the_last_evaluation,
        channel_apart,
        channel_as_it_is_now,
        seal_before_the_last_slot,
        restored_to_the_newest_good_version,
        no_floor,
        look_past_a_slot_without_outcome,
        chains_before_seals,
        boundaries_that_move,
        seals_that_stay_valid_for_ever,
        replacement_in_the_next_version,
        replacement_in_the_newest_version,
        nothing_found_behind_a_trim,
        snapshot_without_spoiled_heads,
        snapshot_without_origins,
        plan_bound_to_its_generation_only,
        whole_as_what_is_new,
        whole_as_it_is_now,
        late_without_bound,
        optional_only_by_its_very_version,
        optional_since_the_newest_version,
        optional_that_falls_back,
        behind_by_what_came_later,
    )
}


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Change the model for a while."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(patch.owner, patch.name, patch.value))
        yield


def mutated(name: str) -> AbstractContextManager[None]:
    """Put a fault in the model for a while."""
    return patched(MUTANTS[name]())


def first_broken(name: str, seeds: Sequence[int]) -> tuple[int, str] | None:
    """Return the first history that notices a fault, and what it breaks; the model without the fault passes it."""
    for seed in seeds:
        try:
            with mutated(name):
                play(seed)
        except BrokenError as error:
            play(seed)
            return seed, error.why
    return None
