"""The least that publishing can cost on a local disk: rename each staged file, and sync the folder."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures

DATA = b"a row\n"


def main() -> None:
    asked = arguments(folder="", files="")
    source, target = Path(asked.folder) / "staged", Path(asked.folder) / "published"
    source.mkdir()
    target.mkdir()
    names = [f"{uuid.uuid4().hex}-{number}.txt" for number in range(int(asked.files))]
    for name in names:
        (source / name).write_bytes(DATA)
    os.sync()
    pairs = [(f"{source}/{name}", f"{target}/{name}") for name in names]  # joining paths is not measured
    clock = Laps()
    for staged_name, published_name in pairs:
        os.rename(staged_name, published_name)
    handle = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(handle)
    os.close(handle)
    print_figures(clock.lap("renames"), {}, files=len(list(target.iterdir())))


if __name__ == "__main__":
    main()
