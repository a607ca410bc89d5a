"""Run the benchmarks one after the other, each in its own process: `make bench`, or `python -m tests.benchmarks [NAME …]`.

Each replaces its rows in `results.json`; then the page and the README's table are written again. With `--rehearse`
every program runs at its smallest size, to check that all of its parts work, and its rows go to copies that are thrown away.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.results import JSON, README, merge, write_pages
from tests.services.environment import TEMPORARY

PROGRAMS = {
    "postgres_to_parquet": ("--rows=20000",),
    "incremental": ("--rows=20000",),
    "kafka_to_parquet": ("--messages=20000",),
    "publish": ("--files=50", "--many-files=200", "--s3-files=20"),
    "whole_run": ("--rows=20000",),
    "scale": ("--steps=400", "--datasets=20"),
    "pack_start": (),
    "long_journals": ("--slots=800",),
    "stage_state": ("--keys=20000",),
    "on_spark": ("--steps=400",),
    "pipelines": ("--rows=20000", "--versions=20"),
    "table_commits": ("--files=50",),
    "postgres_commit": ("--rows=20000",),
    "postgres_to_tables": ("--rows=20000",),
    "table_merges": ("--rows=20000",),
    "object_clients": ("--records=50",),
    "mirrors": ("--files=200", "--large=2", "--mb=20", "--s3-files=100"),
}
"""All programs, with the options of a rehearsal."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="NAME", help=f"by default all: {', '.join(PROGRAMS)}")
    parser.add_argument("--rounds", type=int, help="of each; by default each program's own")
    parser.add_argument("--rehearse", action="store_true", help="run each once, at its smallest size, and keep nothing")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.programs) - {*PROGRAMS}):
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    rounds = asked.rounds or (1 if asked.rehearse else None)
    TEMPORARY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TEMPORARY) as folder:
        results, readme = JSON, README
        if asked.rehearse:
            results, readme = (Path(shutil.copy(path, folder)) for path in (JSON, README))
        failed = []
        for name in asked.programs or PROGRAMS:
            options = [f"--rounds={rounds}"] if rounds else []
            options += PROGRAMS[name] if asked.rehearse else []
            if not measure(name, options, results):
                failed.append(name)
        write_pages(results, readme)
    if failed:
        sys.exit(f"these benchmarks failed: {', '.join(failed)}")


def measure(name: str, options: list[str], results: Path) -> bool:
    """Run a program and keep its rows; if it fails, those of the works that it has measured.

    :return: whether it ended well.
    """
    started = time.monotonic()
    print(f"{name}:", flush=True)
    with tempfile.TemporaryDirectory(dir=TEMPORARY) as folder:
        found = Path(folder) / "results.json"
        command = [sys.executable, "-m", f"tests.benchmarks.{name}", f"--results={found}", *options]
        ended = subprocess.run(command, check=False).returncode == 0
        merge(found, name, results, ended=ended)
    print(f"{name}: {time.monotonic() - started:.0f} s\n", flush=True)
    return ended


if __name__ == "__main__":
    main()
