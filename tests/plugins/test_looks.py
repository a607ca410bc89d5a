"""How the page looks, measured in a real browser: widths, contrasts, texts, and that each is shown once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from airflow_gobblin.journal.records import NoteKind
from airflow_gobblin.model.naming import visible
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.execute import execute_commit_steps
from tests.lab import Lab
from tests.plugins.conftest import EVIL, HIDDEN, LONG, Site, made
from tests.plugins.test_page import AT, column, look, visit
from tests.proofs import chosen_by, fresh_seed, one_in, sampled
from tests.protocol.rows import Table

Browse = Callable[..., Page]
PAGES: tuple[tuple[str, dict[str, str]], ...] = (
    ("", {}),
    ("datasets", {}),
    ("datasets", {"dag_id": "vault"}),
    ("dataset", {"urn": "orders"}),
    ("dataset", {"urn": "stock"}),
    ("dataset", {"urn": "prices"}),
    ("dataset", {"urn": EVIL}),
    ("dataset", {"dag_id": "vault", "urn": LONG}),
    ("dataset", {"dag_id": "vault", "urn": "torn"}),
    ("action", {"urn": "prices", "action": "abandon"}),
    ("action", {"urn": "orders", "action": "rewind", "to": "5"}),
    ("action", {"urn": "orders", "action": "verify"}),
    ("run", {"run_id": "one"}),
    ("pipeline", {"dag_id": "river.both", "ingestion": "both"}),
)
"""Each kind of page, by its path and its query."""


def alone(page: Page, path: str, words: dict[str, str]) -> None:
    """The page at an address of its own, without Airflow around it, when all of it has loaded, with the counts of ingestions."""
    visit(page, path, **words)
    expect(page.locator("[data-count=datasets]", has_text="…")).to_have_count(0)


@one_in(3)
@pytest.mark.parametrize("width", [320, 390, 768])
def test_no_page_is_wider_than_the_screen(browse: Browse, width: int) -> None:
    page = browse("ann")
    page.set_viewport_size({"width": width, "height": 800})
    wide = {}
    for number, (path, words) in enumerate(PAGES):
        alone(page, path, words)
        for details in page.locator("details").all():
            details.evaluate("(one) => { one.open = true; }")
        look(page, f"{width}-{number}-{path}")
        over = page.evaluate(
            """() => [document.documentElement, ...document.querySelectorAll("body *")].filter(
                (one) => one.scrollWidth > one.clientWidth + 1 && (one === document.documentElement
                    || getComputedStyle(one).overflowX !== "visible")
                  || one.getBoundingClientRect().right > innerWidth + 1
               ).map((one) => `${one.tagName}.${one.className} ${one.scrollWidth}`)"""
        )
        if over:
            wide[f"{path} {words}"] = over
    assert wide == {}


# Contrast, as WCAG 2.2 computes it; colours as the browser paints them

CONTRASTS = Path(__file__).with_name("contrasts.js").read_text()
KINDS = {"text", "border", "placeholder", "drawing", "legend", "edge"}
"""Of what there is on all pages together."""


@pytest.mark.parametrize(
    ("dark", "framed", "share"),
    [
        pytest.param(False, False, 1, id="light-alone"),
        pytest.param(True, False, 1, id="dark-alone"),
        pytest.param(True, True, 5, id="dark-some in Airflow"),
        pytest.param(True, True, 1, id="dark-in Airflow", marks=pytest.mark.soak),
        pytest.param(False, True, 1, id="light-in Airflow", marks=pytest.mark.soak),
    ],
)
def test_everything_can_be_distinguished_from_what_is_behind_it(
    browse: Browse, dark: bool, framed: bool, share: int
) -> None:
    page = browse("ann", dark=dark)
    faint: dict[str, str] = {}
    kinds = set()
    seed = fresh_seed()
    print(chosen_by(share, seed))
    for number, (path, words) in enumerate(sampled(PAGES, share, seed)):
        if framed:
            page.goto(f"/plugin/gobblin/gobblin/{path}?{urlencode({**AT, **words} if path else {})}")
            page.frame_locator("iframe").locator("main").wait_for()
            page.frames[-1].wait_for_load_state("networkidle")  # Airflow's own page keeps asking
        else:
            alone(page, path, words)
            look(page, f"{'dark' if dark else 'light'}-{number}-{path}")
        for found in page.frames[-1].evaluate(CONTRASTS):
            kinds.add(found["what"].split()[0])
            if found["ratio"] < found["least"]:
                faint[found["what"]] = f"{found['ratio']:.2f} < {found['least']}"
    assert faint == {}
    assert kinds == KINDS if share == 1 else kinds <= KINDS


# Its texts


@pytest.fixture
def failing(site: Site) -> Lab:
    """An ingestion with dataset `clay`, which failed three times by the same error, and is quarantined."""
    lab = made(site.folder / "forge")
    lab.ingestion = replace(lab.ingestion, attempts=3)
    clay = Table("clay", ExtractKind.APPEND_ONLY, 8)
    opened, plan = lab.decide(clay)
    for step in lab.journal.steps(lab.journal.history("clay").slots[-1].decision):
        opened.files.unlink(step.source)  # type: ignore[attr-defined]
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    while not lab.journal.state("clay").quarantined:
        lab.run(clay)
        lab.reopened()
    return lab


def test_the_same_error_is_shown_once(browse: Browse, failing: Lab) -> None:
    notes = [note for note in failing.journal.notes("clay", 1) if note.event is NoteKind.FAILED]
    assert (len(notes), len({note.detail for note in notes})) == (3, 1)
    page = browse("ann")
    visit(page, "dataset", dag_id="forge", urn="clay")
    expect(page.locator(".failures")).to_contain_text("3 times")
    look(page, "same-error")
    assert page.locator("body").inner_text().count(notes[0].detail) == 1
    assert "quarantined" in column(page, 3)[0]


def test_a_quarantined_slot_is_so_in_the_history(browse: Browse) -> None:
    page = browse("vera")
    for urn, states in (("stock", ["quarantined"]), ("prices", ["done", "pending"])):  # a pause is newer
        slots = visit(page, "dataset", urn=urn).locator(".list tbody tr")
        for number, state in enumerate(states):
            expect(slots.nth(number).locator("td").nth(2)).to_have_text(state)


def test_a_paused_dataset_shows_who_paused_it_and_why(browse: Browse) -> None:
    page = browse("vera")
    visit(page, "datasets")
    for urn, states in (("countries", "paused"), ("prices", "pending paused")):
        expect(page.locator(".list tbody tr", has_text=urn).locator("td").nth(1)).to_have_text(states)
    visit(page, "dataset", urn="countries")
    expect(page.locator(".card.paused")).to_contain_text("its source moves")
    expect(page.locator(".card.paused")).to_contain_text("airflow gobblin resume")


def test_the_figures_of_drawings_are_text_too(browse: Browse) -> None:
    page = visit(browse("vera"), "dataset", urn="orders")
    page.get_by_text("Figures").click()
    rows = page.locator(".figures tbody tr")
    expect(rows).to_have_count(13)
    assert rows.first.inner_text().split("\t")[0::3] == ["13", "3"]
    page.get_by_text("Ranges", exact=True).first.click()
    expect(page.locator(".ranges")).to_contain_text("covered: [0, 39)")


def test_counts_that_fail_show_why(browse: Browse) -> None:
    page = browse("ann")
    visit(page, "")
    expect(page.locator("tr", has_text="garden")).to_contain_text("there is none")
    expect(page.locator("tr", has_text="swamp")).to_contain_text("refused")
    expect(page.locator("tr", has_text="shop")).to_contain_text("1 quarantined")
    look(page, "counts")


def test_what_is_not_seen_is_shown_by_its_escape(browse: Browse) -> None:
    page = browse("ann")
    for path, words in (
        ("datasets", {}),
        ("dataset", {"urn": HIDDEN}),
        ("action", {"urn": HIDDEN, "action": "verify"}),
    ):
        visit(page, path, dag_id="vault", **words)
        expect(page.locator("main")).to_contain_text(r"silver\u202egpj\u3164")
        for text in (page.locator("body").inner_text(), page.title()):
            assert text == visible(text)
    page.get_by_label("Reason").fill("back\u202eward")
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("link", name="Back to the dataset").click()
    expect(page.get_by_role("heading", name="silver", exact=False).first).to_be_visible()


# Its actions


def test_what_takes_something_away_looks_so(browse: Browse) -> None:
    page = browse("ann")
    colour = "(one) => getComputedStyle(one).color"
    visit(page, "dataset", urn="prices")
    abandon, verify = (page.get_by_role("link", name=name).evaluate(colour) for name in ("Abandon", "Verify"))
    visit(page, "dataset", urn="orders")
    assert page.get_by_role("button", name="Rewind").evaluate(colour) == abandon != verify


def test_two_clicks_are_one(site: Site, browse: Browse) -> None:
    lab = made(site.folder / "forge", Table("putty", ExtractKind.APPEND_ONLY, 10))
    lab.run()
    page = browse("ann")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    visit(page, "action", dag_id="forge", urn="putty", action="rewind", to="5")
    page.get_by_label("Reason").fill("amounts were wrong")
    page.get_by_role("button", name="Rewind").dblclick()
    expect(page.get_by_role("status")).to_contain_text("Rewound")
    assert len([address for address in sent if "gobblin/action" in address]) == 1
    assert len(site.journal("forge").history("putty").slots) == 2
