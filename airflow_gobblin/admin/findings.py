"""The findings of `verify` and `audit`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_gobblin.model.verification import FileState

__all__ = ["AuditFinding", "AuditLevel", "FileCheck", "Findings"]


@dataclass(frozen=True)
class FileCheck:
    """A published file, or a unit in a table, compared with its record in the journal.

    :param path: below the target root; of a unit, its table and its name.
    """

    path: str
    slot: int
    unit: str
    rows: int
    bytes: int
    state: FileState
    detail: str = ""


class AuditLevel(StrEnum):
    """The severity of a finding."""

    NOTE = "note"
    """Worth knowing, and permitted."""
    PROBLEM = "problem"
    """It doesn't add up, or somebody has to act."""


@dataclass(frozen=True)
class AuditFinding:
    """A finding of an audit.

    :param urn: the dataset; empty for a finding that concerns all of them.
    :param check: the check that found it: `target`, `state`, `coverage`, `rows`, `files`, `table` or `journal`.
    """

    urn: str
    check: str
    level: AuditLevel
    detail: str
    slot: int | None = None


@dataclass(frozen=True)
class Findings:
    """A factory of a dataset's findings."""

    urn: str

    def note(self, check: str, detail: str, slot: int | None = None) -> AuditFinding:
        """Return a finding that is worth knowing."""
        return AuditFinding(self.urn, check, AuditLevel.NOTE, detail, slot)

    def problem(self, check: str, detail: str, slot: int | None = None) -> AuditFinding:
        """Return a finding for which somebody has to act."""
        return AuditFinding(self.urn, check, AuditLevel.PROBLEM, detail, slot)
