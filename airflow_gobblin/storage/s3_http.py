"""HTTP sessions for aiobotocore that load the certificates of authorities once per process.

Loading them takes longer than everything else that opens a client, and each client's first request does it, even one to an
address without TLS.
"""

from __future__ import annotations

import os
from functools import lru_cache
from ssl import SSLContext
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession

__all__ = ["S3HttpSession"]


class S3HttpSession(AIOHTTPSession):  # type: ignore[misc]
    """A session that shares its TLS settings with those that trust the same authorities."""

    def _build_ssl_contexts(self, proxy_url: str | None) -> tuple[SSLContext, SSLContext | None]:
        if proxy_url is not None or self._cert_file is not None:  # they add to the settings
            return self._built(proxy_url)
        changed = os.stat(self._verify).st_mtime_ns if isinstance(self._verify, str) else 0
        return _shared(self._verify, changed)

    def _built(self, proxy_url: str | None = None) -> tuple[SSLContext, SSLContext | None]:
        return super()._build_ssl_contexts(proxy_url)  # type: ignore[no-any-return]


@lru_cache(4)
def _shared(verify: Any, _changed: int) -> tuple[SSLContext, None]:
    """Build the TLS settings. The parameters are aiobotocore's, and when the file that it names was changed."""
    return S3HttpSession(verify)._built()[0], None
