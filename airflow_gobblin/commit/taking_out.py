"""The steps of a table for decisions that only take rows out of it: a rewind, a drop (`admin/actions.py`), a stage's restore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.errors import ConfigurationError, TableError
from airflow_gobblin.journal.history import History
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Decision
from airflow_gobblin.model.table import Owner, TableRecord, TableTarget
from airflow_gobblin.steps.base import CommitStep, Phase
from airflow_gobblin.storage.files.base import Files
from airflow_gobblin.tables.commit import TableCommitStep
from airflow_gobblin.tables.port import Look, table_of

__all__ = ["DatasetTables", "is_merged", "table_commits"]


def is_merged(journal: Journal, decision: Decision) -> bool:
    """Return whether the rows of a slot were merged into their table: they can't be distinguished there."""
    return any(step.merge is not None for step in table_commits(journal, decision))


def table_commits(journal: Journal, decision: Decision) -> Iterator[TableCommitStep]:
    """Yield the steps of a decision that commit to a table."""
    steps = journal.steps(decision, decision.of(Phase.SETTLE))
    return (step for step in steps if isinstance(step, TableCommitStep))


@dataclass(frozen=True)
class DatasetTables:
    """The tables of a journal's datasets, for decisions that no run planned.

    :param files: those of the workspace.
    """

    journal: Journal
    files: Files
    connections: GuardedConnections

    def owner(self, urn: str) -> Owner:
        """Return a dataset as a table knows it."""
        return Owner(self.journal.id, self.journal.ingestion, urn)

    def look(self, operation: str, urn: str, table: TableRecord) -> Look:
        """Look at a table, as a dataset does.

        :raises TableError: it can't be looked at.
        """
        with self.connections.redactor.guarding(operation, f"dataset {urn!r}, which is in {table.name}", TableError):
            return table_of(table).open(self.connections, self.files).look(self.owner(urn))

    def without_retired(self, decision: Decision, history: History) -> Decision:
        """Return a decision with the step that takes the units it retires out of their table, if any is in one.

        :raises ConfigurationError: they can't be taken out.
        :raises TableError: the table can't be looked at.
        """
        units = history.table_units(decision.replaces)
        if history.table is None or not units:
            return decision
        table, action = history.table.table, decision.action.value
        look = self.look(action, decision.urn, table)
        if look.id != history.table.id:
            raise self._refused(
                decision,
                f"{table.name} is not the table that it was published to: it was dropped",
                "Restore it; or drop the dataset without its files.",
            )
        if look.owner not in (None, self.owner(decision.urn)):
            raise self._refused(
                decision,
                f"{table.name} was taken over: it belongs to {look.owner}",
                "Take it over again, if its rows are still wanted here; or drop the dataset without its files.",
            )
        for number in self._slots(decision, history):
            if is_merged(self.journal, history.slot(number).decision):
                raise self._refused(
                    decision,
                    f"slot {number} was merged into {table.name}, and the rows that it replaced are gone",
                    "Read the range again under another URN, into another table.",
                )
        target = TableTarget(table, *look.target_at)
        return self.with_step(decision, TableCommitStep(target, removes=units), target)

    def with_step(self, decision: Decision, step: CommitStep, target: TableTarget) -> Decision:
        """Return a decision with a step on a table, which is put into the journal."""
        shards = self.journal.put_steps(decision.urn, decision.token, (step,))
        return replace(decision, shards=shards, table=target)

    def _slots(self, decision: Decision, history: History) -> Iterable[int]:
        return sorted({ref.slot for ref in decision.replaces if history.is_in_table(ref)})

    def _refused(self, decision: Decision, why: str, hint: str) -> ConfigurationError:
        return ConfigurationError(
            operation=decision.action.value,
            subject=f"dataset {decision.urn!r} of ingestion {self.journal.ingestion!r}",
            cause=why,
            hint=hint,
        )
