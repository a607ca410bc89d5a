"""Small records and big objects by one client of an S3 server: create, read, list, upload."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol
from urllib.parse import quote

from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures

ENDPOINT, KEY, SECRET = (f"BENCHMARK_S3_{word}" for word in ("ENDPOINT", "KEY", "SECRET"))
RECORD = b"x" * 300
BIG = os.urandom(1 << 20) * 64
_CONCURRENT = 32


class Client(Protocol):
    """The measured operations. Keys are below one bucket."""

    def create(self, keys: Sequence[str]) -> None:
        """Records of `RECORD`, each unless it exists."""

    def read(self, keys: Sequence[str]) -> int:
        """All of them.

        :return: their bytes.
        """

    def count(self) -> int:
        """How many objects there are, by a listing."""

    def upload(self, key: str) -> None:
        """One object of `BIG`."""


class Ours:
    """Our store of records, on s3fs."""

    def __init__(self, bucket: str) -> None:
        from airflow_gobblin.storage.locations import ObjectLocation
        from airflow_gobblin.storage.stores.objects import open_object_store

        login = f"{os.environ[KEY]}:{os.environ[SECRET]}"
        self._uri = f"aws://{login}@/?region_name=us-east-1&endpoint_url={quote(os.environ[ENDPOINT], safe='')}"
        self._bucket = bucket
        self._store = open_object_store(ObjectLocation("s3", "s3", bucket), self)

    def uri(self, _conn_id: str) -> str:
        return self._uri

    def create(self, keys: Sequence[str]) -> None:
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            assert all(pool.map(lambda key: self._store.put_if_absent(key, RECORD), keys))

    def read(self, keys: Sequence[str]) -> int:
        return sum(len(record or b"") for _, record in self._store.get_many(keys))

    def count(self) -> int:
        return sum(1 for _ in self._store.list(""))

    def upload(self, key: str) -> None:
        from airflow_gobblin.storage.files import open_files

        out = open_files(f"s3://s3@{self._bucket}", self).stage("staged", key)
        for start in range(0, len(BIG), 1 << 20):
            out.write(BIG[start : start + (1 << 20)])
        out.finish(0)


class ByThreads:
    """A file system of fsspec's."""

    def __init__(self, fs: Any, bucket: str) -> None:
        self._fs, self._bucket = fs, bucket

    def create(self, keys: Sequence[str]) -> None:
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            done = pool.map(lambda key: self._fs.pipe_file(f"{self._bucket}/{key}", RECORD, mode="create"), keys)
            assert len([*done]) == len(keys)

    def read(self, keys: Sequence[str]) -> int:
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            return sum(len(data) for data in pool.map(lambda key: self._fs.cat_file(f"{self._bucket}/{key}"), keys))

    def count(self) -> int:
        return len(self._fs.find(self._bucket))

    def upload(self, key: str) -> None:
        self._fs.pipe_file(f"{self._bucket}/{key}", BIG)


class Obstore:
    """obstore's own interface, which supports a conditional create."""

    def __init__(self, bucket: str) -> None:
        from obstore.store import S3Store

        self._store = S3Store(bucket, **_obstore_options())

    def create(self, keys: Sequence[str]) -> None:
        async def create(key: str) -> None:
            await self._store.put_async(key, RECORD, mode="create")

        asyncio.run(_together(create, keys))

    def read(self, keys: Sequence[str]) -> int:
        async def read(key: str) -> int:
            return len(await (await self._store.get_async(key)).bytes_async())

        return sum(asyncio.run(_together(read, keys)))

    def count(self) -> int:
        return sum(len(some) for some in self._store.list())

    def upload(self, key: str) -> None:
        self._store.put(key, BIG)


async def _together(do: Callable[[str], Awaitable[Any]], keys: Sequence[str]) -> list[Any]:
    gate = asyncio.Semaphore(_CONCURRENT)

    async def one(key: str) -> Any:
        async with gate:
            return await do(key)

    return list(await asyncio.gather(*(one(key) for key in keys)))


def _obstore_options() -> dict[str, Any]:
    return {
        "endpoint": os.environ[ENDPOINT],
        "access_key_id": os.environ[KEY],
        "secret_access_key": os.environ[SECRET],
        "region": "us-east-1",
        "client_options": {"allow_http": True},
    }


def _client(name: str, bucket: str) -> Client:
    if name == "ours":
        return Ours(bucket)
    if name == "obstore":
        return Obstore(bucket)
    from s3fs import S3FileSystem

    options = {"endpoint_url": os.environ[ENDPOINT], "client_kwargs": {"region_name": "us-east-1"}}
    fs = S3FileSystem(key=os.environ[KEY], secret=os.environ[SECRET], use_listings_cache=False, **options)
    return ByThreads(fs, bucket)


def main() -> None:
    asked = arguments(folder="", client="", bucket="", records="")
    client = _client(asked.client, asked.bucket)
    keys = [f"{asked.folder.rpartition('/')[2]}/{number:06d}" for number in range(int(asked.records))]
    client.create(keys[:1])  # connections are open, and modules loaded
    laps = Laps()
    client.create(keys[1:])
    laps.lap("create")
    size = client.read(keys)
    laps.lap("read")
    count = client.count()
    laps.lap("list")
    for number in range(4):
        client.upload(f"big-{number}")
    laps.lap("upload 4 x 64 MB")
    print_figures(sum(laps.phases.values()), laps.phases, bytes=size, listed=count)


if __name__ == "__main__":
    main()
