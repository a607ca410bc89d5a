"""What the proofs share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.protocol.matrix import Pool
from tests.services.postgres import Postgres


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The workers of the crash matrix: it takes them seconds to warm up."""
    with Pool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture
def new_database(postgres_server: Postgres) -> Callable[[], str]:
    """Return a function that makes an empty database and returns its URL."""
    return lambda: postgres_server.create_database(f"test_{uuid.uuid4().hex}")
