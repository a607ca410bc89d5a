"""The connection type `gobblin_webhook`: the URL of a chat's incoming webhook, which is a secret, and a button that tests it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook
from airflow.sdk.log import redact  # type: ignore[attr-defined]

from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.hooks.connections import SECRETS

__all__ = ["GobblinWebhookHook"]

_SECONDS = 30


class GobblinWebhookHook(BaseHook):
    """A hook that posts texts to a webhook as `{"text": …}`, which Slack, Mattermost, Rocket.Chat and Google Chat accept.

    :param gobblin_webhook_conn_id: the id of a connection of type `gobblin_webhook`, whose password is the URL.
    """

    conn_name_attr = "gobblin_webhook_conn_id"
    default_conn_name = "gobblin_webhook_default"
    conn_type = "gobblin_webhook"
    hook_name = "Gobblin webhook"

    def __init__(self, gobblin_webhook_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gobblin_webhook_conn_id = gobblin_webhook_conn_id

    def post(self, text: str) -> None:
        """Post a text, without the secrets that this process knows or that Airflow masks in its logs.

        :raises ConfigurationError: the connection has no URL.
        :raises GobblinError: it can't be reached, or refuses the text.
        """
        import httpx

        subject = f"webhook {self.gobblin_webhook_conn_id!r}"
        url = self.get_connection(self.gobblin_webhook_conn_id).password or ""
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigurationError(
                operation="use",
                subject=f"connection {self.gobblin_webhook_conn_id!r}",
                cause="its password is not the URL of a webhook",
                hint="Give the webhook's URL, 'https://…', as its password: anybody who knows it may post.",
            )
        SECRETS.learn(url)
        shown = SECRETS.redact(str(redact(text)))
        try:
            answer = httpx.post(url, json={"text": shown}, timeout=_SECONDS)
        except httpx.HTTPError as error:  # its text may contain the URL
            raise GobblinError(operation="post to", subject=subject, cause=type(error).__name__) from None
        if not answer.is_success:
            raise GobblinError(operation="post to", subject=subject, cause=f"it answered {answer.status_code}")

    def test_connection(self) -> tuple[bool, str]:
        """Post a test message."""
        try:
            self.post("Airflow can report on its ingestions in this channel.")
        except GobblinError as error:
            return False, str(error)
        return True, "A message was posted."
