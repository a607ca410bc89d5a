"""Attributes of files that a mirror's target can't keep: noted in the results of units, and reported once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_gobblin.model.naming import many
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.model.work import UnitSummary

_PROPERTY = "not_kept"


def to_properties(found: Mapping[str, tuple[int, str]]) -> dict[str, Json]:
    """Return the properties of a unit's result that show what its files lost.

    :param found: for each attribute, of how many files, and the first of them with the reason.
    """
    lost: dict[str, Json] = {name: {"files": files, "first": first} for name, (files, first) in found.items()}
    return {_PROPERTY: lost} if lost else {}


def summary_of(units: Iterable[UnitSummary]) -> str:
    """Return what the files of units lost, once for each attribute; empty if nothing."""
    counts: dict[str, int] = {}
    first: dict[str, str] = {}
    for unit in units:
        of_unit = unit.properties.get(_PROPERTY)
        for name, lost in of_unit.items() if isinstance(of_unit, Mapping) else ():
            if isinstance(lost, Mapping):
                counts[name] = counts.get(name, 0) + int(str(lost["files"]))
                first.setdefault(name, str(lost["first"]))
    parts = [f"{name} of {many(count, 'file')}, the first is {first[name]}" for name, count in counts.items()]
    return f"not kept: {'; '.join(parts)}" if parts else ""
