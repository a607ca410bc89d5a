"""Real S3 servers for tests, each on a port of its own, gone afterwards.

versitygw keeps its buckets on disk, checks signatures and permissions, and can be killed and started again. moto keeps them in
memory, takes any credentials, and answers one request at a time (see `moto_server`).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from airflow_gobblin.storage import filesystems
from tests.services.processes import free_port, start_process, stop_process

__all__ = ["CONNECTION", "S3Access", "S3Server", "moto", "running", "versitygw", "warm_up"]

CONNECTION = "lake"
"""The id of the Airflow connection that tests give a server."""
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Access:
    """The address of a server, and the credentials."""

    endpoint: str
    key: str
    secret: str

    @property
    def connection(self) -> str:
        """The URI of an Airflow connection."""
        login = f"{quote(self.key, safe='')}:{quote(self.secret, safe='')}"
        return f"aws://{login}@/?region_name={REGION}&endpoint_url={quote(self.endpoint, safe='')}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that give other processes this connection, in Airflow's own way."""
        return {f"AIRFLOW_CONN_{CONNECTION.upper()}": self.connection}

    def uri(self, conn_id: str) -> str:
        """The connection, by its id: an access is the `Connections` of its one connection."""
        assert conn_id == CONNECTION, conn_id
        return self.connection

    def url(self, path: str) -> str:
        """A place as a DAG author writes it.

        :param path: `bucket/prefix`.
        """
        return f"s3://{CONNECTION}@{path}"

    def through(self, endpoint: str) -> S3Access:
        """The same, through a proxy."""
        return replace(self, endpoint=endpoint)

    @property
    def s3a(self) -> dict[str, str]:
        """The settings by which Hadoop's file system reaches it, also by URLs that begin with `s3://`."""
        return {
            "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": REGION,
            "fs.s3a.access.key": self.key,
            "fs.s3a.secret.key": self.secret,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }

    @property
    def deltalake(self) -> dict[str, str]:
        """How deltalake reaches it."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": REGION,
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "aws_virtual_hosted_style_request": "false",
            "aws_conditional_put": "etag",
            "allow_http": "true",
        }

    def filesystem(self, **options: Any) -> Any:
        """A file system of fsspec's, with its own settings."""
        import fsspec

        return fsspec.filesystem(
            "s3",
            key=self.key,
            secret=self.secret,
            endpoint_url=self.endpoint,
            client_kwargs={"region_name": REGION},
            use_listings_cache=False,
            skip_instance_cache=True,
            **options,
        )


class S3Server:
    """A server on 127.0.0.1. It can be stopped, killed and started again on the same port.

    :param command: with `{port}` in it.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, access: S3Access, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.access = access
        self._command = command
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = start_process(self._command, log=self._log, env=self._environment)
        deadline = time.monotonic() + 30
        while True:
            try:
                httpx.get(self.access.endpoint)
                return
            except httpx.TransportError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} doesn't answer:\n{self._log.read_text()}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it as a crash would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it hang: connections are accepted, and nothing answers."""
        assert self._process is not None
        self._signal(signal.SIGSTOP)
        threads = [*Path(f"/proc/{self._process.pid}/task").glob("*/stat")]
        while any(thread.read_text().rpartition(") ")[2][0] != "T" for thread in threads):
            time.sleep(0.01)  # a busy machine stops them one after another

    def resume(self) -> None:
        """Let it go on where it was."""
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            stop_process(self._process, first=how)
            self._process = None

    @cached_property
    def _admin(self) -> Any:
        return self.access.filesystem()

    def create_bucket(self) -> str:
        """A new, empty bucket, without versions.

        :return: its name.
        """
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        self._admin.call_s3("create_bucket", Bucket=bucket)
        return bucket

    def clerk(self, bucket: str, *actions: str, below: Mapping[str, Sequence[str]] | None = None) -> S3Access:
        """A user who may do these actions in a bucket (`s3:GetObject` …) and nothing else; versitygw only.

        :param below: where some of them may be done, as patterns of keys; others anywhere.
        """
        clerk = replace(self.access, key=f"clerk-{uuid.uuid4().hex[:8]}", secret=secrets.token_hex(12))
        command = [os.environ["VERSITYGW"], "admin", "--endpoint-url", self.access.endpoint]
        command += ["create-user", "--access", clerk.key, "--secret", clerk.secret, "--role", "user"]
        admin = {"ADMIN_ACCESS_KEY_ID": self.access.key, "ADMIN_SECRET_ACCESS_KEY": self.access.secret}
        subprocess.run(command, check=True, capture_output=True, env=os.environ | admin)
        arn = f"arn:aws:s3:::{bucket}"
        where = {"s3:ListBucket": [arn]} | {
            action: [f"{arn}/{keys}" for keys in patterns] for action, patterns in (below or {}).items()
        }
        statements = [
            {
                "Effect": "Allow",
                "Principal": {"AWS": [clerk.key]},
                "Action": [action],
                "Resource": where.get(action, [f"{arn}/*"]),
            }
            for action in actions
        ]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self._admin.call_s3("put_bucket_policy", Bucket=bucket, Policy=policy)
        return clerk


def versitygw(folder: Path) -> S3Server:
    """A versitygw with its buckets below a folder; not started."""
    port, access = free_port(), S3Access("", "tester", secrets.token_hex(12))
    for part in ("buckets", "accounts"):
        (folder / part).mkdir(parents=True)
    command = [os.environ["VERSITYGW"], "--quiet", "--keep-alive", "--region", REGION, "--port", f"127.0.0.1:{port}"]
    command += ["--iam-dir", str(folder / "accounts"), "posix", str(folder / "buckets")]
    environment = {"ROOT_ACCESS_KEY": access.key, "ROOT_SECRET_KEY": access.secret}
    return S3Server("versitygw", command, folder / "log", access.through(f"http://127.0.0.1:{port}"), environment)


def moto(folder: Path) -> S3Server:
    """A moto, not started.

    :param folder: of its log.
    """
    port = free_port()
    access = S3Access(f"http://127.0.0.1:{port}", "tester", "anything")
    command = [sys.executable, "-m", "tests.services.moto_server", str(port)]
    return S3Server("moto", command, folder / "log", access, {})


def warm_up() -> None:
    """Load the descriptions of S3's requests, so that the clients of processes forked from this one needn't. None stays open."""
    import botocore.session

    session = botocore.session.Session()
    session.register_component("data_loader", filesystems._service_models())
    session.create_client("s3", region_name=REGION).close()


@contextmanager
def running(server: S3Server) -> Iterator[S3Server]:
    """Run a server for a while."""
    try:
        server.start()
        yield server
    finally:
        server.stop()
