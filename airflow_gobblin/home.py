"""The home of an ingestion: the target root that its slots are published to, and which DAG ingests what into it.

A target that isn't mounted looks like an empty one. So before anything is published a mark is put there, and the journal names
it: a target without that mark is not the one that the journal published to, whatever its path says. The same record says whose
the ingestion is: a second DAG that gives its name to another source, or publishes it to another target, is refused.

    <target>/_gobblin/<ingestion>-<journal>/mark    a random id, put before the home that names it
    <journal>/_homes/<ingestion>/<number>           the homes, from the first on; the last one counts
"""

from __future__ import annotations

import posixpath
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_gobblin import wire
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, TargetError
from airflow_gobblin.files.base import Files, each
from airflow_gobblin.history import History
from airflow_gobblin.journal import Journal, now
from airflow_gobblin.naming import many
from airflow_gobblin.records import Home
from airflow_gobblin.staging import MARK, staging_folder
from airflow_gobblin.stores.base import settle
from airflow_gobblin.wire import record

__all__ = ["Homes", "Tenant"]

_NAMED = 3


@record("target_mark")
@dataclass(frozen=True)
class TargetMark:
    """What makes a target root known. :param id: as the home names it; the others are for people."""

    id: str
    ingestion: str
    journal: str


@dataclass(frozen=True)
class Tenant:
    """Who ingests: the DAG, and the source, by its kind and its connections. Either is empty where it isn't known."""

    dag: str = ""
    source: str = ""


class Homes:
    """The homes of an ingestion, compared with a target root.

    :param files: what is under the target root that is to be used.
    """

    def __init__(self, journal: Journal, files: Files) -> None:
        self._journal = journal
        self._files = files
        self._folder = staging_folder(journal.ingestion, journal.id)

    @property
    def current(self) -> Home | None:
        """The home that counts; `None` before the first dataset is planned."""
        return next(reversed(self._journal.homes()), None)

    def check_mark(self, *, lost: bool = False) -> None:
        """Make sure that the target root is the one that the journal's slots are published to, by whatever path.

        :param lost: it may have lost what was there. :raises ConfigurationError: they are published to another root.
        :raises TargetError: it has no mark, or another one: it is empty, not mounted, not shared with this host, or another.
        """
        home = self.current
        if home is None or (found := self._mark()) == home.mark:
            return
        if not self._is_at(home):
            raise self._elsewhere(home)
        if not lost:
            raise self._gone(home, found)

    def check(self, tenant: Tenant | None = None) -> None:
        """Make sure that the target root is the home, as long as slots depend on that.

        :param tenant: who is about to plan: another DAG with another source is refused, too.
        :raises TargetError: as `check_mark`. :raises ConfigurationError: the home is another target root, or another's.
        """
        try:
            self.check_here(tenant)
        except (ConfigurationError, TargetError):
            if next(self._inhabitants(), None) is not None:
                raise  # else nothing would be lost: the next plan settles here

    def check_here(self, tenant: Tenant | None = None) -> None:
        """Make sure that the target root is the home, whether or not slots depend on that yet: by its place, for the mark was
        copied to where the ingestion moved.

        Parameters and errors are those of `check`.
        """
        home = self.current
        if home is None:
            return
        if not self._is_at(home):
            raise self._elsewhere(home)
        if tenant is not None and _stranger(home, tenant):
            raise self._others(home, tenant)
        if (found := self._mark()) != home.mark:
            raise self._gone(home, found)

    def settle(self, tenant: Tenant) -> None:
        """Make the target root the home, where it isn't yet: before the first plan of a dataset, and after `check`.

        :raises TargetError: it went away since. :raises ConfigurationError: somebody else published elsewhere since, or from
            another source.
        """
        while True:
            homes, mark = self._journal.homes(), self._mark()
            home = homes[-1] if homes else None
            known = home is not None and mark == home.mark and self._is_at(home)
            if home is not None and known and tenant.source == home.source:
                return
            if home is not None and _stranger(home, tenant):  # it came in this moment
                raise self._others(home, tenant)
            if home is not None and not known:
                self._check_empty(home, mark)
            mine = Home(self._files.root, mark or self._put_mark(), tenant.source, tenant.dag, now())
            if self._journal.put_home(mine, len(homes) + 1) != mine:
                continue
            if home is not None and not known:
                try:
                    self._check_empty(home, mark)  # a run that looked before may have decided in this moment
                except (ConfigurationError, TargetError):
                    self._journal.put_home(home, len(homes) + 2)
                    raise
            return

    def _check_empty(self, home: Home, mark: str) -> None:
        """Make sure that nothing depends on a home, which is to be left."""
        if next(self._inhabitants(), None) is not None:
            raise self._gone(home, mark) if self._is_at(home) else self._elsewhere(home)

    def would_move(self) -> Home:
        """The home as it is, if the target root holds what is published there: it was moved or copied, with its mark.

        :raises ConfigurationError: there is no home yet, a slot is pending, or files are missing.
        :raises TargetError: the mark is missing: `_gobblin` was not moved.
        """
        home = self.current
        if home is None:
            raise self._not_moved("nothing was planned yet", "There is nothing to move: change the target.")
        if (found := self._mark()) != home.mark:
            raise self._gone(home, found)
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
        """Make the target root the home of what was published.

        :param home: what `would_move` gave. :param tenant: whose it is from now on; what isn't known of it stays.
        :raises LostRaceError: somebody else moved it meanwhile, or a run came to something at the former one.
        :raises ConfigurationError: and TargetError: as `would_move`, for a run may have come to something since.
        """
        homes = self._journal.homes()
        unchanged = self.would_move() == home
        moved = replace(
            home,
            target=self._files.root,
            source=tenant.source or home.source,
            dag=tenant.dag or home.dag,
            at=now(),
            actor=actor,
            reason=reason,
        )
        if not unchanged or self._journal.put_home(moved, len(homes) + 1) != moved:
            raise self._overtaken("its home was changed in this moment")
        # Whoever decides looks at the home after that, and whoever moves looks at the slots: so one sees the other.
        try:
            if not self._is_at(home):
                self.would_move()
        except GobblinError as error:
            self._journal.put_home(home, len(homes) + 2)
            raise self._overtaken(f"a run went on at {home.target} in this moment: {error.cause}") from error
        return moved

    def _overtaken(self, cause: str) -> LostRaceError:
        return LostRaceError(
            operation="move",
            subject=f"ingestion {self._journal.ingestion!r}",
            cause=cause,
            hint="Nothing was changed. Look at it again.",
        )

    def files(self) -> Files:
        """What is under the root that the slots are published to: that of the home, whatever target was given.

        :raises ConfigurationError: it is in another kind of place, of which nothing is known here.
        """
        home = self.current
        if home is None or self._is_at(home) or self._mark() == home.mark:
            return self._files
        if home.target.rpartition("://")[0] != self._files.root.rpartition("://")[0]:
            raise self._elsewhere(home)
        return self._files.other(home.target)

    def _is_at(self, home: Home) -> bool:
        return _same_root(home.target, self._files.root)

    def _mark(self) -> str:
        """The id of the target root's mark; empty where it has none."""
        data = self._files.records(self._folder).get(MARK)
        return "" if data is None else wire.loads(data, TargetMark, self._mark_path).id

    def _put_mark(self) -> str:
        self._files.make_private(self._folder)  # it is staging's, too
        mine = TargetMark(uuid.uuid4().hex, self._journal.ingestion, self._journal.id)
        stored, _ = settle(self._files.records(self._folder), MARK, wire.dumps(mine))
        return wire.loads(stored, TargetMark, self._mark_path).id

    @property
    def _mark_path(self) -> str:
        return f"{self._files.root}/{posixpath.join(self._folder, MARK)}"

    def _inhabitants(self) -> Iterator[str]:
        """The datasets that have something at a target; of one that can't be read that isn't known."""
        for key, history in self._journal.histories():
            if isinstance(history, GobblinError) or history.pending is not None or _is_somewhere(history):
                yield key

    def _check_files(self, history: History) -> None:
        """See that every published file of a dataset is there, by its size."""
        steps = [step for _, step in self._journal.moves(history, history.state.live)]
        found = each(self._files, lambda step: self._files.identity(step.target), steps)
        missing = [s.target for s, there in zip(steps, found, strict=True) if there is None or there.size != s.size]
        if missing:
            raise self._not_moved(
                f"{many(len(missing), 'file')} of dataset {history.urn!r} {'is' if len(missing) == 1 else 'are'} not there "
                f"as published: {', '.join(missing[:_NAMED])}",
                "Copy all that is below the former target, and then try again. Nothing was changed.",
            )

    def _gone(self, home: Home, found: str) -> TargetError:
        why = "has the mark of another one" if found else "lacks the mark that was put there"
        return TargetError(
            operation="use",
            subject=f"target {self._files.root} of ingestion {self._journal.ingestion!r}",
            cause=f"it {why} when the journal's slots were planned: on host {socket.gethostname()!r} it is empty, not "
            f"mounted, not shared, or another target ({self._mark_path})",
            hint="Mount or restore it, and clear the task: nothing was published here. If what was there is lost for good, "
            "drop its datasets, and the next run publishes them anew.",
        )

    def _elsewhere(self, home: Home) -> ConfigurationError:
        by = f", by DAG {home.dag!r}" if home.dag else ""
        return ConfigurationError(
            operation="use",
            subject=f"target {self._files.root} for ingestion {self._journal.ingestion!r}",
            cause=f"its datasets are published to {home.target}{by}",
            hint="Go back to that target. To move: let its runs end, copy all that is below it, `_gobblin` too, and then say "
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
    """Whether two roots are one, by whatever names."""
    if one == other or "://" in one or "://" in other:
        return one == other
    return Path(one).resolve() == Path(other).resolve()


def _stranger(home: Home, tenant: Tenant) -> bool:
    known = all((home.dag, home.source, tenant.dag, tenant.source))
    return known and home.dag != tenant.dag and home.source != tenant.source


def _is_somewhere(history: History) -> bool:
    """Whether a dataset depends on a target. One that was dropped, with its files or without, depends on none."""
    state = history.state
    return bool(state.retired or state.live) or state.coverage.origin is not None
