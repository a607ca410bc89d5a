"""A store in an object store with conditional create (S3's `If-None-Match`), through fsspec: one object per record.

A put whose answer was lost may have succeeded, and a client that sends it again receives "exists". So it is read back after any
error, and "exists" means only that some record exists. `open("xb")` is not used: without bytes it was measured to truncate an
existing object.

Clients also resend requests silently. So a put or delete has certainly failed only if the store refused it for a reason that
applied every time it was sent, such as a missing permission; otherwise its outcome is unknown.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_gobblin.errors import Remedy, StoreError, UnknownOutcomeError
from airflow_gobblin.storage.filesystems import open_filesystem, reopened
from airflow_gobblin.storage.quick_s3 import QuickS3, open_quick_s3

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from airflow_gobblin.connections import Connections
    from airflow_gobblin.storage.locations import ObjectLocation

_PAUSES = (0.1, 0.5, 2.0)
"""Seconds between retries."""
_SECONDS_TO_ANSWER = 10
_CONCURRENT = 32
_MANY = 32
"""The number of records that justifies a separate client."""
_INHERITED: list[AbstractFileSystem] = []
"""File systems of the parent process before a fork. Freeing them would close the parent's connections, whose epoll is shared."""

T = TypeVar("T")


class ObjectStore:
    """Records as objects below a root. Threads may share it; a forked process gets its own connections.

    :param fs: the file system, without caches.
    :param root: `bucket/prefix`, or a bucket, without slashes at the ends.
    """

    def __init__(self, fs: AbstractFileSystem, root: str) -> None:
        self._root = root
        self._bucket = root.partition("/")[0]
        self.name = str(fs.unstrip_protocol(root))
        self._fs = fs
        self._process = os.getpid()
        self._quick: QuickS3 | None = None
        self._may_be_quick = "s3" in fs.protocol

    def _filesystem(self) -> AbstractFileSystem:
        if self._process != os.getpid():
            _INHERITED.append(self._fs)
            self._fs, self._process = reopened(self._fs), os.getpid()
        return self._fs

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def put_if_absent(self, key: str, data: bytes) -> bool:
        errors: list[Exception] = []
        for pause in (*_PAUSES, None):
            try:
                self._filesystem().pipe_file(self._path(key), data, mode="create")
                return True
            except FileExistsError:
                return False
            except Exception as error:
                answer = _answer(error)
                if answer.exists:
                    return False
                errors.append(error)
                if answer.final and len(errors) == 1 and not answer.expired:
                    raise self._error("write", key, error, StoreError) from error
                if self._exists(key):
                    return False
                if pause is None or answer.final:
                    break
                time.sleep(pause)
        raise self._error("write", key, errors[-1], UnknownOutcomeError) from errors[-1]

    def _exists(self, key: str) -> bool:
        try:
            self._read(self._filesystem(), key)
        except Exception:  # absent, or again no answer: nothing is known
            return False
        return True

    def _read(self, fs: AbstractFileSystem, key: str) -> bytes:
        # Several concurrent parts would require the size first.
        return bytes(fs.cat_file(self._path(key), max_concurrency=1))

    def get(self, key: str) -> bytes | None:
        try:
            return self._tried(lambda fs: self._read(fs, key))
        except Exception as error:
            if _answer(error).absent:
                return None
            raise self._error("read", key, error, StoreError) from error

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        quick = self._quick_reads() if len(keys) >= _MANY else None
        with _pool() as pool:
            asked: deque[tuple[str, Future[bytes | None]]] = deque()
            for key in keys:
                asked.append((key, pool.submit(self._get, key, quick)))
                if len(asked) >= 2 * _CONCURRENT:
                    first, record = asked.popleft()
                    yield first, record.result()
            yield from ((first, record.result()) for first, record in asked)

    def _get(self, key: str, quick: QuickS3 | None) -> bytes | None:
        if quick is not None and self._may_be_quick and quick.knows(key):
            try:
                return quick.get(key)
            except Exception:  # s3fs reports more
                self._may_be_quick = False
        return self.get(key)

    def _quick_reads(self) -> QuickS3 | None:
        """Return a faster reader, as long as it works."""
        if self._may_be_quick and self._quick is None:
            try:
                self._quick = open_quick_s3(self._filesystem(), self._root, _SECONDS_TO_ANSWER)
            except Exception:  # s3fs reports more
                self._quick = None
            self._may_be_quick = self._quick is not None
        return self._quick if self._may_be_quick else None

    def list(self, prefix: str) -> Iterator[str]:
        quick = self._quick_reads()
        if quick is not None and quick.knows(prefix):
            try:
                return iter(quick.list(prefix))
            except Exception:  # s3fs reports more
                self._may_be_quick = False
        skip = len(self._root) + 1
        try:
            found = self._tried(lambda fs: fs.find(self._root, prefix=prefix))
        except Exception as error:
            raise self._error("list", prefix, error, StoreError) from error
        keys = (str(path)[skip:] for path in found)
        return iter(sorted(key for key in keys if key and key.startswith(prefix)))

    def delete(self, key: str) -> None:
        try:
            self._tried(lambda fs: fs.rm_file(self._path(key)))
        except Exception as error:
            answer = _answer(error)
            if answer.absent:
                return
            kind = StoreError if answer.final and not answer.expired else UnknownOutcomeError
            raise self._error("delete", key, error, kind) from error

    def delete_many(self, keys: Sequence[str]) -> None:
        # s3fs can delete many by one request, but silently skips those refused.
        with _pool() as pool:
            for _ in pool.map(self.delete, keys):
                pass

    def close(self) -> None:
        self._fs = reopened(self._filesystem())  # the old connections are closed with it, and the new one has none yet

    def _tried(self, do: Callable[[AbstractFileSystem], T]) -> T:
        """Repeat an idempotent operation until it is answered."""
        for pause in _PAUSES:
            try:
                return do(self._filesystem())
            except Exception as error:
                if _answer(error).final:
                    raise
                time.sleep(pause)
        return do(self._filesystem())

    def _error(self, operation: str, key: str, error: Exception, kind: type[StoreError]) -> StoreError:
        answer = _answer(error)
        words = " ".join(str(error).partition("\nRequestId:")[0].split()).rstrip(".")  # Azure's messages are long
        return kind(
            operation=operation,
            subject=f"record {key!r} in {self.name}",
            cause=f"{answer.in_short}{type(error).__name__}: {words}",
            hint=answer.hint(operation, self._bucket),
            remedy=Remedy.REPEAT,
        )


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Create a pool of threads that don't begin pending work after an error."""
    pool = ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="records")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def open_object_store(location: ObjectLocation, connections: Connections | None = None) -> ObjectStore:
    """Create a store at a location, with its own connections and without any request.

    :raises ConfigurationError: as `open_filesystem`.
    """
    return ObjectStore(open_filesystem(location, connections, tries=1, seconds=_SECONDS_TO_ANSWER), location.path)


_PERMISSION = {
    "write": "to write (on S3 s3:PutObject)",
    "read": "to read (on S3 s3:GetObject), and to list (s3:ListBucket), without which an absent object looks forbidden,",
    "list": "to list (on S3 s3:ListBucket)",
    "delete": "to delete (on S3 s3:DeleteObject)",
}
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "InvalidToken")
_UNKNOWN_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidClientTokenId", "AuthenticationFailed")
_OTHER_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "301", "IllegalLocationConstraintException")
_AGAIN = (408, 409, 425, 429)


@dataclass(frozen=True)
class _Answer:
    """A store's answer, as far as its client's error shows it.

    :param status: the HTTP status; `None` if there was no answer.
    """

    status: int | None
    code: str
    error: Exception

    @property
    def exists(self) -> bool:
        return isinstance(self.error, FileExistsError) or self.status == 412

    @property
    def absent(self) -> bool:
        no_bucket = self.code in ("NoSuchBucket", "ContainerNotFound") or "bucket does not exist" in str(self.error)
        return self.status == 404 and not no_bucket

    @property
    def final(self) -> bool:
        """Whether a retry would change nothing."""
        if self.status is None:
            return isinstance(self.error, ValueError) or _was_not_sent(self.error)
        return 300 <= self.status < 500 and self.status not in _AGAIN

    @property
    def expired(self) -> bool:
        return self.code in _EXPIRED

    @property
    def in_short(self) -> str:
        """Status and code in short, if the error's own text lacks them."""
        words = " ".join(str(word) for word in (self.status, self.code) if word)
        return f"{words}, " if words else ""

    def hint(self, operation: str, bucket: str) -> str:
        if self.expired:
            return "The credentials have expired: renew them in the Airflow connection, or in the environment."
        if self.code in _UNKNOWN_KEYS or "Credential" in type(self.error).__name__:
            return "The credentials are wrong or missing: correct the connection before the '@' in the URL, or the environment."
        if self.code in _OTHER_REGION:
            return "The bucket is in another region: name it in the connection (region_name)."
        if self.status in (401, 403):
            return f"The credentials must have permission {_PERMISSION[operation]} in bucket {bucket!r}."
        if self.status == 404:
            return f"Make bucket {bucket!r}, or correct its name in the URL; or the connection's endpoint_url is wrong."
        if self.status is not None and not self.final:
            return f"The store, or a proxy before it, kept answering {self.status} until now."
        if not self.final:
            return "No answer came: check the connection's endpoint_url and the network between."
        return "Check the connection's endpoint_url, region_name and keys, and the bucket."


def _answer(error: Exception) -> _Answer:
    """Find the answer in an error or its causes: botocore's `response`, Azure's `status_code`, or gcsfs's `code`."""
    current: BaseException | None = error
    while current is not None:
        response: Any = getattr(current, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return _Answer(status, code, error)
        for name in ("status_code", "code"):
            if isinstance(status := getattr(current, name, None), int):
                code = getattr(current, "error_code", None) or ""
                return _Answer(status, str(getattr(code, "value", code)), error)
        current = current.__cause__
    if isinstance(error, FileNotFoundError):
        return _Answer(404, "", error)
    forbidden = isinstance(error, PermissionError) or str(error).startswith("Forbidden")  # the wording of gcsfs
    return _Answer(403 if forbidden else None, "", error)


def _was_not_sent(error: Exception) -> bool:
    """Return whether botocore itself refused a request: it found no credentials, or the bucket's name is invalid."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return "BotoCoreError" in kinds and not kinds & {"HTTPClientError", "ConnectionError"}
