"""One-line texts of Spark's failures."""

from __future__ import annotations

import re

__all__ = ["cause_of"]

_CALL = re.compile(r"\AAn error occurred while calling .*\n: (?:[\w.$]+: )?")
"""The text that Py4J puts before a Java error's own message."""
_TRACEBACK = re.compile(r" *(?:[\w.$]+: )?Traceback \(most recent call last\):$")


def cause_of(error: Exception) -> str:
    """Return the text of Spark's error, without the Java stack: its beginning, and the end of a Python traceback in it."""
    text = _CALL.sub("", str(error))
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    tracebacks = [n for n, line in enumerate(lines) if _TRACEBACK.search(line)]
    if not tracebacks:
        return " ".join(line.strip() for line in lines[:2])
    raised = (line for line in lines[tracebacks[-1] + 1 :] if not line.startswith(" "))
    return f"{_TRACEBACK.sub('', lines[0])} {next(raised, '')}".strip()
