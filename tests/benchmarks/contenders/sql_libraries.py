"""The native libraries that planning and units of PostgreSQL load when they first need them; importing this loads them.

The contenders with ADBC alone and with DuckDB alone have them loaded, and DuckDB's database open, before their clocks run, too.
"""

from __future__ import annotations

import ctypes
import os

import adbc_driver_postgresql

from airflow_gobblin.rows.sources.sql import duck

if duck.duckdb_is_installed():
    duck._duckdb(os.getpid())
ctypes.CDLL(adbc_driver_postgresql._driver_path())
