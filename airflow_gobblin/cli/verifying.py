"""`airflow gobblin verify`: published files against their journal, and the target of a mirror against its source."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from airflow_gobblin.admin.views import FileState, check_ingestion_is_there, known_history
from airflow_gobblin.admin.views import verify as verified
from airflow_gobblin.cli.dag_file import described
from airflow_gobblin.cli.lookup import command, error_text, find_ingestion
from airflow_gobblin.cli.showing import print_faults, print_rows
from airflow_gobblin.commit.homes import Homes
from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError, NeverPublishedError, NotFoundError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.registry import Registered, open_journal, open_target
from airflow_gobblin.job import DatasetLike, VerifiedWork
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import never_published
from airflow_gobblin.model.holds import Holds
from airflow_gobblin.model.naming import many, meant, shown
from airflow_gobblin.storage.files.base import Files

Row = dict[str, Any]
_NAMED = 10


@command
def verify(args: Namespace) -> None:
    """Compare the published files of datasets with their journal, or a mirror's file sets with their source."""
    where = find_ingestion(args, target=True)
    journal = open_journal(where)
    if args.urn is None:
        _verify_all(args, where, journal)
    elif _published(known_history(journal, args.urn)).holds is Holds.DIFFERENCE:
        rows = [*_Compared.of(args, where, journal).rows(args.urn)]
        print_faults(rows, args.output)
        if rows:
            raise SystemExit(f"The target differs from the source: {_counted(rows)}")
        sys.stderr.write("The target is as the source\n")
    else:
        rows = [*_files(args, where, journal, args.urn)]
        print_rows(rows, args.output)
        bad = sum(row["state"] is not FileState.OK for row in rows)
        if bad:
            raise SystemExit(f"{bad} of {many(len(rows), 'file')} {'is' if bad == 1 else 'are'} not as published")


def _published(history: History) -> History:
    """Return the history of a dataset that was published.

    :raises NeverPublishedError: it wasn't.
    """
    if not history.published:
        raise never_published(history)
    return history


def _verify_all(args: Namespace, where: Registered, journal: Journal) -> None:
    """Compare all datasets of an ingestion, or all file sets of a mirror's source.

    :raises NeverPublishedError: none was published.
    """
    known: dict[str, Holds | GobblinError | None] = {}
    unpublished: list[str] = []
    for key, found in journal.histories():
        if isinstance(found, GobblinError):
            known[key] = found
        elif found.published:
            known[found.urn] = found.holds
        else:
            unpublished.append(found.urn)
    if not known and not unpublished:
        check_ingestion_is_there(journal)
    holds = next((one for one in known.values() if isinstance(one, Holds)), None)
    if holds is None:
        raise NeverPublishedError(
            operation="verify",
            subject=f"ingestion {journal.ingestion!r}",
            cause="no run has published a dataset of it",
            hint="`airflow gobblin pending` shows why.",
        )
    if unpublished:
        sys.stderr.write(f"Never published, so not compared: {_named(sorted(unpublished))}\n")
    if holds is Holds.DIFFERENCE:
        compared = _Compared.of(args, where, journal)
        _report_gone(sorted(known.keys() - compared.file_sets.keys()))
        _sum_up(args.output, "file set", sorted(compared.file_sets), compared.rows)
        return

    def bad_files(urn: str) -> Iterator[Row]:
        found = known[urn]
        if isinstance(found, GobblinError):
            raise found
        return (row for row in _files(args, where, journal, urn) if row["state"] is not FileState.OK)

    _sum_up(args.output, "dataset", sorted(known), bad_files)


def _files(args: Namespace, where: Registered, journal: Journal, urn: str) -> Iterator[Row]:
    for one in verified(journal, open_target(where), urn, content=not args.quick, connections=AirflowConnections()):
        yield {
            "file": one.path,
            "state": one.state,
            "slot": one.slot,
            "rows": one.rows,
            "bytes": one.bytes,
            "detail": one.detail,
        }


@dataclass(frozen=True)
class _Compared:
    """A mirror whose target is compared with its source, which only the DAG's file describes.

    :param file_sets: those that its source has now, by URN.
    """

    work: VerifiedWork
    file_sets: Mapping[str, DatasetLike]
    files: Files
    connections: GuardedConnections
    content: bool

    @classmethod
    def of(cls, args: Namespace, where: Registered, journal: Journal) -> _Compared:
        """Import the DAG's file, and list the source.

        :raises ConfigurationError: no DAG is named.
        :raises SourceError: the source can't be listed.
        """
        if not where.dag_id:
            raise ConfigurationError(
                operation="verify",
                subject=f"mirror {where.ingestion!r}",
                cause="a mirror's target is compared with its source, and only its DAG names that",
                hint="Name the DAG: --dag-id, instead of --journal, --name and --target.",
            )
        files = open_target(where)
        Homes(journal, files).check_mark()  # otherwise each file would seem to be missing
        connections = GuardedConnections(AirflowConnections())
        with redirect_stdout(sys.stderr):  # keep a DAG file's prints, and Airflow's logs of it, out of the output
            (one,) = described(where.dag_id, where.ingestion)
            work = one.job.work
            assert isinstance(work, VerifiedWork)
            with connections.redacting("verify", f"mirror {where.ingestion!r}"):
                found = {one.urn: one for one in work.datasets(connections)}
        return cls(work, found, files, connections, not args.quick)

    def rows(self, urn: str) -> Iterator[Row]:
        """Yield what differs in a file set.

        :raises NotFoundError: the source doesn't have it.
        """
        with redirect_stdout(sys.stderr), self.connections.redacting("verify", f"file set {urn!r}"):
            for one in self.work.verify(self._file_set(urn), self.files, self.connections, content=self.content):
                yield {"file": one.path, "state": one.state, "bytes": one.bytes, "detail": one.detail}

    def _file_set(self, urn: str) -> DatasetLike:
        if urn in self.file_sets:
            return self.file_sets[urn]
        raise NotFoundError(
            operation="verify",
            subject=f"file set {urn!r}",
            cause="the source has no such file set any more",
            hint=meant([*self.file_sets], urn, otherwise="Its mirrored files stay in the target."),
        )


def _report_gone(urns: Sequence[str]) -> None:
    """Report which file sets of the journal the source doesn't have. They aren't differences, since no run touches them."""
    if urns:
        sys.stderr.write(
            f"The source has {many(len(urns), 'file set')} no more, and the target keeps them: {_named(urns)}\n"
        )


def _named(urns: Sequence[str]) -> str:
    """Return the first of some datasets, and how many more there are."""
    more = f" and {len(urns) - _NAMED:,} more" if len(urns) > _NAMED else ""
    return ", ".join(repr(shown(urn)) for urn in urns[:_NAMED]) + more


def _sum_up(output: str, what: str, urns: Sequence[str], differing: Callable[[str], Iterable[Row]]) -> None:
    """Compare datasets one after another, whatever becomes of the others, and sum up.

    :param what: what one is called.
    :param differing: yields the rows of what isn't as it should be.
    :raises SystemExit: something isn't, or a dataset can't be compared.
    """
    rows: list[Row] = []
    bad, failed = 0, 0
    for urn in urns:
        try:
            found = [{"dataset": urn, **row} for row in differing(urn)]
        except GobblinError as error:
            failed += 1
            sys.stderr.write(f"{shown(urn)}: {error_text(error)}\n")
            continue
        rows += found
        bad += bool(found)
    print_faults(rows, output)
    if not bad and not failed:
        sys.stderr.write(f"{many(len(urns), what)} compared: everything is as it should be\n")
        return
    parts = (
        [f"{bad:,} of {many(len(urns), what)} {'differs' if bad == 1 else 'differ'}: {_counted(rows)}"] if bad else []
    )
    parts += [f"{many(failed, what)} can't be compared"] if failed else []
    raise SystemExit("; ".join(parts))


def _counted(rows: Sequence[Row]) -> str:
    """Return how many files are in each state."""
    counts = Counter(row["state"] for row in rows)
    return ", ".join(f"{counts[state]:,} {state}" for state in FileState if counts[state])
