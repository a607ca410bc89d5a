"""One-line texts of Spark's failures."""

from __future__ import annotations

__all__ = ["cause_of"]


def cause_of(error: Exception) -> str:
    """Return the text of Spark's error, without the Java stack: its beginning, and the end of a Python traceback in it."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    tracebacks = [n for n, line in enumerate(lines) if line.endswith("Traceback (most recent call last):")]
    if not tracebacks:
        return " ".join(line.strip() for line in lines[:2])
    raised = (line for line in lines[tracebacks[-1] + 1 :] if not line.startswith(" "))
    return f"{lines[0]} {next(raised, '')}".rstrip()
