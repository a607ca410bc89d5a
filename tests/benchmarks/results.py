"""The results: `results.json`, a list of rows; the page `results.md` with the same rows; and the README's table, made from them.

A program replaces the rows of its own works. `python -m tests.benchmarks.results` writes page and table again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.measure import SEED, Figures
from tests.services.environment import ROOT, use_environment

__all__ = [
    "JSON",
    "README",
    "Limit",
    "Row",
    "Target",
    "keep",
    "measure_and_keep",
    "measure_kinds_and_keep",
    "merge",
    "readme_table",
    "rows_of",
    "write_pages",
]

JSON = Path(__file__).with_name("results.json")
README = ROOT / "README.md"
_DIGITS = 6
_CLOSE = 0.9


@dataclass(frozen=True)
class Target:
    """The smallest allowed ratio of a peer's seconds to ours."""

    who: str
    ratio: float


@dataclass(frozen=True)
class Limit:
    """The largest allowed figure of a contender.

    :param figure: `seconds`, `peak_mb` or `task_mb`.
    """

    who: str
    figure: str
    most: float


@dataclass(frozen=True)
class Row:
    """One contender at one work.

    Nothing is rounded here, so that targets are compared with the measured figures.

    :param ratio: its median to ours: above 1 we are faster.
    :param target: the smallest allowed ratio, if any.
    :param limits: the largest allowed values of its own figures, by their names.
    :param seconds: the median of the rounds.
    :param phases: their medians, in seconds.
    :param cpu: the median of the CPU time, in seconds.
    :param sizes: medians, in bytes.
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
    cpu: float | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)


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
    """The rows of one work.

    :param ours: the contender that the others are compared with.
    """
    reference = next(f.median for f in figures if f.who == ours)
    wanted = {target.who: target.ratio for target in targets}
    assert {*wanted, *(limit.who for limit in limits)} <= {f.who for f in figures}
    return [
        Row(
            work=work,
            who=f.who,
            seconds=f.median,
            ratio=f.median / reference,
            target=wanted.get(f.who),
            limits={limit.figure: limit.most for limit in limits if limit.who == f.who},
            fastest=f.spread[0],
            slowest=f.spread[1],
            rounds=len(f.rounds),
            phases=dict(f.phases),
            peak_mb=f.peak("peak_mb"),
            task_mb=f.peak("task_mb"),
            seed=SEED,
            command=command,
            date=datetime.now(UTC).date().isoformat(),
            machine=machine(),
            versions={**_versions(), **(versions or {})},
            cpu=f.cpu,
            sizes=f.sizes,
        )
        for f in figures
    ]


def measure_and_keep(
    description: str | None,
    measure: Callable[[int, int], Sequence[Row]],
    words: Sequence[str] | None,
    rows: int = 2_000_000,
) -> None:
    """The command line of a program over a table of rows.

    :param measure: given rounds and rows, its rows for the page.
    """
    asked = _parser(description, rows).parse_args(words)
    use_environment()
    keep(measure(asked.rounds, asked.rows), asked.results)


def measure_kinds_and_keep(
    description: str | None,
    measure: Callable[[str, int, int], Sequence[Row]],
    kinds: Sequence[str],
    words: Sequence[str] | None,
    rows: int = 2_000_000,
) -> None:
    """The same of a program that has a work for each kind of table.

    :param measure: given a kind, rounds and rows.
    """
    parser = _parser(description, rows)
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    asked = parser.parse_args(words)
    use_environment()
    for kind in asked.kinds:
        keep(measure(kind, asked.rounds, asked.rows), asked.results)


def _parser(description: str | None, rows: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--results", type=Path, default=JSON)
    return parser


def keep(rows: Sequence[Row], path: Path = JSON) -> None:
    """Replace the rows of these works in a results file and write its twin beside it; print them."""
    works = {row.work for row in rows}
    _write(path, [row for row in _read(path) if row["work"] not in works] + [asdict(row) for row in rows])
    print(_table([asdict(row) for row in rows]))


def merge(found: Path, program: str, path: Path = JSON, *, ended: bool = True) -> None:
    """Replace all rows of a program in a results file by those that it has kept elsewhere; its works may be other ones now.

    :param ended: it ended well; else it keeps its rows of the works that it didn't reach.
    """
    own, rows = re.compile(rf"python -m tests\.benchmarks\.{program}( |$)"), _read(found)
    works = {row["work"] for row in rows}
    kept = [row for row in _read(path) if not own.match(row["command"]) or not (ended or row["work"] in works)]
    _write(path, kept + rows)


def _read(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())) if path.exists() else []


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n")
    path.with_suffix(".md").write_text(_markdown(rows))


def write_pages(path: Path = JSON, readme: Path = README) -> None:
    """Write the page and the README's table again, from the current rows.

    :param path: of the results file.
    """
    rows = _read(path)
    path.with_suffix(".md").write_text(_markdown(rows))
    text = readme.read_text()
    readme.write_text(text.replace(table_in(text), readme_table(rows)))


_UNITS = {"seconds": "s", "peak_mb": "MB at the peak", "task_mb": "MB of a Spark task"}


def _markdown(rows: list[dict[str, Any]]) -> str:
    parts = [
        "# Benchmarks\n",
        "Medians of rounds in which all contenders ran alternately, in seconds. *Ratio* is a contender's median to ours, in the",
        "same run: above 1 we are faster. Only ratios mean something on another machine. `results.json` has the same rows, not",
        "rounded: by these it is decided whether a target is met.\n",
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
        origin = (f"{row['date']}, {row['rounds']}, {row['seed']}", f"`{row['command']}`")
        if row["target"] is not None:
            target, measured = (
                f"{row['who']}: at least {row['target']} x ours",
                f"{_exact(row['ratio'], row['target'])} x",
            )
            met = row["ratio"] >= row["target"]
            table.append((row["work"], target, measured, f"{ours[row['work']]:.2f} s", _met(met), *origin))
        for name, most in row["limits"].items():
            target, measured = (
                f"{row['who']}: at most {most:g} {_UNITS[name]}",
                "?" if row[name] is None else _exact(row[name], most),
            )
            met = row[name] is not None and row[name] <= most
            table.append((row["work"], target, measured, f"{row['seconds']:.2f} s", _met(met), *origin))
    return lines(table)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    table = [("who", "seconds", "fastest-slowest", "ratio", "target", "CPU s", "peak MB", "Spark task MB", "phases")]
    for row in rows:
        target = "" if row["target"] is None else f"≥ {row['target']}: {_met(row['ratio'] >= row['target'])}"
        sizes = (f"{name} {size / 1e6:,.1f} MB" for name, size in row.get("sizes", {}).items())
        phases = ", ".join((*(f"{name} {seconds:.2f}" for name, seconds in row["phases"].items()), *sizes))
        spread = f"{row['fastest']:.2f}-{row['slowest']:.2f}"
        cpu = "" if row.get("cpu") is None else f"{row['cpu']:.2f}"
        memory = ("" if row[name] is None else str(row[name]) for name in ("peak_mb", "task_mb"))
        table.append((row["who"], f"{row['seconds']:.2f}", spread, f"{row['ratio']:.2f}", target, cpu, *memory, phases))
    return lines(table)


def _exact(value: float, bound: float) -> str:
    """A figure with enough digits to show on which side of a bound it is."""
    digits = 0 if type(value) is int else 2
    while digits < _DIGITS and value != bound and round(value, digits) == bound:
        digits += 1
    return f"{value:.{digits}f}"


def _met(met: bool) -> str:
    return "met" if met else "missed"


def lines(table: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, its first row the head."""
    head, *rest = (f"| {' | '.join(cells)} |" for cells in table)
    return "\n".join([head, f"|{'---|' * len(table[0])}", *rest]) + "\n"


# The README's table


@dataclass(frozen=True)
class _Line:
    """A line of the README's table.

    :param text: what was done.
    :param work: a pattern of the work's name.
    :param ours: and one of our contender's.
    :param others: what others are called, by patterns of theirs; of several that fit one, the best counts.
    """

    text: str
    work: str
    ours: str
    others: Mapping[str, str]


_PLAIN = "a DAG of one plain Spark JDBC submit"
_LINES = (
    _Line(
        "PostgreSQL to Parquet, 2 million rows of 12 columns, with Spark running",
        "PostgreSQL to Parquet, 2,000,000 rows of 12 columns",
        "airflow_gobblin, Spark tasks",
        {
            "DuckDB's scanner and writer": "DuckDB's scanner",
            "a bare ADBC loop": "bare ADBC loop",
            "dlt with connectorx": "dlt with connectorx(, 1 partition)?$",
            "dlt with two partitions": "dlt with connectorx, 2 partitions",
            "Spark JDBC at its best": "Spark JDBC",
        },
    ),
    _Line(
        "the newest 1 % of them, planning to commit",
        "PostgreSQL to Parquet, the newest 1 %",
        "airflow_gobblin, Spark tasks",
        {"dlt with connectorx": "dlt", "Spark JDBC": "Spark JDBC[^,]*, 1 partition$"},
    ),
    _Line(
        "the same in a warm session of Spark Connect",
        "PostgreSQL to Parquet, the newest 1 %",
        "airflow_gobblin, a warm session",
        {"Spark JDBC in such a session": "Spark JDBC.*warm"},
    ),
    _Line(
        "the whole run through Airflow, from trigger to published",
        r"The whole run through Airflow, 2,000,000 rows",
        "airflow_gobblin",
        {
            "a DAG with one plain Spark JDBC submit, at its best": _PLAIN,
            "ours without a journal": "our DAG with plain files",
        },
    ),
    _Line(
        "the same for the newest 1 %, with Spark Connect",
        "The whole run through Airflow, the newest 1 %",
        "airflow_gobblin, Spark Connect",
        {"a plain Spark JDBC job by Spark Connect": "a DAG.* by Spark Connect", "one plain Spark JDBC submit": _PLAIN},
    ),
    _Line(
        "the same for the newest 1 %, Spark started for it",
        "The whole run through Airflow, the newest 1 %",
        "airflow_gobblin, spark-submit",
        {"one plain Spark JDBC submit": _PLAIN},
    ),
    _Line(
        "publishing 1,000 files on disk",
        "Publishing 1,000 files on local disk",
        "airflow_gobblin",
        {"pyiceberg's append": "pyiceberg", "Spark's committer": "Spark's v1"},
    ),
    _Line(
        "publishing 10,000 files on disk, file by file",
        "Publishing 10,000 files on local disk",
        "airflow_gobblin[^,]*, [^,]*$",
        {"a bare loop of renames": "a loop of os.rename"},
    ),
    _Line(
        "the same, a folder per unit",
        "Publishing 10,000 files on local disk",
        "airflow_gobblin.*one folder per unit",
        {"a bare loop of renames": "a loop of os.rename"},
    ),
    _Line(
        "publishing 200 files on an S3-like server",
        "Publishing 200 files on .*S3",
        "airflow_gobblin",
        {"Hadoop's magic committer": "Hadoop's magic", "Spark's v1 committer over s3a": "Spark's v1"},
    ),
    *(
        _Line(
            f"a mirror of {what}, from listing to done",
            f"A mirror of {what}$",
            "airflow_gobblin",
            {"rclone": "rclone", "cp": "cp", "Hadoop DistCp": "Hadoop DistCp"},
        )
        for what in (
            "10,000 files of 4 KiB on local disk",
            "10,000 files of 4 KiB on local disk, nothing changed",
            "20 files of 200 MiB on local disk",
        )
    ),
    *(
        _Line(
            f"a mirror of {what} {way} an S3-like server, from listing to done",
            f"A mirror of {what} {way} an S3",
            "airflow_gobblin",
            {"s5cmd": "s5cmd", "rclone": "rclone"},
        )
        for what in ("10,000 files of 4 KiB", "10 files of 200 MiB")
        for way in ("to", "from", "within")
    ),
    *(
        _Line(
            f"recovery check and planning of 10,000 idle datasets, {place}",
            "Recovery check and planning of 10,000",
            who,
            {},
        )
        for place, who in (
            ("on disk", ".*local disk"),
            ("SQLite", ".*SQLite"),
            ("PostgreSQL", ".*PostgreSQL"),
            ("S3", ".*S3"),
        )
    ),
)


def readme_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The README's table; works that weren't measured are left out."""
    table = [_HEAD]
    for line in _LINES:
        of = [row for row in rows if re.match(line.work, row["work"])]
        own = next((row for row in of if re.match(line.ours, row["who"])), None)
        if own is None:
            continue
        best = {name: [r["seconds"] for r in of if re.match(who, r["who"])] for name, who in line.others.items()}
        ratios = [f"{name} {_times(min(found) / own['seconds'])}" for name, found in best.items() if found]
        if ratios or not line.others:
            table.append((line.text, _seconds(own["seconds"]), ", ".join(ratios)))
    return lines(table)


def table_in(readme: str) -> str:
    """The table, where it is in the README.

    :raises ValueError: it isn't there.
    """
    start = readme.index(lines([_HEAD]))
    return readme[start:].partition("\n\n")[0] + "\n"


_HEAD = ("work", "ours", "the others' time as a multiple of ours (below 1: faster than ours)")


def _times(ratio: float) -> str:
    """A ratio; one near 1 with a digit more."""
    return f"{ratio:.2f}" if _CLOSE < ratio < 1 / _CLOSE else f"{ratio:.1f}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"


def machine() -> str:
    """The machine and versions of the measurement."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} {platform.machine()}"


def _versions() -> dict[str, str]:
    names = ("apache-airflow", "pyspark", "pyarrow", "adbc-driver-postgresql")
    return {"Python": platform.python_version(), **{name: version(name) for name in names}}


if __name__ == "__main__":
    write_pages()
