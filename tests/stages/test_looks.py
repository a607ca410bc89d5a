"""The cheap look at lineage, at what was retired since the last one, finds what a look at all parents of all versions does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

import pytest

from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.errors import LostRaceError
from airflow_gobblin.journal import trimming
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, Note, NoteKind, OutcomeState, now
from airflow_gobblin.journal.trimming import trim
from airflow_gobblin.model.checkpoint import Checkpoint, ConsumedSlot, Reads
from airflow_gobblin.model.state import DatasetState, UnitRef
from airflow_gobblin.stages import inputs, lineage
from airflow_gobblin.stages.outputs import Input
from tests.proofs import fresh_seed
from tests.stages.chains import Chain, at

INPUTS = (Input("memory", "raw", "flights"), Input("memory", "raw", "planes"))
READS = dict.fromkeys((one.id for one in INPUTS), Reads.NEW)
ACTS = 120
HISTORIES = 12
Gone = Mapping[str, AbstractSet[ConsumedSlot]]


class DifferentError(Exception):
    """A look has missed something, or found what is no loss."""


class Looks:
    """Two upstreams to which anything happens, and a stage of both, which looks before it plans and when it decides."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.upstreams = {one.id: Chain(one.urn) for one in INPUTS}
        self.stage = Chain("clean")
        self.pending: dict[str, int] = {}
        self.counts = Counter[str]()

    @property
    def state(self) -> DatasetState:
        return self.stage.history.state

    def play(self) -> Counter[str]:
        """Let anything happen.

        :return: what did, by kind.
        """
        acts = (self.grow, self.grow, self.replace, self.rewind, self.end, self.trim, self.run, self.run)
        with patch.object(inputs, "opened", self.opened):
            for number in range(ACTS):
                if number % 40 == 39:
                    self.drop(*self.some_upstream())
                act = self.chance.choice(acts)
                act(*self.some_upstream())
        return self.counts

    @contextmanager
    def opened(self, one: Input, _: Connections) -> Iterator[Journal]:
        yield self.upstreams[one.id].journal

    def some_upstream(self) -> tuple[str, Chain]:
        return self.chance.choice([*self.upstreams.items()])

    # Acts on an upstream

    def take(self, name: str, action: Action, *units: str, replaces: tuple[UnitRef, ...] = ()) -> None:
        """Take the next slot, whose outcome may come later."""
        if name in self.pending:
            return
        ends = self.chance.random() < 0.7
        slot = self.upstreams[name].take(action, *units, replaces=replaces, ends=ends)
        if not ends:
            self.pending[name] = slot
        self.counts[action] += 1

    def grow(self, name: str, _: Chain) -> None:
        self.take(name, Action.COMMIT, *[f"u{n}" for n in range(self.chance.randint(1, 3))])

    def replace(self, name: str, chain: Chain) -> None:
        live = [*chain.history.state.live]
        if live:
            some = self.chance.sample(live, self.chance.randint(1, min(2, len(live))))
            self.take(name, Action.COMMIT, "u0", replaces=tuple(sorted(some)))
            self.counts["replacements"] += 1

    def rewind(self, name: str, chain: Chain) -> None:
        """Mostly of the newest slots."""
        state = chain.history.state
        oldest = state.head - self.chance.choice([0, 1, 1, 2, 5])
        if some := tuple(ref for ref in state.live if ref.slot >= oldest):
            self.take(name, Action.REWIND, replaces=some)

    def drop(self, name: str, _: Chain) -> None:
        self.take(name, Action.DROP)

    def end(self, name: str, chain: Chain) -> None:
        """A slot gets its outcome."""
        if slot := self.pending.pop(name, None):
            outcome = self.chance.choice([OutcomeState.DONE, OutcomeState.DONE, OutcomeState.ABANDONED])
            chain.journal.put_outcome(chain.history.slot(slot), outcome, "")
            for kind in (NoteKind.ANNOUNCED, NoteKind.CLEANED):
                chain.journal.put_note(chain.urn, slot, Note(kind, "", now()))

    def trim(self, _: str, chain: Chain) -> None:
        some = self.chance.choice([chain, self.stage])
        self.counts["trims"] += trim(some.journal, some.history)

    # Acts of the stage

    def run(self, *_: object) -> None:
        """Look and go back, or make a version; meanwhile an upstream goes on."""
        before = self.lost(self.state)
        restore = inputs.to_restore(INPUTS, self.state, NoConnections(), stateful=False)
        if bool(restore) != bool(before):
            raise DifferentError(f"gone are {before}, and to be taken back is {restore}")
        if restore is not None:
            oldest = min(made.version for made in self.state.checkpoints.values() if _is_of(made, before))
            wanted = {slot for slot, made in self.state.checkpoints.items() if made.version >= oldest}
            if {ref.slot for ref in restore.units} != wanted:
                raise DifferentError(f"to be taken back are {wanted}, and not {restore.units}")
            self.stage.take(Action.REWIND, replaces=restore.units, looked=restore.looked)
            self.counts["restores"] += 1
        else:
            self.make_a_version()

    def make_a_version(self) -> None:
        """Of what each upstream has up to some slot, and no version has yet."""
        state = self.state
        newest = max((made.version for made in state.checkpoints.values()), default=at(0))
        made = Checkpoint(
            newest + timedelta(hours=1), {name: self.new(name) for name in self.upstreams}, {}, reads=READS
        )
        if self.chance.random() < 0.5:
            self.chance.choice([self.rewind, self.replace, self.end])(*self.some_upstream())
        lost = self.lost(state, made)
        try:
            looked = inputs.check_parents(INPUTS, made, state, NoConnections())
        except LostRaceError as error:
            if not lost:
                raise DifferentError("nothing is gone") from error
            self.counts["lost plans"] += 1
            return
        if lost:
            raise DifferentError(f"{lost} are gone, and a version is decided")
        if self.chance.random() < 0.5:  # slips in between look and decision: the next look finds it
            self.chance.choice([self.rewind, self.replace, self.end])(*self.some_upstream())
        self.stage.publish(made, looked=looked)
        self.counts["versions"] += 1

    def new(self, name: str) -> tuple[ConsumedSlot, ...]:
        history, head = self.upstreams[name].history, self.upstreams[name].history.state.head
        upto = self.chance.choice([head, head, head - 1])
        before = {one.slot for made in self.state.checkpoints.values() for one in made.parents[name]}
        units = Counter(ref.slot for ref in history.state.live if ref.slot <= upto)
        slots = sorted(units.keys() - before)
        return tuple(ConsumedSlot(slot, history.slot(slot).decision.token, units[slot]) for slot in slots)

    def lost(self, state: DatasetState, *planned: Checkpoint) -> Gone:
        """Look at every parent of every version: what is gone of it, by upstream."""
        found: dict[str, AbstractSet[ConsumedSlot]] = {}
        for name, chain in self.upstreams.items():
            units = Counter(ref.slot for ref in chain.history.state.live)
            parents = (one for made in (*state.checkpoints.values(), *planned) for one in made.parents[name])
            if gone := {one for one in parents if units[one.slot] < one.units}:
                found[name] = gone
        return found


def _is_of(made: Checkpoint, gone: Gone) -> bool:
    return any(gone.get(name, frozenset()) & {*parents} for name, parents in made.parents.items())


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that may be trimmed is."""
    monkeypatch.setattr(trimming, "KEPT", 1)
    monkeypatch.setattr(trimming, "TRIMMED_TOGETHER", 1)


@pytest.mark.slow
def test_a_cheap_look_finds_what_a_look_at_all_does() -> None:
    counts = Counter[str]()
    for seed in (*range(HISTORIES // 2), *(fresh_seed() for _ in range(HISTORIES // 2))):
        print(f"seed {seed}")
        counts += Looks(seed).play()
    kinds = ("versions", "restores", "lost plans", "replacements", "trims", Action.REWIND, Action.DROP)
    assert [kind for kind in kinds if counts[kind] < HISTORIES // 2] == [], counts


TOUCHED, LOOKED = lineage._touched, lineage.looked_up_to


def past_a_pending_slot(upstream: History) -> int:
    return upstream.state.head


def trimmed_slots_passed_over(upstream: History, since: int) -> frozenset[int] | None:
    return TOUCHED(upstream, max(since, len(upstream.trimmed)))


def one_slot_too_few(upstream: History, since: int) -> frozenset[int] | None:
    return TOUCHED(upstream, since + 1)


def drops_passed_over(upstream: History, since: int) -> frozenset[int] | None:
    found = TOUCHED(upstream, since)
    return frozenset() if found is None and since >= len(upstream.trimmed) else found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("looked_up_to", past_a_pending_slot),
        ("_touched", trimmed_slots_passed_over),
        ("_touched", one_slot_too_few),
        ("_touched", drops_passed_over),
    ],
)
def test_a_look_with_a_fault_is_noticed(
    rule: str, fault: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, rule, fault)
    for seed in range(50):
        try:
            Looks(seed).play()
        except DifferentError:
            return
    raise AssertionError("no history notices it")
