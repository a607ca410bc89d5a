"""Old versions, as readers name them: of stages, and of the ingestions that they read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gobblin.errors import ConfigurationError, NotFoundError, StateGivenUpError
from airflow_gobblin.journal.history import take_snapshot
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import PublishedDataset
from airflow_gobblin.journal.records import now
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.testing import inprocess
from tests.stages.diamond import Diamond
from tests.stages.lines import joined, lines
from tests.stages.totals import Totals

pytestmark = pytest.mark.slow


@pytest.fixture
def diamond(tmp_path: Path) -> Diamond:
    found = Diamond(tmp_path)
    for rows in (6, 4, 2):
        found.grow(rows)
        found.rest()
    return found


def version(position: int) -> datetime:
    return datetime.fromtimestamp(position, UTC)


def read(diamond: Diamond, name: str, position: int) -> PublishedDataset:
    job = "raw" if name in "ab" else name
    return Journal.open(diamond.journal, job).read_dataset(name, version=version(position))


def test_each_version_of_a_stage_is_read_as_what_it_made_of_the_same_version_of_its_inputs(diamond: Diamond) -> None:
    seen = []
    for position in (6, 10, 12):
        source = {urn: lines(read(diamond, urn, position).paths) for urn in "ab"}
        assert [len(rows) for rows in source.values()] == [position, position]
        one, two = joined("one", [source["a"]]), joined("two", [source["a"], source["b"]])
        assert lines(read(diamond, "two", position).paths) == two
        assert lines(read(diamond, "both", position).paths) == joined("both", [one, two])
        seen.append(read(diamond, "both", position).slot)
    assert seen == [1, 2, 3]
    assert read(diamond, "both", 12).files == Journal.open(diamond.journal, "both").read_dataset("both").files


@pytest.mark.parametrize("name", ["both", "a"])
def test_a_version_that_is_unknown_is_reported_with_those_next_to_it(diamond: Diamond, name: str) -> None:
    between = rf"version 1970-01-01T00:00:08\+00:00 of '{name}': it has no such version, or no longer\. Next to it are "
    with pytest.raises(NotFoundError, match=rf"{between}1970-01-01T00:00:06\+00:00 and 1970-01-01T00:00:10\+00:00\."):
        read(diamond, name, 8)
    with pytest.raises(NotFoundError, match=r"Next to it are 1970-01-01T00:00:12\+00:00\."):
        read(diamond, name, 13)


def test_a_version_without_a_time_zone_is_refused(diamond: Diamond) -> None:
    with pytest.raises(ConfigurationError, match="it has no time zone"):
        Journal.open(diamond.journal, "both").read_dataset("both", version=datetime(2026, 3, 1))  # noqa: DTZ001


def test_a_version_that_was_taken_back_is_reported_with_what_did_until_it_is_made_again(diamond: Diamond) -> None:
    diamond.rewind("a", 8)
    diamond.run("one")
    beside = r"took it back, and no run has made it again\. Next to it are 1970-01-01T00:00:06\+00:00\."
    with pytest.raises(NotFoundError, match=rf"slot 4 \(rewind by run '.*'\) {beside}"):
        read(diamond, "one", 12)
    with pytest.raises(NotFoundError, match=r"no longer\. Next to it are 1970-01-01T00:00:06\+00:00\."):
        read(diamond, "a", 10)
    assert len(lines(read(diamond, "b", 10).paths)) == 10, "of this one nothing was taken back"
    diamond.grow(0)
    diamond.rest()
    assert lines(read(diamond, "one", 12).paths) == joined("one", [lines(read(diamond, "a", 12).paths)])


def test_a_version_of_a_stage_whose_slot_is_pending_is_reported(diamond: Diamond) -> None:
    diamond.grow(3)
    opened = diamond.opened(diamond.stages["one"])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    opened.committer.after_step = die

    with pytest.raises(KeyboardInterrupt):
        inprocess.run(opened)
    with pytest.raises(NotFoundError, match="its slot, 4, is decided and not finished"):
        read(diamond, "one", 15)


def test_trimmed_versions_are_read_as_others(diamond: Diamond) -> None:
    before = read(diamond, "one", 10)
    journal = Journal.open(diamond.journal, "one", write=True)
    journal.put_snapshot(take_snapshot(journal.history("one"), 2, now()))
    assert read(diamond, "one", 10) == before


def test_what_replaces_rows_later_belongs_to_the_version_that_had_them(diamond: Diamond) -> None:
    before = {position: lines(read(diamond, "a", position).paths) for position in (6, 10, 12)}
    diamond.revision += 1
    again = RunRequest("raw/backfill", start=6, end=12, replace=True, datasets=("a",))
    inprocess.run(diamond.opened(diamond.raw), request=again)
    found = {position: lines(read(diamond, "a", position).paths) for position in (6, 10, 12)}
    assert found[6] == before[6]
    assert found[10] == found[12] != before[12]


def test_of_a_snapshot_only_the_newest_is_read(tmp_path: Path) -> None:
    diamond = Diamond(tmp_path)
    diamond.kind = ExtractKind.SNAPSHOT_ONLY
    diamond.grow(6)
    with pytest.raises(ConfigurationError, match="each of its slots holds a snapshot, and only the newest counts"):
        read(diamond, "a", 6)


def test_rewound_to_its_start_a_stage_has_no_version(diamond: Diamond) -> None:
    diamond.rewind("a", 0)
    diamond.run("one")
    with pytest.raises(NotFoundError, match="It has no version yet"):
        read(diamond, "one", 6)


@pytest.fixture
def totals(tmp_path: Path) -> Totals:
    """A stage that keeps the state of its newest three versions, of four."""
    found = Totals(tmp_path)
    for _ in range(4):
        found.grow(3)
        found.run()
    return found


def test_the_state_after_a_version_is_read_as_it_was_then(totals: Totals) -> None:
    for position in (6, 9, 12):
        state = totals.read.read_state("totals", version=version(position)).to_arrow().to_table().to_pylist()
        assert {row["key"]: row for row in state} == totals.states()[position]
        assert {row["total"] for row in state} == {position // 3}
    newest, named = (totals.read.read_state("totals", version=one) for one in (None, version(12)))
    assert (newest, newest.slot) == (named, named.slot)


def test_a_state_that_is_given_up_is_reported_with_those_that_are_kept(totals: Totals) -> None:
    kept = r"it is given up\. The state of 1970-01-01T00:00:06\+00:00, 1970-01-01T00:00:09\+00:00, 1970-"
    with pytest.raises(StateGivenUpError, match=kept):
        totals.read.read_state("totals", version=version(3))
    with pytest.raises(NotFoundError, match=r"Next to it are 1970-01-01T00:00:06\+00:00 and 1970-01-01T00:00:09"):
        totals.read.read_state("totals", version=version(7))
    with pytest.raises(ConfigurationError, match="it has no time zone"):
        totals.read.read_state("totals", version=datetime(2026, 3, 1))  # noqa: DTZ001


def test_what_keeps_no_state_has_none_to_read(diamond: Diamond) -> None:
    for job, urn, cause in (("both", "both", "it keeps none"), ("raw", "a", "it is not a stage")):
        with pytest.raises(NotFoundError, match=f"can't read the state of '{urn}': {cause}"):
            Journal.open(diamond.journal, job).read_state(urn)
