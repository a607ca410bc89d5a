"""Trees made by hypothesis, on a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from hypothesis import strategies as st

Folder = Mapping[bytes, "bytes | Folder"]
"""The content of a folder: bytes for a file, another folder for a folder."""

ODD = [
    b"a",
    b"a.b",
    b"a-",
    b"a!",
    b"ab",
    b"A",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"\xff",
    b"a\xff",
    b"\xed\xa0\x80",
    b" ",
    b"\n",
]
ODD += ["\U0001f600".encode(), "\ufffd".encode(), b".hidden", b"#1", b"a\\b", b"'", b'"']
names = st.one_of(
    st.sampled_from(ODD),
    st.binary(min_size=1, max_size=8).map(lambda b: b.replace(b"/", b"_").replace(b"\0", b"-")),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=6).map(str.encode),
).filter(lambda name: name not in (b".", b"..", b"_gobblin"))
contents = st.binary(max_size=4)


def _folder(inner: st.SearchStrategy[bytes | Folder]) -> st.SearchStrategy[bytes | Folder]:
    return st.dictionaries(names, inner, max_size=4)


folders = cast(
    "st.SearchStrategy[Folder]",
    st.dictionaries(names, st.recursive(cast("st.SearchStrategy[bytes | Folder]", contents), _folder), max_size=5),
)


def write(folder: Folder, at: bytes, *, modified: int | None = None) -> None:
    """Write a folder's content to disk."""
    os.makedirs(at, exist_ok=True)
    for name, content in folder.items():
        below = at + b"/" + name
        if isinstance(content, bytes):
            with open(below, "wb") as file:
                file.write(content)
            if modified is not None:
                os.utime(below, ns=(modified, modified))
        else:
            write(content, below, modified=modified)


def read(at: bytes) -> dict[bytes, bytes | dict[bytes, object]]:
    """Read a folder's content from disk."""
    found: dict[bytes, bytes | dict[bytes, object]] = {}
    for entry in os.scandir(at):
        if entry.is_dir(follow_symlinks=False):
            found[entry.name] = cast("dict[bytes, object]", read(entry.path))
        else:
            with open(entry.path, "rb") as file:
                found[entry.name] = file.read()
    return found


def keys(folder: Folder, above: bytes = b"") -> Iterator[bytes]:
    """The keys of everything in a folder, as an object store would have them."""
    for name, content in folder.items():
        if isinstance(content, bytes):
            yield above + name
        else:
            yield above + name + b"/"
            yield from keys(content, above + name + b"/")


@contextmanager
def on_disk(**folders: Folder) -> Iterator[Path]:
    """Write folders below a new one, which is removed afterwards."""
    with TemporaryDirectory() as root:
        for name, folder in folders.items():
            write(folder, os.fsencode(f"{root}/{name}"), modified=1_700_000_000_000_000_000)
        yield Path(root)
