"""Manifests: a list of files for each done slot, for engines that read lists of files instead of folders.

A manifest is derived from the journal: whoever finishes a slot writes it, and anyone can write it again. It holds what the slot
added and what it retired, so the files of a dataset are the added ones of all its manifests without the retired ones. Those of
a journal are in a folder of its own, for a journal that was lost has numbered its slots from 1 on, too.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property

from airflow_gobblin import wire
from airflow_gobblin.errors import RecordError
from airflow_gobblin.files.base import Files
from airflow_gobblin.journal import Action, History, Journal, Slot, slot_name
from airflow_gobblin.naming import dataset_key, many
from airflow_gobblin.staging import ROOT, ingestion_folder
from airflow_gobblin.state import UnitRef
from airflow_gobblin.steps import files_of
from airflow_gobblin.stores.base import settle
from airflow_gobblin.watermark import Json


def manifest_path(journal: Journal, urn: str, slot: int) -> str:
    """Where a slot's manifest is, below the target root."""
    return f"{_folder(journal, urn)}/{_name(slot)}"


def check_no_slot_is_lost(files: Files, journal: Journal, history: History) -> None:
    """Make sure that no manifest is of a slot that the journal doesn't have: its rows would be published again.

    :raises RecordError: the newest slots of a dataset, or all of them, are gone from the journal.
    """
    urn, head = history.urn, history.state.head
    ahead = max(files.records(_folder(journal, urn)).list(""), default="") > _name(head)
    if ahead and journal.state(urn).head == head:  # and no other run has just added it
        raise RecordError(
            operation="plan",
            subject=f"dataset {urn!r}",
            cause=f"its journal has {many(head, 'slot')}, and a manifest tells of more: records are gone",
            hint="Restore the journal's records from a copy. If they are lost: move "
            f"{files.root}/{_folder(journal, urn)} away, and set the watermark to what is published.",
        )


class Ages:
    """How long ago slots were done, by the clock of the place that keeps their manifests; those of workers may differ by days.

    :param files: under the target root.
    """

    def __init__(self, files: Files, journal: Journal) -> None:
        self._files = files
        self._journal = journal

    def __call__(self, urn: str, slot: int) -> timedelta | None:
        """The age of a slot of a dataset; `None` if its manifest is yet to be written."""
        done = self._files.modified(manifest_path(self._journal, urn, slot))
        if done is None:
            return None
        read, at = self._now
        return read - done + timedelta(seconds=time.monotonic() - at)

    @cached_property
    def _now(self) -> tuple[datetime, float]:
        """The time in the place, from a file that is written there, and when it was asked for by this process's own clock."""
        path = f"{_MANIFESTS}/.clock-{uuid.uuid4().hex}"
        at = time.monotonic()
        self._files.create(path).close()
        try:
            found = self._files.modified(path)
        finally:
            self._files.unlink(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "a file is gone that was just written", path)
        return found, at


def put_manifests(files: Files, journal: Journal, history: History) -> None:
    """Write the manifests that a dataset's done slots lack, the oldest first, so that none is missing before one that stands.

    :raises RecordError: the steps of a slot can't be read. :raises StoreError: the target can't be written to.
    """
    missing: list[Slot] = []
    for slot in reversed(history.slots):
        if slot.done and slot.decision.action.needs_outcome:
            if files.identity(manifest_path(journal, history.urn, slot.decision.slot)) is not None:
                break
            missing.append(slot)
    for slot in reversed(missing):
        name = f"{_dataset(journal, history.urn)}/{_name(slot.decision.slot)}"
        settle(files.records(_MANIFESTS), name, wire.canonical(_manifest(journal, history, slot)))


def _name(slot: int) -> str:
    return f"{slot_name(slot)}.json"


_MANIFESTS = f"{ROOT}/manifests"


def _dataset(journal: Journal, urn: str) -> str:
    return f"{ingestion_folder(journal.ingestion, journal.id)}/{dataset_key(urn)}"


def _folder(journal: Journal, urn: str) -> str:
    return f"{_MANIFESTS}/{_dataset(journal, urn)}"


def _manifest(journal: Journal, history: History, slot: Slot) -> Json:
    decision = slot.decision
    gone: Iterable[UnitRef] = decision.replaces
    if decision.action is Action.DROP:  # no file is live any more, also where they are left
        gone = history.until(decision.slot - 1).state.live
    added: list[Json] = [
        {"path": f.target, "bytes": f.size, "rows": f.rows, "sha256": f.checksum}
        for step in journal.steps(decision)
        for f in files_of(step)
    ]
    retired: list[Json] = [step.target for _, step in journal.moves(history, gone)]
    return {"dataset": decision.urn, "slot": decision.slot, "added": added, "retired": retired}
