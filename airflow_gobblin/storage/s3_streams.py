"""Large parts of S3 objects, block by block as they arrive, with the signatures and connections of botocore, which s3fs brings.

It takes two thirds of the CPU time that obstore takes, whose own threads hand over each block; for small parts, obstore is
better. This is an optional shortcut as well: anything that it can't do, or is refused, is done again through s3fs.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_gobblin.storage.quick_s3 import botocore_credentials
from airflow_gobblin.storage.servers import SECONDS_TO_CONNECT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["S3Streams"]

_BLOCK = 256 << 10
"""The size of a block: it stays in a processor's cache from the socket to the file."""
_CONNECTIONS = 16


class S3Streams:
    """Parts of a bucket's objects, requested by any number of threads of this process. Errors may be any `Exception`.

    :param filesystem: an `s3fs.S3FileSystem`.
    :param seconds: how long to wait for more of an answer.
    """

    def __init__(self, filesystem: Any, bucket: str, seconds: float) -> None:
        from botocore.httpsession import URLLib3Session
        from botocore.utils import get_environ_proxies

        about = filesystem.connect().meta
        self._bucket = f"{about.endpoint_url.rstrip('/')}/{bucket}"
        self._region = about.region_name
        self._credentials = botocore_credentials(filesystem)
        if self._credentials is None:
            raise OSError("no credentials were found")
        session = filesystem.storage_options.get("session")
        self._session = URLLib3Session(
            (session and session.get_config_variable("ca_bundle")) or True,
            proxies=get_environ_proxies(about.endpoint_url),
            timeout=(SECONDS_TO_CONNECT, seconds),
            max_pool_connections=_CONNECTIONS,
        )
        self._process = os.getpid()

    def part(self, key: str, start: int, end: int) -> tuple[Iterator[bytes], str]:
        """Return a part of an object that isn't empty, block by block, and the object's ETag.

        A part that breaks off isn't an error.
        """
        if os.getpid() != self._process:
            raise OSError("its connections are another process's")
        answer = self._session.send(self._request(key, f"bytes={start}-{end - 1}"))
        asked = f"bytes {start}-{end - 1}/"
        if answer.status_code != HTTPStatus.PARTIAL_CONTENT or not answer.headers["Content-Range"].startswith(asked):
            answer.raw.close()
            raise OSError(f"asked for {asked} of {key!r}, the store answered {answer.status_code}")
        return answer.raw.stream(_BLOCK), answer.headers["ETag"].strip('"')

    def _request(self, key: str, part: str) -> Any:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        url = f"{self._bucket}/{quote(key, safe='/~')}"
        request = AWSRequest("GET", url, {"Range": part}, stream_output=True)
        S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        return request.prepare()
