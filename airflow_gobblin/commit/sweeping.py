"""Sweeping staging: removing everything that can no longer win, whichever run left it, and never by age (I11).

A token is needed while its plan can still be decided, or its slot is decided and unfinished. If unsure, it is kept.
"""

from __future__ import annotations

import logging
import re
from pathlib import PurePosixPath

from airflow_gobblin.commit.preconditions import can_win
from airflow_gobblin.commit.taking_out import DatasetTables, table_commits
from airflow_gobblin.connections import Connections, GuardedConnections, NoConnections
from airflow_gobblin.errors import GobblinError, StepLostError
from airflow_gobblin.job import UploadingWork, Work
from airflow_gobblin.journal.history import Slot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.plan import Plan
from airflow_gobblin.model.table import TableTarget
from airflow_gobblin.storage.files import open_files
from airflow_gobblin.tables.layout import DATA_FOLDER
from airflow_gobblin.workspace.claims import Claims
from airflow_gobblin.workspace.staging import Staging

log = logging.getLogger(__name__)

_TOKEN = re.compile(r"([0-9a-f]{32})-")
"""The beginning of a published name."""


class Sweeper:
    """A sweeper that removes from an ingestion's staging everything that none of its runs needs any more.

    :param claims: the owners of folders below the target root: an upload to another owner's folder is left alone.
    :param work: the ingestion's, if it is known: for a mirror, only this shows which uploads may be its own.
    :param connections: access to the places of tables' data files.
    """

    def __init__(
        self,
        journal: Journal,
        staging: Staging,
        claims: Claims,
        work: Work | None = None,
        connections: Connections | None = None,
    ) -> None:
        self._journal = journal
        self._staging = staging
        self._claims = claims
        self._work = work
        self._connections = connections

    def sweep(self, keep: str = "") -> tuple[str, ...]:
        """Delete the staging and the uploads of every token that isn't needed, and the runs that are over.

        :param keep: a run whose plan is kept, though its tokens are gone.
        :return: the tokens that were swept.
        """
        staging = self._staging
        swept: list[str] = []
        runs = staging.runs()  # before the tokens: a run is written after its plans
        uploads = self._open_uploads()  # before the tokens, too: an upload begins after its plan is written
        for token in self._unneeded():
            try:
                plan = staging.plan(token)
                self._abort_uploads_of(plan, uploads)
                self._remove_data_files(token, plan)
                staging.remove_token(token)
            except (GobblinError, OSError):
                log.warning("staging of token %s can't be removed, and is kept", token, exc_info=True)
                continue
            swept.append(token)
        tokens = set(staging.tokens())
        for run in runs:
            try:
                if run != keep and self._over(run, tokens):
                    staging.remove_run(run)
                else:
                    staging.remove_empty_run(run)
            except (GobblinError, OSError):
                log.warning("run %s in staging can't be judged or removed, and is kept", run, exc_info=True)
        for target, upload in uploads:
            try:
                if self._abandoned(target, tokens):
                    staging.abort_upload(target, upload)
            except (GobblinError, OSError):
                log.warning("the upload to %s can't be judged or aborted, and is kept", target, exc_info=True)
        return tuple(swept)

    def _unneeded(self) -> list[str]:
        """Return the tokens that are needed neither by their own plan nor by one that takes finished files from them."""
        needed, others = set[str](), list[str]()
        for token, plan in self._staging.plans():
            try:
                if self._needed(plan):
                    needed.update((token, *(plan.takes_from if isinstance(plan, Plan) else ())))
                else:
                    others.append(token)
            except (GobblinError, OSError):  # an unreadable record might need it
                log.warning("staging of token %s can't be judged, and is kept", token, exc_info=True)
        return [token for token in others if token not in needed]

    def _open_uploads(self) -> tuple[tuple[str, str], ...]:
        try:
            return self._staging.open_uploads()
        except OSError:  # on S3 it needs the permission s3:ListBucketMultipartUploads
            log.warning(
                "open uploads can't be listed, and those that nobody needs are left to the store", exc_info=True
            )
            return ()

    def _abort_uploads_of(self, plan: Plan | GobblinError | None, uploads: tuple[tuple[str, str], ...]) -> None:
        """Abort the uploads that a driver of a mirror's plan left without a result because it was killed.

        Such an upload has the name of its file. So those to the plan's own files are taken for its own, unless another plan
        of its dataset is needed, which they may belong to.

        :param uploads: the open ones, listed before the plans.
        """
        if not isinstance(plan, Plan) or plan.holds.keeps_units or not isinstance(self._work, UploadingWork):
            return
        below = "" if plan.folder == "." else f"{plan.folder}/"
        found: dict[str, list[str]] = {}
        for target, upload in uploads:
            if target.startswith(below):
                found.setdefault(target, []).append(upload)
        if not found or self._is_needed(plan.urn):
            return
        for unit in self._staging.units(plan):
            for target in self._work.uploads_to(plan, unit):
                for upload in found.get(target, ()):
                    self._staging.abort_upload(target, upload)

    def _remove_data_files(self, token: str, plan: Plan | None) -> None:
        """Remove the data files that a token staged at a table's location and that no commit named. If its slot is done, these
        are all but those on its lists; otherwise all.

        :param plan: the token's; `None` if it was swept, and a late attempt kept writing: its table is that of some dataset.
        :raises GobblinError: it isn't known which of them were committed; none is removed.
        """
        if plan is None:
            places, slot = self._places_of_late(token)
        elif plan.table is None:
            return
        else:
            slot = self._journal.history(plan.urn).by_token(token)
            places = {self._location(plan.urn, plan.table, slot)}
        for location in places - {""}:
            files, folder = open_files(location, self._connections), f"{DATA_FOLDER}/{token}"
            if slot is None or not slot.done:
                files.remove_tree(folder)
                continue
            try:
                named = self._committed(slot)
            except StepLostError:  # a sweep removed the lists, after these files, and was interrupted
                continue
            for path in [path for path in files.walk(folder) if path not in named]:
                files.unlink(path)

    def _location(self, urn: str, planned: TableTarget, slot: Slot | None) -> str:
        """Return where the data files of a plan are. If there was no table when it was planned, its evaluation may have made it.

        :raises TableError: the table can't be looked at.
        """
        if planned.id:
            return planned.location
        if slot is not None and slot.decision.table is not None:
            return slot.decision.table.location
        connections = GuardedConnections(self._connections or NoConnections())
        tables = DatasetTables(self._journal, self._staging.files, connections)
        return tables.look("sweep the data files of", urn, planned.table).location

    def _committed(self, slot: Slot) -> set[str]:
        """Return the data files that a slot committed."""
        commits = table_commits(self._journal, slot.decision)
        return {file.path for step in commits for file in step.data_files(self._staging.files)}

    def _places_of_late(self, token: str) -> tuple[set[str], Slot | None]:
        """Return where a token without a plan may have data files, and its slot, if it has one."""
        places = set[str]()
        for _, history in self._journal.histories():
            if isinstance(history, GobblinError):
                raise history
            slot = history.by_token(token)
            if slot is not None:
                return set() if slot.decision.table is None else {slot.decision.table.location}, slot
            if history.table is not None:
                places.add(history.table.location)
        return places, None

    def _is_needed(self, urn: str) -> bool:
        """Return whether any plan of a dataset is needed; one that can't be read may be."""
        for _, plan in self._staging.plans():
            if isinstance(plan, GobblinError) or (plan is not None and plan.urn == urn and self._needed(plan)):
                return True
        return False

    def _over(self, run: str, tokens: set[str]) -> bool:
        """Return whether a run was reported to its end, or planned anew, and none of its tokens is left."""
        if self._staging.finished_run(run) is None:
            return self._staging.was_removed(run)
        found = self._staging.run(run)
        return found is None or not tokens & {d.token for p in found.packs for d in p.datasets}

    def _needed(self, plan: Plan | GobblinError | None) -> bool:
        if plan is None:
            return False
        if isinstance(plan, GobblinError):
            raise plan
        history = self._journal.history(plan.urn)
        slot = history.by_token(plan.token)
        return can_win(plan, history) if slot is None else not slot.finished

    def _abandoned(self, target: str, tokens: set[str]) -> bool:
        """Return whether an upload is our own, of a token that isn't needed: a late attempt may have begun it after the sweep.

        It may be anywhere in its dataset's folder: in that of its unit, its partition, its channel, or of dead letters.
        """
        if isinstance(self._work, UploadingWork):
            return False  # the names of its uploads are those of its files
        path = PurePosixPath(target)
        claims = ((folder, self._claims.last(str(folder))) for folder in path.parents)  # also of a dropped dataset
        folder, claim = next(((folder, claim) for folder, claim in claims if claim is not None), (path, None))
        named = (_TOKEN.match(part) for part in path.relative_to(folder).parts)
        token = next((found[1] for found in named if found is not None), None)
        if claim is None or token is None or token in tokens:
            return False
        if claim.owner[:2] != (self._journal.id, self._journal.ingestion):
            return False
        history = self._journal.history(claim.urn)
        if history.holds is not None and not history.holds.keeps_units:
            return False  # a mirror's, whose work isn't known here
        slot = history.by_token(token)
        return slot is None or slot.finished
