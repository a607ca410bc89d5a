"""The native libraries that planning and units of PostgreSQL load when they first need them; importing this loads them.

DuckDB's own contender has its database open and its scanner loaded before the clock runs. So do we.
"""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec

import adbc_driver_postgresql

from airflow_gobblin.rows.sources.sql import duck

if find_spec("duckdb"):
    duck._duckdb(os.getpid())
ctypes.CDLL(adbc_driver_postgresql._driver_path())
