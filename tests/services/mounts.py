"""File systems that keep less of attributes than others do, mounted where there is a tool for it and this user may use it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["HAS_BINDFS", "MAY_MOUNT", "mounted_through", "mounted_with_whole_seconds"]

HAS_BINDFS = os.geteuid() == 0 and shutil.which("bindfs") is not None and os.path.exists("/dev/fuse")
"""Whether there is `bindfs`, of Debian's package, and it may be used."""
MAY_MOUNT = os.geteuid() == 0 and os.path.exists("/dev/loop-control") and shutil.which("mke2fs") is not None
"""Whether an image of a disk can be made and mounted."""


@contextmanager
def mounted_through(folder: Path, at: Path, options: tuple[str, ...]) -> Iterator[None]:
    """Mount a new folder as another one.

    Nothing is cached: the number of a file's names counts.

    :param options: of `bindfs`, by which calls have no effect: `--chmod-ignore`.
    """
    for one in (folder, at):
        one.mkdir()
    with _mounted(["bindfs", "-o", "attr_timeout=0,entry_timeout=0", *options, str(folder)], at):
        yield


@contextmanager
def mounted_with_whole_seconds(image: Path, at: Path) -> Iterator[None]:
    """Mount a new disk whose inodes have no room for more of a time than its seconds, as ext3's had none."""
    with image.open("wb") as file:
        file.truncate(16 << 20)
    at.mkdir()
    subprocess.run(["mke2fs", "-q", "-t", "ext2", "-I", "128", image], check=True)
    with _mounted(["mount", "-o", "loop", str(image)], at):
        yield


@contextmanager
def _mounted(command: list[str], at: Path) -> Iterator[None]:
    subprocess.run([*command, at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)
