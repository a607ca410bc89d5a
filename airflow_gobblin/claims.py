"""Claims: who publishes where. A target root holds a write-once chain of them.

A folder belongs to one journal, one ingestion and one dataset. A claimed target whose journal is another one, or an empty one,
stops by name: a journal that isn't mounted must not look like a first run. `import` and `release-claim` are the ways out.

Two that claim nested folders by two chains don't see each other in time. So whoever has claimed looks again, and gives way to
anyone whom it sees then; and looks once more as long as its dataset has no slot, for it may have died in between.
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
from airflow_gobblin.errors import ClaimError, ConfigurationError, LostRaceError
from airflow_gobblin.files.base import Files
from airflow_gobblin.journal import Journal, now
from airflow_gobblin.staging import ROOT
from airflow_gobblin.state import DatasetState
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
    """One link of the chain.

    :param folder: relative to the target root.
    :param generation: the dataset's: a claim of an older one than it was dropped in is void, for a late task wrote it.
    """

    action: ClaimAction
    journal: str
    ingestion: str
    urn: str
    folder: str
    at: datetime
    actor: str = ""
    reason: str = ""
    generation: int = 0

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
        self._dropped: dict[tuple[str, str, str], int] = {}
        self._length = 0

    def standing(self) -> Mapping[str, Claim]:
        """The claim on each claimed folder. :raises RecordError: a link is missing, torn or unreadable."""
        last = 0 if self._length else max((int(k) for k in self._store.list("") if k.isdecimal()), default=0)
        while (data := self._store.get(_link(self._length + 1))) is not None or self._length < last:
            claim = wire.loads(data or b"", Claim, f"{CHAIN}/{_link(self._length + 1)} below {self._root}")
            self._take(claim)
            self._length += 1
        return self._standing

    def _take(self, claim: Claim) -> None:
        """One link more."""
        if claim.action is ClaimAction.RELEASE:
            self._standing.pop(claim.folder, None)
            self._dropped[claim.owner] = max(claim.generation, self._dropped.get(claim.owner, 0))
        elif claim.generation >= self._dropped.get(claim.owner, 0):
            self._standing[claim.folder] = self._last[claim.folder] = claim

    def last(self, folder: str) -> Claim | None:
        """The last claim on a folder, also if it was released since. :raises RecordError: as `standing`."""
        self.standing()
        return self._last.get(folder)

    def check(self, journal: Journal, urn: str, folder: str, state: DatasetState | None = None) -> bool:
        """Claim a dataset's folder, or find that it is ours. :return: whether it was claimed here and now.

        :param state: what the dataset's plan was made from; by default that of one without a slot.
        :raises ClaimError: the folder, one above it or one below it belongs to somebody else.
        :raises LostRaceError: the dataset was dropped since: its folder may be another's by now.
        """
        state = state or DatasetState(urn)
        mine = _claim(journal, urn, folder, state.generation)
        while True:
            found = self.standing().get(folder)
            if mine.generation < self._dropped.get(mine.owner, 0):
                raise _dropped(mine)
            if found is not None and found.owner == mine.owner and found.generation >= mine.generation:
                if not state.head:
                    self._stay_or_give_way(found)
                return False
            self._refuse(mine)
            if self._add(mine):
                self._stay_or_give_way(mine)
                return True

    def _stay_or_give_way(self, mine: Claim) -> None:
        """Look whether somebody claimed a folder around ours in the same moment.

        :raises ClaimError: somebody did; ours is released.
        """
        try:
            self._refuse(mine)
        except ClaimError as error:
            self.release(mine.folder, mine.actor, f"it gives way: {error.cause}", mine)
            raise

    def check_free(self, journal: Journal, urn: str, folder: str) -> None:
        """See that a dataset may claim its folder, and claim nothing. :raises ClaimError: as `check`."""
        mine = _claim(journal, urn, folder)
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

    def release(
        self, folder: str, actor: str, reason: str, claim: Claim | None = None, generation: int | None = None
    ) -> Claim:
        """Give up the claim on a folder.

        :param claim: the one that is meant; `None` for whichever it is.
        :param generation: that of the dataset once it was dropped: what was planned before can't claim any more, and a claim that
            was made since stays.
        :raises ClaimError: nobody claims it, or somebody else came to it in this moment.
        """
        mine = claim or self.on(folder)
        while True:
            found = self.check_stands(mine)
            if generation is not None and found.generation >= generation:
                return found
            gone = replace(found, action=ClaimAction.RELEASE, at=now(), actor=actor, reason=reason)
            gone = replace(gone, generation=found.generation if generation is None else generation)
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


def check_folder(folder: str, urn: str) -> str:
    """A dataset's folder, if it can be one. :raises ConfigurationError: it isn't below the target root, or is our own."""
    cause, parts = "", folder.split("/")
    if folder == "." or not folder:
        cause = "it is the target root itself, in which staging, claims and the folders of other datasets are"
    elif not {"", ".", ".."}.isdisjoint(parts) or "\0" in folder:
        cause = "it is no plain relative path"
    elif parts[0] == ROOT:
        cause = "it is where an ingestion keeps its own files"
    if not cause:
        return folder
    raise ConfigurationError(
        operation="plan",
        subject=f"dataset {urn!r} to folder {folder!r}",
        cause=cause,
        hint="Let the sink's `folder` give a folder below the target root, as `naming.dataset_key` does; to publish to this very "
        "folder, let the target be the one above it.",
    )


def _claim(journal: Journal, urn: str, folder: str, generation: int = 0) -> Claim:
    return Claim(ClaimAction.CLAIM, journal.id, journal.ingestion, urn, folder, now(), generation=generation)


def _dropped(mine: Claim) -> LostRaceError:
    return LostRaceError(
        operation="publish",
        subject=f"dataset {mine.urn!r} of ingestion {mine.ingestion!r} to {mine.folder}",
        cause="it was dropped after this was planned, and its folder is free for others",
        hint="Nothing of this plan was published. Clear create_work_units to plan anew.",
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
