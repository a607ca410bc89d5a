"""Every store, opened by a URL or made here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.storage.files import LocalFiles, open_files
from airflow_gobblin.storage.locations import object_location
from airflow_gobblin.storage.stores.base import Store, put_or_read
from airflow_gobblin.storage.stores.local import LocalStore
from airflow_gobblin.storage.stores.memory import MemoryStore
from airflow_gobblin.storage.stores.objects import ObjectStore, open_object_store
from airflow_gobblin.storage.stores.sql import SqlStore
from tests.services.emulators import Emulator
from tests.services.hdfs import Hdfs
from tests.services.s3 import S3Access, S3Server
from tests.services.s3_proxy import Fault, running_proxy

Open = Callable[[], Store]

SEED = 20261121
LOST = 0.04
"""The share of answers that get lost on the way."""
KINDS = (
    "memory",
    "local",
    "sqlite",
    "postgresql",
    "versitygw",
    "moto",
    "versitygw, answers lost",
    pytest.param("moto, answers lost", marks=pytest.mark.soak),
    "gcs",
    "azurite",
    "hdfs",
)


class Settling:
    """A store as the journal uses it: "exists" may be our own write, so it is read back. Puts must differ to be distinguished."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        stored, created = put_or_read(self._store, key, data)
        return created or stored == data


def unproved_store(url: str, access: S3Access | Emulator) -> ObjectStore:
    """A store in a bucket, without a probe."""
    place = object_location(url)
    assert place
    return open_object_store(place, access)


@pytest.fixture(params=KINDS)
def open_any(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open the same store again and again, as another process would."""
    with ExitStack() as stack:
        yield _opener(request, tmp_path, stack)


def _opener(request: pytest.FixtureRequest, tmp_path: Path, stack: ExitStack) -> Callable[[], Any]:
    if request.param == "memory":
        memory = MemoryStore()
        return lambda: memory
    if request.param == "local":
        return lambda: LocalStore(LocalFiles(tmp_path / "journal"))
    if request.param == "sqlite":
        return partial(SqlStore, f"sqlite:///{tmp_path}/journal.db")
    if request.param == "postgresql":
        return partial(SqlStore, request.getfixturevalue("postgres_database"))
    if request.param in ("gcs", "azurite"):
        emulator: Emulator = request.getfixturevalue(request.param)
        place = emulator.url(f"{emulator.create_bucket()}/journal")
        return lambda: unproved_store(place, emulator)
    if request.param == "hdfs":
        hdfs: Hdfs = request.getfixturevalue("hdfs")
        target = hdfs.url(hdfs.create_folder())
        return lambda: open_files(target, hdfs).records("_gobblin/marks")
    name, _, lost = request.param.partition(", ")
    server: S3Server = request.getfixturevalue(name)
    access = server.access
    if lost:
        proxy = stack.enter_context(running_proxy(access.endpoint))
        proxy.harm_at_random(SEED, LOST, Fault.DROP_ANSWER, Fault.DROP_REQUEST, Fault.INTERNAL_ERROR_AFTER)
        access = access.through(proxy.endpoint)
    url = access.url(f"{server.create_bucket()}/journal")
    if lost:
        return lambda: Settling(unproved_store(url, access))
    return lambda: unproved_store(url, access)
