"""Columns as Spark's DDL declares them, read without Spark, so that a DAG file and a worker can compare a stage's state by them.

Only columns and types that Spark is certain to read in the same way are reported. The type of a column may be unknown here, such
as one with types in it, or `timestamp`, which has a zone or none depending on a setting of Spark's. The columns may be unknown,
too, if they have comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from airflow_gobblin.errors import SchemaConflictError

__all__ = ["check_declared", "columns_of", "declared_otherwise"]

_ARROW = {
    **dict.fromkeys(("boolean",), "bool"),
    **dict.fromkeys(("tinyint", "byte"), "int8"),
    **dict.fromkeys(("smallint", "short"), "int16"),
    **dict.fromkeys(("int", "integer"), "int32"),
    **dict.fromkeys(("bigint", "long"), "int64"),
    **dict.fromkeys(("float", "real"), "float"),
    "double": "double",
    "date": "date32[day]",
    "timestamp_ltz": "timestamp[us, tz=UTC]",
    "timestamp_ntz": "timestamp[us]",
    "string": "string",
    "binary": "binary",
}
"""Spark's types, each with the text of Arrow's type."""
_COLUMN = re.compile(r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>\w+))(?:\s*:\s*|\s+)(?P<type>[^:\s].*)", re.DOTALL)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_NOT_NULL = re.compile(r"\s+not\s+null$")


def check_declared(stage: str, ddl: str, schema: str) -> None:
    """Check that the state of a stage is declared with the columns that it has, as far as that is known without Spark.

    :param schema: the schema of its newest version's state, encoded.
    :raises SchemaConflictError: it is declared with other ones.
    """
    from airflow_gobblin.model.schema import decode  # which loads Arrow

    wanted = columns_of(ddl) if ddl else None
    if wanted is None:
        return
    has = {field.name: str(field.type) for field in decode(schema)}
    if wanted.keys() != has.keys() or any(wanted[name] not in (None, has[name]) for name in has):
        columns = (", ".join(f"{name} {kind or '…'}" for name, kind in some.items()) for some in (wanted, has))
        raise declared_otherwise(stage, *columns)


def declared_otherwise(stage: str, wanted: str, has: str) -> SchemaConflictError:
    """Return the error of a stage whose state is declared with other columns than it has."""
    return SchemaConflictError(
        operation="use",
        subject=f"the state of stage {stage!r}",
        cause=f"it is declared with {wanted}, and has {has}",
        hint="Declare what it has; or give the stage another name; or let it make all versions again: "
        f"`airflow gobblin pipeline rewind {stage} --start --reason …`.",
    )


def columns_of(ddl: str) -> Mapping[str, str | None] | None:
    """Return the columns that a schema in Spark's DDL declares, each with its type as a text of Arrow's.

    :return: a type is `None` if it isn't known here; `None` if the columns aren't.
    """
    if "'" in ddl or '"' in ddl:  # a comment may have anything in it
        return None
    found: dict[str, str | None] = {}
    for part in _parts(ddl):
        column = _COLUMN.fullmatch(part.strip())
        if column is None:
            return None
        name = column["plain"] or column["quoted"].replace("``", "`")
        if name in found:
            return None
        found[name] = _type(column["type"])
    return found


def _parts(ddl: str) -> Iterator[str]:
    """Yield the parts between commas, other than commas in brackets."""
    depth, quoted, start = 0, False, 0
    for place, character in enumerate(ddl):
        if character == "`":
            quoted = not quoted
        elif not quoted and character in "(<":
            depth += 1
        elif not quoted and character in ")>":
            depth -= 1
        elif not quoted and character == "," and depth == 0:
            yield ddl[start:place]
            start = place + 1
    yield ddl[start:]


def _type(text: str) -> str | None:
    plain = _NOT_NULL.sub("", text.strip().lower())
    decimal = _DECIMAL.fullmatch(plain)
    if decimal is not None:
        return f"decimal128({decimal[1] or 10}, {decimal[2] or 0})"
    return _ARROW.get(plain)
