"""Random histories of a mirror to a real object store: runs, crashes and errors at any call of journal and target, changes in
the source, outsiders at the target at any call of carrying out, people who abandon, late tasks.

Files are small, so that many are staged in one object and put by their steps, or large enough for uploads. At every moment each
object is whole, and one that an outsider wrote while a slot was carried out is still there at its end; a late task of a slot that
is abandoned changes nothing; at rest the target is the source, and nothing else is left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from os import utime
from pathlib import Path

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.commit.committer import Committer
from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.copy.options import Delete, Existing
from airflow_gobblin.copy.transfer.streams import SMALL
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.recover import verify_recover
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.testing import inprocess
from tests.faults import Call, Crash, Fault, Faults, FaultyFiles, FaultyStore
from tests.services.s3 import S3Access

SETS = ("a", "b")
NAMES = ("v", "w", "x", "d/y")
_FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ANSWER_LOST, Fault.ERROR)
_EVENTS = {"run": 6, "change": 4, "outsider": 1, "abandon": 2, "late": 3}


class Broken(AssertionError):
    """A promise is broken."""


@dataclass
class ObjectHistory:
    """One history.

    :param place: the bucket, and a prefix of its own in it.
    :param folder: holds the source.
    :param log: what happened.
    """

    access: S3Access
    place: str
    folder: Path
    seed: int
    log: list[str] = field(default_factory=list)
    crashes: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.store, self.source = MemoryStore(), self.folder / "source"
        self.files = open_files(self.access.url(self.place), self.access)
        self.contents: set[bytes] = set()
        """All that was ever written: each has a length of its own, by which it is compared."""
        self.earlier: list[tuple[OpenJob, RunPlan]] = []
        self.abandoning = random.Random(f"abandoning {self.seed}")
        for name in SETS:
            self._write(name, "first")  # it stays: of a file set without any nothing would be deleted

    def play(self, events: int = 8) -> None:
        """Play the history, and check it at every moment and at rest."""
        for _ in range(events):
            (event,) = self.random.choices([*_EVENTS], [*_EVENTS.values()])
            getattr(self, f"_{event}")()
            self._check_whole()
        self._rest()

    # events

    def _run(self) -> None:
        """A run, whose process may die or get an error at some call, while an outsider writes to its target."""
        at = self.random.choice([None, self.random.randrange(150), self.random.randrange(40)])
        fault = self.random.choice(_FAULTS)
        self.log.append(f"run, {fault.value if at is not None else 'no fault'} at {at}")
        faults = Faults(at, fault)
        with suppress(Crash, GobblinError, OSError):
            opened, request = self._opened(faults), RunRequest(f"run {len(self.log)}")
            verify_recover(opened, request)
            plan = create_work_units(opened, request)
            self.earlier.append((opened, plan))
            inprocess.extract(opened, plan, self.access)
            if self.random.random() < 0.8:
                for pack in plan.packs:
                    write_commit_steps(opened, plan, pack)
                if self.random.random() < 0.7:
                    self._carry_out(opened, plan, faults)
                    finish(opened, plan)
        self.crashes += faults.dead
        self.calls += len(faults.calls)

    def _carry_out(self, opened: OpenJob, plan: RunPlan, faults: Faults) -> None:
        """Carry out what is decided, while an outsider writes, once, and somebody abandons it before an upload is completed.

        Afterwards the outsider's object is there, and nothing has been placed since.
        """
        at, written = self.random.randrange(16), dict[str, bytes]()
        uploads, abandoned = self.abandoning.choice([None, 0, 1, 2]), dict[str, dict[str, bytes]]()

        def others(call: Call) -> None:
            nonlocal at, uploads
            at -= call.place != "store"
            if at < 0 and not written and call.subject.startswith(SETS):
                written[call.subject] = self._put(call.subject)
            if uploads is not None and call.operation in ("complete upload", "replace object"):
                uploads -= 1
                if uploads < 0:
                    uploads, name = None, call.subject.partition("/")[0]
                    abandoned.update(self._abandon_meanwhile(name))

        faults._hook = others
        try:
            for pack in plan.packs:
                execute_commit_steps(opened, plan, pack)
        finally:
            faults._hook = None
            for path, content in written.items():
                self._expect(self.files.read(path) == content, f"an outsider's {path} is gone")
            for name, before in abandoned.items():
                placed = {path for path, data in self._objects(name).items() if before.get(path) != data} - {*written}
                self._expect(
                    not placed, f"{placed} came after {name} was abandoned"
                )  # one may have been deleted: stated

    def _abandon_meanwhile(self, name: str) -> dict[str, dict[str, bytes]]:
        """A person abandons what is being carried out; their process may die before it cleans up.

        :return: what the folder of the file set has then, if it is abandoned.
        """
        slot = self._journal().history(f"{name}#files").pending
        dies = self.abandoning.random() < 0.5
        self.log.append(f"meanwhile {name} is abandoned{', and not cleaned up' if dies else ''}")
        with suppress(GobblinError):
            if dies and slot is not None:
                ended = Committer(self._journal(), self.files).abandon(slot, "ann's", "ann", "it is random")
            else:
                (ended, *_) = Administration(self._journal(), self.files, "ann").abandon(
                    f"{name}#files", "it is random"
                )
            if ended.abandoned:
                return {name: self._objects(name)}
        return {}

    def _change(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            name, path = self.random.choice(SETS), self.random.choice(NAMES)
            if (self.source / name / path).exists() and self.random.random() < 0.5:
                (self.source / name / path).unlink()
                self.log.append(f"source without {name}/{path}")
            else:
                self._write(name, path)
                self.log.append(f"source has {name}/{path}")

    def _outsider(self) -> None:
        self._put(f"{self.random.choice(SETS)}/{self.random.choice(NAMES)}")

    def _abandon(self) -> None:
        """A person abandons what is pending, and late tasks of it change nothing any more."""
        for name in SETS:
            urn = f"{name}#files"
            if self._journal().history(urn).pending is None:
                continue
            self.log.append(f"abandon {urn}")
            with suppress(GobblinError):
                (slot, *_) = Administration(self._journal(), self.files, "ann").abandon(urn, "it is random")
                before = self._objects(name)
                for opened, plan in self.earlier if slot.abandoned else ():
                    self._late_task(execute_commit_steps, opened, plan)
                self._expect(self._objects(name) == before, f"{urn} was changed after it was abandoned")

    def _late(self) -> None:
        """A task of an earlier run, whose process has not died, or which is cleared."""
        if self.earlier:
            task = self.random.choice([write_commit_steps, execute_commit_steps])
            self.log.append(f"late {task.__name__}")
            self._late_task(task, *self.random.choice(self.earlier[-3:]))

    def _late_task(self, task: Callable[..., object], opened: OpenJob, plan: RunPlan) -> None:
        for pack in plan.packs:
            with suppress(GobblinError):
                task(self._opened(Faults()), plan, pack)

    # promises

    def _check_whole(self) -> None:
        for path, content in self._objects().items():
            self._expect(content in self.contents, f"{path} is {len(content)} bytes of nobody's")

    def _rest(self) -> None:
        """Runs without faults: then source and target are equal, and nothing is left over."""
        for number in range(8):
            opened, request = self._opened(Faults()), RunRequest(f"rest {number}")
            verify_recover(opened, request)
            reports = inprocess.go_on(opened, create_work_units(opened, request), self.access)
            self.log.append(f"rest: {', '.join(f'{u} {r.status.value} {r.detail}' for u, r in reports.items())}")
            self._check_whole()
            if {report.status.value for report in reports.values()} == {"idle"}:
                break
            for urn in reports:
                if self._journal().history(urn).pending is not None:  # an outsider is in its way
                    with suppress(GobblinError):
                        Administration(self._journal(), self.files, "ann").abandon(urn, "something is in its way")
        mine = {
            f"{name}/{path.relative_to(self.source / name)}": path.read_bytes()
            for name in SETS
            for path in (self.source / name).rglob("*")
            if path.is_file()
        }
        found = self._objects()
        self._expect(mine == found, f"at rest the source is {sorted(mine)}, and the target {sorted(found)}")
        uploads = self.files.uploads
        assert uploads is not None
        self._expect(not [*uploads.open_below(".")], "an upload is left open")

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Broken("\n".join([f"seed {self.seed}: {otherwise}", *self.log]))

    # the parts

    def _opened(self, faults: Faults) -> OpenJob:
        mirror = Mirror(
            "photos",
            str(self.source),
            self.access.url(self.place),
            "unused",
            EachFolder(),
            existing=Existing.UPDATE,
            delete=Delete(1),
            attempts=100,
        )
        files = FaultyFiles(self.files, faults)
        return OpenJob(mirror, Journal.create(FaultyStore(self.store, faults), "photos"), self.access, files)

    def _journal(self) -> Journal:
        return Journal.create(self.store, "photos")

    def _new_content(self) -> bytes:
        length = 1 + len(self.contents) + self.random.choice([0, 0, SMALL])
        content = b"%d " % self.seed + b"x" * length
        self.contents.add(content)
        return content

    def _write(self, name: str, path: str) -> None:
        """Write a file of the source that is some time old: the store keeps times in seconds."""
        file = self.source / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(self._new_content())
        utime(file, (time.time() - 600,) * 2)

    def _put(self, path: str) -> bytes:
        """Put an outsider's object, over whatever is there."""
        content = self._new_content()
        self.access.filesystem().pipe_file(f"{self.place}/{path}", content)
        self.log.append(f"an outsider's {path}")
        return content

    def _objects(self, *names: str) -> dict[str, bytes]:
        return {path: self.files.read(path) for name in names or SETS for path in self.files.walk(name)}
