"""The contract of trees: what a mirror relies on when it lists, compares and reads files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_gobblin.copy.entries import EntryKind, key_of, sort_key
from airflow_gobblin.copy.trees import Tree
from airflow_gobblin.errors import ConfigurationError

__all__ = ["TreeContract"]

Write = Callable[[str, bytes], object]
"""A function that writes a file below the tree's root, with the folders that it is in; it may replace another one."""

NAMES = [
    "a!",
    "a-b",
    "a.b/c",
    "a0",
    "ab/c/d",
    "ab/c.d",
    "A/b",
    "é/x",
    "e\u0301/x",
    "\U0001f600",
    "\ufffd",
    "b/a",
    "b/c/a",
]
NAMES += ["b/c/b", "b/c/d/a", "b/e", "b+/x", "b'", "z" * 200]
ODD_NAMES = ["a b", " ", "#1", "%41", "?q=1", 'b"&<>', "b&amp;", "[x]", "x;y", "~", "*", "\\n"]


class TreeContract:
    """The suite of `Tree`. Override the fixtures `write` and `tree`."""

    odd_names: tuple[str, ...] = tuple(ODD_NAMES)
    """Names that the storage can have, and that clients and servers may misread."""

    @pytest.fixture
    def write(self) -> Write:
        """Return a function that writes a file below the tree's root, which is empty at first."""
        raise NotImplementedError("override the fixture `write`")

    @pytest.fixture
    def tree(self) -> Tree:
        """Return the tree."""
        raise NotImplementedError("override the fixture `tree`")

    def test_a_walk_shows_everything_in_order(self, tree: Tree, write: Write) -> None:
        for name in NAMES:
            write(name, name.encode())
        keys = sorted({key for name in NAMES for key in _keys(name)})
        found = [*tree.walk()]
        assert [key_of(entry) for entry in found] == keys
        files = {entry.path: entry.size for entry in found if entry.kind is EntryKind.FILE}
        assert files == {name: len(name.encode()) for name in NAMES}
        assert [key_of(entry) for entry in tree.walk("b/c")] == [key for key in keys if key[:4] == b"b/c/" != key]

    def test_any_name_is_found_and_read_again(self, tree: Tree, write: Write) -> None:
        for name in self.odd_names:
            write(f"{name}/{name}", name.encode())
        found = [entry for entry in tree.walk() if entry.kind is EntryKind.FILE]
        assert sorted(entry.path for entry in found) == sorted(f"{name}/{name}" for name in self.odd_names)
        for entry in found:
            assert tree.entry(entry.path) == entry
            with tree.open(entry.path) as file:
                assert file.read() == entry.path.partition("/")[0].encode()
        assert sorted(tree.folders()) == sorted(self.odd_names)
        assert [entry.path for name in sorted(self.odd_names) for entry in tree.walk(name)] == [
            f"{name}/{name}" for name in sorted(self.odd_names)
        ]

    def test_a_folder_is_entered_only_if_that_is_wanted(self, tree: Tree, write: Write) -> None:
        for name in NAMES:
            write(name, b"x")
        closed = ("b/c", "ab")
        found = [entry.path for entry in tree.walk(enter=lambda folder: folder not in closed)]
        wanted = sorted({key for name in NAMES for key in _keys(name)})
        inside = [key for key in wanted if not any(key.startswith(sort_key(one, folder=True)) for one in closed)]
        assert [sort_key(path) for path in found if path not in closed] == [key.rstrip(b"/") for key in inside]

    def test_folders_are_named_in_order(self, tree: Tree, write: Write) -> None:
        for name in ("b/x", "a/x", "a.b/x", "a/b/c/x", "file"):
            write(name, b"x")
        assert [*tree.folders()] == ["a.b", "a", "b"]
        assert [*tree.folders("a")] == ["b"]
        assert [*tree.folders("a/b/c")] == []

    def test_an_entry_is_as_it_was_listed(self, tree: Tree, write: Write) -> None:
        write("a/b", b"12345")
        listed = {entry.path: entry for entry in tree.walk()}
        assert tree.entry("a/b") == listed["a/b"]
        assert (listed["a/b"].kind, listed["a/b"].size) == (EntryKind.FILE, 5)
        assert listed["a/b"].modified > 1_700_000_000_000_000_000
        for folder in (".", "a"):
            found = tree.entry(folder)
            assert found is not None
            assert (found.path, found.kind) == (folder, EntryKind.FOLDER)

    def test_what_is_missing_is_none_and_a_missing_folder_is_an_error(self, tree: Tree, write: Write) -> None:
        write("a/b", b"x")
        assert [tree.entry(path) for path in ("none", "a/none", "none/x", "a/b/x")] == [None] * 4
        for folder in ("none", "a/none", "a/b"):
            with pytest.raises(OSError):  # noqa: PT011 - missing, or no folder
                [*tree.walk(folder)]
            with pytest.raises(OSError):  # noqa: PT011 - likewise
                [*tree.folders(folder)]
        with pytest.raises(OSError), tree.open("none") as file:  # noqa: PT011
            file.read()
        with pytest.raises(OSError):  # noqa: PT011
            tree.read("none", 0, 1)

    @pytest.mark.parametrize("content", [b"", b"\0\xff\r\n", b"0123456789" * 70_001], ids=["empty", "binary", "700 kB"])
    def test_a_file_is_read_whole_and_in_parts(self, tree: Tree, write: Write, content: bytes) -> None:
        write("a/b", content)
        with tree.open("a/b") as file:
            assert file.read() == content
        with tree.open("a/b") as file:
            blocks = [*iter(lambda: file.read(1 << 16), b"")]
        assert b"".join(blocks) == content
        if content:
            middle = len(content) // 2
            assert tree.read("a/b", middle, 3) == content[middle : middle + 3]
            assert tree.read("a/b", 0, len(content)) == content

    def test_other_content_is_another_file(self, tree: Tree, write: Write) -> None:
        write("a", b"one")
        before = tree.entry("a")
        write("a", b"three")
        after = tree.entry("a")
        assert before is not None
        assert after is not None
        assert (before.size, before.stamp) != (after.size, after.stamp)
        assert [*tree.walk()] == [after]

    def test_our_own_folder_is_left_out_at_the_top_only(self, tree: Tree, write: Write) -> None:
        for name in ("_gobblin/x", "a/_gobblin/y", "b"):
            write(name, b"x")
        assert [entry.path for entry in tree.walk()] == ["a", "a/_gobblin", "a/_gobblin/y", "b"]
        assert [entry.path for entry in tree.walk("a")] == []
        assert [*tree.folders()] == ["a"]

    @pytest.mark.parametrize("path", ["", "/etc/hostname", "..", "../a", "a/../../b", "./a", "a//b", "a\0b"])
    def test_no_path_leaves_the_root(self, tree: Tree, write: Write, path: str) -> None:
        write("a", b"x")
        for call in (tree.entry, tree.open, lambda path: tree.read(path, 0, 1), lambda path: [*tree.walk(path)]):
            with pytest.raises(ConfigurationError, match="must be a plain relative path"):
                call(path)

    def test_its_root_is_named_without_a_connection(self, tree: Tree) -> None:
        assert tree.root
        assert "@" not in tree.root


def _keys(name: str) -> list[bytes]:
    """Return the keys of a file and of the folders that it is in."""
    return [*(sort_key(name[:at], folder=True) for at, char in enumerate(name) if char == "/"), sort_key(name)]
