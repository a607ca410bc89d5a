"""Fast uploads of parts to S3, by any number of threads.

s3fs sends everything of a process through one thread, which also computes two checksums of each part, and obstore makes only
uploads that it completes itself. botocore, which s3fs is built on, makes the same request in a thread of the caller's, with half
the CPU time. A part goes with its CRC32, as all do, but isn't covered by the request's signature.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["PartSender", "open_part_sender"]


class PartSender:
    """A client that sends parts. Errors may be any `Exception`.

    :param client: botocore's.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._process = os.getpid()

    @property
    def usable(self) -> bool:
        """Whether this process may use it: connections of another one can't be used after a fork."""
        return self._process == os.getpid()

    def send(self, bucket: str, key: str, upload: str, number: int, data: bytes) -> str:
        """Send a part, counted from 1.

        :return: its ETag.
        """
        answer = self._client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=data)
        return str(answer["ETag"]).strip('"')


def open_part_sender(filesystem: Any) -> PartSender:
    """Open a sender with the settings and credentials of an `s3fs.S3FileSystem`, without any request."""
    from botocore.config import Config
    from botocore.handlers import add_expect_header
    from botocore.session import Session

    given, meta = filesystem.storage_options, filesystem.connect().meta
    session = Session(profile=given["session"].profile)
    session.register_component("data_loader", given["session"].get_component("data_loader"))
    session.unregister(
        "before-call.s3", add_expect_header
    )  # if a server hangs, the client waits for its answer forever
    client = session.create_client(
        "s3",
        region_name=meta.region_name,
        endpoint_url=meta.endpoint_url,
        aws_access_key_id=given.get("key"),
        aws_secret_access_key=given.get("secret"),
        aws_session_token=given.get("token"),
        config=Config(**given["config_kwargs"]).merge(
            Config(s3={"payload_signing_enabled": False}, retries={"total_max_attempts": 1})
        ),
    )
    return PartSender(client)
