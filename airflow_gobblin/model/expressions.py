"""Regular expressions that people write."""

from __future__ import annotations

import re

__all__ = ["compiled"]


def compiled(expression: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compile a regular expression.

    :raises ValueError: it isn't one; its text gives the reason.
    """
    try:
        return re.compile(expression, flags)
    except (re.error, OverflowError) as error:  # a number in it may be too large
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
