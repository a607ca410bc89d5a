"""Claims: who publishes where. A target root holds a write-once chain of them.

A folder belongs to one journal, one ingestion and one dataset. A claimed target whose journal is another one, or an empty one,
stops by name: a journal that isn't mounted must not look like a first run. `import` and `release-claim` are the ways out.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath

from airflow_gobblin import wire
from airflow_gobblin.errors import ClaimError
from airflow_gobblin.files.base import Files
from airflow_gobblin.journal import Journal, now
from airflow_gobblin.staging import ROOT
from airflow_gobblin.stores.base import settle
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
    """The claims on folders below a target root. Keep it for as long as datasets are planned: each link is read once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._root = _real(files.root)
        self._store = files.records(CHAIN)
        self._standing: dict[str, Claim] = {}
        self._last: dict[str, Claim] = {}
        self._length = 0

    def standing(self) -> Mapping[str, Claim]:
        """The claim on each claimed folder. :raises RecordError: a link is missing, torn or unreadable."""
        last = 0 if self._length else max((int(k) for k in self._store.list("") if k.isdecimal()), default=0)
        while (data := self._store.get(_link(self._length + 1))) is not None or self._length < last:
            claim = wire.loads(data or b"", Claim, f"{CHAIN}/{_link(self._length + 1)} below {self._root}")
            if claim.action is ClaimAction.CLAIM:
                self._standing[claim.folder] = self._last[claim.folder] = claim
            else:
                self._standing.pop(claim.folder, None)
            self._length += 1
        return self._standing

    def last(self, folder: str) -> Claim | None:
        """The last claim on a folder, also if it was released since. :raises RecordError: as `standing`."""
        self.standing()
        return self._last.get(folder)

    def check(self, journal: Journal, urn: str, folder: str) -> bool:
        """Claim a dataset's folder, or find that it is ours. :return: whether it was claimed here and now.

        :raises ClaimError: the folder, one above it or one below it belongs to somebody else.
        """
        mine = Claim(ClaimAction.CLAIM, journal.id, journal.ingestion, urn, folder, now())
        while True:
            found = self.standing().get(folder)
            if found is not None and found.owner == mine.owner:
                return False
            self._refuse(mine)
            if self._add(mine):
                return True

    def check_free(self, journal: Journal, urn: str, folder: str) -> None:
        """See that a dataset may claim its folder, and claim nothing. :raises ClaimError: as `check`."""
        mine = Claim(ClaimAction.CLAIM, journal.id, journal.ingestion, urn, folder, now())
        found = self.standing().get(folder)
        if found is None or found.owner != mine.owner:
            self._refuse(mine)

    def on(self, folder: str) -> Claim:
        """The claim on a folder. :raises ClaimError: nobody claims it."""
        found = self.standing().get(folder)
        if found is None:
            raise ClaimError(
                operation="release",
                subject=f"the claim on {folder!r} below {self._root}",
                cause="nobody claims it",
                hint=f"Claimed are {sorted(self._standing)}.",
            )
        return found

    def check_stands(self, claim: Claim) -> Claim:
        """The claim that stands in the place of one that was looked at. :raises ClaimError: there is none, or somebody else's."""
        found = self.on(claim.folder)
        if found.owner != claim.owner:
            raise ClaimError(
                operation="release",
                subject=f"the claim on {claim.folder!r} below {self._root}",
                cause="it was released, and somebody else claimed the folder, in this moment",
                hint="Look at it again.",
            )
        return found

    def release(self, folder: str, actor: str, reason: str, claim: Claim | None = None) -> Claim:
        """Give up the claim on a folder.

        :param claim: the one that is meant; `None` for whichever it is.
        :raises ClaimError: nobody claims it, or somebody else came to it in this moment.
        """
        mine = claim or self.on(folder)
        while True:
            found = self.check_stands(mine)
            gone = replace(found, action=ClaimAction.RELEASE, at=now(), actor=actor, reason=reason)
            if self._add(gone):
                return found

    def _add(self, claim: Claim) -> bool:
        """Whether a claim became the next link of the chain."""
        data = wire.dumps(claim)
        return settle(self._store, _link(self._length + 1), data)[0] == data

    def _refuse(self, mine: Claim) -> None:
        here = posixpath.join(self._root, mine.folder)
        ours = ((posixpath.join(self._root, claim.folder), claim) for claim in self._standing.values())
        for folder, claim in (*ours, *_around(self._files, self._root, mine.folder)):
            if claim.owner != mine.owner and _nested(folder, here):
                raise ClaimError(
                    operation="publish",
                    subject=f"dataset {mine.urn!r} of ingestion {mine.ingestion!r} to {here}",
                    cause=_why(folder, claim, mine),
                    hint=_way_out(claim, mine),
                )


def _link(number: int) -> str:
    return f"{number:010d}"


def _real(root: str) -> str:
    """A root without symbolic links."""
    return root if "://" in root else str(Path(root).resolve())


def _around(files: Files, root: str, folder: str) -> Iterator[tuple[str, Claim]]:
    """The claimed folders of target roots above ours and below our folder."""
    for other in (*_roots_above(files, root), *_roots_below(files, root, folder)):
        for claim in Claims(files.other(other)).standing().values():
            yield posixpath.join(other, claim.folder), claim


def _roots_above(files: Files, root: str) -> Iterator[str]:
    scheme, found, path = root.rpartition("://")
    for above in PurePosixPath(path).parents:
        if str(above) != ".":
            other = f"{scheme}{found}{above}"
            with contextlib.suppress(PermissionError):  # what may not be looked at can't be claimed from here
                if posixpath.basename(CHAIN) in files.other(other).folders(ROOT):
                    yield other


def _roots_below(files: Files, root: str, folder: str) -> Iterator[str]:
    chains = (path.partition(f"/{CHAIN}/") for path in files.walk(folder))
    yield from sorted({posixpath.join(root, below) for below, found, _ in chains if found})


def _nested(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _why(at: str, claim: Claim, mine: Claim) -> str:
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
    return "Give the dataset a target of its own; or, if the other one is gone, `airflow gobblin release-claim`."
