"""A chat message when something is wrong: what happened, which datasets are stuck, and what to type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_gobblin.errors import GobblinError
from airflow_gobblin.hooks.registry import Registered, open_journal
from airflow_gobblin.hooks.webhook import GobblinWebhookHook
from airflow_gobblin.model.naming import shown

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_gobblin.admin.views import DatasetView

__all__ = ["IngestionNotifier"]

_NAMED = 20


class IngestionNotifier(BaseNotifier):
    """Post the state of an ingestion to a webhook; for callbacks of tasks and DAGs, and for deadlines::

        GobblinIngestion(shop, default_args={"on_failure_callback": IngestionNotifier(ingestion="shop", journal="shop_journal")})

        DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=timedelta(hours=1),
            callback=SyncCallback(IngestionNotifier, kwargs={"ingestion": "shop", "journal": "shop_journal"}),
        )

    :param ingestion: the ingestion's name.
    :param journal: as the ingestion has it.
    :param webhook_conn_id: a connection of type `gobblin_webhook`.
    :param text: the beginning of the message. (templated)
    :param code: modules with the author's own watermarks and steps.
    """

    template_fields: Sequence[str] = ("text",)

    def __init__(
        self,
        *,
        ingestion: str,
        journal: str,
        webhook_conn_id: str = GobblinWebhookHook.default_conn_name,
        text: str = "",
        code: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.ingestion = ingestion
        self.journal = journal
        self.webhook_conn_id = webhook_conn_id
        self.text = text
        self.code = tuple(code)

    def notify(self, context: Context) -> None:
        """Post the message.

        :raises GobblinError: it can't be posted.
        """
        lines = [*filter(None, (self.text, happened(context))), *self._stuck()]
        GobblinWebhookHook(self.webhook_conn_id).post("\n".join(lines))

    def _stuck(self) -> Iterator[str]:
        """Yield a line for each stuck dataset in the journal, the first of many; or one if the journal can't be read."""
        from airflow_gobblin.admin.views import list_pending
        from airflow_gobblin.model.registry import import_kinds

        try:
            import_kinds(self.code)
            journal = open_journal(Registered("", "", self.ingestion, self.journal, "", self.code))
            try:
                found = list_pending(journal, datetime.now(UTC))
            finally:
                journal.store.close()
        except GobblinError as error:
            yield f"The state of its datasets is unknown: {error}"
            return
        for one in found[:_NAMED]:
            yield _line(self.ingestion, one)
        if len(found) > _NAMED:
            yield f"… and {len(found) - _NAMED} more: airflow gobblin pending --ingestion {self.ingestion}"


def happened(context: Context) -> str:
    """Describe in a sentence why a callback is called."""
    known: Mapping[str, Any] = context
    if "deadline" in known:
        run = known.get("dag_run") or {}
        return f"A deadline of {run.get('dag_id', 'a DAG')}, run {run.get('dag_run_id') or run.get('run_id', '?')}, is missed."
    task, run = known.get("ti"), known.get("dag_run")
    if task is not None and known.get("exception") is not None:
        return f"{task.dag_id}, run {task.run_id}: {task.task_id} failed: {known['exception']}"
    if run is not None:
        return f"{run.dag_id}, run {run.run_id}: {known.get('reason') or 'it has ended'}."
    return ""


def _line(ingestion: str, one: DatasetView) -> str:
    slot = "" if one.pending is None else f", slot {one.pending.slot} is not finished"
    last = f": {one.pending.failures[-1]}" if one.pending is not None and one.pending.failures else ""
    why = one.error or one.failure
    command = f"airflow gobblin show {shown(one.urn)} --ingestion {ingestion}"
    return f"dataset {shown(one.urn)!r} is {one.status}{slot}{last or (f': {why}' if why else '')} ({command})"
