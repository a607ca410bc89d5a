"""The home of an ingestion: the target root that its slots are published to, and which DAG ingests into it, from which source.

A target that isn't mounted looks like an empty one. So before anything is published, a mark is put there, and the journal names
it: a target without that mark is not the one that the journal published to, whatever its path. The same record names the
ingestion's owner: a second DAG that gives its name to another source, or publishes it to another target, is refused.

    <target>/_gobblin/<ingestion>-<journal>/marks/<id>    put before the home that names it
    <journal>/_homes/<ingestion>/<number>                 the homes, from the first on; the last one counts

Marks are copied along with a target. So a move puts another one, which the former place lacks. A target that has the mark at a
path other than the home's may be a copy: it is accepted only where this host doesn't see the home.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, RecordError, Remedy, TargetError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Home, now
from airflow_gobblin.model import wire
from airflow_gobblin.model.naming import many
from airflow_gobblin.model.state import Provenance, UnitRef
from airflow_gobblin.model.wire import record
from airflow_gobblin.storage.files.base import Files, each
from airflow_gobblin.storage.stores.base import put_or_read
from airflow_gobblin.workspace.claims import Claims
from airflow_gobblin.workspace.staging import MARKS, staging_folder

__all__ = ["Homes", "PublishedFolder", "Tenant"]

_NAMED = 3


@record("target_mark")
@dataclass(frozen=True)
class TargetMark:
    """The record that identifies a target root.

    :param id: as the home names it; the other fields are for people.
    """

    id: str
    ingestion: str
    journal: str


@dataclass(frozen=True)
class Tenant:
    """A DAG and the source that it ingests, by its kind and its connections. Either is empty if unknown."""

    dag: str = ""
    source: str = ""


@dataclass(frozen=True)
class PublishedFolder:
    """A folder in which a dataset has published files.

    :param slot: the newest slot that published any of them.
    """

    folder: str
    slot: int

    @classmethod
    def of(cls, history: History) -> PublishedFolder | None:
        """Return the folder of a dataset; `None` if it has no files, they are in a table, or its slot is from before decisions
        named their folder.
        """
        newest = max((ref.slot for ref, unit in history.state.live.items() if unit.files), default=0)
        decision = history.slot(newest).decision if newest else None
        if decision is None or decision.table is not None or not decision.folder:
            return None
        return cls(decision.folder, newest)


class Homes:
    """The homes of an ingestion, compared with a target root.

    :param files: the file system under the target root to be used.
    """

    def __init__(self, journal: Journal, files: Files) -> None:
        self._journal = journal
        self._files = files
        self._folder = staging_folder(journal.ingestion, journal.id)

    @property
    def current(self) -> Home | None:
        """The home that counts; `None` before the first dataset is planned."""
        return next(reversed(self._journal.homes()), None)

    def provenance(self, dag: str) -> Provenance:
        """Return the provenance of everything that a DAG plans from now on, except for where it is read from."""
        homes = self._journal.homes()
        given = (number for number, home in enumerate(homes, 1) if home.actor and dag and home.dag == dag)
        return Provenance("", dag, len(homes), max(given, default=0))

    def check_mark(self, *, lost: bool = False) -> None:
        """Check that the target root is the one that the journal's slots are published to.

        Another path to it is accepted if this host doesn't see it at the home's path.

        :param lost: the target may have lost its contents.
        :raises ConfigurationError: the slots are published to another root.
        :raises TargetError: it has no mark, or another one: it is empty, not mounted, not shared with this host, or another root.
        """
        home = self.current
        if home is not None and not self._is_by_another_path(home):
            self._check_at(home, lost=lost)

    def check(self, tenant: Tenant | None = None) -> None:
        """Check that the target root is the home, as long as slots depend on that.

        :param tenant: the tenant that is about to plan: another DAG with another source is refused, too.
        :raises TargetError: as `check_mark`.
        :raises ConfigurationError: the home is another target root, or another tenant's.
        """
        home = self.current
        if home is None:
            self._check_unnamed()
            return
        try:
            self._check_at(home, tenant, lost=False)
        except (ConfigurationError, TargetError):
            if next(self._inhabitants(), None) is not None:
                raise  # otherwise nothing would be lost: the next plan settles here

    def _check_unnamed(self) -> None:
        """Check that files published before the journal named a home are below the target root: it has claims there."""
        if not any(isinstance(history, History) and _has_files(history) for _, history in self._journal.histories()):
            return
        mine = (self._journal.id, self._journal.ingestion)
        if not any(claim.owner[:2] == mine for claim in Claims(self._files).valid().values()):
            raise self._lacks("no dataset of the journal claims a folder there, though it has published files")

    def check_newest(self, history: History, replaced: Collection[UnitRef] = ()) -> None:
        """Check one file of the newest published slot of a dataset: its folder may be a separate mount, or may have been emptied.

        :param replaced: units that are about to be published anew.
        :raises TargetError: the file is missing.
        """
        kept = {ref: unit for ref, unit in history.state.live.items() if unit.files and ref not in replaced}
        newest = max((ref.slot for ref in kept), default=0)
        file = next((f for _, f in self._journal.files(history, [ref for ref in kept if ref.slot == newest])), None)
        if file is None or self._files.identity(file.path) is not None:
            return
        way = (
            "rewind to before that, or drop the dataset" if history.state.watermark is not None else "drop the dataset"
        )
        raise self._not_there(
            history.urn,
            f"{file.path}, which slot {newest} published, is not there below {self._files.root}: on host "
            f"{socket.gethostname()!r} its folder is empty, not mounted or not shared, or somebody removed the file",
            f"If it is lost for good, `airflow gobblin verify` shows what else is: {way}",
        )

    def without_folders(self, published: Mapping[str, PublishedFolder]) -> dict[str, TargetError]:
        """Return an error for each dataset whose folder is gone or empty. This costs a look at each, or a listing for many.

        :param published: the folders to look for, by the URNs of their datasets.
        """
        found = self._files.filled([one.folder for one in published.values()])
        return {
            urn: self._without_folder(urn, one, filled)
            for (urn, one), filled in zip(published.items(), found, strict=True)
            if filled is not True
        }

    def _without_folder(self, urn: str, published: PublishedFolder, error: bool | OSError) -> TargetError:
        found = f"can't be looked into ({error})" if isinstance(error, OSError) else "is empty or not there"
        return self._not_there(
            urn,
            f"its folder {published.folder}, to which slot {published.slot} published, {found} below {self._files.root}: on "
            f"host {socket.gethostname()!r} it is not mounted or not shared, or somebody removed what was in it",
            "If it is lost for good, drop the dataset",
        )

    def _not_there(self, urn: str, cause: str, way: str) -> TargetError:
        return TargetError(
            operation="plan",
            subject=f"dataset {urn!r}",
            cause=cause,
            hint=f"Mount or restore it. {way}, and the next run publishes it anew.",
            remedy=Remedy.REPEAT,
        )

    def check_here(self, tenant: Tenant | None = None, *, lost: bool = False) -> None:
        """Check that the target root is the home, by its path, whether or not slots depend on that yet.

        :param lost: the target may have lost its contents. Other parameters and errors are those of `check`.
        """
        home = self.current
        if home is not None:
            self._check_at(home, tenant, lost=lost)

    def _check_at(self, home: Home, tenant: Tenant | None = None, *, lost: bool) -> None:
        if not self._is_at(home):
            raise self._elsewhere(home)
        if tenant is not None and _stranger(home, tenant):
            raise self._others(home, tenant)
        if not lost and not self._has(home.mark):
            raise self._gone(home)

    def settle(self, tenant: Tenant) -> None:
        """Make the target root the home, unless it already is: before the first plan of a dataset, and after `check`.

        :raises TargetError: it has gone away since.
        :raises ConfigurationError: another run has since published elsewhere, or from another source.
        """
        while True:
            homes = self._journal.homes()
            home = homes[-1] if homes else None
            known = home is not None and self._is_at(home) and self._has(home.mark)
            if home is not None and known and tenant.source == home.source:
                return
            if home is not None and _stranger(home, tenant):  # it was added just now
                raise self._others(home, tenant)
            if home is not None and not known:
                self._check_empty(home)
            mark = home.mark if home is not None and known else self._put_mark()
            mine = Home(self._files.root, mark, tenant.source, tenant.dag, now())
            if self._journal.put_home(mine, len(homes) + 1) != mine:
                continue
            if home is not None and not known:
                try:
                    self._check_empty(home)  # a run that checked before may have decided just now
                except (ConfigurationError, TargetError):
                    self._journal.put_home(home, len(homes) + 2)
                    raise
            return

    def _check_empty(self, home: Home) -> None:
        """Check that nothing depends on a home that is to be left."""
        if next(self._inhabitants(), None) is not None:
            raise self._gone(home) if self._is_at(home) else self._elsewhere(home)

    def would_move(self) -> Home:
        """Return the present home, if the target root holds everything published there: it was moved or copied, with its mark.

        :raises ConfigurationError: there is no home yet, a slot is pending, or files are missing.
        :raises TargetError: the mark is missing: `_gobblin` was not moved.
        """
        home = self.current
        if home is None:
            raise self._not_moved("nothing was planned yet", "There is nothing to move: change the target.")
        if not self._has(home.mark):
            raise self._gone(home)
        for _, history in self._journal.histories():
            if isinstance(history, GobblinError):
                raise history
            if history.pending is not None:
                raise self._not_moved(
                    f"slot {history.pending.decision.slot} of dataset {history.urn!r} is pending",
                    "Let a run finish it at the former target, or abandon it; then copy again.",
                )
            self._check_files(history)
        return home

    def move(self, home: Home, tenant: Tenant, actor: str, reason: str) -> Home:
        """Make the target root the home of everything published.

        :param home: as returned by `would_move`.
        :param tenant: the owner from now on; unknown parts of it stay as they were.
        :raises LostRaceError: it was moved meanwhile, or a run changed something at the former home.
        :raises ConfigurationError: as `would_move`, since a run may have changed something.
        :raises TargetError: as `would_move`.
        """
        homes = self._journal.homes()
        if self.would_move() != home:
            raise self._overtaken("its home was changed just now")
        moved = replace(
            home,
            target=self._files.root,
            mark=home.mark if self._is_at(home) else self._put_mark(),
            source=tenant.source or home.source,
            dag=tenant.dag or home.dag,
            at=now(),
            actor=actor,
            reason=reason,
        )
        if self._journal.put_home(moved, len(homes) + 1) != moved:
            raise self._overtaken("its home was changed just now")
        # A decision checks the home after that, and a move checks the slots, so one of them sees the other.
        try:
            if not self._is_at(home):
                self.would_move()
        except GobblinError as error:
            self._journal.put_home(home, len(homes) + 2)
            raise self._overtaken(f"a run went on at {home.target} just now: {error.cause}") from error
        return moved

    def _overtaken(self, cause: str) -> LostRaceError:
        return LostRaceError(
            operation="move",
            subject=f"ingestion {self._journal.ingestion!r}",
            cause=cause,
            hint="Nothing was changed. Look at it again.",
        )

    def files(self) -> Files:
        """Return the files under the root that the slots are published to: the home's, whatever target was given.

        :raises ConfigurationError: it is in another kind of place, unknown here.
        """
        home = self.current
        if home is None or self._is_at(home) or self._is_by_another_path(home):
            return self._files
        if not self._is_like(home):
            raise self._elsewhere(home)
        return self._files.other(home.target)

    def _is_at(self, home: Home) -> bool:
        return _same_root(home.target, self._files.root)

    def _is_like(self, home: Home) -> bool:
        """Return whether the home is in the same kind of place."""
        return home.target.rpartition("://")[0] == self._files.root.rpartition("://")[0]

    def _is_by_another_path(self, home: Home) -> bool:
        """Return whether the target root seems to be the home at another path: it has the mark, and the home's path lacks it."""
        if self._is_at(home) or not self._is_like(home) or not self._has(home.mark):
            return False
        return not Homes(self._journal, self._files.other(home.target))._has(home.mark)

    def _has(self, mark: str) -> bool:
        """Return whether the target root has a mark. An unreadable mark counts as none: it is waited for, or given up as lost."""
        data = self._files.records(self._folder).get(MARKS + mark)
        with suppress(RecordError):
            return data is not None and wire.loads(data, TargetMark, self._path(mark)).id == mark
        return False

    def _put_mark(self) -> str:
        self._files.make_private(self._folder)  # staging uses the folder, too
        mine = TargetMark(uuid.uuid4().hex, self._journal.ingestion, self._journal.id)
        put_or_read(self._files.records(self._folder), MARKS + mine.id, wire.dumps(mine))
        return mine.id

    def _path(self, mark: str) -> str:
        return f"{self._files.root}/{self._folder}/{MARKS}{mark}"

    def _inhabitants(self) -> Iterator[str]:
        """Yield the datasets that have files at a target, including those that can't be read."""
        for key, history in self._journal.histories():
            if isinstance(history, GobblinError) or history.pending is not None or _is_somewhere(history):
                yield key

    def _check_files(self, history: History) -> None:
        """Check that every published file of a dataset exists, with its size."""
        files = [file for _, file in self._journal.files(history, history.state.live)]
        found = each(self._files, lambda file: self._files.identity(file.path), files)
        missing = [f.path for f, there in zip(files, found, strict=True) if there is None or there.size != f.size]
        if missing:
            raise self._not_moved(
                f"{many(len(missing), 'file')} of dataset {history.urn!r} {'is' if len(missing) == 1 else 'are'} not there "
                f"as published: {', '.join(missing[:_NAMED])}",
                "Copy all that is below the former target, and then try again. Nothing was changed.",
            )

    def _lacks(self, what: str) -> TargetError:
        return TargetError(
            operation="use",
            subject=f"target {self._files.root} of ingestion {self._journal.ingestion!r}",
            cause=f"{what}: on host {socket.gethostname()!r} it is empty, not mounted, not shared, or another target",
            hint="Mount or restore it: nothing was published here. If its files are lost for good, drop its datasets, and "
            "the next run publishes them anew.",
            remedy=Remedy.REPEAT,
        )

    def _gone(self, home: Home) -> TargetError:
        marks = [*self._files.records(self._folder).list(MARKS)]
        why = "has the mark of another one" if marks else "lacks the mark that was put there"
        if MARKS + home.mark in marks:
            why = "has a mark that can't be read, and not as it was put there"
        return self._lacks(f"it {why} when the journal's slots were planned ({self._path(home.mark)})")

    def _elsewhere(self, home: Home) -> ConfigurationError:
        by = f", by DAG {home.dag!r}" if home.dag else ""
        return ConfigurationError(
            operation="use",
            subject=f"target {self._files.root} for ingestion {self._journal.ingestion!r}",
            cause=f"its datasets are published to {home.target}{by}",
            hint="Go back to that target. To move: let its runs end, copy all that is below it, `_gobblin` too, and then run "
            "`airflow gobblin move`. If this is another ingestion, give it a name of its own.",
        )

    def _others(self, home: Home, tenant: Tenant) -> ConfigurationError:
        return ConfigurationError(
            operation="plan",
            subject=f"ingestion {self._journal.ingestion!r} of DAG {tenant.dag!r}",
            cause=f"DAG {home.dag!r} has an ingestion of this name and journal, which reads from {home.source} and not from "
            f"{tenant.source}",
            hint="Give one of them a name of its own. If this DAG is to go on with what the other one published: "
            f"`airflow gobblin move --dag-id {tenant.dag}`.",
        )

    def _not_moved(self, cause: str, hint: str) -> ConfigurationError:
        return ConfigurationError(
            operation="move",
            subject=f"ingestion {self._journal.ingestion!r} to {self._files.root}",
            cause=cause,
            hint=hint,
        )


def _same_root(one: str, other: str) -> bool:
    """Return whether two roots are the same, whatever their names."""
    if one == other or "://" in one or "://" in other:
        return one == other
    with suppress(OSError):  # one of them doesn't exist
        return Path(one).samefile(other)
    return Path(one).resolve() == Path(other).resolve()


def _stranger(home: Home, tenant: Tenant) -> bool:
    known = all((home.dag, home.source, tenant.dag, tenant.source))
    return known and home.dag != tenant.dag and home.source != tenant.source


def _has_files(history: History) -> bool:
    """Return whether a dataset has published files, or is about to."""
    pending = history.pending is not None and history.pending.decision.staging is not None
    return pending or any(unit.files for unit in history.state.live.values())


def _is_somewhere(history: History) -> bool:
    """Return whether a dataset depends on a target. One that was dropped, with its files or without, depends on none."""
    state = history.state
    return not history.keeps_units or bool(state.retired or state.live) or state.coverage.origin is not None
