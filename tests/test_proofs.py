"""The page of the proofs."""

from __future__ import annotations

from pathlib import Path

from tests.proofs import keep, proof_of


def test_a_proof_takes_the_place_of_its_last_run(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    keep(proof_of("histories", "4 played", "seeds 0 to 3", 1.0, "tests/b.py::test_b"), path)
    keep(proof_of("matrix", "9 points", "all", 2.0, "tests/a.py::test_a"), path)
    keep(proof_of("histories", "8 played", "seeds 0 to 7", 3.0, "tests/b.py::test_b"), path)
    *_, matrix, histories = path.with_suffix(".md").read_text().splitlines()
    assert matrix.startswith("| matrix | 9 points | all | 2 | ")
    assert histories.startswith("| histories | 8 played | seeds 0 to 7 | 3 | ")
    assert histories.endswith("`.venv/bin/python -m pytest -m 'soak or not soak' --timeout=0 'tests/b.py::test_b'` |")
