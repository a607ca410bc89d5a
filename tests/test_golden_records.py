"""Records of today are read later: each kind of record has a golden one, and its encoding changes with its version only."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from airflow_gobblin.model import wire
from airflow_gobblin.model.watermark import encode
from tests.golden_records import FOLDER, WATERMARKS, kinds, path_of, sample

KINDS = kinds()
GOLDEN = sorted(FOLDER.glob("*.json"))
AGAIN = (
    "raise its version and keep a reader for the old one; or, while nothing is released, run tests.golden_records {}"
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_written_as_its_version_always_was(kind: str) -> None:
    assert path_of(kind).exists(), "run .venv/bin/python -m tests.golden_records, which writes what is missing"
    written = wire.dumps(sample(KINDS[kind], kind)) + b"\n"
    assert written == path_of(kind).read_bytes(), f"the encoding of {kind!r} changed: {AGAIN.format(kind)}"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_was_written_is_read(path: Path) -> None:
    kind, _, version = path.stem.rpartition(".")
    assert kind in KINDS, (
        "a kind that was written once is read for ever: remove its record only while nothing is released"
    )
    read = wire.loads(path.read_bytes(), KINDS[kind], path.name)
    if int(version) == wire.newest_version(kind):
        assert read == sample(KINDS[kind], kind)


def test_golden_records_have_every_kind_of_position() -> None:
    text = "".join(path.read_text() for path in GOLDEN)
    assert [mark for mark in WATERMARKS if f'"kind":"{encode(mark)["kind"]}"' not in text] == []


def test_golden_records_have_values_in_tables() -> None:
    assert '"columns":{' in path_of("shard").read_text()


def test_a_changed_encoding_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wire._encoders, datetime, datetime.timestamp)
    with pytest.raises(AssertionError, match="the encoding of 'outcome' changed: raise its version"):
        test_a_kind_is_written_as_its_version_always_was("outcome")


def test_a_new_version_without_a_golden_record_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wire._by_type, KINDS["outcome"], wire._Kind("outcome", 2))
    with pytest.raises(AssertionError, match=r"run \.venv/bin/python -m tests\.golden_records"):
        test_a_kind_is_written_as_its_version_always_was("outcome")
