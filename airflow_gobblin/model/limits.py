"""How much one run takes: limits, and which datasets come first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import many


@dataclass(frozen=True)
class RunLimits:
    """The most that one run of a mirror takes. File sets without room wait for the next run, each as a whole.

    The first file set always has room.

    :param datasets: the number of datasets; `None` for no limit, here and below.
    :param file_sets: the number of file sets.
    :param files: the number of files to copy.
    :param bytes: their size.
    """

    datasets: int | None = None
    file_sets: int | None = None
    files: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, most in self._given():
            if type(most) is not int or most < 1:
                raise ConfigurationError(
                    operation="use",
                    subject=f"RunLimits({name}={most!r})",
                    cause="it is not a number of at least 1",
                    hint="Leave it out for no limit.",
                )

    def _given(self) -> Iterator[tuple[str, int]]:
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ((name, most) for name, most in found if most is not None)

    def left_out(self, loads: Iterable[Load]) -> dict[str, str]:
        """Return why datasets have no room, by URN.

        :param loads: in order: each that fits takes room from those after it.
        """
        out: dict[str, str] = {}
        taken = {"datasets": 0, "file_sets": 0, "files": 0, "bytes": 0}
        datasets: set[str] = set()
        for load in loads:
            more = {
                "datasets": int(load.dataset not in datasets),
                "file_sets": 1,
                "files": load.files,
                "bytes": load.bytes,
            }
            full = next(
                ((name, most) for name, most in self._given() if more[name] and taken[name] + more[name] > most), None
            )
            if full is not None and datasets:
                out[load.urn] = _full(load, *full)
                continue
            datasets.add(load.dataset)
            taken = {name: taken[name] + more[name] for name in taken}
        return out


@dataclass(frozen=True)
class Load:
    """The part of a run's limits that a dataset takes.

    :param dataset: the URN of the whole dataset that it is a part of.
    """

    urn: str
    dataset: str
    files: int = 0
    bytes: int = 0


def _full(load: Load, name: str, most: int) -> str:
    """Return a sentence about the limit that leaves a dataset out."""
    if name in ("datasets", "file_sets"):
        return f"a run takes {many(most, name.rstrip('s').replace('_', ' '))} at the most"
    size = f"{load.bytes:,} bytes" if name == "bytes" else many(load.files, "file")
    return f"a run takes {most:,} {name} at the most, which leaves no room for its {size}"
