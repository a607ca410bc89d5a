"""Safe names from external text: a dataset's URN is any UTF-8 text, a key or folder name is not.

Two URNs that differ in any byte (case, NFC and NFD, a trailing space) get different names, even on file systems that fold case,
and no name leaves its folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from airflow_gobblin.errors import ConfigurationError

MAX_URN_BYTES = 4096
_NEAR = 3
_LEAST_PART = 3
_MAX_LABEL = 200  # Airflow keeps 250 characters of the label of a mapped task

# Readers of a folder ignore names that start with `_` or `.`, so no name does.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}")
_HASHED = re.compile(r".*-[0-9a-f]{20}")
# Characters that Python considers printable although they are invisible: fillers, joiners, variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
_INGESTION = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}")


def check_urn(urn: str) -> str:
    """Return a URN if it is valid.

    :raises ConfigurationError: it is empty, too long, not UTF-8, or contains a NUL, which no database stores.
    """
    try:
        size = len(urn.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            operation="use", subject=f"dataset URN {urn!r}", cause="it is not UTF-8", hint="A URN is UTF-8 text."
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
    """Return a text for people, with escapes (`\\u202e`) for characters that are invisible or move others.

    Line ends and tabs are kept.
    """
    if text.isprintable() and not _UNSEEN.search(text):
        return text
    return "".join(char if char in "\n\t" or _is_seen(char) else _escaped(char) for char in text)


def _is_seen(char: str) -> bool:
    return char.isprintable() and not _UNSEEN.match(char)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def shown(urn: str) -> str:
    """Return a URN for a log, quoted if it would forge lines or hide something."""
    return urn if all(map(_is_seen, urn)) else visible(repr(urn))


def dataset_label(urn: str) -> str:
    """Return the label of a dataset where space is short: its URN if it can be printed, else its key.

    Labels are unique.
    """
    plain = shown(urn) == urn and len(urn) <= _MAX_LABEL and not _HASHED.fullmatch(urn)
    return urn if plain else dataset_key(urn)


def dataset_key(urn: str) -> str:
    """Return the name of a dataset in keys and folders: the URN itself if it is plain, otherwise a slug and a hash of it."""
    check_urn(urn)
    if _PLAIN.fullmatch(urn) and not _HASHED.fullmatch(urn):
        return urn
    slug = re.sub(r"[^a-z0-9]+", "-", urn.lower()).strip("-")[:40].strip("-")
    return f"{slug or 'dataset'}-{hashlib.sha256(urn.encode()).hexdigest()[:20]}"


def table_key(urn: str) -> str:
    """Return the name of a dataset in names of tables: `sales.order_items` becomes `sales__order_items`.

    It has only lowercase letters, digits and `_`, begins with a letter or a digit, and `urn_of_table_key` gives the URN back.
    Other characters are written by their number: `_x2d_` is `-`.
    """
    check_urn(urn)
    return _UNLIKE_TABLES.sub(lambda found: _in_table_key(found[0], at_start=found.start() == 0), urn)


_UNLIKE_TABLES = re.compile(
    r"\A_|\Ax(?=[0-9a-f]+[^a-z0-9])"  # would be an escape, or no letter, where a name begins
    r"|_(?![a-z0-9])|(?<=\.)_|_(?=x[0-9a-f]+[^a-z0-9])"  # would be the half of `__`, or the beginning of an escape
    r"|[^a-z0-9_]"
)
_TABLE_ESCAPE = re.compile(r"\Ax([0-9a-f]+)_|_x([0-9a-f]+)_|__")


def _in_table_key(char: str, *, at_start: bool) -> str:
    if char == "." and not at_start:
        return "__"
    return f"{'' if at_start else '_'}x{ord(char):x}_"


def urn_of_table_key(key: str) -> str:
    """Return the URN that `table_key` turned into this name."""

    def char(found: re.Match[str]) -> str:
        number = found[1] or found[2]
        return "." if number is None else chr(int(number, 16))

    return _TABLE_ESCAPE.sub(char, key)


def dataset_id(ingestion: str, urn: str) -> str:
    """Return the id of a dataset among those of several jobs, whose names differ."""
    return f"{ingestion}/{urn}"


def is_name(text: str) -> bool:
    """Return whether a text may be the key of a dataset, or the name of an ingestion."""
    return _PLAIN.fullmatch(text) is not None


def check_ingestion_name(name: object) -> str:
    """Return an ingestion's name if it is valid: it is the store name of its journal, so it is mandatory and permanent.

    :raises ConfigurationError: it is empty or has characters other than lowercase letters, digits, `_`, `.` and `-`.
    """
    if not isinstance(name, str) or not _INGESTION.fullmatch(name):
        raise ConfigurationError(
            operation="use",
            subject=f"ingestion name {name!r}",
            cause="it must match [a-z0-9][a-z0-9_.-]*, with at most 80 characters",
            hint="Name the ingestion once, for good, whatever its DAG is called: its journal is found by this name.",
        )
    return name


def is_hidden(path: str) -> bool:
    """Return whether readers of a folder ignore a path below it: a name in it begins with `_` or `.`."""
    return path.startswith(("_", ".")) or "/_" in path or "/." in path


def many(number: int, noun: str) -> str:
    """Format a number of things for people: `1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def meant(
    known: Sequence[str], *names: str, otherwise: str = "", most: int = _NEAR, show: Callable[[str], str] = repr
) -> str:
    """Return a hint for unknown names: `Did you mean 'orders' or 'prices'?`

    :param known: the known names.
    :param otherwise: the hint if none of them is similar.
    :param most: the maximum number of suggestions for each name.
    :param show: formats a suggestion.
    """
    alike = dict.fromkeys(one for name in names for one in near(name, known)[:most])
    return f"Did you mean {' or '.join(map(show, alike))}?" if alike else otherwise


def near(name: str, known: Sequence[str]) -> list[str]:
    """Return a few known names that are similar to an unknown one, the most similar first; else a few that contain it."""
    folded = {one.casefold(): one for one in known}
    alike = get_close_matches(name.casefold(), folded, n=_NEAR, cutoff=0.5)
    within = name.casefold() if len(name) >= _LEAST_PART else None
    return [folded[one] for one in alike] or [one for one in known if within and within in one.casefold()][:_NEAR]


_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def size(value: int) -> str:
    """Return a number of bytes as text: `1.2 MB`."""
    power = min(len(str(value)) - 1, 15) // 3
    return f"{value / 1000**power:.{min(power, 1)}f} {_BYTES[power]}"
