"""Run the benchmarks one after the other, each in its own process: `make bench`, or `python -m tests.benchmarks [NAME …]`.

The rows of each that ends well replace those that it has in `results.json`; then page and README's table are written anew.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.results import merge, write_pages

PROGRAMS = (
    "postgres_to_parquet",
    "incremental",
    "publish",
    "whole_run",
    "scale",
    "long_journals",
    "on_spark",
    "object_clients",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME", help=f"by default all: {', '.join(PROGRAMS)}")
    parser.add_argument("--rounds", type=int, help="of each; by default each program's own")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.programs) - set(PROGRAMS)):
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    failed = []
    for name in asked.programs or PROGRAMS:
        started = time.monotonic()
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "results.json"
            command = [sys.executable, "-m", f"tests.benchmarks.{name}", f"--results={found}"]
            command += [f"--rounds={asked.rounds}"] if asked.rounds else []
            if subprocess.run(command, check=False).returncode:
                failed.append(name)
            else:
                merge(found, name)
        print(f"{name}: {time.monotonic() - started:.0f} s\n", flush=True)
    write_pages()
    if failed:
        sys.exit(f"these benchmarks failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
