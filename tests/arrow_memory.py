"""How much memory Arrow takes, for tests of boundedness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def arrow_memory() -> Iterator[pa.MemoryPool]:
    """A pool that counts what is allocated in its block only: `bytes_allocated()` now, and `max_memory()` at the most."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)
