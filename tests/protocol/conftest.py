"""What the proofs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.protocol.matrix import Pool


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The workers of the crash matrix: it takes them seconds to warm up."""
    with Pool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool
