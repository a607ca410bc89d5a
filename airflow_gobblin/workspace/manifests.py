"""Manifests: a list of files for each done slot, for engines that read lists of files instead of folders.

A manifest is derived from the journal: the run that finishes a slot writes it, and any run can write it again. It lists the files
that the slot added and those it retired, so a dataset's files are those that all its manifests added, without those that they
retired. Each journal has a folder of its own, since a journal that replaces a lost one numbers its slots from 1 again.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_gobblin.errors import RecordError
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal, slot_name
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model import wire
from airflow_gobblin.model.channels import ROWS, channel_of
from airflow_gobblin.model.naming import dataset_key, many
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.watermark import Json
from airflow_gobblin.steps.base import TargetFile
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.storage.stores.base import put_or_read
from airflow_gobblin.workspace.staging import ROOT, ingestion_folder


def manifest_path(journal: Journal, urn: str, slot: int) -> str:
    """Return the path of a slot's manifest, below the target root."""
    return f"{_folder(journal, urn)}/{_name(slot)}"


def check_no_slot_is_lost(files: Files, journal: Journal, history: History) -> None:
    """Make sure that every manifest's slot is in the journal: otherwise its rows would be published again.

    :raises RecordError: the newest slots of a dataset, or all of them, are gone from the journal.
    """
    urn, head = history.urn, history.state.head
    ahead = max(files.records(_folder(journal, urn)).list(""), default="") > _name(head)
    if ahead and journal.state(urn).head == head:  # and no other run has just added the slot
        raise RecordError(
            operation="plan",
            subject=f"dataset {urn!r}",
            cause=f"its journal has {many(head, 'slot')}, and a manifest knows more: records are gone",
            hint="Restore the journal's records from a copy. If they are lost: move "
            f"{files.root}/{_folder(journal, urn)} away, and set the watermark to what is published.",
        )


def put_manifests(files: Files, journal: Journal, history: History) -> None:
    """Write the manifests that a dataset's done slots lack, the oldest first, so that there are no gaps before an existing one.

    :raises RecordError: the steps of a slot can't be read.
    :raises StoreError: the target can't be written to.
    """
    missing: list[Slot] = []
    for slot in reversed(history.slots):
        if slot.done and slot.decision.action.needs_outcome:
            if files.identity(manifest_path(journal, history.urn, slot.decision.slot)) is not None:
                break
            missing.append(slot)
    for slot in reversed(missing):
        name = f"{_dataset(journal, history.urn)}/{_name(slot.decision.slot)}"
        put_or_read(files.records(_MANIFESTS), name, wire.canonical(_manifest(journal, history, slot)))


def _name(slot: int) -> str:
    return f"{slot_name(slot)}.json"


_MANIFESTS = f"{ROOT}/manifests"


def _dataset(journal: Journal, urn: str) -> str:
    return f"{ingestion_folder(journal.ingestion, journal.id)}/{dataset_key(urn)}"


def _folder(journal: Journal, urn: str) -> str:
    return f"{_MANIFESTS}/{_dataset(journal, urn)}"


def _manifest(journal: Journal, history: History, slot: Slot) -> Json:
    decision = slot.decision
    if not slot.keeps_units:  # lists of files don't add up, and may be very long
        return {"dataset": decision.urn, "slot": decision.slot, "files": slot.files}
    gone: Iterable[UnitRef] = decision.replaces
    if decision.action is Action.DROP:  # no file is live now, even where files are left
        gone = history.until(decision.slot - 1).state.live
    added: list[Json] = [
        {"path": f.path, "bytes": f.size, "rows": f.rows, "sha256": f.checksum}
        for step in journal.steps(decision)
        for f in step.files()
        if _is_read(f)
    ]
    retired: list[Json] = [file.path for _, file in journal.files(history, gone) if _is_read(file)]
    return {"dataset": decision.urn, "slot": decision.slot, "added": added, "retired": retired}


def _is_read(file: TargetFile) -> bool:
    """Return whether readers of the dataset get a file."""
    return not file.holds_dead_letters and channel_of(file.unit) == ROWS
