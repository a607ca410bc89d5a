"""DuckDB, as a reader of tables besides ours."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

__all__ = ["duckdb_with"]


def duckdb_with(*extensions: str) -> Any:
    """Return a DuckDB with extensions, each of which is a package; nothing is loaded from the network."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in extensions:
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None, f"duckdb-extension-{name} isn't installed"
        assert spec.origin is not None
        connection.execute(f"LOAD '{next(Path(spec.origin).parent.rglob('*.duckdb_extension'))}'")
    return connection
