"""`airflow gobblin copy`: a one-off copy of a tree, as a mirror's run makes it, in this process."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import sys
import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

from airflow.utils.platform import getuser

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.cli.acts import ActFile
from airflow_gobblin.cli.ahead import show_prospects, would_do
from airflow_gobblin.cli.lookup import command
from airflow_gobblin.cli.showing import print_rows
from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.checks import AtLeastBytes, AtLeastFiles, Checksums, FileSetCheck
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import Bunzip2, Bzip2, FileConverter, Gunzip, Gzip, Unzstd, Zstd
from airflow_gobblin.copy.options import Delete, Keep
from airflow_gobblin.copy.sides import source_root
from airflow_gobblin.copy.trees import open_tree
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.connections import AirflowConnections
from airflow_gobblin.hooks.ingestion import check_job, open_job
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.naming import many, size
from airflow_gobblin.model.progress import Progress
from airflow_gobblin.run.here import run_here
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.reports import DatasetReport, incomplete
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.workspace.staging import ROOT

_SECONDS = 2.0
"""How often a line reports the progress."""
_CONVERTERS: dict[str, Callable[[], FileConverter]] = {"gunzip": Gunzip, "bunzip2": Bunzip2, "unzstd": Unzstd}
_COMPRESSORS: dict[str, Callable[..., FileConverter]] = {"gzip": Gzip, "bzip2": Bzip2, "zstd": Zstd}
"""Converters that may have a level."""
_CHECKS: dict[str, Callable[[Any], FileSetCheck]] = {
    "at_least_files": AtLeastFiles,
    "at_least_bytes": AtLeastBytes,
    "sha256sums": Checksums,
}
"""The checks, by the argument that asks for each."""


@command
def copy(args: Namespace) -> None:
    """Copy a tree once."""
    mirror = _mirror(args)
    check_job(mirror)
    if args.dry_run:
        with ActFile() as acts:
            show_prospects([(mirror, would_do(mirror, RunRequest("copy/plan"), acts))], args.output, acts)
        return
    _check_source(mirror)
    started = time.monotonic()
    opened = open_job(mirror)
    with closing(opened.journal.store):
        reports = run_here(opened, RunRequest(f"copy/{uuid.uuid4().hex}"), threads=args.jobs, report=_Progress())
        print_rows([_row(report) for report in reports], args.output)
        _report_summary(reports, time.monotonic() - started)
        error = incomplete(mirror, reports)
        if error is not None:
            sys.stderr.write(f"Its journal is {mirror.journal}. Type the same again to go on.\n")
            raise error
        if not args.journal:
            _forget(opened)


def _check_source(mirror: Mirror) -> None:
    """Check that the source is there before anything is made in the target."""
    work, connections = mirror.work, GuardedConnections(AirflowConnections())
    with connections.redacting("copy", mirror.source):
        tree = open_tree(work.source, connections, work.links, work.keep)
        for one in work.datasets(connections):
            source_root(tree, one)


def _mirror(args: Namespace) -> Mirror:
    source, target = _place(args.source_tree), _place(args.target_tree)
    workspace = target if args.workspace is None else _place(args.workspace)
    trees = os.fsencode(f"{source}\0{target}")
    name = f"copy-{hashlib.sha256(trees).hexdigest()[:12]}"
    return Mirror(
        name=name,
        source=source,
        target=target,
        journal=args.journal or f"{workspace.rstrip('/')}/{ROOT}/{_journal(name)}",
        include=tuple(args.include),
        exclude=tuple(args.exclude),
        filter_file=_place(args.filter_file) if args.filter_file else "",
        compare=args.compare,
        existing=args.existing,
        delete=None if args.delete is None else Delete(args.delete),
        keep=Keep(args.keep),
        links=args.links,
        empty_folders=args.empty_folders,
        checksums=args.checksums,
        convert=tuple(map(_converter, args.convert)),
        unpack=Unpack() if args.unpack else None,
        checks=tuple(check(given) for name, check in _CHECKS.items() if (given := getattr(args, name)) is not None),
        bandwidth=args.bandwidth,
        backup=None if args.backup is None else _place(args.backup),
        workspace=workspace,
    )


def _converter(given: str) -> FileConverter:
    """Return the converter of a name, which a level may follow: `zstd:19`.

    :raises ConfigurationError: there is none, or no such level.
    """
    name, colon, level = given.partition(":")
    if not colon and (plain := {**_CONVERTERS, **_COMPRESSORS}.get(name)):
        return plain()
    if name in _COMPRESSORS and re.fullmatch("[0-9]{1,3}", level):
        with suppress(ConfigurationError):
            return _COMPRESSORS[name](int(level))
    raise ConfigurationError(
        operation="convert",
        subject=f"files by {given!r}",
        cause="there is no such level" if name in _COMPRESSORS else "there is no such converter",
        hint=f"There are {', '.join(_CONVERTERS)}; and {', '.join(_COMPRESSORS)}, which may have a level: zstd:19.",
    )


def _place(given: str) -> str:
    """Return a location; a path may be relative to the current folder."""
    return given if "://" in given else os.path.abspath(given)


class _Progress:
    """A report of the progress on standard error, every few seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _SECONDS

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            sys.stderr.write(f"{progress}\n")
            self._next = time.monotonic() + _SECONDS


def _row(report: DatasetReport) -> dict[str, Any]:
    return {
        "dataset": report.urn,
        "status": report.status,
        "files": report.files,
        "replaced": report.replaced,
        "deleted": report.deleted,
        "bytes": report.bytes,
        "detail": report.text,
    }


def _report_summary(reports: Sequence[DatasetReport], seconds: float) -> None:
    files, copied = sum(one.files for one in reports), sum(one.bytes for one in reports)
    replaced, deleted = sum(one.replaced for one in reports), sum(one.deleted for one in reports)
    rate = size(round(copied / seconds))
    sys.stderr.write(
        f"{many(files, 'file')} of {size(copied)} copied, {replaced:,} in place of others, {deleted:,} deleted, in "
        f"{seconds:.1f} s ({rate}/s)\n"
    )


def _forget(opened: OpenJob) -> None:
    """Free the target's folders, and remove the journal and everything else of ours: nothing will go on with this copy."""
    admin = Administration(opened.journal, opened.files, getuser(), AirflowConnections())
    for change in admin.would_drop_all():
        admin.carry_out(change, "the copy is complete")
    admin.after_drop_all()
    own = posixpath.basename(opened.staging.folder)
    for folder in (opened.staging.folder, f"{ROOT}/manifests/{own}", f"{ROOT}/{_journal(opened.job.name)}"):
        opened.files.remove_tree(folder)


def _journal(name: str) -> str:
    return f"{name}-journal"
