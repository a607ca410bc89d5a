"""Limits on what compressed files may become: they may come from anybody, and a few bytes may become terabytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from airflow_gobblin.errors import ConfigurationError

MOST_BYTES = 100 << 30
"""The maximum size of a file's content, in bytes, unless another one is given."""
MOST_RATIO = 200
"""The maximum size of a file's content as a multiple of the file's, unless another one is given."""
_SMALL = 10 << 20
"""The size, in bytes, up to which content is no bomb, however small its file is."""


@runtime_checkable
class Bounded(Protocol):
    """A converter, or an unpacker of archives, whose results are within limits."""

    @property
    def most_bytes(self) -> int:
        """The maximum size of the content of a file."""

    @property
    def most_ratio(self) -> int:
        """How many times the size of its file the content may have, if it is above 10 MiB."""


def check_limits(owner: object, *names: str) -> None:
    """Make sure that limits let something through.

    :param owner: the record that has them.
    :raises ConfigurationError: one doesn't.
    """
    for name in names:
        given = getattr(owner, name)
        if isinstance(given, bool) or given < 1:
            raise ConfigurationError(
                operation="use",
                subject=f"{name}={given} of {type(owner).__name__}",
                cause="no file has so little",
                hint="Give at least 1.",
            )


def check_size(limits: Bounded, content: int, file: int) -> None:
    """Make sure that the content of a file isn't too large.

    :param file: the size of the file.
    :raises ValueError: it is.
    """
    if content > limits.most_bytes:
        raise ValueError(f"its content has more than most_bytes={limits.most_bytes:,}")
    if content > max(_SMALL, limits.most_ratio * file):
        raise ValueError(f"its content has more than most_ratio={limits.most_ratio:,} times its {file:,} bytes")


def within(limits: Bounded, blocks: Iterator[bytes], file: int) -> Iterator[bytes]:
    """Yield the content of a file as long as it isn't too large. Raises as `check_size`."""
    size = 0
    for block in blocks:
        size += len(block)
        check_size(limits, size, file)
        yield block
