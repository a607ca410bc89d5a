"""Servers that emulate Google's and Microsoft's object stores, for tests: each on a port of its own, gone afterwards."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import httpx
from gcsfs import GCSFileSystem

from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.storage.locations import ObjectLocation
from tests.services.processes import free_port, start_process, stop_process
from tests.services.s3_proxy import Fault, Proxy, running_proxy

__all__ = [
    "Emulator",
    "conditional_proxy",
    "keep_conditions",
    "running_azurite",
    "running_gcs",
    "with_conditions",
]

# Azurite's well-known account, which is no secret.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Emulator:
    """A running server, which is the `Connections` of its one connection.

    :param scheme: of its places.
    :param connection: a URI, as Airflow's.
    :param endpoint: its address.
    """

    scheme: str
    connection: str
    endpoint: str

    def uri(self, _conn_id: str) -> str:
        """The connection."""
        return self.connection

    def through(self, endpoint: str) -> Emulator:
        """The same behind a proxy."""
        there = self.connection.replace(quote(self.endpoint, safe=""), quote(endpoint, safe=""))
        return replace(self, connection=there, endpoint=endpoint)

    def url(self, path: str) -> str:
        """A place as a DAG author writes it."""
        return f"{self.scheme}://lake@{path}"

    def create_bucket(self) -> str:
        """A new, empty bucket.

        :return: its name.
        """
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        open_filesystem(ObjectLocation(self.scheme, "lake", bucket), self).mkdir(bucket)
        return bucket


@contextmanager
def running_gcs(folder: Path) -> Iterator[Emulator]:
    """Run fake-gcs-server, which keeps its data in memory."""
    port = free_port()
    host = f"127.0.0.1:{port}"
    command = [os.environ["FAKE_GCS_SERVER"], "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]
    command += ["-port", str(port), "-public-host", host, "-log-level", "error"]
    with _running(command, port, folder / "log"):
        extra = {"endpoint_url": f"http://{host}", "project": "tests", "is_anonymous": "true"}
        yield Emulator("gs", f"google-cloud-platform://?{_query(extra)}", f"http://{host}")


@contextmanager
def running_azurite(folder: Path) -> Iterator[Emulator]:
    """Run Azurite's blob service."""
    port = free_port()
    command = [
        os.environ["NODE"],
        os.environ["AZURITE"],
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--silent",
    ]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--location", str(folder)]
    with _running(command, port, folder / "log"):
        words = {"DefaultEndpointsProtocol": "http", "AccountName": _ACCOUNT, "AccountKey": _KEY}
        words["BlobEndpoint"] = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        given = ";".join(f"{name}={value}" for name, value in words.items())
        yield Emulator("abfs", f"wasb://?{_query({'connection_string': given})}", f"http://127.0.0.1:{port}")


@contextmanager
def with_conditions(emulator: Emulator) -> Iterator[Emulator]:
    """Open a way to an emulator on which conditions hold: those that fake-gcs-server ignores are kept by a proxy."""
    with conditional_proxy(emulator) as proxy:
        yield emulator.through(proxy.endpoint)


@contextmanager
def conditional_proxy(emulator: Emulator) -> Iterator[Proxy]:
    """Run the proxy of `with_conditions`."""
    with running_proxy(emulator.endpoint) as proxy, _own_etags():
        keep_conditions(proxy)
        yield proxy


def keep_conditions(proxy: Proxy) -> None:
    """Let a proxy keep the conditions that fake-gcs-server ignores, of requests that it isn't set to harm otherwise."""
    proxy.harm(Fault.ON_GENERATION, query="ifGenerationMatch=", times=float("inf"))


@contextmanager
def _own_etags() -> Iterator[None]:
    """Let each object of GCS have an ETag of its own, as there; that of fake-gcs-server is the MD5 of its content."""
    real = GCSFileSystem._process_object

    def found(filesystem: GCSFileSystem, bucket: str, metadata: dict[str, Any]) -> dict[str, Any]:
        of = real(filesystem, bucket, metadata)
        return {**of, "etag": f"{of['etag']}-{of['generation']}"}

    with mock.patch.object(GCSFileSystem, "_process_object", found):
        yield


def _query(words: Mapping[str, str]) -> str:
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in words.items())


@contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    process = start_process(command, log=log)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/")
                break
            except httpx.TransportError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command} doesn't answer:\n{log.read_text()}") from None
                time.sleep(0.05)
        yield
    finally:
        stop_process(process, first=signal.SIGTERM)
