"""The page of a mirror in a real browser: what its runs did with files, and nothing about rows, ranges or watermarks."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.plugins.test_page import Browse, column, look, visit

AT = {"dag_id": "gallery", "ingestion": "photos"}
OF_ROWS = re.compile(r"watermark|range|row|coverage|position|lag", re.IGNORECASE)


def test_a_list_of_file_sets_shows_what_was_done_last(browse: Browse) -> None:
    page = visit(browse("ann"), "datasets", **AT)
    expect(page.locator(".list tbody tr")).to_have_count(3)
    look(page, "mirror-datasets")
    heads = page.locator(".list th").all_inner_texts()
    assert heads == ["Dataset", "State", "Last commit", "Pending", "Copied last", "Replaced", "Deleted", "Size"]
    assert column(page, 1) == ["album#files", "kept#files", "late#files"]
    assert [column(page, number)[0] for number in (5, 6, 7, 8)] == ["2", "0", "1", "8 B"]
    assert column(page, 4)[2].startswith("slot 2")
    assert not OF_ROWS.search(page.locator("main, body").first.inner_text())


def test_a_run_that_copies_shows_how_far_it_is(browse: Browse) -> None:
    page = visit(browse("ann"), "datasets", **AT)
    card = page.locator(".card")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("Under way: late#files")
    expect(card).to_contain_text("3 of 4 files, 3.6 MB of 4.8 MB, 600.0 kB/s, 2 s left")
    visit(page, "datasets")
    expect(page.locator(".card")).to_have_count(0)


@pytest.mark.parametrize("name", ["album", "kept", "late"])
def test_a_file_set_has_its_files_and_its_history(browse: Browse, name: str) -> None:
    page = visit(browse("ann"), "dataset", urn=f"{name}#files", **AT)
    expect(page.get_by_role("heading", name=f"{name}#files")).to_be_visible()
    look(page, f"mirror-{name}")
    text = page.locator("body").inner_text()
    assert not OF_ROWS.search(text), text
    assert page.get_by_role("link", name="Verify").count() == 0, "the command compares it with its source"
    expected = {
        "album": ("Copied last", "2 files, 8 B", "Deleted last"),
        "kept": ("It is paused", "its camera is away"),
        "late": ("Slot 2 is pending", "A commit of 2 files, 8 B, 1 of them in place of others", "outcome"),
    }
    for words in expected[name]:
        assert words in text


def test_the_files_that_are_kept_of_a_file_set_are_shown_on_request(browse: Browse) -> None:
    page = visit(browse("ann"), "dataset", urn="album#files", **AT)
    page.get_by_role("link", name="kept files").click()
    expect(page.get_by_role("heading", name="Kept of album#files")).to_be_visible()
    look(page, "mirror-kept-files")
    assert (column(page, 2), column(page, 3)) == (["album/nobody's"], ["3 B"])
    text = page.locator("body").inner_text()
    assert "1 file, 3 B" in text
    assert "/target/_gobblin/kept" in text
    page = visit(page, "kept", urn="late#files", **AT)
    expect(page.locator("body")).to_contain_text("Nothing is kept of it.")
