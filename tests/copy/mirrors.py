"""A mirror of a few files in a folder, of which each part can be looked at and made to fail."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.connections import Connections, NoConnections
from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.reports import DatasetReport
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.stores.base import Store
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from airflow_gobblin.workspace.staging import ROOT

Disturbance = Callable[["Trees"], object]
"""An event between two tasks of a run."""


@dataclass
class Trees:
    """A source and a target below a folder, a mirror of one into the other, its journal in memory or in a store."""

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    store: Store = field(default_factory=MemoryStore)
    connections: Connections = field(default_factory=NoConnections)

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    @property
    def mirror(self) -> Mirror:
        options = {"datasets": EachFolder(), "existing": "update", **self.options}
        return Mirror("photos", str(self.source), str(self.target), "unused", **options)

    def using(self, **options: Any) -> Trees:
        """The same with other options."""
        return replace(self, options={**self.options, **options})

    @property
    def journal(self) -> Journal:
        """The journal as a fresh process sees it."""
        return Journal.create(self.store, "photos")

    def opened(self) -> OpenJob:
        return OpenJob(self.mirror, self.journal, self.connections)

    @property
    def admin(self) -> Administration:
        return Administration(self.journal, self.options.get("workspace") or str(self.target), "ann")

    def write(self, path: str, text: str = "", *, at: Path | None = None) -> Path:
        """Write a file, of the source if no other place is given."""
        file = (at or self.source) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text or path)
        return file

    def run(
        self, request: RunRequest | None = None, between: Mapping[str, Disturbance] | None = None
    ) -> dict[str, DatasetReport]:
        """A run.

        :param between: what happens before a task: `extract`, `write`, `execute` or `finish`.
        """
        request = request or RunRequest(uuid.uuid4().hex)
        opened = self.opened()
        verify_recover(opened, request)
        plan = create_work_units(opened, request)
        self._between("extract", between)
        inprocess.extract(opened, plan, NoConnections())
        self._between("write", between)
        for pack in plan.packs:
            write_commit_steps(opened, plan, pack)
        self._between("execute", between)
        for pack in plan.packs:
            execute_commit_steps(opened, plan, pack)
        self._between("finish", between)
        return {report.urn: report for report in finish(opened, plan)}

    def _between(self, task: str, between: Mapping[str, Disturbance] | None) -> None:
        if between and task in between:
            between[task](self)

    def decided(self) -> tuple[OpenJob, RunPlan]:
        """A run up to its decisions."""
        opened = self.opened()
        plan = create_work_units(opened, RunRequest(uuid.uuid4().hex))
        inprocess.extract(opened, plan, NoConnections())
        for pack in plan.packs:
            write_commit_steps(opened, plan, pack)
        return opened, plan

    def equal(self, folder: str = ".") -> bool:
        """Whether source and target have the same files below a folder."""
        return content(self.source / folder) == content(self.target / folder)

    def records(self) -> dict[str, bytes]:
        """The journal, whole."""
        return {key: self.store.get(key) or b"" for key in self.store.list("")}

    def staged(self) -> list[str]:
        """The staged files and trashes that are left."""
        tokens = self.target / self.opened().staging.folder / "s"
        return sorted(str(path.relative_to(tokens)) for path in tokens.rglob("*") if path.is_file())


def content(folder: Path) -> dict[str, bytes | str]:
    """The content of a folder, without our own: the bytes of files, the texts of links, and "/" for folders."""
    found: dict[str, bytes | str] = {}
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ROOT]
        for name in (*folders, *names):
            path = Path(above, name)
            what = os.readlink(path) if path.is_symlink() else "/" if path.is_dir() else path.read_bytes()
            found[os.fsdecode(path.relative_to(folder))] = what
    return found


def statuses(reports: Mapping[str, DatasetReport]) -> dict[str, str]:
    return {urn: report.status.value for urn, report in reports.items()}


def copied(store: Any, bucket: str) -> dict[str, bytes]:
    """The objects in the folder `to` of a bucket, without what is staged there."""
    found = store.find(f"{bucket}/to")
    return {path.removeprefix(f"{bucket}/to/"): store.cat_file(path) for path in found if "/_gobblin/" not in path}
