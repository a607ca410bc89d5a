"""A store in memory, for tests and experiments; it is lost with the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence


class MemoryStore:
    """A dictionary behind a lock."""

    def __init__(self, name: str = "memory://") -> None:
        self.name = name
        self._records: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self._records:
                return False
            self._records[key] = data
            return True

    def get(self, key: str) -> bytes | None:
        return self._records.get(key)

    def get_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((key, self.get(key)) for key in keys)

    def list(self, prefix: str) -> Iterator[str]:
        with self._lock:
            keys = sorted(k for k in self._records if k.startswith(prefix))
        return iter(keys)

    def delete(self, key: str) -> None:
        with self._lock:
            self._records.pop(key, None)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def close(self) -> None:
        """Do nothing: there are no connections."""
