"""Where our data files are below a table's location. They keep their names for good, and the names show whose they are."""

from __future__ import annotations

__all__ = ["DATA_FOLDER", "unit_folder", "unit_of"]

DATA_FOLDER = "data/gobblin"
"""The folder of all our data files, with one folder in it for each token."""


def unit_folder(token: str, attempt: str, name: str) -> str:
    """Return the folder of a unit's data files.

    :param name: the unit's id, `-`, and something random of this attempt of a Spark task.
    """
    return f"{DATA_FOLDER}/{token}/{attempt}/{name}"


def unit_of(path: str) -> tuple[str, str] | None:
    """Return the token and the unit of a data file; `None` for one that isn't ours.

    :param path: below the table's location.
    """
    parts = path.split("/")
    if len(parts) != 6 or not path.startswith(f"{DATA_FOLDER}/"):
        return None
    return parts[2], parts[4].rpartition("-")[0]
