"""Clean-up: removing what abandoned slots left, and what done slots retired, and noting it in the journal once complete."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial

from airflow_gobblin.commit.homes import Homes
from airflow_gobblin.errors import RecordError, StepError
from airflow_gobblin.journal.history import History, Slot
from airflow_gobblin.journal.journal import Journal, slot_name
from airflow_gobblin.journal.records import Action, Decision, Note, NoteKind, now
from airflow_gobblin.model import wire
from airflow_gobblin.model.naming import dataset_key
from airflow_gobblin.steps.base import CommitStep, Phase, StepContext, TargetFile
from airflow_gobblin.steps.execution import sync
from airflow_gobblin.storage.files.base import each
from airflow_gobblin.storage.files.clock import PlaceClock
from airflow_gobblin.storage.stores.base import put_or_read
from airflow_gobblin.workspace.manifests import manifest_path
from airflow_gobblin.workspace.staging import ROOT, ingestion_folder

_CLOCK = f"{ROOT}/clock"
_ABANDONED = f"{ROOT}/abandoned"
"""The prefix of a record for each abandoned slot whose requests may still take effect: see `Cleanup._settled`."""


class Cleanup:
    """The clean-up of what slots that have ended leave at a target.

    :param context: the file system under the target root, and the connections of steps.
    :param homes: checks that it is the journal's target.
    :param retention: how long replaced files stay after the slot that retired them is done; `None` leaves them to others.
    """

    def __init__(self, journal: Journal, context: StepContext, homes: Homes, retention: timedelta | None) -> None:
        self._journal = journal
        self._context = context
        self._files = files = context.files
        self._homes = homes
        self._retention = retention
        self._clock = PlaceClock(files, _CLOCK)

    def clean(self, history: History, run_key: str) -> tuple[str, ...]:
        """Remove what abandoned slots left, and the files that done slots retired, after their retention.

        The files of an abandoned slot are removed at once. While one of its requests, such as the completion of an upload, may
        still take effect, later runs remove them again. Once that is over, they note the slot as clean.

        :return: a sentence for every file that was left because it was changed.
        :raises TargetError: the target isn't the one that they were published to.
        :raises ConfigurationError: as `TargetError`.
        """
        left: list[str] = []
        for slot in history.slots:
            if slot.noted(NoteKind.CLEANED) or not self._due(slot, history):
                continue
            self._homes.check_here()  # a missing file is gone only if the target exists, before and after
            found = tuple(self._clean_slot(slot, history))
            self._homes.check_here()
            left += found
            if not self._settled(slot):
                continue
            self._journal.put_note(
                history.urn, slot.decision.slot, Note(NoteKind.CLEANED, run_key, now(), "; ".join(found)[:10_000])
            )
        return tuple(left)

    def _due(self, slot: Slot, history: History) -> bool:
        if slot.outcome is None or not slot.leaves_files:
            return False
        if slot.abandoned or slot.decision.action is Action.FLOOR:  # no reader of the dataset has had these files
            return True
        if slot.decision.action is not Action.DROP and not any(s.done for s in history.after(slot.decision.slot)):
            return False
        return self._retention is not None and self._retained(slot, self._retention)

    def _retained(self, slot: Slot, retention: timedelta) -> bool:
        """Return whether a slot's retired files have been kept long enough since its manifest was written."""
        if not retention:
            return True
        age = self._clock.age(manifest_path(self._journal, slot.decision.urn, slot.decision.slot))
        return age is not None and age >= retention

    def _settled(self, slot: Slot) -> bool:
        """Return whether an abandoned slot was first cleaned up so long ago that none of its requests can still take effect.

        A record at the target keeps the time of that clean-up, by the target's clock.
        """
        if not slot.abandoned or not self._files.settles_after:
            return True
        journal, decision = self._journal, slot.decision
        folder = f"{_ABANDONED}/{ingestion_folder(journal.ingestion, journal.id)}/{dataset_key(decision.urn)}"
        name, records = slot_name(decision.slot), self._files.records(folder)
        put_or_read(records, name, wire.canonical({"dataset": decision.urn, "slot": decision.slot}))
        age = self._clock.age(f"{folder}/{name}")
        if age is None or age < self._files.settles_after:
            return False
        records.delete(name)
        return True

    def _clean_slot(self, slot: Slot, history: History) -> Iterator[str]:
        """Remove staging, so that no late mover has a source, then names, by identity. Make both durable before noting it."""
        decision = slot.decision
        folders: set[str] = set()
        tokens = {decision.token}
        if slot.abandoned:
            folders.update(self._remove_staging(decision))
            try:
                for phase in reversed(Phase):
                    steps = self._journal.steps(decision, decision.of(phase))
                    for touched in each(self._files, partial(self._undo, decision), steps):
                        folders.update(touched)
            except RecordError as error:  # abandoning is the way out of lost steps, so it must complete
                yield f"files that slot {decision.slot} may have published are left, for {error}"
        else:
            for number in {ref.slot for ref in decision.replaces}:
                old = history.slot(number).decision
                tokens.add(old.token)
                folders.update(self._remove_staging(old))
            retired = (file for _, file in self._journal.files(history, decision.replaces))
            for left, touched in each(self._files, self._remove, retired):
                folders.update(touched)
                if left:
                    yield f"{left} was changed after it was published and is left"
        folders |= {*self._remove_emptied(sorted(folders), tokens)}
        sync(self._files, (f for f in sorted(folders) if self._files.identity(f) is not None))

    def _remove_emptied(self, folders: Iterable[str], tokens: Iterable[str]) -> Iterator[str]:
        """Remove the empty folders among these that belong to a unit, by their names.

        :return: the folders that contained them.
        """
        for folder in folders:
            above, _, name = folder.rpartition("/")
            if name.startswith(tuple(f"{token}-" for token in tokens)):
                self._files.remove_folder(folder)
                yield above

    def _undo(self, decision: Decision, step: CommitStep) -> tuple[str, ...]:
        """Take back a step.

        :return: the folders that may have changed.
        """
        subject = f"{step.subject} in slot {decision.slot} of dataset {decision.urn!r}"
        with self._context.connections.redactor.guarding("take back", subject, StepError):
            try:
                step.undo(self._context)
            except Exception as error:
                raise StepError(
                    operation="take back",
                    subject=subject,
                    cause=error,
                    hint="The slot is abandoned, and readers of the journal don't see it. The next run cleans up.",
                ) from error
        return step.folders()

    def _remove(self, file: TargetFile) -> tuple[str, tuple[str, ...]]:
        """Remove a retired file.

        :return: its path if it isn't the published file, and the folders that were changed.
        """
        found = self._files.identity(file.path)
        if found is None:
            return "", ()
        if not file.is_same(found, self._files):
            return file.path, ()
        self._files.unlink(file.path)
        return "", (posixpath.dirname(file.path),)

    def _remove_staging(self, decision: Decision) -> tuple[str, ...]:
        """Remove a decision's staging folder.

        :return: the folder that contained it.
        """
        if decision.staging is None:
            return ()
        self._files.remove_tree(decision.staging)
        return (posixpath.dirname(decision.staging),)
