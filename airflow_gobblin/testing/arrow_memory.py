"""How much memory Arrow takes, for tests of boundedness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_POOLS: list[pa.MemoryPool] = []
"""All pools, since a failed test's traceback holds arrays that are freed through theirs."""


@contextmanager
def arrow_memory() -> Iterator[pa.MemoryPool]:
    """Yield a pool that counts the allocations of the block alone: `bytes_allocated()` now, and `max_memory()` at most."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)
