"""Claims: which dataset publishes to which folder. A target root holds a write-once chain of them.

A folder belongs to one journal, one ingestion and one dataset. If the target is claimed and the journal is another one, or is
empty, the run stops with an error: a journal that isn't mounted must not look like a first run. `import` and `release-claim`
are the ways out.

Two writers that claim nested folders through two chains don't see each other in time. So a writer checks again after claiming,
and gives way to any other claim that it sees then. As it may have died in between, later runs repeat the check until one has
published the dataset.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath

from airflow_gobblin.errors import ClaimError, ConfigurationError, LostRaceError, Remedy
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import now
from airflow_gobblin.model import wire
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.files.base import Files, each
from airflow_gobblin.storage.stores.base import put_or_read
from airflow_gobblin.workspace.staging import ROOT

CHAIN = f"{ROOT}/claims"
_MOST_FOLDERS = 1_000
"""How many folders in a dataset's own are looked at for the claims of others."""
_NAMED = 10
"""The most folders that a sentence names."""


class ClaimAction(StrEnum):
    """The kind of a link of the chain."""

    CLAIM = "claim"
    RELEASE = "release"


@record("claim")
@dataclass(frozen=True)
class Claim:
    """One link of the chain.

    :param folder: relative to the target root.
    :param generation: the dataset's: a claim older than the generation it was dropped in is void, since a late task wrote it.
    :param head: the dataset's newest slot when it was claimed.
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
    head: int = 0

    @property
    def owner(self) -> tuple[str, str, str]:
        """The journal, ingestion and dataset that it belongs to."""
        return self.journal, self.ingestion, self.urn


class Claims:
    """The claims on folders below a target root. Keep it for as long as datasets are planned: each link is read once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._root = _real(files.root)
        self._store = files.records(CHAIN)
        self._valid: dict[str, Claim] = {}
        self._last: dict[str, Claim] = {}
        self._dropped: dict[tuple[str, str, str], int] = {}
        self._length = 0
        self._is_read = False

    def valid(self) -> Mapping[str, Claim]:
        """Return the valid claim on each claimed folder.

        :raises RecordError: a link is missing, torn or unreadable.
        """
        if not self._is_read:
            last = max((int(k) for k in self._store.list("") if k.isdecimal()), default=0)
            for key, data in self._store.get_many([_link(n) for n in range(self._length + 1, last + 1)]):
                self._take(key, data or b"")
            self._is_read = True
        while (data := self._store.get(key := _link(self._length + 1))) is not None:
            self._take(key, data)
        return self._valid

    def _take(self, key: str, data: bytes) -> None:
        """Add one link."""
        claim = wire.loads(data, Claim, f"{CHAIN}/{key} below {self._root}")
        self._length += 1
        if claim.action is ClaimAction.RELEASE:
            self._valid.pop(claim.folder, None)
            self._dropped[claim.owner] = max(claim.generation, self._dropped.get(claim.owner, 0))
        elif claim.generation >= self._dropped.get(claim.owner, 0):
            self._valid[claim.folder] = self._last[claim.folder] = claim

    def has(self, journal: Journal, urn: str, folder: str) -> bool:
        """Return whether a folder is claimed by a dataset.

        :raises RecordError: as `valid`.
        """
        found = self.valid().get(folder)
        return found is not None and found.owner == (journal.id, journal.ingestion, urn)

    def last(self, folder: str) -> Claim | None:
        """Return the last claim on a folder, even if it was released since.

        :raises RecordError: as `valid`.
        """
        self.valid()
        return self._last.get(folder)

    def check(self, journal: Journal, urn: str, folder: str, history: History | None = None) -> bool:
        """Claim a dataset's folder, unless it is claimed already.

        :param history: the history that the dataset's plan was made from; by default that of a dataset without a slot.
        :return: whether it was claimed by this call.
        :raises ClaimError: the folder, one above it or one below it belongs to another dataset.
        :raises LostRaceError: the dataset was dropped since, and its folder may be another's by now.
        """
        history = history or History(urn)
        mine = _claim(journal, urn, folder, history.state.generation, history.state.head)
        while True:
            found = self.valid().get(folder)
            if mine.generation < self._dropped.get(mine.owner, 0):
                raise _dropped(mine)
            if found is not None and found.owner == mine.owner and found.generation >= mine.generation:
                if not history.published_after(found.head):
                    self._stay_or_give_way(found)
                return False
            self._refuse(mine)
            if self._add(mine):
                self._stay_or_give_way(mine)
                return True

    def _stay_or_give_way(self, mine: Claim) -> None:
        """Check whether another writer claimed an overlapping folder at the same moment.

        :raises ClaimError: one did; our claim is released.
        """
        try:
            self._refuse(mine)
        except ClaimError as error:
            self.release(mine.folder, mine.actor, f"it gives way: {error.cause}", mine)
            raise

    def check_free(self, journal: Journal, urn: str, folder: str) -> None:
        """Check that a dataset may claim its folder, without claiming it.

        :raises ClaimError: as `check`.
        """
        mine = _claim(journal, urn, folder)
        found = self.valid().get(folder)
        if found is None or found.owner != mine.owner:
            self._refuse(mine)

    def on(self, folder: str) -> Claim:
        """Return the claim on a folder.

        :raises ClaimError: the folder isn't claimed.
        """
        found = self.valid().get(folder)
        if found is None:
            raise ClaimError(
                operation="release",
                subject=f"the claim on {folder!r} below {self._root}",
                cause="nobody claims it",
                hint=_like(folder, sorted(self._valid)),
            )
        return found

    def check_valid(self, claim: Claim) -> Claim:
        """Return the valid claim in place of one that was read before.

        :raises ClaimError: the folder isn't claimed, or another dataset claimed it.
        """
        found = self.on(claim.folder)
        if found.owner != claim.owner:
            raise ClaimError(
                operation="release",
                subject=f"the claim on {claim.folder!r} below {self._root}",
                cause="it was released, and somebody else claimed the folder, just now",
                hint="Look at it again.",
            )
        return found

    def release(
        self, folder: str, actor: str, reason: str, claim: Claim | None = None, generation: int | None = None
    ) -> Claim:
        """Release the claim on a folder.

        :param claim: the claim to release; `None` for whichever is valid.
        :param generation: that of the dataset once it was dropped: earlier plans can no longer claim, and a newer claim stays.
        :raises ClaimError: the folder isn't claimed, or another dataset claimed it at this moment.
        """
        mine = claim or self.on(folder)
        while True:
            found = self.check_valid(mine)
            if generation is not None and found.generation >= generation:
                return found
            gone = replace(found, action=ClaimAction.RELEASE, at=now(), actor=actor, reason=reason)
            gone = replace(gone, generation=found.generation if generation is None else generation)
            if self._add(gone):
                return found

    def _add(self, claim: Claim) -> bool:
        """Add a claim to the chain, and return whether it became the next link."""
        data = wire.dumps(claim)
        return put_or_read(self._store, _link(self._length + 1), data)[0] == data

    def _refuse(self, mine: Claim) -> None:
        here = _below(self._root, mine.folder)
        ours = ((_below(self._root, claim.folder), claim) for claim in self._valid.values())
        for folder, claim in (*ours, *_around(self._files, self._root, mine.folder)):
            if claim.owner != mine.owner and _nested(folder, here):
                raise ClaimError(
                    operation="publish",
                    subject=f"dataset {mine.urn!r} of ingestion {mine.ingestion!r} to {here}",
                    cause=_why(folder, claim, mine),
                    hint=_way_out(claim, mine),
                )


def check_folder(folder: str, urn: str, holds: Holds) -> str:
    """Return a dataset's folder if it is valid.

    :param holds: what the dataset's slots hold. A difference of files may cover the whole target root; `_gobblin` is left out.
    :raises ConfigurationError: it isn't below the target root, or is the target's own folder.
    """
    cause, parts = "", folder.split("/")
    if folder == "." and not holds.keeps_units:
        return folder
    if folder == "." or not folder:
        cause = "it is the target root itself, in which staging, claims and the folders of other datasets are"
    elif not {"", ".", ".."}.isdisjoint(parts) or "\0" in folder:
        cause = "it is not a plain relative path"
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


def _claim(journal: Journal, urn: str, folder: str, generation: int = 0, head: int = 0) -> Claim:
    return Claim(ClaimAction.CLAIM, journal.id, journal.ingestion, urn, folder, now(), generation=generation, head=head)


def _dropped(mine: Claim) -> LostRaceError:
    return LostRaceError(
        operation="publish",
        subject=f"dataset {mine.urn!r} of ingestion {mine.ingestion!r} to {mine.folder}",
        cause="it was dropped after this was planned, and its folder is free for others",
        hint="Nothing of this plan was published.",
        remedy=Remedy.PLAN,
    )


def _link(number: int) -> str:
    return f"{number:010d}"


def _real(root: str) -> str:
    """Resolve the symbolic links of a root."""
    return root if "://" in root else str(Path(root).resolve())


def _around(files: Files, root: str, folder: str) -> Iterator[tuple[str, Claim]]:
    """Yield the claimed folders of target roots above ours and below our folder."""
    for other in (*_roots_above(files, root), *_roots_below(files, root, folder)):
        for claim in Claims(files.other(other)).valid().values():
            yield _below(other, claim.folder), claim


def _roots_above(files: Files, root: str) -> Iterator[str]:
    scheme, found, path = root.rpartition("://")
    for above in PurePosixPath(path).parents:
        if str(above) != ".":
            other = f"{scheme}{found}{above}"
            with contextlib.suppress(PermissionError):  # an unreadable folder can't be claimed from here
                if posixpath.basename(CHAIN) in files.other(other).folders(ROOT):
                    yield other


def _roots_below(files: Files, root: str, folder: str) -> Iterator[str]:
    """Yield the target roots in a folder, as far as they are among its first folders, those further up first.

    A folder may have millions of files, so no more of it is listed. A root that isn't seen sees our claim when it claims a folder
    itself, since it looks at all roots above it.
    """
    level, looked_at = [folder], 0
    while level and looked_at < _MOST_FOLDERS:
        some = level[: _MOST_FOLDERS - looked_at]
        looked_at += len(some)
        found = [*zip(some, each(files, files.folders, some), strict=True)]
        for above, names in found:
            if above != "." and ROOT in names and posixpath.basename(CHAIN) in files.folders(f"{above}/{ROOT}"):
                yield _below(root, above)
        level = [
            name if above == "." else f"{above}/{name}" for above, names in found for name in names if name != ROOT
        ]


def _below(root: str, folder: str) -> str:
    return root if folder == "." else posixpath.join(root, folder)


def _nested(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _why(at: str, claim: Claim, mine: Claim) -> str:
    if (claim.ingestion, claim.urn) == (mine.ingestion, mine.urn):
        return (
            f"{at} belongs to this ingestion and dataset in journal {claim.journal}, and this is journal {mine.journal}"
        )
    return f"{at} belongs to dataset {claim.urn!r} of ingestion {claim.ingestion!r} in journal {claim.journal}"


def _like(folder: str, claimed: Sequence[str]) -> str:
    """Return a hint for a folder that isn't claimed."""
    if not claimed:
        return "No folder is claimed there. Is it the right target, and is it mounted here?"
    more = f" and {len(claimed) - _NAMED:,} more" if len(claimed) > _NAMED else ""
    return meant(claimed, folder, otherwise=f"Claimed are {', '.join(map(repr, claimed[:_NAMED]))}{more}.")


def _way_out(claim: Claim, mine: Claim) -> str:
    if claim.journal != mine.journal and (claim.ingestion, claim.urn) == (mine.ingestion, mine.urn):
        return (
            "Is the journal's store the right one, and mounted? An empty journal would publish everything again. "
            "If the old one is lost: release the claim, and set the watermark to what is published."
        )
    return "Give the dataset a target of its own; or, if the other one is gone, `airflow gobblin release-claim`."
