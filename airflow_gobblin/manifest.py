"""Manifests: a list of files for each done slot, for engines that read lists of files instead of folders.

A manifest is derived from the journal: whoever finishes a slot writes it, and anyone can write it again. It holds what the slot
added and what it retired, so the files of a dataset are the added ones of all its manifests without the retired ones.
"""

from __future__ import annotations

import json

from airflow_gobblin import wire
from airflow_gobblin.files import Files
from airflow_gobblin.journal import Journal, Slot, slot_name
from airflow_gobblin.naming import dataset_key
from airflow_gobblin.staging import ROOT
from airflow_gobblin.steps import MoveStep
from airflow_gobblin.stores.base import settle
from airflow_gobblin.stores.local import LocalStore


def manifest_path(journal: Journal, urn: str, slot: int) -> str:
    """Where a slot's manifest is, below the target root."""
    return f"{ROOT}/manifests/{journal.ingestion}/{dataset_key(urn)}/{slot_name(slot)}.json"


def put_manifest(files: Files, journal: Journal, slot: Slot) -> None:
    """Write the manifest of a done slot; harmless if it stands."""
    decision = slot.decision
    gone = {(ref.slot, ref.unit) for ref in decision.replaces}
    history = journal.history(decision.urn) if gone else None
    retired = [
        step.target
        for number in sorted({n for n, _ in gone})
        if history is not None
        for step in journal.steps(history.slots[number - 1].decision)
        if isinstance(step, MoveStep) and (number, step.unit) in gone
    ]
    added = [
        {"path": s.target, "bytes": s.identity.size, "rows": s.rows, "sha256": s.checksum}
        for s in journal.steps(decision)
        if isinstance(s, MoveStep)
    ]
    document = {"dataset": decision.urn, "slot": decision.slot, "added": added, "retired": retired}
    settle(
        LocalStore(files),
        manifest_path(journal, decision.urn, decision.slot),
        wire.canonical(json.loads(json.dumps(document))),
    )
