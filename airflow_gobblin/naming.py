"""Names from outside, made safe: a dataset's URN is any UTF-8 text, a key or folder name is not.

Two URNs that differ in any byte (case, NFC and NFD, a trailing space) get different names, on file systems that fold case too,
and no name leaves its folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from difflib import get_close_matches

from airflow_gobblin.errors import ConfigurationError

MAX_URN_BYTES = 4096
_NEAR = 3
_LEAST_PART = 3
_MAX_LABEL = 200  # Airflow keeps 250 characters of the label of a mapped task

# Readers of a folder ignore what starts with `_` or `.`, so no name does.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}")
_HASHED = re.compile(r".*-[0-9a-f]{20}")
# What Python takes for printable, and nobody sees: fillers, joiners, selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
_INGESTION = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}")


def check_urn(urn: str) -> str:
    """A URN, if it can be one. :raises ConfigurationError: empty, too long, not UTF-8, or with a NUL, which no database keeps."""
    try:
        size = len(urn.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            operation="use", subject=f"dataset URN {urn!r}", cause=error, hint="A URN is UTF-8 text."
        ) from error
    if not 0 < size <= MAX_URN_BYTES:
        raise ConfigurationError(
            operation="use",
            subject=f"dataset URN {urn[:40]!r}",
            cause=f"it has {size} bytes",
            hint=f"Give every dataset a URN of 1 to {MAX_URN_BYTES} bytes.",
        )
    if "\0" in urn:
        raise ConfigurationError(
            operation="use",
            subject=f"dataset URN {urn[:40]!r}",
            cause="it holds a NUL, which databases don't keep in a text",
            hint="Give the dataset a URN without it.",
        )
    return urn


def visible(text: str) -> str:
    """A text for people, in which each character that isn't seen, or that moves others, is written as its escape (`\\u202e`).

    Ends of lines and tabs stay.
    """
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(char if char in "\n\t" or _is_seen(char) else _escaped(char) for char in text)


def _is_seen(char: str) -> bool:
    return char.isprintable() and not _UNSEEN.match(char)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def shown(urn: str) -> str:
    """A URN as a log may print it: one that would forge lines or hide something is quoted."""
    return urn if all(map(_is_seen, urn)) else visible(repr(urn))


def dataset_label(urn: str) -> str:
    """What a dataset is called where people see it and there is little room: its URN if it can be printed, else its key.

    Two datasets have two labels.
    """
    plain = shown(urn) == urn and len(urn) <= _MAX_LABEL and not _HASHED.fullmatch(urn)
    return urn if plain else dataset_key(urn)


def dataset_key(urn: str) -> str:
    """The name of a dataset in keys and folders: the URN itself where it is plain, otherwise a slug and a hash of it."""
    check_urn(urn)
    if _PLAIN.fullmatch(urn) and not _HASHED.fullmatch(urn):
        return urn
    slug = re.sub(r"[^a-z0-9]+", "-", urn.lower()).strip("-")[:40].strip("-")
    return f"{slug or 'dataset'}-{hashlib.sha256(urn.encode()).hexdigest()[:20]}"


def is_name(text: str) -> bool:
    """Whether a text may be the key of a dataset, or the name of an ingestion."""
    return _PLAIN.fullmatch(text) is not None


def check_ingestion_name(name: object) -> str:
    """An ingestion's name, if it can be one: it is the store name of its journal, so it is mandatory and lasts.

    :raises ConfigurationError: it is empty or has other characters than small letters, digits, `_`, `.` and `-`.
    """
    if not isinstance(name, str) or not _INGESTION.fullmatch(name):
        raise ConfigurationError(
            operation="use",
            subject=f"ingestion name {name!r}",
            cause="it must match [a-z0-9][a-z0-9_.-]*, with at most 80 characters",
            hint="Name the ingestion once, for good, whatever its DAG is called: its journal is found by this name.",
        )
    return name


def many(number: int, noun: str) -> str:
    """A number of things, for people: `1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def near(name: str, known: Sequence[str]) -> list[str]:
    """What may be meant by a name that isn't known: a few that are alike, the likest first; else a few that hold it."""
    folded = {one.casefold(): one for one in known}
    alike = get_close_matches(name.casefold(), folded, n=_NEAR, cutoff=0.5)
    within = name.casefold() if len(name) >= _LEAST_PART else None
    return [folded[one] for one in alike] or [one for one in known if within and within in one.casefold()][:_NEAR]
