"""Ingestions into tables of each format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tables.labs import FORMATS, TableLab, lab_of


@pytest.fixture(params=FORMATS)
def table_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., TableLab]:
    """Return a function that makes an ingestion into tables; the test is repeated with each format."""
    url = request.getfixturevalue("postgres_database") if request.param == "postgres" else ""

    def make(*tables: Any, **options: Any) -> TableLab:
        return lab_of(request.param, tmp_path, url, *tables, **options)

    return make
