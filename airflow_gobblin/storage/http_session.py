"""Sessions with HTTP servers, which need `requests`."""

from __future__ import annotations

from collections.abc import Mapping

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

_TRIES = 5
_TRY_AGAIN = (429, 500, 502, 503, 504)
_CONCURRENT = 16


class HttpSession(requests.Session):
    """A session that retries what a server refuses for the moment, and gives no other host the credentials that it has for one.

    :param headers: those that hold credentials.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._secret = tuple(headers)
        retries = Retry(_TRIES - 1, redirect=5, status_forcelist=_TRY_AGAIN, backoff_factor=0.2, raise_on_status=False)
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(pool_maxsize=_CONCURRENT, max_retries=retries))
        self.headers["Accept-Encoding"] = "identity"  # else sizes would be those of compressed content
        self.headers.update(headers)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Take credentials out of a request that is redirected to another host."""
        super().rebuild_auth(prepared_request, response)
        before = response.request.url or ""
        if self.should_strip_auth(before, prepared_request.url or ""):
            for name in self._secret:
                prepared_request.headers.pop(name, None)
