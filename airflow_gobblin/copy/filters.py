"""Filters of files by their paths, in rclone's pattern language.

    *       any characters but `/`             [a-z]    one of these characters; [!a-z] or [^a-z] none of them
    **      any characters                     {a,b}    either pattern
    ?       one character but `/`              {{re}}   a regular expression
    \\x      the character x; `\\d \\w \\s` and their capitals are classes

A pattern that begins with `/` matches at the root, any other one from any element of the path on. One that ends with `/`
excludes everything in a folder. Source: https://rclone.org/filtering/.

Rules are tried in order, and the first that matches decides; a path that none matches is included. Folders in which nothing can
be included are not entered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.expressions import compiled

_MOST_ALTERNATIVES = 1000
_CLASSES = "dDsSwW"
_NAMED_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_FLAGS = re.DOTALL | re.ASCII


class _Reach(Enum):
    """How far a part of a pattern reaches."""

    ELEMENT = "element"
    """Within one element of a path."""
    SLASH = "slash"
    """The separator."""
    DEEP = "deep"
    """Over any number of elements: `**`."""
    UNKNOWN = "unknown"
    """Over any number of elements, but not all: a regular expression."""


_Part = tuple[_Reach, str]
_SLASH: _Part = (_Reach.SLASH, "/")
_DEEP: _Part = (_Reach.DEEP, ".*")


@dataclass(frozen=True)
class Rule:
    """A pattern whose files are included or excluded.

    :raises ConfigurationError: the pattern is malformed.
    """

    include: bool
    pattern: str

    def __post_init__(self) -> None:
        _compiled(self.pattern)

    def __str__(self) -> str:
        return f"{'+' if self.include else '-'} {self.pattern}"

    def matches(self, path: str) -> bool:
        """Return whether it matches a file."""
        return any(pattern.matches(path) for pattern in _compiled(self.pattern))

    def covers(self, folder: str) -> bool:
        """Return whether it certainly matches every file below a folder."""
        return any(pattern.covers(folder) for pattern in _compiled(self.pattern))

    def may_match_in(self, folder: str) -> bool:
        """Return whether it may match a file below a folder."""
        return any(pattern.may_match_in(folder) for pattern in _compiled(self.pattern))


@dataclass(frozen=True)
class Filter:
    """Rules: the first that matches a file decides about it."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, include: Iterable[str] = (), exclude: Iterable[str] = (), lines: Iterable[str] = ()) -> Filter:
        """Return the filter of an author's patterns, tried in this order: those to exclude, those to include, a filter file's.

        If there is a pattern to include, everything that no rule matches is excluded.

        :param lines: the lines of a filter file: `+ pattern`, `- pattern`, `!` to drop the rules so far, comments after `#`, `;`.
        :raises ConfigurationError: a pattern or a line is malformed.
        """
        wanted = [Rule(True, pattern) for pattern in include]
        rules = [*(Rule(False, pattern) for pattern in exclude), *wanted]
        for line in map(str.strip, lines):
            if line == "!":
                rules.clear()
            elif line and line[0] not in "#;":
                rules.append(_rule(line))
        return cls((*rules, *((Rule(False, "**"),) if wanted else ())))

    def includes(self, path: str) -> bool:
        """Return whether a file is included."""
        return next((rule.include for rule in self.rules if rule.matches(path)), True)

    def enters(self, folder: str) -> bool:
        """Return whether something below a folder may be included."""
        for rule in self.rules if folder != "." else ():
            if rule.include and rule.may_match_in(folder):
                return True
            if not rule.include and rule.covers(folder):
                return False
        return True


def _rule(line: str) -> Rule:
    if line[:2] not in ("+ ", "- "):
        raise ConfigurationError(
            operation="use",
            subject=f"filter line {line!r}",
            cause="it begins with neither '+ ' nor '- '",
            hint="Write '+ pattern' for files to include and '- pattern' for files to exclude.",
        )
    return Rule(line[0] == "+", line[2:].strip())


class _Pattern:
    """A pattern without alternatives, compiled for the questions that are asked of it.

    :param parts: its parts, without the slash that it may begin with.
    :param rooted: whether it began with one.
    """

    def __init__(self, parts: tuple[_Part, ...], rooted: bool) -> None:
        if parts == ((_Reach.ELEMENT, "[^/]*"),) and not rooted:
            parts = (_DEEP,)  # "*" matches the last element of every path
        if parts and parts[-1] is _SLASH:
            parts = (*parts, _DEEP)
        reaches = {reach for reach, _ in parts}
        self._open_end = bool(parts) and parts[-1] is _DEEP
        self._last_only = not rooted and reaches == {_Reach.ELEMENT}
        body = "".join(text for _, text in parts)
        self._whole = compiled(body if rooted or self._last_only else f"(?:.*/)?{body}", _FLAGS)
        self._folders = compiled("|".join(_folders(parts)) or "(?!)", _FLAGS) if rooted else None

    def matches(self, path: str) -> bool:
        if self._last_only:
            path = path[path.rfind("/") + 1 :]
        return self._whole.fullmatch(path) is not None

    def covers(self, folder: str) -> bool:
        return self._open_end and self._whole.fullmatch(f"{folder}/") is not None

    def may_match_in(self, folder: str) -> bool:
        return self._folders is None or self._folders.fullmatch(folder) is not None


def _folders(parts: tuple[_Part, ...]) -> Iterator[str]:
    """Yield regular expressions for the folders in which a rooted pattern may match a file."""
    so_far = ""
    for part in parts:
        reach, text = part
        if reach in (_Reach.DEEP, _Reach.UNKNOWN):
            yield f"{so_far}.*"
            return
        if part is _SLASH and so_far:
            yield so_far
        so_far += text


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> tuple[_Pattern, ...]:
    rooted = pattern.startswith("/")
    reader = _Reader(pattern, pattern.lstrip("/") if rooted else pattern)
    try:
        return tuple(_Pattern(parts, rooted) for parts in reader.read())
    except ValueError as error:
        raise _malformed(pattern, str(error)) from error
    except RecursionError as error:
        raise _malformed(pattern, "it is nested too deep") from error


class _Reader:
    """The parser of a pattern into its alternatives.

    :param pattern: the pattern as the author wrote it.
    :param rest: the part of it to read.
    """

    def __init__(self, pattern: str, rest: str) -> None:
        self._pattern = pattern
        self._text = rest
        self._at = 0

    def read(self) -> list[tuple[_Part, ...]]:
        """Return the alternatives of the whole pattern."""
        found = self._alternatives(depth=0)
        if self._at < len(self._text):
            raise _malformed(self._pattern, "a '}' closes nothing")
        return found

    def _alternatives(self, depth: int) -> list[tuple[_Part, ...]]:
        """Read up to the end, or to the brace that closes these alternatives."""
        done: list[tuple[_Part, ...]] = []
        now: list[tuple[_Part, ...]] = [()]
        while self._at < len(self._text) and self._text[self._at] != "}":
            if depth and self._text[self._at] == ",":
                self._at += 1
                done, now = [*done, *now], [()]
                continue
            some = self._part(depth)
            if len(done) + len(now) * len(some) > _MOST_ALTERNATIVES:
                raise _malformed(self._pattern, f"it has more than {_MOST_ALTERNATIVES} alternatives")
            now = [(*before, *after) for before in now for after in some]
        return [*done, *now]

    def _part(self, depth: int) -> list[tuple[_Part, ...]]:
        """Read the next part: one, or several between braces."""
        char = self._text[self._at]
        if self._text.startswith("{{", self._at):
            return [((_Reach.UNKNOWN, self._regular_expression()),)]
        if char == "{":
            self._at += 1
            some = self._alternatives(depth + 1)
            if self._at == len(self._text):
                raise _malformed(self._pattern, "a '{' isn't closed")
            self._at += 1
            return some
        return [(self._simple(char),)]

    def _simple(self, char: str) -> _Part:
        if char == "*":
            return self._stars()
        if char == "[":
            return (_Reach.ELEMENT, self._class())
        self._at += 1
        if char == "/":
            return _SLASH
        if char == "?":
            return (_Reach.ELEMENT, "[^/]")
        if char == "]":
            raise _malformed(self._pattern, "a ']' closes nothing")
        if char == "\\":
            return self._escaped()
        return (_Reach.ELEMENT, re.escape(char))

    def _stars(self) -> _Part:
        start = self._at
        while self._text[self._at : self._at + 1] == "*":
            self._at += 1
        if self._at - start > 2:
            raise _malformed(self._pattern, "it has more than two stars together")
        return _DEEP if self._at - start == 2 else (_Reach.ELEMENT, "[^/]*")

    def _escaped(self) -> _Part:
        if self._at == len(self._text):
            raise _malformed(self._pattern, "it ends with a backslash")
        char = self._text[self._at]
        self._at += 1
        if char == "/":
            return _SLASH
        return (_Reach.ELEMENT, f"(?!/)\\{char}" if char in _CLASSES else re.escape(char))

    def _class(self) -> str:
        """Read a class of characters, in brackets; none of them matches a slash."""
        self._at += 1
        negated = self._text[self._at : self._at + 1] in ("!", "^")
        self._at += negated
        found = ""
        while (char := self._text[self._at : self._at + 1]) != "]":
            named = re.match(r"\[:(\w+):\]", self._text[self._at :])
            if not char:
                raise _malformed(self._pattern, "a '[' isn't closed")
            if named is not None:
                if named[1] not in _NAMED_CLASSES:
                    raise _malformed(self._pattern, f"there is no class {named[0]}")
                found += _NAMED_CLASSES[named[1]]
                self._at += named.end()
            elif char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                found += f"\\{following}" if following in _CLASSES else re.escape(following)
                self._at += 2
            else:
                found += char if char == "-" else re.escape(char)
                self._at += 1
        self._at += 1
        if not found:
            raise _malformed(self._pattern, "a class of characters is empty")
        return f"(?!/)[{'^' if negated else ''}{found}]"

    def _regular_expression(self) -> str:
        end = self._text.find("}}", self._at)
        if end < 0:
            raise _malformed(self._pattern, "a '{{' isn't closed by '}}'")
        while self._text[end + 2 : end + 3] == "}":  # "{{a{2}}}": it ends with braces of its own
            end += 1
        found = self._text[self._at + 2 : end]
        self._at = end + 2
        flags, _, rest = found.partition(")") if found.startswith("(?") and found[2:3].isalpha() else ("", "", found)
        text = f"{flags}:{rest})" if flags else f"(?:{found})"
        compiled(text, _FLAGS)
        return text


def _malformed(pattern: str, cause: str) -> ConfigurationError:
    return ConfigurationError(
        operation="use",
        subject=f"file pattern {pattern!r}",
        cause=cause,
        hint="Patterns are as rclone's: `*`, `**`, `?`, `[a-z]`, `{a,b}`, `{{regular expression}}`; `\\` before a character "
        "takes it as it is.",
    )
