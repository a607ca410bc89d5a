"""The acts of a plan, kept until it is known which datasets would be planned: there may be millions, so they are in a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator
from typing import Any, Self

from airflow_gobblin.model.plan import PlannedAct

__all__ = ["ActFile"]


class ActFile:
    """Acts on the files of mirrors, in a temporary file, in the order in which they were found."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by `__exit__`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, job: str, urn: str, act: PlannedAct) -> None:
        """Add an act of a file set."""
        self._file.write(f"{json.dumps([job, urn, act.kind.value, act.bytes, act.path])}\n")

    def of(self, datasets: Collection[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """Yield a row for each act of some datasets, which are named by job and URN."""
        self._file.seek(0)
        for line in self._file:
            job, urn, act, size, path = json.loads(line)
            if (job, urn) in datasets:
                yield {"act": act, "bytes": size, "dataset": urn, "path": path}
