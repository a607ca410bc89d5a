"""The state of a dataset as JSON. `test_administration.py` and `cli/test_moving.py` test its import."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gobblin.admin.export import (
    ExportedDataset,
    ExportedFile,
    ExportedUnit,
    as_document,
    export,
    read_document,
)
from airflow_gobblin.errors import GobblinError
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.coverage import Coverage
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, Watermark
from airflow_gobblin.model.work import ExtractKind
from tests.lab import Lab
from tests.protocol.rows import Table

plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
anything: st.SearchStrategy[Any] = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
"""JSON of any shape."""


def covered(bounds: list[int]) -> tuple[ExportedUnit, ...]:
    """Units between every second pair of positions."""
    pairs = [(low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=False) if low < high]
    return tuple(
        ExportedUnit(
            f"s{low}_u",
            (ExportedFile(f"a/{low}.parquet", high, f"{low:064x}", high - low),),
            LongWatermark(low),
            LongWatermark(high),
            {"left": [low, None, "x"]},
        )
        for low, high in pairs
    )


@given(st.lists(st.integers(0, 10_000), max_size=80, unique=True).map(sorted))
def test_a_state_is_read_as_it_was_written(bounds: list[int]) -> None:
    units = covered(bounds)
    coverage = Coverage().starting_at(LongWatermark(0))
    for unit in units:
        assert unit.range is not None
        coverage = coverage.add(unit.range)
    dataset = ExportedDataset("a", coverage.edge, coverage, None, units)
    text = json.dumps(as_document("lab", now(), [dataset]))
    assert read_document(json.loads(text)) == (dataset,)


@pytest.mark.parametrize("watermark", [LongWatermark(5), MultiLongWatermark((5, 7))])
def test_a_watermark_alone_is_where_to_go_on(watermark: Watermark) -> None:
    (dataset,) = read_document(json.loads(json.dumps(as_document("x", now(), [ExportedDataset("a", watermark)]))))
    assert dataset.covered == Coverage().starting_at(watermark)


marks = st.fixed_dictionaries(
    {}, optional={"kind": st.sampled_from(["long", "multi_long", "timestamp"]), "value": anything, "values": anything}
)
tasks = st.fixed_dictionaries(
    {},
    optional={
        "task id": anything,
        "task state": anything,
        "properties": anything
        | st.fixed_dictionaries(
            {"dataset.urn": st.sampled_from("ab") | anything},
            optional={"workunit.state.actual.high.water.mark": st.builds(json.dumps, marks | anything) | anything},
        ),
    },
)
datasets = st.fixed_dictionaries(
    {"urn": st.sampled_from("ab") | anything},
    optional={"watermark": marks | anything, "coverage": anything, "units": anything},
)


@pytest.mark.slow
@given(
    st.fixed_dictionaries({"task states": st.lists(tasks | anything)})
    | st.fixed_dictionaries({"datasets": st.lists(datasets | anything)}),
    st.sampled_from([None, "long", "multi_long", "timestamp", "acme"]),
    st.booleans(),
)
def test_whatever_a_document_holds_is_read_or_refused(document: Any, kind: str | None, last_read: bool) -> None:
    with suppress(GobblinError):
        for dataset in read_document(document, kind=kind, last_read=last_read):
            assert dataset.urn
            assert read_document(json.loads(json.dumps(as_document("lab", now(), [dataset])))) == (dataset,)


def test_a_document_has_nothing_but_plain_lists(tmp_path: Path) -> None:
    """People and other tools read it, so it doesn't use the wire format's tables of many values."""
    lab = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 100, unit_rows=2))
    lab.run()
    text = json.dumps(as_document("lab", now(), [export(lab.journal, lab.journal.history("a"))]))
    assert "columns" not in text
    (dataset,) = json.loads(text)["datasets"]
    assert len(dataset["units"]) == 50
    assert dataset["units"][0]["low"] == {"kind": "long", "value": 0}


def test_what_is_pending_is_left_out(tmp_path: Path) -> None:
    lab = Lab(tmp_path, Table("a", ExtractKind.APPEND_ONLY, 4))
    lab.run()
    before = export(lab.journal, lab.journal.history("a"))
    lab.decide(Table("a", ExtractKind.APPEND_ONLY, 8))
    assert export(lab.journal, lab.journal.history("a")) == before


def test_a_unit_of_fewer_positions_is_exported(tmp_path: Path) -> None:
    """The source had one more later."""
    unit = ExportedUnit("s1_u", (), MultiLongWatermark((0,)), MultiLongWatermark((5,)))
    coverage = Coverage().starting_at(MultiLongWatermark((0,)))
    assert unit.range is not None
    wider = coverage.add(unit.range).starting_at(MultiLongWatermark((0, 0)))
    assert ExportedDataset("a", wider.edge, wider, None, (unit,)).covered == wider
