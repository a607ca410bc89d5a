"""The most memory that a process held since its program began."""

from __future__ import annotations

from pathlib import Path

_FIELD = "VmHWM:"


def peak_bytes(pid: int | None = None) -> int:
    """The largest resident size of a process since its program began, in bytes; 0 of one that has ended.

    `ru_maxrss` won't do: a program that another one started begins with what that one held, so what it takes itself is
    hidden behind a large parent. See proc_pid_status(5).

    :param pid: a process; by default the one that asks.
    :raises OSError: no such process exists.
    """
    status = Path(f"/proc/{pid or 'self'}/status").read_text()
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith(_FIELD)), 0)
