"""The system calls by which names are made and become durable, as the kernel gets them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock


@dataclass
class Trace:
    """Calls that succeeded, in order, each with its absolute path; of a link, its new name.

    :param before: called with each call before it is made, and may raise.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda call, path: None

    def of(self, call: str) -> list[str]:
        """The paths of all calls of one kind."""
        return [path for name, path in self.calls if name == call]

    def at(self, call: str, path: str | Path) -> int:
        """The number of the first call of a kind for a path.

        :raises ValueError: there was none.
        """
        return self.calls.index((call, str(path)))

    def check_made_folders_are_synced(self, before: int) -> None:
        """Each folder that was made has its own name synced, in the folder above it, before a call."""
        for number, (call, path) in enumerate(self.calls[:before]):
            if call == "mkdir":
                synced = self.calls.index(("fsync", os.path.dirname(path)), number)
                assert synced < before, f"the name of {path} is synced too late"


@contextmanager
def traced() -> Iterator[Trace]:
    """The calls that are made in this block."""
    trace = Trace()

    def wrap(name: str, path: Callable[..., str]) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            about = path(*args)
            trace.before(name, about)
            result = real(*args, **options)
            trace.calls.append((name, about))
            return result

        return mock.patch.object(os, name, call)

    with ExitStack() as stack:
        stack.enter_context(wrap("fsync", lambda handle: os.readlink(f"/proc/self/fd/{handle}")))
        stack.enter_context(wrap("link", lambda source, target: os.fspath(target)))
        stack.enter_context(wrap("rename", lambda source, target: os.fspath(target)))
        for name in ("mkdir", "unlink", "rmdir"):
            stack.enter_context(wrap(name, lambda path, *mode: os.fspath(path)))
        yield trace
