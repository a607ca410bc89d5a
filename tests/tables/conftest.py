"""Ingestions into tables of each format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tables.formats import EACH, format_of
from tests.tables.labs import TableLab


@pytest.fixture(params=EACH)
def table_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., TableLab]:
    """Return a function that makes an ingestion into tables; the test is repeated with each format."""
    form = format_of(request.param, tmp_path / "tables", request.getfixturevalue)

    def make(*tables: Any, **options: Any) -> TableLab:
        return TableLab(tmp_path / "work", form, *tables, **options)

    return make
