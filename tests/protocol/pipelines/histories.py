"""Random histories of pipelines on the model: crashes anywhere, late processes, early versions, runs that are doubled, lost or
cleared, rewinds and replacements of sources and stages, trimming and clean-up; and what must hold afterwards.

A seed determines a history:

    .venv/bin/python -m tests.protocol.pipelines.histories 17
    .venv/bin/python -m tests.protocol.pipelines.histories 17 --mutant no_barrier
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from tests.protocol.pipelines import reference
from tests.protocol.pipelines.chains import Action, Chain, Decision, Process, StoppedError, Store
from tests.protocol.pipelines.reference import Cut, Published, Sealed, Shape
from tests.protocol.pipelines.sources import RangeUnit, Seal, Source, source, valid_seals
from tests.protocol.pipelines.stages import DatasetOf, Stage, Upstream, Version, in_order, input_name

PERIOD = 4
"""The positions between two versions."""
ACTS = 60
WORKERS = 2
ROUNDS = 40
"""How often everything may run until a pipeline is at rest."""


class BrokenError(Exception):
    """A history broke a promise.

    :param log: what happened.
    """

    def __init__(self, why: str, seed: int, log: Sequence[str]) -> None:
        command = f".venv/bin/python -m tests.protocol.pipelines.histories {seed}"
        super().__init__("\n".join([why, *log, f"again: {command}"]))
        self.why = why


@dataclass
class Pipeline:
    """Sources and stages; upstreams come first."""

    store: Store
    sources: Sequence[Source]
    stages: Sequence[Stage]


def line(store: Store) -> Pipeline:
    """One after another, with state in the middle."""
    raw = source("raw", ["a"], store)
    clean = Stage("clean", [DatasetOf(raw, 0)], store)
    total = Stage("total", [clean], store, stateful=True, channels={"clean": ["marks"]})
    report = Stage("report", [total], store, channels={"total": ["", "marks"]})
    return Pipeline(store, [raw], [clean, total, report])


def diamond(store: Store) -> Pipeline:
    """Two ways from a dataset to one stage, and a third one without a stage in between."""
    raw = source("raw", ["a", "b"], store)
    one = Stage("one", [DatasetOf(raw, 0)], store)
    two = Stage("two", [DatasetOf(raw, 0), DatasetOf(raw, 1)], store)
    both = Stage("both", [one, two, DatasetOf(raw, 0)], store, channels={"one": ["marks"], "two": ["", "marks"]})
    return Pipeline(store, [raw], [one, two, both, Stage("total", [both], store, stateful=True)])


def narrow(store: Store) -> Pipeline:
    """A stage that reads one of two datasets, and one that reads both, meet."""
    raw = source("raw", ["a", "b"], store)
    one = Stage("one", [DatasetOf(raw, 1)], store)
    two = Stage("two", [DatasetOf(raw, 0), DatasetOf(raw, 1)], store)
    return Pipeline(store, [raw], [one, two, Stage("both", [one, two], store)])


def fan(store: Store) -> Pipeline:
    """Two jobs as one channel, an optional upstream, and a stage with state that reads a source."""
    raw, other = source("raw", ["a"], store), source("other", ["b"], store)
    late = source("late", ["c"], store, apart=True)
    union = Stage("union", [DatasetOf(raw, 0), DatasetOf(other, 0)], store)
    extra = Stage("extra", [DatasetOf(late, 0)], store)
    both = Stage("both", [union, extra], store, optional=["extra"], channels={"extra": ["marks", ""]})
    total = Stage("total", [DatasetOf(other, 0), both], store, stateful=True)
    return Pipeline(store, [raw, other, late], [union, extra, both, total])


def wide(store: Store) -> Pipeline:
    """Stages that read everything up to a version; one of them also of an optional upstream, which may be so far behind."""
    raw, late = source("raw", ["a", "b"], store), source("late", ["c"], store)
    clean, extra = Stage("clean", [DatasetOf(raw, 0)], store), Stage("extra", [DatasetOf(late, 0)], store)
    facts = Stage(
        "facts",
        [DatasetOf(raw, 1), clean, extra],
        store,
        optional=["extra"],
        whole=["clean", "extra"],
        at_most=2 * PERIOD,
    )
    seen = Stage(
        "seen", [DatasetOf(raw, 1), clean], store, stateful=True, whole=["clean"], channels={"clean": ["", "marks"]}
    )
    return Pipeline(store, [raw, late], [clean, extra, facts, seen])


def daily(store: Store) -> Pipeline:
    """Each of two datasets of a job with another schedule, as an optional input of a stage."""
    raw, late = source("raw", ["a"], store), source("late", ["c", "d"], store, apart=True)
    one = Stage("one", [DatasetOf(raw, 0), DatasetOf(late, 0)], store, optional=["c"])
    two = Stage("two", [DatasetOf(raw, 0), DatasetOf(late, 1)], store, optional=["d"], whole=["d"])
    return Pipeline(store, [raw, late], [one, two])


SHAPES = (line, diamond, narrow, fan, wide, daily)


@dataclass
class History:
    """One history.

    :param crashes: how many processes died.
    """

    seed: int
    log: list[str] = field(default_factory=list)
    crashes: int = 0
    restores: int = 0
    versions: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.pipeline = self.random.choice(SHAPES)(Store())
        self.log.append(f"a {self.pipeline.stages[-1].name} of {len(self.pipeline.stages)} stages")
        self.alive: list[tuple[str, Process[None]]] = []
        self.stopped: list[Stage] = []

    def play(self) -> None:
        """Let anything happen, come to rest, and check."""
        for _ in range(ACTS):
            self._begin()
            for _ in range(self.random.randrange(4)):
                self._go_on()
        self._rest()
        self._check()

    def _begin(self) -> None:
        acts: Sequence[tuple[int, Callable[[], None]]] = (
            (30, self._stage_runs),
            (24, self._source_runs),
            (4, self._dataset_is_rewound),
            (2, self._source_is_rewound),
            (6, self._source_is_replaced),
            (3, self._dataset_waits),
            (4, self._chain_is_trimmed),
            (3, self._stage_is_cleaned),
            (2, self._stage_is_rewound),
            (3, self._version_is_replaced),
        )
        weights = [weight for weight, _ in acts]
        self.random.choices([act for _, act in acts], weights)[0]()

    def _go_on(self) -> None:
        """A process goes on for some steps, or dies: mostly a new one."""
        if not self.alive:
            return
        newest = self.random.random() < 0.7
        number = len(self.alive) - 1 if newest else self.random.randrange(len(self.alive))
        name, process = self.alive[number]
        for _ in range(self.random.choice([1, 2, 3, 5, 10, 100, 100, 100])):
            if not self._step(name, process):
                self.alive.pop(number)
                return
        if self.random.random() < 0.15:
            self.log.append(f"{name} dies")
            self.crashes += 1
            self.alive.pop(number)

    def _step(self, name: str, process: Process[None]) -> bool:
        """Return whether the process goes on after a step of it."""
        try:
            next(process)
        except StopIteration:
            self.log.append(f"{name} ends")
            return False
        except (StoppedError, KeyError) as error:  # the state that it began with may be gone
            self.log.append(f"{name} fails: {error}")
            return False
        return True

    def _start(self, name: str, process: Process[None]) -> None:
        name = f"{name} ({self.pipeline.store.token()})"
        self.log.append(name)
        self.alive.append((name, process))

    def _source(self) -> Source:
        return self.random.choice(self.pipeline.sources)

    def _stage(self) -> Stage:
        return self.random.choice(self.pipeline.stages)

    def _source_runs(self) -> None:
        """A scheduled run, a run that is cleared, or one without a schedule; a unit may fail."""
        job = self._source()
        if self.random.random() < 0.7:
            job.grow(PERIOD)
        back = self.random.choice([0, 0, 0, 1, 2]) * PERIOD
        at = job.clock - back - (self.random.randrange(PERIOD) if job.apart else 0)
        version = at if job.apart else at // PERIOD * PERIOD
        if version <= 0:
            return
        fails = {d.name: self.random.choice([None, None, None, None, 0, 1]) for d in job.datasets}
        scheduled = self.random.random() < 0.9
        self._start(
            f"{job.name} runs up to {version}{'' if scheduled else ', unscheduled'}", job.run(version, fails, scheduled)
        )

    def _source_is_rewound(self) -> None:
        job = self._source()
        version = self.random.randrange(max(job.clock - 4 * PERIOD, 0), job.clock + 1)
        self._start(f"{job.name} is rewound to {version}", job.rewind(version))

    def _dataset_is_rewound(self) -> None:
        job = self._source()
        dataset = self.random.choice(job.datasets)
        position = self.random.randrange(max(job.clock - 4 * PERIOD, 0), job.clock + 1)
        self._start(f"{dataset.name} is rewound to {position}", dataset.rewind(position))

    def _source_is_replaced(self) -> None:
        job = self._source()
        dataset = self.random.choice(job.datasets)
        low = self.random.randrange(job.clock + 1)
        high = low + self.random.randrange(1, 2 * PERIOD)
        for position in range(low, min(high, job.clock)):
            dataset.revisions[position] += 1
        self._start(f"{dataset.name} is replaced from {low} to {high}", dataset.replace(low, high))

    def _dataset_waits(self) -> None:
        dataset = self.random.choice(self._source().datasets)
        dataset.waits = not dataset.waits and self.random.random() < 0.5
        self.log.append(f"{dataset.name} {'waits' if dataset.waits else 'does not wait'}")

    def _stage_runs(self) -> None:
        stage = self._stage()
        self._start(f"{stage.name} runs", stage.run())

    def _chain_is_trimmed(self) -> None:
        chains: Sequence[Chain[Any]] = [
            *(dataset.chain for job in self.pipeline.sources for dataset in job.datasets),
            *(stage.chain for stage in self.pipeline.stages),
        ]
        chain = self.random.choice(chains)
        upto = chain.head - self.random.randrange(3)
        self.log.append(f"{chain.name} is trimmed up to {upto}")
        chain.trim(upto)

    def _stage_is_cleaned(self) -> None:
        stage = self._stage()
        self._start(f"{stage.name} is cleaned", stage.clean(self.random.randrange(1, 4)))

    def _stage_is_rewound(self) -> None:
        stage = self._stage()
        versions = in_order(stage.chain.fold())
        if versions:
            version = self.random.choice(versions).version
            self._start(f"{stage.name} is rewound to before {version}", stage.rewind(version))

    def _version_is_replaced(self) -> None:
        stage = self._stage()
        self._start(f"{stage.name} makes a version again", stage.replace(self.random.randrange(8)))

    def _rest(self) -> None:
        """Late processes go on, some to their end; then everything runs until nothing changes."""
        self.random.shuffle(self.alive)
        for name, process in self.alive:
            for _ in range(self.random.choice([0, 3, 1000])):
                if not self._step(name, process):
                    break
        self.log.append("everything comes to rest")
        for job in self.pipeline.sources:
            for dataset in job.datasets:
                dataset.waits = False
        until = max(job.clock for job in self.pipeline.sources) // PERIOD * PERIOD + PERIOD
        for job in self.pipeline.sources:
            job.grow(until - job.clock)
        for _ in range(ROUNDS):
            before = self.pipeline.store.moment
            for job in self.pipeline.sources:
                self._to_the_end(job.run(until, {}))
            for stage in self.pipeline.stages:
                self._to_the_end(stage.run(), stage)
            if self.pipeline.store.moment == before:
                return
        self._fail("the pipeline doesn't come to rest")

    def _to_the_end(self, process: Process[None], stage: Stage | None = None) -> None:
        """A stage that stops by name is made again from its start, where state is empty."""
        try:
            for _ in process:
                pass
        except StoppedError as error:
            self.log.append(f"{error}: from the start")
            if stage is not None:
                self._to_the_end(stage.rewind(0))
        except KeyError as error:
            self.log.append(f"no state {error}")

    def _check(self) -> None:
        at_rest = {stage.name: in_order(stage.chain.fold()) for stage in self.pipeline.stages}
        datasets: dict[str, Mapping[int, reference.Rows]] = {}
        for job in self.pipeline.sources:
            folds = {dataset.name: dataset.chain.fold() for dataset in job.datasets}
            valid = valid_seals(job.seals, folds)
            for dataset in job.datasets:
                versions = reference.by_version(_published(dataset.chain), _sealed(dataset.name, job.seals))
                self._check_all_in(dataset.name, versions, valid)
                datasets[dataset.name] = versions
            newest = max((seal.version for seal in valid), default=0)
            self._expect(newest == job.clock, f"{job.name} has sealed {newest} of {job.clock}")
        shapes = [_shape(stage, at_rest[stage.name]) for stage in self.pipeline.stages]
        expected = reference.one_pass(datasets, shapes)
        alive = {version.name for versions in at_rest.values() for version in versions}
        for stage in self.pipeline.stages:
            self._check_at_rest(stage, at_rest[stage.name], expected[stage.name], alive)
            self._check_all_ever(stage)

    def _check_all_in(self, dataset: str, versions: Mapping[int, reference.Rows], seals: Iterable[Seal]) -> None:
        """A seal states that everything up to its version is in."""
        for seal in seals:
            have = {key for version, rows in versions.items() if version <= seal.version for key in rows}
            lacks = {f"{dataset}:{position}" for position in range(seal.version)} - have
            self._expect(dataset in seal.waiting or not lacks, f"seal {seal} without {sorted(lacks)}")

    def _check_at_rest(
        self, stage: Stage, versions: Sequence[Version], expected: reference.Expected, alive: set[str]
    ) -> None:
        newest = self.pipeline.sources[0].clock
        self._expect(bool(versions) and versions[-1].version == newest, f"{stage.name} doesn't have version {newest}")
        fold = stage.chain.fold()
        for version in versions:
            have = {key: row.value for key, row in version.rows.items()}
            must = expected.rows[version.version]
            self._expect(have == must, f"{stage.name} has {have} for {version.version}, and must have {must}")
            marks = {key: row.value for key, row in version.marks.items()}
            self._expect(marks == reference.marks(must), f"{stage.name} has marks {marks} for {version.version}")
            made = frozenset[str]().union(*(row.made for row in (*version.rows.values(), *version.marks.values())))
            self._expect(
                made <= alive, f"{stage.name} has rows of {made - alive} in {version.version}, which was taken back"
            )
            if stage.stateful and fold.slots[version.name] >= fold.floor:
                state = stage.states[version.state]
                wanted = expected.states[version.version]
                self._expect(state.values == wanted, f"{stage.name} has state {state.values}, and must have {wanted}")
                self._expect(
                    state.made <= alive, f"{stage.name} has state of {state.made - alive}, which was taken back"
                )

    def _check_all_ever(self, stage: Stage) -> None:
        """Check what holds of each version from the moment of its outcome, however short it lived."""
        chains: dict[str, Chain[Any]] = {upstream.name: upstream.chain for upstream in stage.upstreams}
        live: dict[str, Version] = {}
        for slot in sorted(stage.chain.ended_at):
            decision = stage.chain.ledger[slot]
            live = {name: version for name, version in live.items() if name not in decision.retires}
            self._check_no_falling_back(stage, live.values(), decision.units)
            live |= {version.name: version for version in decision.units}
            if decision.action is Action.REWIND:
                self.restores += 1
            for version in decision.units:
                self.versions += 1
                self._check_one_evaluation(stage, version)
                self._check_one_snapshot(stage, version)
                self._check_how_late(stage, decision, version)
                for upstream, parents in version.parents.items():
                    self._check_parents_lived(stage, decision, parents, chains[upstream])

    def _check_one_evaluation(self, stage: Stage, version: Version) -> None:
        """All channels and the state are of one evaluation."""
        for channel, rows in (("rows", version.rows), ("marks", version.marks)):
            self._expect(
                all(version.name in row.made for row in rows.values()), f"{stage.name} has {channel} of another"
            )
        self._expect(version.rows.keys() == version.marks.keys(), f"{stage.name} has marks of other rows")
        if stage.stateful:
            of = stage.written[version.state].of
            self._expect(of == version.name, f"{stage.name} has state of {of} beside rows of {version.name}")

    def _check_one_snapshot(self, stage: Stage, version: Version) -> None:
        """A row of a source isn't seen in two ways."""
        seen: dict[str, str] = {}
        for row in version.rows.values():
            for key, unit in row.origins:
                other = seen.setdefault(key, unit)
                self._expect(other == unit, f"{stage.name} has {key} of {unit} and of {other} in {version.version}")

    def _check_how_late(self, stage: Stage, decision: Decision[Version], version: Version) -> None:
        """Of an optional upstream a version has all that was sealed for it; and that is no further behind than it may be."""
        for name, reached in version.reached.items():
            if name not in stage.optional:
                self._expect(
                    reached == version.version, f"{stage.name} has {name} up to {reached} in {version.version}"
                )
                continue
            behind = version.version - reached
            close = stage.at_most is None or (reached > 0 and behind <= stage.at_most)
            self._expect(behind >= 0 and close, f"{stage.name} has {name} up to {reached} in {version.version}")
        for upstream in stage.upstreams:
            sealed = _valid_since(upstream, decision.began)
            newest = max((one for one in sealed if one <= version.version), default=0)
            reached = version.reached[upstream.name]
            self._expect(reached >= newest, f"{stage.name} has {upstream.name} up to {reached}, and there was {newest}")

    def _check_no_falling_back(self, stage: Stage, live: Iterable[Version], made: Iterable[Version]) -> None:
        """A version has all that those before it have."""
        for before in live:
            for version in made:
                falls = [name for name, upto in before.reached.items() if upto > version.reached[name]]
                self._expect(
                    version.version < before.version or not falls,
                    f"{stage.name} has less of {falls} in {version.version} than in {before.version}",
                )

    def _check_parents_lived(
        self, stage: Stage, decision: Decision[Version], parents: frozenset[str], chain: Chain[Any]
    ) -> None:
        """Nothing is decided that was made from what had been retired before the decision began."""
        for slot, at in chain.ended_at.items():
            gone = chain.ledger[slot].retires & parents
            self._expect(
                at > decision.considered or not gone, f"{stage.name} is decided though {sorted(gone)} had been retired"
            )

    def _expect(self, holds: bool, why: str) -> None:
        if not holds:
            self._fail(why)

    def _fail(self, why: str) -> None:
        raise BrokenError(why, self.seed, self.log)


def _published(chain: Chain[RangeUnit]) -> Sequence[Published]:
    return [
        Published(
            slot,
            chain.ledger[slot].action is Action.REWIND,
            chain.ledger[slot].retires,
            {unit.name: {key: row.value for key, row in unit.rows.items()} for unit in chain.ledger[slot].units},
        )
        for slot in sorted(chain.ended_at)
    ]


def _sealed(dataset: str, seals: Sequence[Seal]) -> Sequence[Sealed]:
    return [Sealed(seal.version, seal.heads[dataset], dataset in seal.waiting) for seal in seals]


def _valid_since(upstream: Upstream, moment: int) -> Iterator[int]:
    """Yield the versions that an upstream had sealed at a moment, of which nothing was ever taken back."""
    if isinstance(upstream, DatasetOf):
        job = upstream.source
        valid = valid_seals(job.seals, {dataset.name: dataset.chain.fold() for dataset in job.datasets})
        yield from (seal.version for seal in valid if seal.made <= moment)
        return
    chain = upstream.chain
    gone = frozenset[str]().union(*(chain.ledger[slot].retires for slot in chain.ended_at))
    for slot, at in chain.ended_at.items():
        yield from (one.version for one in chain.ledger[slot].units if at <= moment and one.name not in gone)


def _shape(stage: Stage, versions: Sequence[Version]) -> Shape:
    cuts = [Cut(version.version, version.reached) for version in versions]
    reads = [
        input_name(one.name, channel) for one in stage.upstreams for channel in stage.channels.get(one.name, ("",))
    ]
    return Shape(stage.name, reads, stage.stateful, cuts, stage.whole)


def play(seed: int) -> History:
    """Play a history.

    :raises BrokenError: it breaks a promise.
    """
    history = History(seed)
    try:
        history.play()
    except BrokenError:
        raise
    except Exception as error:
        raise BrokenError(f"{type(error).__name__}: {error}", seed, history.log) from error
    return history


@dataclass
class Tally:
    """The results of histories.

    :param broken: those that broke a promise.
    """

    histories: int = 0
    versions: int = 0
    restores: int = 0
    crashes: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add those of other histories."""
        self.histories += other.histories
        self.versions += other.versions
        self.restores += other.restores
        self.crashes += other.crashes
        self.broken += other.broken

    def __str__(self) -> str:
        return (
            f"{self.histories:,} histories with {self.versions:,} versions, {self.restores:,} restores and "
            f"{self.crashes:,} crashes"
        )


def play_all(seeds: Sequence[int]) -> Tally:
    """Play some histories, one after another."""
    tally = Tally()
    for seed in seeds:
        tally.histories += 1
        try:
            history = play(seed)
        except BrokenError as error:
            tally.broken.append(str(error))
        else:
            tally.versions += history.versions
            tally.restores += history.restores
            tally.crashes += history.crashes
    return tally


def play_together(play_some: Callable[[Sequence[int]], Tally], seeds: Sequence[int]) -> Tally:
    """Play many histories, spread over some processes."""
    tally = Tally()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for part in pool.map(play_some, [seeds[n::WORKERS] for n in range(WORKERS)]):
            tally.add(part)
    return tally


def main() -> None:
    """Play one history again, and report it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--mutant", help="a deliberate fault in the model, one of mutants.py")
    arguments = parser.parse_args()
    from tests.protocol.pipelines.mutants import mutated

    with nullcontext() if arguments.mutant is None else mutated(arguments.mutant):
        history = play(arguments.seed)
    print(*history.log, sep="\n")
    print(
        f"history {history.seed}: {history.versions} versions, {history.restores} restores, {history.crashes} crashes"
    )


if __name__ == "__main__":
    main()
