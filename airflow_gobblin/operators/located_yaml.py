"""YAML as plain JSON values, with the line and column of each, so that an error can point at its cause.

Only JSON's types are read, by the rules of YAML 1.2: `no`, `on` and dates are strings. Tags are refused, so no text creates an
object of any class; so are duplicate keys. Anchors, aliases and `<<` let several mappings share values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import yaml

from airflow_gobblin.model.watermark import Json
from airflow_gobblin.redaction import shows_password

__all__ = ["Document", "Place", "Problem", "Unreadable", "ValuePath", "parse", "path_text"]

MOST_BYTES = 4 << 20
"""The largest size of a document, in bytes."""
MOST_VALUES = 500_000
"""The largest number of values in a document, counting an alias as the values it refers to."""
MOST_MERGED = 2_000_000
"""The largest number of values that `<<` may add to all mappings together, including those that they already have."""
MOST_DEEP = 100
"""The largest number of nested levels."""

ValuePath = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_LONGEST_NUMBER = 40
_LONGEST_KEY = 200

_Pair = tuple[yaml.ScalarNode, yaml.Node]


@dataclass(frozen=True, order=True)
class Place:
    """A position in a text: line and column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, order=True)
class Problem:
    """A problem, and its place.

    :param cause: what was expected and what was found, with the way out.
    """

    place: Place
    path: ValuePath
    cause: str

    def __str__(self) -> str:
        where = f"{path_text(self.path)}: " if self.path else ""
        return f"{self.place.line}:{self.place.column}: {where}{self.cause}"


@dataclass(frozen=True)
class Document:
    """The values of a text.

    :param values: where each value begins.
    :param keys: where each value's key begins.
    """

    value: Json
    values: dict[ValuePath, Place] = field(default_factory=dict)
    keys: dict[ValuePath, Place] = field(default_factory=dict)

    def problem(self, path: ValuePath, cause: str, *, at_key: bool = False) -> Problem:
        """Return a problem with the value at a path, or with its key; if it is missing, with what it should be in."""
        places, known = self.keys if at_key else self.values, path
        while known and known not in places:
            known = known[:-1]
        return Problem(places.get(known) or self.values.get(known, Place(1, 1)), path, cause)


class Unreadable(Exception):
    """A text can't be read as plain values. A caller that knows the file reports it to users, in an error of the tree."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


def path_text(path: ValuePath) -> str:
    """Return a path as people write it, `source.sql.tables[3].kind`, without keys that are long or show a password."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_shown(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def _shown(key: str) -> str:
    return "…" if len(key) > _LONGEST_KEY or shows_password(key) else key


def parse(data: bytes) -> Document:
    """Read a document.

    :raises Unreadable: it isn't one, is too large, or holds more than plain values.
    """
    if len(data) > MOST_BYTES:
        raise Unreadable(
            Problem(Place(1, 1), (), f"it is larger than {MOST_BYTES >> 20} MiB; make several files of it")
        )
    try:
        root = _root(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = error.start - before.rfind(b"\n")
        raise Unreadable(Problem(Place(before.count(b"\n") + 1, column), (), "it is not UTF-8")) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        cause = ", ".join(part for part in (error.context, error.problem) if part)
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise Unreadable(Problem(place, (), f"it is not YAML: {cause}")) from error
    except yaml.reader.ReaderError as error:
        cause = f"it holds the character U+{error.character:04X}" if isinstance(error.character, int) else error.reason
        raise Unreadable(Problem(Place(1, 1), (), f"it is not YAML: {cause}, which YAML doesn't allow")) from error
    if root is None:
        raise Unreadable(Problem(Place(1, 1), (), "it is empty"))
    return _Conversion().document(root)


def _root(text: str) -> yaml.Node | None:
    _expect_shallow(text)
    loader = _Loader(text)
    try:
        return cast("yaml.Node | None", loader.get_single_node())
    finally:
        loader.dispose()


def _expect_shallow(text: str) -> None:
    """Check how deep a text is nested before anything recurses into it: libyaml's composer would overflow the stack.

    :raises Unreadable: it is too deep.
    """
    loader, depth = _Loader(text), 0
    try:
        while loader.check_event():
            event = loader.get_event()
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEEP:
                place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
                raise Unreadable(Problem(place, (), f"it is nested deeper than {MOST_DEEP} levels"))
    finally:
        loader.dispose()


class _Conversion:
    """The conversion of one document to values."""

    def __init__(self) -> None:
        self.values: dict[ValuePath, Place] = {}
        self.keys: dict[ValuePath, Place] = {}
        self.problems: list[Problem] = []
        self.open: set[int] = set()  # the nodes being visited
        self.pairs: dict[int, list[_Pair]] = {}
        self.merges = 0

    def document(self, root: yaml.Node) -> Document:
        value = self.value(root, ())
        if self.problems:
            raise Unreadable(*self.problems)
        return Document(value, self.values, self.keys)

    def value(self, node: yaml.Node, path: ValuePath) -> Json:
        self.values[path] = _place(node)
        if len(path) > MOST_DEEP:  # by aliases
            raise Unreadable(Problem(_place(node), path[:3], f"it is nested deeper than {MOST_DEEP} levels"))
        if len(self.values) > MOST_VALUES:
            raise Unreadable(Problem(_place(node), path, f"it holds more than {MOST_VALUES:,} values"))
        if id(node) in self.open:
            raise Unreadable(Problem(_place(node), path, "an alias is part of what it names"))
        self.open.add(id(node))
        try:
            return self._inner(node, path)
        finally:
            self.open.discard(id(node))

    def _inner(self, node: yaml.Node, path: ValuePath) -> Json:
        name = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and name == "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and name == "seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and name in ("str", "merge"):
            return cast(str, node.value)
        if isinstance(node, yaml.ScalarNode) and name in _PLAIN:
            try:
                return _PLAIN[name][2](node.value)
            except ValueError:
                return self._wrong(node, path, "it is not a number that can be used here")
        shown = "!" + name if node.tag.startswith(_TAG) else node.tag
        return self._wrong(node, path, f"the tag {shown[:60]!r} is refused; quote a text that begins with '!'")

    def _mapping(self, node: yaml.MappingNode, path: ValuePath) -> Json:
        found: dict[str, Json] = {}
        for key, value in self._pairs(node, path):
            inner = (*path, key.value)
            self.keys[inner] = _place(key)
            found[key.value] = self.value(value, inner)
        return found

    def _pairs(self, node: yaml.MappingNode, path: ValuePath) -> list[_Pair]:
        """Return the keys and values of a mapping: its own, then those that `<<` adds. Computed once, as many may share them."""
        if id(node) in self.pairs:
            return self.pairs[id(node)]
        found: dict[str, _Pair] = {}
        shared: list[_Pair] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                shared += self._merged(value, path)
            elif not isinstance(key, yaml.ScalarNode) or key.tag != f"{_TAG}str":
                given = f"{key.value[:60]!r}; quote it" if isinstance(key, yaml.ScalarNode) else "a list or a mapping"
                self._wrong(key, path, f"expected a text as key, found {given}")
            elif key.value in found:
                line = _place(found[key.value][0]).line
                self._wrong(key, (*path, key.value), f"the key was given before, in line {line}")
            else:
                found[key.value] = (key, value)
        for key, value in shared:
            found.setdefault(key.value, (key, value))
        return self.pairs.setdefault(id(node), [*found.values()])

    def _merged(self, node: yaml.Node, path: ValuePath) -> Iterator[_Pair]:
        """Yield the pairs that `<<` adds: those of a mapping, or of several in order."""
        for mapping in node.value if isinstance(node, yaml.SequenceNode) else (node,):
            if id(mapping) in self.open:
                raise Unreadable(Problem(_place(mapping), path, "an alias is part of what it names"))
            if not isinstance(mapping, yaml.MappingNode) or mapping.tag != f"{_TAG}map":
                self._wrong(mapping, (*path, "<<"), "expected an alias of a mapping")
                continue
            self.open.add(id(mapping))
            pairs = self._pairs(mapping, path)
            self.open.discard(id(mapping))
            self.merges += 1 + len(pairs)
            if self.merges > MOST_MERGED:
                raise Unreadable(Problem(_place(node), path, f"'<<' brings more than {MOST_MERGED:,} values"))
            yield from pairs

    def _wrong(self, node: yaml.Node, path: ValuePath, cause: str) -> Json:
        """Record a problem and go on without a value, so that all problems are reported."""
        self.problems.append(Problem(_place(node), path, cause))
        return None


def _place(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(text)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PLAIN: dict[str, tuple[str, Sequence[str], Callable[[str], Json]]] = {
    "null": (r"~|null|Null|NULL|", ("~", "n", "N", ""), lambda text: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789", _integer),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789", _finite),
    "merge": (r"<<", "<", str),
}
"""How a plain scalar is read: its type's name, its pattern, its possible first characters, and its conversion."""


class _Core(yaml.resolver.BaseResolver):  # type: ignore[misc]
    """The types of YAML 1.2's core schema, without those of 1.1."""


for _name, (_pattern, _begins, _) in _PLAIN.items():
    _Core.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), [*_begins])

if TYPE_CHECKING or not yaml.__with_libyaml__:

    class _Loader(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer, _Core):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            yaml.reader.Reader.__init__(self, text)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)
            _Core.__init__(self)

else:

    class _Loader(yaml.cyaml.CParser, _Core):  # ten times as fast
        def __init__(self, text: str) -> None:
            yaml.cyaml.CParser.__init__(self, text)
            _Core.__init__(self)
