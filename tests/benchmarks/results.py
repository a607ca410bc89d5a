"""The results page: `results.json`, a list of rows, and its twin `results.md`. A program replaces the rows of its own works."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.measure import SEED, Figures
from tests.services.environment import use_environment

__all__ = ["JSON", "Limit", "Row", "Target", "keep", "measure_and_keep", "rows_of"]

JSON = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Target:
    """What a ratio, a peer's seconds to ours, is to be at the least."""

    who: str
    ratio: float


@dataclass(frozen=True)
class Limit:
    """What a figure of a contender is to be at the most. :param figure: `seconds`, `peak_mb` or `task_mb`."""

    who: str
    figure: str
    most: float


@dataclass(frozen=True)
class Row:
    """One contender at one work.

    :param ratio: its median to ours: above 1 we are faster. :param target: what the ratio is to be at the least, if anything.
    :param limits: what its own figures are to be at the most, by their names.
    :param seconds: the median of the rounds. :param phases: their medians, in seconds.
    """

    work: str
    who: str
    seconds: float
    ratio: float
    target: float | None
    limits: Mapping[str, float]
    fastest: float
    slowest: float
    rounds: int
    phases: Mapping[str, float]
    peak_mb: int | None
    task_mb: int | None
    seed: int
    command: str
    date: str
    machine: str
    versions: Mapping[str, str] = field(default_factory=dict)


def rows_of(
    work: str,
    figures: Sequence[Figures],
    command: str,
    *,
    ours: str,
    targets: Sequence[Target] = (),
    limits: Sequence[Limit] = (),
    versions: Mapping[str, str] | None = None,
) -> list[Row]:
    """The rows of one work. :param ours: who the others are compared with."""
    reference = next(f.median for f in figures if f.who == ours)
    wanted = {target.who: target.ratio for target in targets}
    assert {*wanted, *(limit.who for limit in limits)} <= {f.who for f in figures}
    return [
        Row(
            work=work,
            who=f.who,
            seconds=round(f.median, 3),
            ratio=round(f.median / reference, 2),
            target=wanted.get(f.who),
            limits={limit.figure: limit.most for limit in limits if limit.who == f.who},
            fastest=round(f.spread[0], 3),
            slowest=round(f.spread[1], 3),
            rounds=len(f.rounds),
            phases={name: round(seconds, 3) for name, seconds in f.phases.items()},
            peak_mb=f.peak("peak_mb"),
            task_mb=f.peak("task_mb"),
            seed=SEED,
            command=command,
            date=datetime.now(UTC).date().isoformat(),
            machine=machine(),
            versions={**_versions(), **(versions or {})},
        )
        for f in figures
    ]


def measure_and_keep(
    description: str | None, measure: Callable[[int, int], Sequence[Row]], words: Sequence[str] | None
) -> None:
    """The command line of a program over the orders table. :param measure: given rounds and rows, its rows for the page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    keep(measure(asked.rounds, asked.rows), asked.results)


def keep(rows: Sequence[Row], path: Path = JSON) -> None:
    """Replace the rows of these works in a results file and write its twin beside it; print them."""
    known = json.loads(path.read_text()) if path.exists() else []
    works = {row.work for row in rows}
    merged = [row for row in known if row["work"] not in works] + [asdict(row) for row in rows]
    path.write_text(json.dumps(merged, indent=1) + "\n")
    path.with_suffix(".md").write_text(_markdown(merged))
    print(_table([asdict(row) for row in rows]))


_UNITS = {"seconds": "s", "peak_mb": "MB at the peak", "task_mb": "MB of a Spark task"}


def _markdown(rows: list[dict[str, Any]]) -> str:
    parts = [
        "# Benchmarks\n",
        "Medians of rounds in which all contenders ran alternately, in seconds. *Ratio* is a contender's median to ours, in the",
        "same run: above 1 we are faster. Only ratios mean something on another machine. `results.json` has the same rows.\n",
        "## Figures to reach\n",
        _figures(rows),
    ]
    for work, group in groupby(rows, key=lambda row: row["work"]):
        found = list(group)
        first = found[0]
        versions = ", ".join(f"{name} {number}" for name, number in first["versions"].items())
        parts += [f"## {work}\n", _table(found)]
        parts += [f"`{first['command']}`, seed {first['seed']}, {first['date']}, {first['machine']}; {versions}.\n"]
    return "\n".join(parts)


def _figures(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each target, and whether it is met."""
    table = [("work", "target", "measured", "ours", "met", "date, rounds, seed", "command")]
    ours = {row["work"]: row["seconds"] for row in reversed(rows) if row["ratio"] == 1}  # it is the first of a work
    for row in rows:
        told = (f"{row['date']}, {row['rounds']}, {row['seed']}", f"`{row['command']}`")
        if row["target"] is not None:
            target, measured = f"{row['who']}: at least {row['target']} x ours", f"{row['ratio']:.2f} x"
            met = row["ratio"] >= row["target"]
            table.append((row["work"], target, measured, f"{ours[row['work']]:.2f} s", _met(met), *told))
        for name, most in row["limits"].items():
            target, measured = f"{row['who']}: at most {most:g} {_UNITS[name]}", str(row[name])
            met = row[name] is not None and row[name] <= most
            table.append((row["work"], target, measured, f"{row['seconds']:.2f} s", _met(met), *told))
    return lines(table)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    table = [("who", "seconds", "fastest-slowest", "ratio", "target", "peak MB", "Spark task MB", "phases")]
    for row in rows:
        target = "" if row["target"] is None else f"≥ {row['target']}: {_met(row['ratio'] >= row['target'])}"
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row["phases"].items())
        spread = f"{row['fastest']:.2f}-{row['slowest']:.2f}"
        memory = ("" if row[name] is None else str(row[name]) for name in ("peak_mb", "task_mb"))
        table.append((row["who"], f"{row['seconds']:.2f}", spread, f"{row['ratio']:.2f}", target, *memory, phases))
    return lines(table)


def _met(met: bool) -> str:
    return "met" if met else "missed"


def lines(table: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, its first row the head."""
    head, *rest = (f"| {' | '.join(cells)} |" for cells in table)
    return "\n".join([head, f"|{'---|' * len(table[0])}", *rest]) + "\n"


def machine() -> str:
    """What the figures were measured on."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} {platform.machine()}"


def _versions() -> dict[str, str]:
    names = ("apache-airflow", "pyspark", "pyarrow", "adbc-driver-postgresql")
    return {"Python": platform.python_version(), **{name: version(name) for name in names}}
