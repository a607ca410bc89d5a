"""Claims: who publishes where. A target root holds a write-once chain of them.

A folder belongs to one journal, one ingestion and one dataset. A claimed target whose journal is another one, or an empty one,
stops by name: a journal that isn't mounted must not look like a first run. `import` and `release-claim` are the ways out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from airflow_gobblin import wire
from airflow_gobblin.errors import ClaimError
from airflow_gobblin.files import Files, LocalFiles
from airflow_gobblin.journal import Journal, now
from airflow_gobblin.staging import ROOT
from airflow_gobblin.stores.base import settle
from airflow_gobblin.stores.local import LocalStore
from airflow_gobblin.wire import record

CHAIN = f"{ROOT}/claims"


class ClaimAction(StrEnum):
    """What a link of the chain says."""

    CLAIM = "claim"
    RELEASE = "release"


@record("claim")
@dataclass(frozen=True)
class Claim:
    """One link of the chain. :param folder: relative to the target root."""

    action: ClaimAction
    journal: str
    ingestion: str
    urn: str
    folder: str
    at: datetime
    actor: str = ""
    reason: str = ""

    @property
    def owner(self) -> tuple[str, str, str]:
        """Who it belongs to."""
        return self.journal, self.ingestion, self.urn


class Claims:
    """The claims on folders below a target root."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._store = LocalStore(files, CHAIN)

    def standing(self) -> dict[str, Claim]:
        """The claim on each claimed folder. :raises RecordError: a link is torn or unreadable."""
        return self._fold()[0]

    def check(self, journal: Journal, urn: str, folder: str) -> None:
        """Claim a dataset's folder, or find that it is ours.

        :raises ClaimError: the folder, one above it or one below it belongs to somebody else.
        """
        mine = Claim(ClaimAction.CLAIM, journal.id, journal.ingestion, urn, folder, now())
        while True:
            standing, length = self._fold()
            found = standing.get(folder)
            if found is not None and found.owner == mine.owner:
                return
            self._refuse(mine, standing)
            data = wire.dumps(mine)
            stored, _ = settle(self._store, f"{length + 1:010d}", data)
            if stored == data:
                return

    def release(self, folder: str, actor: str, reason: str) -> Claim:
        """Give up the claim on a folder. :raises ClaimError: nobody claims it."""
        while True:
            standing, length = self._fold()
            found = standing.get(folder)
            if found is None:
                raise ClaimError(
                    operation="release",
                    subject=f"the claim on {folder!r} below {self._files.root}",
                    cause=f"nobody claims it; claimed are {sorted(standing)}",
                )
            gone = Claim(ClaimAction.RELEASE, found.journal, found.ingestion, found.urn, folder, now(), actor, reason)
            data = wire.dumps(gone)
            stored, _ = settle(self._store, f"{length + 1:010d}", data)
            if stored == data:
                return found

    def _fold(self) -> tuple[dict[str, Claim], int]:
        standing: dict[str, Claim] = {}
        keys = list(self._store.list(""))
        for key in keys:
            data = self._store.get(key)
            claim = wire.loads(data or b"", Claim, f"{CHAIN}/{key}")
            if claim.action is ClaimAction.CLAIM:
                standing[claim.folder] = claim
            else:
                standing.pop(claim.folder, None)
        return standing, len(keys)

    def _refuse(self, mine: Claim, standing: dict[str, Claim]) -> None:
        here = Path(self._files.root)
        for root, claim in (*((here, claim) for claim in standing.values()), *_around(here, mine.folder)):
            if _nested(root / claim.folder, here / mine.folder) and claim.owner != mine.owner:
                raise ClaimError(
                    operation="publish",
                    subject=f"dataset {mine.urn!r} of ingestion {mine.ingestion!r} to {here / mine.folder}",
                    cause=_why(root / claim.folder, claim, mine),
                    hint=_way_out(claim, mine),
                )


def _around(root: Path, folder: str) -> Iterator[tuple[Path, Claim]]:
    """The claims of target roots above ours and below our folder."""
    others = [above for above in root.parents if (above / CHAIN).is_dir()]
    for other in (*others, *_roots_below(root / folder)):
        for claim in Claims(LocalFiles(other)).standing().values():
            yield other, claim


def _roots_below(folder: Path) -> Iterator[Path]:
    for at, folders, _ in os.walk(folder):
        if ROOT in folders:
            folders.remove(ROOT)
            yield Path(at)


def _nested(one: Path, other: Path) -> bool:
    return one == other or one in other.parents or other in one.parents


def _why(at: Path, claim: Claim, mine: Claim) -> str:
    if (claim.ingestion, claim.urn) == (mine.ingestion, mine.urn):
        return (
            f"{at} belongs to this ingestion and dataset in journal {claim.journal}, and this is journal {mine.journal}"
        )
    return f"{at} belongs to dataset {claim.urn!r} of ingestion {claim.ingestion!r} in journal {claim.journal}"


def _way_out(claim: Claim, mine: Claim) -> str:
    if claim.journal != mine.journal and (claim.ingestion, claim.urn) == (mine.ingestion, mine.urn):
        return (
            "Is the journal's store the right one, and mounted? An empty journal would publish everything again. "
            "If the old one is lost: release the claim, and set the watermark to what is published."
        )
    return "Give the dataset a target of its own, or release the claim if the other one is gone."
