"""Connections that keep their secrets out of what is written down: errors, logs, notes and results (I16)."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus

from airflow_gobblin.errors import GobblinError, SourceError

if TYPE_CHECKING:
    from airflow_gobblin.sources.base import Connections

MAX_ERROR_CHARACTERS = 4000


class GuardedConnections:
    """Connections that remember which secrets they gave, so that none gets into an error's text."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._secrets: set[str] = set()

    def uri(self, conn_id: str) -> str:
        """The URI of a connection; its secrets are known from now on."""
        uri = self._connections.uri(conn_id)
        self._secrets |= _secrets_of(uri)
        return uri

    def scrub(self, text: str) -> str:
        """The text without secrets, of a length and in characters that any record can hold."""
        text = self._without_secrets(text)
        return text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 1] + "…"

    @contextmanager
    def scrubbing(self, operation: str, subject: str) -> Iterator[None]:
        """Let errors out without secrets.

        :raises GobblinError: what was raised; anything else of a user's source becomes a `SourceError` about `subject`.
        """
        try:
            yield
        except GobblinError as error:
            if self._without_secrets(str(error)) == str(error):
                raise
            raise self._scrubbed(error) from None
        except Exception as error:  # a user's source may raise anything
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise SourceError(
                operation=operation,
                subject=subject,
                cause=self.scrub(f"{type(error).__name__}: {error}"),
                hint=f"Raised by {at.name} in {at.filename}, line {at.lineno}",
            ) from None

    def _scrubbed(self, error: GobblinError) -> GobblinError:
        cause = f"{type(error.cause).__name__}: {error.cause}" if isinstance(error.cause, Exception) else error.cause
        return type(error)(
            operation=error.operation,
            subject=self.scrub(error.subject),
            cause=None if cause is None else self.scrub(str(cause)),
            hint=None if error.hint is None else self.scrub(error.hint),
        )

    def _without_secrets(self, text: str) -> str:
        text = text.encode(errors="replace").decode()
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return re.sub(r"(?<=://)[^/\s@]*@", "***@", text)


def _secrets_of(uri: str) -> set[str]:
    """The URI itself, and what in it may be secret: its password and the values of its query, as written and as decoded."""
    _, _, rest = uri.partition("://")
    authority, query = re.split("[/?]", rest, maxsplit=1)[0], rest.partition("?")[2]
    found = {uri} | {text.rpartition("@")[0].partition(":")[2] for text in (authority, rest)}
    for pair in query.split("&"):
        value = pair.partition("=")[2]
        found |= {value, *re.findall(r'"([^"]*)"', unquote_plus(value))}  # extras may be a JSON object
    # A secret of a letter or two can't be told from the words around it.
    return {secret for text in found for secret in (text, unquote(text), unquote_plus(text)) if len(secret) > 2}
