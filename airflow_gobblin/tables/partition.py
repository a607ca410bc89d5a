"""The partition of a table as authors write it: `country`, `day(updated_at)`, `bucket(16, id)`, `truncate(4, code)`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.tables.port import PartitionField

TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
_OF_A_WIDTH = ("bucket", "truncate")
_CALL = re.compile(r"\s*([a-z]+)\s*\(\s*(?:(\d+)\s*,\s*)?([^()]+?)\s*\)\s*")


def parse_partition(texts: Iterable[str]) -> tuple[PartitionField, ...]:
    """Return the fields of a partition.

    :raises ConfigurationError: one can't be parsed, or two are the same.
    """
    fields = tuple(map(_field, texts))
    twice = [field for number, field in enumerate(fields) if field in fields[:number]]
    if twice:
        raise _refused(str(twice[0]), "it is listed twice")
    return fields


def _field(text: str) -> PartitionField:
    called = _CALL.fullmatch(text)
    if called is None:
        if not text or "(" in text or ")" in text:
            raise _refused(text, "it is neither a column nor a transform of one")
        return PartitionField(text)
    transform, width, column = called[1], int(called[2] or 0), called[3]
    if transform not in TRANSFORMS:
        raise _refused(text, f"there is no transform {transform!r}")
    if (transform in _OF_A_WIDTH) != (width > 0):
        raise _refused(text, "it needs a width above zero" if transform in _OF_A_WIDTH else "it has no width")
    return PartitionField(column, transform, width)


def _refused(text: str, cause: str) -> ConfigurationError:
    return ConfigurationError(
        operation="use",
        subject=f"partition field {text!r}",
        cause=cause,
        hint="Write a column, year(…), month(…), day(…) or hour(…) of one, bucket(16, …) or truncate(4, …).",
    )
