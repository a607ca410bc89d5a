"""The snapshot that the units of a pack are read in, if their plans need one."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from airflow_gobblin.connections import Connections, GuardedConnections
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.rows.sources.base import SnapshotSource, Source

if TYPE_CHECKING:
    from airflow_gobblin.model.plan import Plan

__all__ = ["PackSnapshot", "check_shares_snapshots"]


class PackSnapshot:
    """One snapshot of a source, held from the first plan that needs it to the end of the block.

    The process that runs a pack's units holds it, whichever processes read them. If it dies, the snapshot is lost: the next
    try has another one, and reads all units of these plans anew.
    """

    def __init__(self, source: Source, connections: Connections) -> None:
        self._source = source
        self._connections = GuardedConnections(connections)
        self._held = ExitStack()
        self._name = ""
        self._error: GobblinError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(Exception):  # every unit has ended, and nothing more is needed from it
            self._held.close()

    def of(self, plan: Plan) -> str:
        """Return the name of the snapshot for a plan's units; empty if it needs none.

        :raises GobblinError: the source can't supply one. It is not asked again.
        """
        if not plan.one_snapshot:
            return ""
        if self._error is not None:
            raise self._error
        if not self._name:
            try:
                with self._connections.redacting("extract", f"dataset {plan.urn!r}"):
                    source = check_shares_snapshots(self._source, plan.urn)
                    self._name = self._held.enter_context(source.snapshot(self._connections))
            except GobblinError as error:
                self._error = error
                raise
        return self._name


def check_shares_snapshots(source: Source, urn: str) -> SnapshotSource:
    """Return the source, if it has snapshots.

    :raises ConfigurationError: it doesn't.
    """
    if isinstance(source, SnapshotSource):
        return source
    raise ConfigurationError(
        operation="plan",
        subject=f"dataset {urn!r}",
        cause=f"its plan wants one snapshot, and its source, a {type(source).__name__}, has no method `snapshot`",
        hint="Give the source one; or plan one unit.",
    )
