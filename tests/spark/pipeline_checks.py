"""The content that a pipeline of `chained_stages` has to have at rest: that of one pass in plain Python over its sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq

from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action
from airflow_gobblin.journal.seals import Seals
from airflow_gobblin.model.channels import ROWS, STATE
from airflow_gobblin.model.state import UnitRef
from tests.protocol.pipelines import reference
from tests.protocol.pipelines.reference import Cut, Published, Rows, Sealed, Shape

DATASETS = ("a", "b")
"""Those of the source, `raw`."""
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def check_at_rest(journal: str, reads: Mapping[str, Sequence[str]], rows: int, counts: Counter[str]) -> None:
    """Check that each stage has what one pass over what the source published gives, made from what its upstreams have.

    :param reads: what each stage reads, upstreams first.
    :param rows: how many rows each dataset has.
    :param counts: of figures.
    """
    # A stage that was read before its upstreams isn't newer than they are.
    found = {name: _Published(journal, name) for name in reversed([*reads])}
    datasets = {urn: _by_version(journal, urn) for urn in DATASETS}
    for urn, versions in datasets.items():
        keys = sorted(int(key) for some in versions.values() for key in some)
        assert keys == [*range(rows)], f"dataset {urn} has {keys} in its versions, and not all of {rows}"
    newest = max(version for versions in datasets.values() for version, some in versions.items() if some)
    expected = reference.one_pass(datasets, [found[name].shape(some) for name, some in reads.items()])
    alive = {""}.union(*(one.made_by for one in found.values()))
    for name, one in found.items():
        assert max(one.rows, default=0) >= newest, f"{name} has {[*one.rows]}, and lacks {newest}"
        assert one.rows == expected[name].rows, name
        assert one.states == {version: expected[name].states[version] for version in one.states}, name
        assert one.made_from <= alive, f"{name} was made from {one.made_from - alive}, which nothing published has"
        assert one.kept_by <= alive, f"{name} has state of {one.kept_by - alive}, which nothing published has"
        assert len(one.made_by) == len([some for some in one.rows.values() if some]), f"{name}: one for each version"
        counts["versions"] += len(one.rows)
        counts["versions with state"] += len(one.states)
        counts["restores"] += one.restores


class _Published:
    """The rows that a stage has published, by version, and the state that it keeps; and which evaluations made it, or what it was
    made from.
    """

    def __init__(self, journal: str, name: str) -> None:
        self.name = name
        opened = Journal.open(journal, name)
        history = opened.history(name)
        state = history.state
        self.rows: dict[int, Mapping[str, str]] = {}
        self.states: dict[int, Mapping[str, frozenset[str]]] = {}
        self.made_by, self.made_from, self.kept_by = set[str](), set[str](), set[str]()
        for slot in state.versions:
            found, marks, kept = (self._read(opened, history, slot, channel) for channel in (ROWS, "marks", STATE))
            version, is_stateful = _second(state.checkpoints[slot].version), state.checkpoints[slot].state is not None
            place = f"{name}:{version}:" if is_stateful else ""  # a function doesn't know its version
            rows = {f"{place}{row['key']}": row["value"] for row in found}
            self.rows[version] = rows
            if is_stateful:
                self.states[version] = {row["parity"]: frozenset(row["seen"]) for row in kept}
                assert {row["made"][-1] for row in kept if row["parity"] in {one["key"] for one in found}} == {
                    row["made_by"] for row in found
                }, "rows and state are of one evaluation"
                self.kept_by |= {one for row in kept for one in row["made"]}
            if state.checkpoints[slot].channels:
                assert {row["key"]: row["value"] for row in marks} == reference.marks(rows), name
                assert {row["made_by"] for row in marks} == {row["made_by"] for row in found}, (
                    "they are of one evaluation"
                )
            assert len(found) == len({row["key"] for row in found}), f"a row of {name} is there twice"
            self.made_by |= {row["made_by"] for row in found}
            self.made_from |= {one for row in found for one in row["made_from"].split(",")}
        rewinds = (slot.decision for slot in history.slots if slot.decision.action is Action.REWIND)
        self.restores = sum(1 for decision in rewinds if not decision.actor)

    @staticmethod
    def _read(journal: Journal, history: History, slot: int, channel: str) -> list[dict[str, Any]]:
        refs = [ref for ref in history.state.units_of(channel) if ref.slot == slot]
        tables = (pq.read_table(file.path) for file in journal.published_files(history, refs))
        return [row for table in tables for row in table.to_pylist()]

    def shape(self, reads: Sequence[str]) -> Shape:
        upstreams = [read.partition(".")[0] for read in reads]
        cuts = [Cut(version, dict.fromkeys(upstreams, version)) for version in self.rows]
        return Shape(self.name, reads, stateful=bool(self.states), cuts=cuts, whole=frozenset())


def _by_version(journal: str, urn: str) -> dict[int, Rows]:
    """The rows of a dataset of the source, by their version."""
    opened = Journal.open(journal, "raw")
    seals = [
        Sealed(_second(seal.upto), seal.datasets[urn].head, bool(seal.datasets[urn].waits))
        for seal in Seals(opened).after(_BEGINNING, Seals(opened).newest())
    ]
    return reference.by_version([*_slots(opened, opened.history(urn))], seals)


def _slots(journal: Journal, history: History) -> Iterator[Published]:
    """The slots of a dataset, with the rows of those units that are live."""
    for slot in history.slots:
        if slot.done:
            refs = [UnitRef(slot.decision.slot, unit.unit) for unit in slot.decision.units]
            retires = frozenset(f"{ref.slot}/{ref.unit}" for ref in slot.decision.replaces)
            units = {f"{ref.slot}/{ref.unit}": _rows(journal, history, ref) for ref in refs}
            yield Published(slot.decision.slot, slot.decision.action is Action.REWIND, retires, units)


def _rows(journal: Journal, history: History, ref: UnitRef) -> Rows:
    if ref not in history.state.live:
        return {}
    tables = (pq.read_table(file.path) for file in journal.published_files(history, [ref]))
    rows = [row for table in tables for row in table["row"].to_pylist()]
    return {row.rpartition("/")[2]: row for row in rows}


def _second(version: datetime) -> int:
    return int(version.timestamp())
