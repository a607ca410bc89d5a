"""Taking secrets out of text, in whatever spelling they come: the one place that knows how (I16).

A secret seldom stands in an error as it was given. It comes as `repr`, JSON, a shell's or an SQL literal, part of a URL, HTML,
bytes, base64 or hexadecimal, and as one of these within another. So what is looked for is not a list of texts, but a pattern
in which each character may be spelled in any of these ways.
"""

from __future__ import annotations

import base64
import io
import json
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import lru_cache
from html.entities import codepoint2name
from itertools import groupby
from typing import Any, TextIO, TypeVar
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from airflow_gobblin.errors import GobblinError

__all__ = [
    "RedactingStream",
    "Redactor",
    "is_sensitive",
    "redacted_output",
    "secrets_of",
    "setting_shows_secret",
    "shows_password",
]

REDACTED = "***"
SHORTEST = 4
"""How many characters a secret must have to be told from other text; for what may hold a shorter one, see `WITHHELD`."""
WITHHELD = (
    f"[withheld, since it may show a secret of fewer than {SHORTEST} characters, which can't be told from other words; "
    "give the connection a longer one to see such messages]"
)
MOST_CHARACTERS = 1_000_000
"""What is longer is cut before it is looked at."""
MOST_OF_AN_ERROR = 4000
"""How many characters of each part of an error are kept."""

E = TypeVar("E", bound=GobblinError)
X = TypeVar("X", bound=BaseException)


class Redactor:
    """Knows secrets, and takes them out of texts and errors. More of them may become known at any time."""

    def __init__(self, uris: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        """:param uris: of connections. :param secrets: as they are."""
        self._secrets: set[str] = set()
        self._patterns: tuple[re.Pattern[str] | None, re.Pattern[str] | None] | None = None
        for uri in uris:
            self.learn_uri(uri)
        self.learn(*secrets)

    def learn_uri(self, uri: str) -> None:
        """Know the secrets of a connection from now on."""
        self.learn(*secrets_of(uri))

    def learn(self, *secrets: str) -> None:
        """Know secrets from now on."""
        new = {secret for secret in secrets if secret} - self._secrets
        if new:
            self._secrets |= new
            self._patterns = None

    def redact(self, text: str) -> str:
        """The text with `***` in place of each secret, and of user and password in any URL, in characters that any record
        can hold."""
        text = text[:MOST_CHARACTERS].encode(errors="replace").decode()
        if self._patterns is None:
            self._patterns = _patterns(frozenset(self._secrets))
        short, long = self._patterns
        if long is not None:
            text = long.sub(REDACTED, text)
        if short is not None and short.search(text):
            return WITHHELD
        return _USER.sub(f"{REDACTED}@", text)

    def brief(self, text: str) -> str:
        """The text without secrets, of a length that any record can hold."""
        text = self.redact(text)
        return text if len(text) <= MOST_OF_AN_ERROR else text[: MOST_OF_AN_ERROR - 1] + "…"

    def shows_secret(self, error: BaseException) -> bool:
        """Whether an error shows a secret wherever it may be printed: itself, its notes, and the errors that led to it.

        An interrupt does so only by what is said: it must stay one, though its class or a frame be named as a password is.
        """
        told = (
            "".join(traceback.TracebackException.from_exception(error).format())
            if isinstance(error, Exception)
            else "\n".join(str(said) for one in _chain(error) for said in (one, *getattr(one, "__notes__", ())))
        )
        values = " ".join(repr(one.args) for one in _chain(error))
        return any(self.redact(text) != text.encode(errors="replace").decode() for text in (told, values))

    def without_secrets(
        self, error: X, operation: str, subject: str, instead: type[GobblinError] = GobblinError
    ) -> X | GobblinError:
        """An error that shows no secret, for one that may: itself, if it doesn't, and nothing that led to it either.

        :param operation: and :param subject: of one that is none of ours; :param instead: what takes its place.
        """
        if not self.shows_secret(error):
            return error
        if isinstance(error, GobblinError):
            return self._redacted(error)
        return self.described(error, operation, subject, instead)

    def described(self, error: BaseException, operation: str, subject: str, as_a: type[E]) -> E:
        """An error of somebody else's code as one of ours: its class, its text without secrets, and where it was raised."""
        at = next(iter(traceback.extract_tb(error.__traceback__)[-1:]), None)
        return as_a(
            operation=operation,
            subject=subject,
            cause=self.brief(f"{type(error).__name__}: {error}"),
            hint=f"Raised by {at.name} in {at.filename}, line {at.lineno}" if at else None,
        )

    @contextmanager
    def guarding(self, operation: str, subject: str, instead: type[GobblinError] = GobblinError) -> Iterator[None]:
        """Let errors out as they are, but none that shows a secret. Parameters as of `without_secrets`."""
        try:
            yield
        except BaseException as error:
            shown = self.without_secrets(error, operation, subject, instead)
            if shown is error:
                raise
            raise shown from None

    def _redacted(self, error: GobblinError) -> GobblinError:
        cause = (
            f"{type(error.cause).__name__}: {error.cause}" if isinstance(error.cause, BaseException) else error.cause
        )
        clean = type(error)(
            operation=self.brief(error.operation),
            subject=self.brief(error.subject),
            cause=None if cause is None else self.brief(str(cause)),
            hint=None if error.hint is None else self.brief(error.hint),
        )
        for note in getattr(error, "__notes__", ()):
            clean.add_note(self.brief(str(note)))
        return clean


class RedactingStream(io.TextIOBase):
    """Standard output or error of a process that has secrets: whatever is printed passes a redactor, line by line.

    Whatever a library, another thread or Python itself prints comes this way; what native code writes does not.
    """

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._begun = ""

    def write(self, text: str) -> int:
        """Write whole lines; the beginning of one waits for its end."""
        *lines, self._begun = (self._begun + text).split("\n")
        self._stream.writelines(f"{self._redactor.redact(line)}\n" for line in lines)
        if len(self._begun) > MOST_CHARACTERS:
            self._end_line()
        return len(text)

    def flush(self) -> None:
        """Write what was begun, too: whoever flushes has ended a secret, if there is one."""
        self._end_line()
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def _end_line(self) -> None:
        begun, self._begun = self._begun, ""
        if begun:
            self._stream.write(self._redactor.redact(begun))


@contextmanager
def redacted_output(redactor: Redactor) -> Iterator[None]:
    """Let nothing secret out by standard output and error, whoever prints it in Python."""
    out, err = (RedactingStream(stream, redactor) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            yield
        finally:
            out.flush()
            err.flush()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and all that led to it."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


# --- What is secret -----------------------------------------------------------------------------------------------------------

_SENSITIVE = re.compile(
    r"(passw(or)?d|passphrase|pwd|secret|token|credentials?|authorization|signature|sas"
    r"|(access|account|api|client|private|secret|shared)[._-]?key|connection[._-]?string)"
    r"([._-][\w-]+(\.(dfs|blob))?\.core\.windows\.net)?$",
    re.IGNORECASE | re.ASCII,
)
_SHOWN = re.compile(
    r"(.*[._-])?(uri|url|id|type|name|host|user|login|port|version|timeout|mode|scheme|region|project|account|bucket|path)"
    r"|client_email|gssencmode|is_anonymous|keepalives.*|options|require_auth|scopes?|sslcert|sslmode|sslrootcert"
    r"|target_session_attrs|universe_domain|verify",
    re.IGNORECASE | re.ASCII,
)
"""Settings whose values are shown, since errors are about them. The value of one that isn't known here is taken for secret."""
_USER = re.compile(r"(?<=://)[^/\s@:]*:[^/\s@]*@|(?:(?<=http://)|(?<=https://))[^/\s@]*@")
_WITH_PASSWORD = re.compile(r"://[^/?#@\s:]*:(?!\d*(?:[/?#]|$))")
_WITH_SETTING = re.compile(r"[?&;\s](?:-D)?([\w.-]{1,100})=[^&;\s]")


def is_sensitive(setting: str) -> bool:
    """Whether a setting of this name holds a secret: `sslpassword`, `spark.hadoop.fs.s3a.secret.key`, `aws_session_token`.

    One that says where a secret is doesn't: `spark.authenticate.secret.file`, `fs.s3a.aws.credentials.provider`.
    """
    return _SENSITIVE.search(setting) is not None


def shows_password(text: str) -> bool:
    """Whether a text that somebody wrote, which may be a URL or hold one, has a password in it, or a setting with one."""
    for word in text.split():
        found = _WITH_PASSWORD.search(word)
        if found is not None and "@" in word[found.end() :]:
            return True
    return any(is_sensitive(name) for name in _WITH_SETTING.findall(f" {text}"))


def setting_shows_secret(name: str, value: object) -> bool:
    """Whether a setting, as somebody wrote it, has a secret in it: not if it says where that is, `${env:TOKEN}`."""
    text = str(value)
    plain = text.lower() in ("", "true", "false") or re.fullmatch(r"\$\{[\w.:-]+\}", text) is not None
    return (is_sensitive(name) and not plain) or shows_password(text)


def secrets_of(uri: str) -> set[str]:
    """What is secret in the URI of a connection: its password, and the values of its query but for well-known settings."""
    scheme, _, rest = uri.partition("://")
    place, _, query = rest.partition("?")
    # A password may hold '@' and '/', though it mustn't.
    users = [text.rpartition("@")[0] for text in (re.split("[/?]", rest, maxsplit=1)[0], place)]
    login, colon, password = max(users, key=len).partition(":")
    found = {password}
    if not colon and not scheme.startswith(("postgres", "sqlite")):
        found.add(login)  # without a password, it may be a token
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        found |= {*_in_setting(unquote_plus(name), unquote_plus(value))}
    return {decoded for text in found for decoded in (text, unquote(text), unquote_plus(text))} - {""}


def _in_setting(name: str, value: Any) -> Iterator[str]:
    """What is secret in a setting, which may be JSON."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, dict):
        for inner, one in value.items():
            yield from _in_setting(inner, one)
    elif isinstance(value, list):
        for one in value:
            yield from _in_setting(name, one)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        plain = len(text) < SHORTEST or text.lower() in ("true", "false", "none", "null")
        if is_sensitive(name) or not (plain or _SHOWN.fullmatch(name)):
            yield text


# --- How it may be spelled ----------------------------------------------------------------------------------------------------

_QUOTES = "'\"\\"
"""Marks that escaping doubles, mixes and nests. A run of them in a secret may come as any other run of them."""
_NESTED = 32
"""As many backslashes may stand before a character: each escape within another one doubles them."""
_BACKSLASHES = rf"\\{{1,{_NESTED}}}+"
_KEY = 48
"""A secret of so many characters is a key: nothing escapes its letters and digits, and their patterns would take seconds."""
_LONGEST = 128
"""Of a longer secret, each piece of so many characters is a secret."""
_SHORTEST_BASE64 = 5


@lru_cache(16)
def _patterns(secrets: frozenset[str]) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """Patterns of secrets that can't be told from other words, and of the others."""
    pieces = {piece for secret in secrets for piece in _pieces(secret)}
    short = [piece for piece in pieces if len(piece.strip(_QUOTES)) < SHORTEST]
    long = sorted(pieces.difference(short), key=len, reverse=True)
    alone = [rf"(?<![^\W_]){_spelled(piece)}(?![^\W_])" for piece in short]
    return _any_of(alone), _any_of([*map(_spelled, long), *(way for piece in long for way in _encoded(piece))])


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(dict.fromkeys(patterns))) if patterns else None


def _pieces(secret: str) -> list[str]:
    """A secret by its lines, as logs tell it, and in pieces of a length that a pattern can have."""
    lines = [line for line in re.split(r"[\r\n]+|(?:\\[rn])+", secret) if len(line) >= SHORTEST] or [secret]
    return [line[start : start + _LONGEST] for line in lines for start in range(0, len(line), _LONGEST)]


def _spelled(secret: str) -> str:
    """A pattern of a secret, each character of which may be spelled in any way."""
    if len(secret) >= _KEY:
        return "".join(char if char.isascii() and char.isalnum() else _spelled(char) for char in secret)
    return "".join(_run(kind, [*some]) for kind, some in groupby(secret, _kind))


def _kind(char: str) -> str:
    return "quotes" if char in _QUOTES else "ASCII" if char.isascii() else "other"


def _run(kind: str, chars: list[str]) -> str:
    if kind == "quotes":
        escaped = "|".join(f"{_BACKSLASHES}(?:{'|'.join(_behind_backslash(char))})" for char in _QUOTES)
        others = "|".join(way for char in _QUOTES for way in _escapes(char))
        return f"(?:{escaped}|{others}|[{re.escape(_QUOTES)}]){{1,{64 * len(chars)}}}"
    exact = "".join(map(_char, chars))
    # What can't be encoded becomes a mark a character, or a byte.
    return exact if kind == "ASCII" else rf"(?:{exact}|[?\ufffd]{{{len(chars)},{4 * len(chars)}}})"


def _char(char: str) -> str:
    raw, escaped = "|".join(_raw(char)), "|".join(_behind_backslash(char))
    return rf"(?:\\{{0,{_NESTED}}}+(?:{raw})|{_BACKSLASHES}(?:{escaped})|{'|'.join(_escapes(char))})"


def _raw(char: str) -> Iterator[str]:
    """A character as it is, composed or not; decoded wrongly; a space in a form."""
    forms = [char, *(unicodedata.normalize(way, char) for way in ("NFC", "NFD")), char.encode().decode("latin-1")]
    yield from map(re.escape, dict.fromkeys([*forms, *("+" if char == " " else "")]))


def _behind_backslash(char: str) -> Iterator[str]:
    """A character in the escapes of Python, JSON, C and shells, without the first backslash."""
    code, units = ord(char), char.encode("utf-16-be")
    for data in _bytes(char):
        yield _hex(_BACKSLASHES.join(f"x{byte:02x}" for byte in data))
        yield _BACKSLASHES.join(f"{byte:03o}" for byte in data)
    yield _hex(_BACKSLASHES.join(f"u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2)))
    yield _hex(rf"(?:U{code:08x}|u\{{0{{0,8}}+{code:x}\}})")
    if code > 127:
        yield _hex(_BACKSLASHES.join(f"udc{byte:02x}" for byte in char.encode()))
        yield rf"N\{{{re.escape(unicodedata.name(char, '-'))}\}}"
    elif char in _NAMED_ESCAPES:
        yield _NAMED_ESCAPES[char]


def _escapes(char: str) -> Iterator[str]:
    """A character in the escapes of URLs, mail and HTML."""
    code = ord(char)
    for data in _bytes(char):
        yield _hex("".join(f"%(?:25){{0,8}}{byte:02x}" for byte in data))
        yield _hex("".join(f"={byte:02x}" for byte in data))
    names = "".join(f"|{name}" for name in (codepoint2name.get(code), "apos" if char == "'" else None) if name)
    yield _hex(f"&(?:amp;){{0,8}}(?:#x0{{0,8}}+{code:x}|#0{{0,8}}+{code}{names});")


def _bytes(char: str) -> Iterator[bytes]:
    """A character in UTF-8, and in Latin-1 if that has it."""
    yield char.encode()
    if 127 < ord(char) < 256:
        yield bytes([ord(char)])


_NAMED_ESCAPES = {"\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}


def _hex(pattern: str) -> str:
    """A pattern in which hexadecimal digits are small or capital."""
    return f"(?i:{pattern})"


def _encoded(secret: str) -> Iterator[str]:
    """Patterns of a secret in hexadecimal, and in base64 wherever in a longer text it stands there."""
    forms = [secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1]]
    for form in dict.fromkeys(forms):
        data = form.encode()
        yield _hex("[ :-]?".join(f"{byte:02x}" for byte in data))
        for shift in range(3):
            # The first and the last characters depend on what stands around it.
            core = base64.b64encode(b"\0" * shift + data)[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6].decode()
            if len(core) >= _SHORTEST_BASE64:
                yield "".join(_BASE64.get(char, char) for char in core)


_BASE64 = {"+": r"(?:[+-]|%2[Bb])", "/": r"(?:\\{0,32}+[/_]|%2[Ff])"}
