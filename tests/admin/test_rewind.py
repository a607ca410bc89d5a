"""Rewinds: what they take back, and what they leave because the source can't give it again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin.admin.rewind_extent import not_kept, widened
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.journal.records import Action
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.state import UnitRef
from airflow_gobblin.model.watermark import LongWatermark, MultiLongWatermark, highest, lowest
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.request import RunRequest
from tests.lab import Lab
from tests.protocol.rows import Table

A = Table("a", ExtractKind.APPEND_ONLY, 10, kept_from=0)


def at(value: int) -> LongWatermark:
    return LongWatermark(value)


def refused(lab: Lab, to: int, message: str) -> None:
    """A rewind is refused, and nothing is changed."""
    before, published = lab.records(), lab.published()
    with pytest.raises(ConfigurationError, match=message):
        lab.admin.rewind("a", at(to), "wrong amounts")
    assert (lab.records(), lab.published()) == (before, published)


def test_nobody_rewinds_past_what_the_source_has_removed(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.run(replace(A, rows=12, kept_from=5))
    text = r"would retire {} before 8 of which the source has removed or changed rows since: it had those from 5 on .* from 8 on"
    refused(lab, 6, text.format("1 unit"))
    refused(lab, 0, text.format("2 units"))
    slot = lab.admin.rewind("a", at(9), "wrong amounts")
    assert slot.decision.removed == (Range(at(8), at(12)),)


def test_where_nothing_is_left_at_the_source_there_is_no_way_back(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.run(replace(A, kept_from=9), request=RunRequest("again", start=0, end=4, replace=True))
    refused(lab, 9, "1 unit before 10 .* There is no position that it could go back to")


def test_a_plan_from_before_knows_nothing_of_what_is_gone_now(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    late, old = lab.extracted(
        replace(A, rows=14, kept_from=5), request=RunRequest("old", datetime.fromtimestamp(12, UTC))
    )
    lab.run(replace(A, rows=14, kept_from=9), request=RunRequest("new", 14, ("a",), 12))
    for pack in old.packs:
        write_commit_steps(late, old, pack)
        execute_commit_steps(late, old, pack)
    history = lab.reopened().history("a")
    assert [slot.decision.kept_from for slot in history.slots] == [at(0), at(9), at(5)]
    assert history.state.kept_from == at(9)
    refused(lab, 8, "1 unit before 10 .* from 10 on")


def test_what_is_gone_is_taken_back_on_request(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.run(replace(A, rows=12, kept_from=5))
    refused(lab, 0, "--lossy")
    assert lab.admin.rewind("a", at(0), "they were wrong", lossy=True).decision.removed == (Range(at(0), at(12)),)


def test_where_rows_began_already_when_they_were_published_nothing_is_gone(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(A, kept_from=2))
    lab.run()
    lab.run(replace(A, rows=12, kept_from=2))
    assert lab.admin.rewind("a", at(0), "wrong amounts").decision.removed == (Range(at(0), at(12)),)


def test_without_knowing_where_rows_began_only_units_that_end_before_are_known_to_be_gone(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(A, kept_from=None))
    lab.run()
    lab.run(replace(A, rows=12, kept_from=5))
    history = lab.journal.history("a")
    assert not_kept(history, history.state.live) == (Range(at(0), at(4)),)
    refused(lab, 0, "1 unit before 4 .* from 4 on")
    lab.admin.rewind("a", at(5), "wrong amounts")


def test_a_dropped_dataset_begins_anew(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    lab.run()
    lab.run(replace(A, rows=12, kept_from=5))
    lab.admin.drop("a", "it moves", delete_files=True)
    lab.run(replace(A, kept_from=None))
    assert lab.reopened().state("a").kept_from is None
    lab.admin.rewind("a", at(0), "wrong amounts")


def topic(lab: Lab) -> tuple[MultiLongWatermark, MultiLongWatermark]:
    """Two partitions, each published by units of its own: 0 to 4 and 4 to 9 of the first, 0 to 3 and 3 to 8 of the second."""
    lab.run()
    bounds = [((0, 0), (4, 0)), ((4, 0), (4, 3)), ((4, 3), (9, 3)), ((9, 3), (9, 8))]
    for low, high in bounds:
        part = Range(MultiLongWatermark(low), MultiLongWatermark(high))
        history = lab.journal.history("topic")
        unit = replace(
            lab.journal.history("a").slots[0].decision.units[0],
            unit="u0",
            low=part.low,
            expected_high=part.high,
            actual_high=part.high,
            files=0,
        )
        lab.journal.put_decision(
            replace(
                lab.journal.history("a").slots[0].decision,
                action=Action.NOOP,
                slot=history.state.head + 1,
                urn="topic",
                token=f"token{history.state.head}",
                run_key="",
                previous=history.last_digest,
                ranges=(part,),
                planned=part,
                units=(unit,),
                shards=(),
                hand_over=None,
            )
        )
    return MultiLongWatermark((0, 0)), MultiLongWatermark((9, 8))


@pytest.mark.parametrize("text", ["[6, 8]", "[6, 99]", "[6, null]"])
def test_a_rewind_of_one_of_several_positions_takes_back_that_one(tmp_path: Path, text: str) -> None:
    lab = Lab(tmp_path, replace(A, kept_from=None))
    topic(lab)
    slot = lab.admin.rewind("topic", lab.admin.position("topic", text), "wrong amounts")
    assert slot.decision.replaces == (UnitRef(3, "u0"),)
    assert slot.decision.removed == (Range(MultiLongWatermark((4, 8)), MultiLongWatermark((9, 8))),)
    assert lab.journal.state("topic").watermark == MultiLongWatermark((4, 8))


def test_positions_that_are_left_out_must_be_some(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(A, kept_from=None))
    _, end = topic(lab)
    with pytest.raises(ConfigurationError, match="is not within what is covered"):
        lab.admin.rewind("topic", end, "wrong amounts")
    with pytest.raises(ConfigurationError, match="with as many positions"):
        lab.admin.rewind("topic", lab.admin.position("topic", "[6]"), "wrong amounts")
    with pytest.raises(ConfigurationError, match="is not within what is covered"):
        lab.admin.rewind("topic", MultiLongWatermark((6, -1)), "wrong amounts")


def test_of_several_positions_each_is_widened_for_itself() -> None:
    units = {
        UnitRef(1, "u0"): Range(MultiLongWatermark((0, 0)), MultiLongWatermark((5, 3))),
        UnitRef(1, "u1"): Range(MultiLongWatermark((5, 3)), MultiLongWatermark((9, 3))),
    }
    low, retired = widened(MultiLongWatermark((7, 3)), units)
    assert (low, retired) == (MultiLongWatermark((5, 3)), (UnitRef(1, "u1"),))
    low, retired = widened(MultiLongWatermark((7, 2)), units)
    assert (low, retired) == (MultiLongWatermark((0, 0)), (*units,))
    assert highest([part.high for part in units.values()]) == MultiLongWatermark((9, 3))
    several = [MultiLongWatermark((1, 4)), MultiLongWatermark((2, 3, 7))]
    assert (lowest(several), highest(several)) == (MultiLongWatermark((1, 3, 7)), MultiLongWatermark((2, 4, 7)))
