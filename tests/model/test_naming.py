from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import (
    MAX_URN_BYTES,
    check_ingestion_name,
    dataset_key,
    dataset_label,
    meant,
    shown,
    table_key,
    urn_of_table_key,
    visible,
)

urns = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=100)
hostile = [
    "a/b", "..", ".", "../../etc", "/", "a\rb", "a\nb", "a ", " a", "_gobblin", "_x", ".x", "-x", "CON", "*", "a\\b", "%2e%2e",
    "flights", "Flights", "FLIGHTS", unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"), "ss", "ß", "😀",
    "\u202e",    "x" * 1000, "x" * 1001, "x" * 79, "x" * 80, "x" * 81, "flights-0123456789abcdef0123", "a.parquet",
]  # fmt: skip


@given(urns)
@example("-" * 81)
def test_a_key_is_a_safe_name(urn: str) -> None:
    key = dataset_key(urn)
    assert key == dataset_key(urn)
    assert key.isascii()
    assert set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-")
    assert key[0] not in "._-"
    assert 0 < len(key) <= 80


def test_every_urn_has_a_key_of_its_own() -> None:
    """Keys of keys are no twins either: a dataset named like another one's key doesn't get its place."""
    known = [*hostile, *(dataset_key(urn) for urn in hostile)]
    keys = {dataset_key(urn).lower() for urn in set(known)}
    assert len(keys) == len(set(known))


@given(urns | st.text("ax_.5fA-", min_size=1, max_size=12))
@example("xab.c")
@example("a_x5f_b")
def test_a_key_for_tables_has_no_dots_and_gives_the_urn_back(urn: str) -> None:
    key = table_key(urn)
    assert set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert key[0] != "_"
    assert urn_of_table_key(key) == urn


def test_a_key_for_tables_is_as_people_name_them() -> None:
    assert table_key("sales.order_items") == "sales__order_items"
    assert table_key("Orders-2") == "x4f_rders_x2d_2"


def test_every_urn_has_a_label_of_its_own_that_can_be_shown() -> None:
    known = {*hostile, *(dataset_key(urn) for urn in hostile)}
    labels = {urn: dataset_label(urn) for urn in known}
    assert len({*labels.values()}) == len(known)
    assert all(label.isprintable() and len(label) <= 200 for label in labels.values())
    assert labels["a/b"] == "a/b"
    assert labels["a\nb"] == dataset_key("a\nb")
    assert labels["x" * 1000] == dataset_key("x" * 1000)


@pytest.mark.parametrize(("urn", "text"), [("a b/é", "a b/é"), ("a\nb", r"'a\nb'"), ("\x1b[2J", r"'\x1b[2J'")])
def test_a_urn_forges_no_line_of_a_log(urn: str, text: str) -> None:
    assert shown(urn) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a b/é\n\t日本", "a b/é\n\t日本"),
        ("in\u202evoice", r"in\u202evoice"),
        ("a\u200b\u3164\ufe0f\u00ad", r"a\u200b\u3164\ufe0f\xad"),
        ("\x1b[2J\r\ud800\U000e0041", r"\x1b[2J\r\ud800\U000e0041"),
    ],
)
def test_what_is_not_seen_is_written_as_its_escape(text: str, seen: str) -> None:
    assert visible(text) == seen
    assert shown("a\u3164") == r"'a\u3164'"


def test_what_may_be_meant_is_asked_once_for_all_names_that_are_not_known() -> None:
    known = ("main.orders", "main.order_lines", "prices")
    assert meant(known, "Price") == "Did you mean 'prices'?"
    assert meant(known, "main.orders2", "prize") == "Did you mean 'main.orders' or 'main.order_lines' or 'prices'?"
    assert meant(known, "main.orders2", most=1) == "Did you mean 'main.orders'?"
    assert meant(known, "zzz", otherwise="It has 3.") == "It has 3."
    assert meant(known, "price", show=str.upper) == "Did you mean PRICES?"


@given(st.lists(urns, min_size=2, max_size=2, unique=True))
def test_two_urns_have_two_keys(two: list[str]) -> None:
    assert dataset_key(two[0]) != dataset_key(two[1])


def test_a_plain_urn_is_its_own_key() -> None:
    assert dataset_key("main.flights_2013-01") == "main.flights_2013-01"
    assert dataset_key("Main/Flights").startswith("main-flights-")


@pytest.mark.parametrize("urn", ["", "x" * (MAX_URN_BYTES + 1), "é" * (MAX_URN_BYTES // 2 + 1), "\ud800", "\0", "a\0b"])
def test_what_can_be_no_urn_is_refused(urn: str) -> None:
    with pytest.raises(ConfigurationError, match="URN"):
        dataset_key(urn)


@pytest.mark.parametrize("name", ["flights", "0", "a.b_c-d", "x" * 80])
def test_ingestion_names(name: str) -> None:
    assert check_ingestion_name(name) == name


@pytest.mark.parametrize("name", ["", "Flights", "_a", ".a", "a/b", "a b", "a\n", "é", "x" * 81, None, 5])
def test_what_can_be_no_ingestion_name_is_refused(name: object) -> None:
    with pytest.raises(ConfigurationError, match="ingestion name"):
        check_ingestion_name(name)
