"""Redaction of secrets from text, in any spelling: the only code that does this (I16).

A secret seldom appears in an error as it was given. It may appear as `repr`, JSON, a shell or SQL literal, part of a URL, HTML,
bytes, UTF-16, base64, base32 or hexadecimal, in lines of some width, and as one of these within another. So the search is not for
a list of texts, but for a pattern in which each character may be spelled in any of these ways.
"""

from __future__ import annotations

import base64
import codecs
import io
import json
import re
import sys
import threading
import traceback
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import lru_cache
from html.entities import codepoint2name
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO, TypeVar
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from airflow_gobblin.errors import GobblinError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
"""The minimum length of a secret that can be distinguished from other text; see `WITHHELD` for texts with shorter ones."""
WITHHELD = (
    f"[withheld, since it may show a secret of fewer than {SHORTEST} characters, which can't be distinguished from other words; "
    "give the connection a longer one to see such messages]"
)
MOST_CHARACTERS = 1_000_000
"""Longer text is truncated before the search."""
MOST_OF_AN_ERROR = 4000
"""The number of characters kept of each part of an error."""

E = TypeVar("E", bound=GobblinError)
X = TypeVar("X", bound=BaseException)


class Redactor:
    """A redactor of known secrets in texts and errors. More secrets may be added at any time."""

    def __init__(self, uris: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        """Create a redactor.

        :param uris: URIs of connections, whose secrets are redacted.
        :param secrets: further secrets, as they are.
        """
        self._secrets: set[str] = set()
        self._patterns: tuple[re.Pattern[str] | None, re.Pattern[str] | None] | None = None
        for uri in uris:
            self.learn_uri(uri)
        self.learn(*secrets)

    def learn_uri(self, uri: str) -> None:
        """Add the secrets of a connection."""
        self.learn(*secrets_of(uri))

    def learn(self, *secrets: str) -> None:
        """Add secrets."""
        new = {secret for secret in secrets if secret} - self._secrets
        if new:
            self._secrets |= new
            self._patterns = None

    def redact(self, text: str) -> str:
        """Return the text with `***` in place of each secret, and of user and password in any URL.

        The result contains only characters that any record can contain.
        """
        text = text[:MOST_CHARACTERS].encode(errors="replace").decode()
        if self._patterns is None:
            self._patterns = _patterns(frozenset(self._secrets))
        short, long = self._patterns
        if long is not None:
            text = long.sub(REDACTED, _without_wrapped(long, text))
        if short is not None and short.search(text):
            return WITHHELD
        return _USER.sub(f"{REDACTED}@", text)

    def brief(self, text: str) -> str:
        """Return the text without secrets, shortened to a length that any record can contain."""
        text = self.redact(text)
        return text if len(text) <= MOST_OF_AN_ERROR else text[: MOST_OF_AN_ERROR - 1] + "…"

    def shows_secret(self, error: BaseException) -> bool:
        """Return whether an error shows a secret wherever it may be printed: in itself, its notes, or the errors that led to it.

        For an interrupt, only messages count: it must remain one, even if its class or a frame is named like a password.
        """
        printed = (
            "".join(traceback.TracebackException.from_exception(error).format())
            if isinstance(error, Exception)
            else "\n".join(str(part) for one in _chain(error) for part in (one, *getattr(one, "__notes__", ())))
        )
        values = " ".join(repr(one.args) for one in _chain(error))
        return any(self.redact(text) != text.encode(errors="replace").decode() for text in (printed, values))

    def without_secrets(
        self, error: X, operation: str, subject: str, instead: type[GobblinError] = GobblinError
    ) -> X | GobblinError:
        """Return an error that shows no secret: the same one if neither it nor the errors that led to it show any.

        :param operation: the operation of the new error, if the given one isn't a `GobblinError`.
        :param subject: its subject, likewise.
        :param instead: its class, likewise.
        """
        if not self.shows_secret(error):
            return error
        if isinstance(error, GobblinError):
            return self._redacted(error)
        return self.described(error, operation, subject, instead)

    def described(self, error: BaseException, operation: str, subject: str, as_a: type[E]) -> E:
        """Convert a foreign error to one of ours: its class, its text without secrets, and where it was raised."""
        at = next(iter(traceback.extract_tb(error.__traceback__)[-1:]), None)
        return as_a(
            operation=operation,
            subject=subject,
            cause=self.brief(f"{type(error).__name__}: {error}"),
            hint=f"Raised by {at.name} in {at.filename}, line {at.lineno}" if at else None,
        )

    @contextmanager
    def guarding(self, operation: str, subject: str, instead: type[GobblinError] = GobblinError) -> Iterator[None]:
        """Let errors pass unchanged, except those that show a secret. For the parameters see `without_secrets`."""
        try:
            yield
        except BaseException as error:
            shown = self.without_secrets(error, operation, subject, instead)
            if shown is error:
                raise
            raise shown from None

    def _redacted(self, error: GobblinError) -> GobblinError:
        clean = type(error)(
            operation=self.brief(error.operation),
            subject=self.brief(error.subject),
            cause=None if error.why is None else self.brief(error.why),
            hint=None if error.hint is None else self.brief(error.hint),
            remedy=error.remedy,
        )
        for note in getattr(error, "__notes__", ()):
            clean.add_note(self.brief(str(note)))
        return clean


class RedactingStream(io.TextIOBase):
    """Standard output or error of a process that has secrets: all output passes a redactor, line by line.

    This includes output of libraries, other threads and Python itself, even to `buffer`, but not of native code. Lines of several
    threads don't interleave, and a line that may be wrapped waits for the next one.
    """

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._begun: dict[int, str] = {}
        """The incomplete output of each thread."""
        self._lock = threading.RLock()
        self._buffer = _RedactingBuffer(self)

    @property
    def buffer(self) -> _RedactingBuffer:
        """The stream for bytes."""
        return self._buffer

    def write(self, text: str) -> int:
        """Write whole lines; the beginning of a line waits for its end."""
        me = threading.get_ident()
        with self._lock:
            lines = (self._begun.pop(me, "") + text).splitlines(keepends=True)
            begun = ""
            for line in lines:
                begun += line
                if (line.endswith("\n") and not _WRAPPED.search(line)) or len(begun) > MOST_CHARACTERS:
                    self._write(begun)
                    begun = ""
            if begun:
                self._begun[me] = begun
        return len(text)

    def flush(self) -> None:
        """Write this thread's incomplete output, too: a secret in it, if any, is complete when flushed."""
        with self._lock:
            self._write(self._begun.pop(threading.get_ident(), ""))
            self._stream.flush()

    def end(self) -> None:
        """Write the incomplete output of all threads."""
        with self._lock:
            while self._begun:
                self._write(self._begun.popitem()[1])
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

    def _write(self, text: str) -> None:
        """Write lines that belong together, and the beginning of one."""
        if text:
            line, end = (text[:-1], "\n") if text.endswith("\n") else (text, "")
            self._stream.write(self._redactor.redact(line) + end)


class _RedactingBuffer(io.BufferedIOBase):
    """A redacting stream for bytes. Bytes that can't be decoded are written as escapes."""

    def __init__(self, stream: RedactingStream) -> None:
        self._text = stream
        self._encoding = stream.encoding or "utf-8"
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}
        """The decoder of each thread, which may be within a character."""

    def write(self, data: ReadableBuffer) -> int:
        """Write bytes like text."""
        view = memoryview(data)
        me = threading.get_ident()
        decoder = self._decoders.get(me) or codecs.getincrementaldecoder(self._encoding)("backslashreplace")
        self._decoders[me] = decoder
        self._text.write(decoder.decode(bytes(view)))
        return view.nbytes

    def flush(self) -> None:
        """Write this thread's incomplete output."""
        decoder = self._decoders.pop(threading.get_ident(), None)
        if decoder is not None:
            self._text.write(decoder.decode(b"", final=True))
        self._text.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._text.isatty()

    def fileno(self) -> int:
        return self._text.fileno()


@contextmanager
def redacted_output(redactor: Redactor) -> Iterator[None]:
    """Redact everything that Python code prints to standard output and error."""
    out, err = (RedactingStream(stream, redactor) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            yield
        finally:
            out.end()
            err.end()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all errors that led to it."""
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
    r"(.*[._-])?(uri|url|id|type|name|host|user|login|port|version|timeout|mode|scheme|region|project|account|bucket|path"
    r"|servers|protocol|mechanisms?|username|location|ms)"
    r"|client_email|gssencmode|is_anonymous|keepalives.*|options|require_auth|scopes?|sslcert|sslmode|sslrootcert"
    r"|target_session_attrs|universe_domain|verify",
    re.IGNORECASE | re.ASCII,
)
"""Settings whose values are shown, since errors mention them. The values of all other settings count as secret."""
_USER = re.compile(r"(?<=://)[^/\s@:]*:[^/\s@]*@|(?:(?<=http://)|(?<=https://))(?!connection@)[^/\s@]*@")
"""User and password in a URL, and a user of HTTP, which may be a token; not the word that hints have in place of an id."""
_WITH_PASSWORD = re.compile(r"://[^/?#@\s:]*:(?!\d*(?:[/?#]|$))")
_HOST = r"(?:\[[^\]]*\]|[^:,\[]*)(?::\d*)?"
_HOSTS = re.compile(f"{_HOST}(?:,{_HOST})*")
_BEFORE_SETTING = re.compile(r"[^?]*\?[^=&]*(?=@)")
_PAIR = re.compile(r"""([\w.-]{1,100})=("[^"]*"|'[^']*'|[^;&,\s]+)""", re.ASCII)
_SCHEME_OF_HEADER = re.compile(r"\A(?:Basic|Bearer|Token)\s+(\S+)\s*\Z", re.IGNORECASE)
_SEPARATORS = re.compile(r"[/?#@:\[\]\s]+")
_WITH_SETTING = re.compile(r"[?&;\s](?:-D)?([\w.-]{1,100})=[^&;\s]")


def is_sensitive(setting: str) -> bool:
    """Return whether a setting of this name is secret: `sslpassword`, `spark.hadoop.fs.s3a.secret.key`, `aws_session_token`.

    A setting with the location of a secret isn't: `spark.authenticate.secret.file`, `fs.s3a.aws.credentials.provider`.
    """
    return _SENSITIVE.search(setting) is not None


def shows_password(text: str) -> bool:
    """Return whether a user's text, which may be or contain a URL, contains a password or a setting with one."""
    for word in text.split():
        found = _WITH_PASSWORD.search(word)
        if found is not None and "@" in word[found.end() :]:
            return True
    return any(is_sensitive(name) for name in _WITH_SETTING.findall(f" {text}"))


def setting_shows_secret(name: str, value: object) -> bool:
    """Return whether a setting, as the user wrote it, contains a secret: not if it refers to one, as `${env:TOKEN}`."""
    text = str(value)
    plain = text.lower() in ("", "true", "false") or re.fullmatch(r"\$\{[\w.:-]+\}", text) is not None
    return (is_sensitive(name) and not plain) or shows_password(text)


def secrets_of(uri: str) -> set[str]:
    """Return the secrets in the URI of a connection: its password, and the values of its query except well-known settings.

    A password may contain unescaped `/`, `?`, `#` or `@`. Parsers of the URI then report its parts as host, port, path or
    setting, so these are secret, too.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator and "@" in uri:
        scheme, rest = "", uri
    login, colon, password = _user_of(rest).partition(":")
    found = {password, *_parts(password)}
    if not colon and not scheme.startswith(("postgres", "sqlite")):
        found.add(login)  # without a password, it may be a token
    for pair in rest.partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        for text in {value, value.partition("#")[0]}:
            found |= {*_in_setting(unquote_plus(name), unquote_plus(text))}
    return {decoded for text in found for decoded in (text, unquote(text), unquote_plus(text))} - {""}


def _user_of(rest: str) -> str:
    """Return login and password from a URI without its scheme, whether escaped correctly or not."""
    authority, place = re.split("[/?#]", rest, maxsplit=1)[0], rest.partition("?")[0]
    user = max((text.rpartition("@")[0] for text in (authority, place)), key=len)
    if user:
        return user
    if ":" not in authority:
        return ""
    if not _HOSTS.fullmatch(authority):  # the supposed port is part of a password
        return rest.rpartition("@")[0] or authority
    asked = _BEFORE_SETTING.match(rest)
    return asked[0] if asked else unquote(place).rpartition("@")[0]


def _parts(password: str) -> Iterator[str]:
    """Yield the parts of a password that contains separators of URIs."""
    parts = _SEPARATORS.split(password)
    yield from (part for part in parts if len(parts) > 1 and len(part) >= SHORTEST)


def _in_setting(name: str, value: Any) -> Iterator[str]:
    """Yield the secrets in a setting, which may be JSON."""
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
        yield from (part for part in _within(name, text) if len(part) >= SHORTEST)


def _within(name: str, text: str) -> Iterator[str]:
    """Yield the secrets that a setting has among other things, and that clients take out and show alone."""
    if _USER.search(text):
        yield from secrets_of(text)
    elif is_sensitive(name):  # an id and its secret, as for a catalog
        yield text.partition(":")[2]
    yield from (word.strip("'\"") for inner, word in _PAIR.findall(text) if is_sensitive(inner))
    yield from _SCHEME_OF_HEADER.findall(text)


# --- How it may be spelled ----------------------------------------------------------------------------------------------------

_QUOTES = "'\"\\"
"""Characters that escaping doubles, mixes and nests. A run of them in a secret may appear as any other run of them."""
_NESTED = 32
"""The maximum number of backslashes before a character: each nested escape doubles them."""
_BACKSLASHES = rf"\\{{1,{_NESTED}}}+"
_KEY = 48
"""A secret of this length or more is a key: nothing escapes its letters and digits, and patterns for that would take seconds."""
_LONGEST = 128
"""A longer secret is split into pieces of this length, each of which is a secret."""
_SHORTEST_BASE64 = 5
_SHORTEST_BASE32 = 6
_SHORTEST_WRAPPED = 40
"""The minimum number of characters of an encoded secret in a wrapped line: PEM has 64, MIME 76."""
_WRAPPED = re.compile(rf"[A-Za-z0-9+/_-]{{{_SHORTEST_WRAPPED}}}\s*$")
_BREAK = re.compile(
    rf"(?<=[A-Za-z0-9+/_-]{{{_SHORTEST_WRAPPED}}})(?:[\r\n]|\\{{1,{_NESTED}}}[rn])+[ \t]*(?=[A-Za-z0-9+/_-])"
)


@lru_cache(16)
def _patterns(secrets: frozenset[str]) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """Return a pattern of the secrets that can't be distinguished from other words, and one of the others."""
    pieces = {piece for secret in secrets for piece in _pieces(secret)}
    short = [piece for piece in pieces if len(piece.strip(_QUOTES)) < SHORTEST]
    long = sorted(pieces.difference(short), key=len, reverse=True)
    alone = [rf"(?<![^\W_]){_spelled(piece)}(?![^\W_])" for piece in short]
    return _any_of(alone), _any_of([*map(_spelled, long), *(way for piece in long for way in _encoded(piece))])


def _without_wrapped(secrets: re.Pattern[str], text: str) -> str:
    """Redact secrets that continue on the next line after a long line."""
    breaks = [found.span() for found in _BREAK.finditer(text)]
    if not breaks:
        return text
    removed, at = [0], []  # length up to each break, and its place in the text without breaks
    for start, end in breaks:
        at.append(start - removed[-1])
        removed.append(removed[-1] + end - start)
    joined = _BREAK.sub("", text)
    parts, done = [], 0
    for found in secrets.finditer(joined):
        low, high = found.span()
        parts.append(text[done : low + removed[bisect_right(at, low)]])
        done = high + removed[bisect_left(at, high)]
    return REDACTED.join([*parts, text[done:]])


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(dict.fromkeys(patterns))) if patterns else None


def _pieces(secret: str) -> list[str]:
    """Split a secret into lines, as in logs, and these into pieces short enough for a pattern."""
    lines = [line for line in re.split(r"[\r\n]+|(?:\\[rn])+", secret) if len(line) >= SHORTEST] or [secret]
    return [line[start : start + _LONGEST] for line in lines for start in range(0, len(line), _LONGEST)]


def _spelled(secret: str) -> str:
    """Return a pattern of a secret in which each character may be spelled in any way."""
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
    # Characters that can't be encoded become one replacement mark per character or per byte.
    return exact if kind == "ASCII" else rf"(?:{exact}|[?\ufffd]{{{len(chars)},{4 * len(chars)}}})"


def _char(char: str) -> str:
    raw, escaped = "|".join(_raw(char)), "|".join(_behind_backslash(char))
    return rf"(?:\\{{0,{_NESTED}}}+(?:{raw})|{_BACKSLASHES}(?:{escaped})|{'|'.join(_escapes(char))})"


def _raw(char: str) -> Iterator[str]:
    """Yield a character as it is, composed or not; decoded wrongly; a space as in a form."""
    forms = [char, *(unicodedata.normalize(way, char) for way in ("NFC", "NFD")), char.encode().decode("latin-1")]
    yield from map(re.escape, dict.fromkeys([*forms, *("+" if char == " " else "")]))


def _behind_backslash(char: str) -> Iterator[str]:
    """Yield a character in the escapes of Python, JSON, C and shells, without the first backslash."""
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
    """Yield a character in the escapes of URLs, mail and HTML."""
    code = ord(char)
    for data in _bytes(char):
        yield _hex("".join(f"%(?:25){{0,8}}{byte:02x}" for byte in data))
        yield _hex("".join(f"={byte:02x}" for byte in data))
    names = "".join(f"|{name}" for name in (codepoint2name.get(code), "apos" if char == "'" else None) if name)
    yield _hex(f"&(?:amp;){{0,8}}(?:#x0{{0,8}}+{code:x}|#0{{0,8}}+{code}{names});")


def _bytes(char: str) -> Iterator[bytes]:
    """Yield a character in UTF-8, and in Latin-1 if it exists there."""
    yield char.encode()
    if 127 < ord(char) < 256:
        yield bytes([ord(char)])


_NAMED_ESCAPES = {"\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}


def _hex(pattern: str) -> str:
    """Return a pattern that accepts hexadecimal digits in either case."""
    return f"(?i:{pattern})"


def _encoded(secret: str) -> Iterator[str]:
    """Yield patterns of a secret in hexadecimal, and in base64 and base32 at any offset in a longer text; also of its UTF-16."""
    forms = [secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1]]
    wide = [secret.encode(encoding) for encoding in ("utf-16-le", "utf-16-be")]
    for data in (*dict.fromkeys(form.encode() for form in forms), *wide):
        yield _hex("[ :-]?".join(f"{byte:02x}" for byte in data))
        for core in _cores(data, 3, 6, base64.b64encode):
            if len(core) >= _SHORTEST_BASE64:
                yield "".join(_BASE64.get(char, char) for char in core)
    for core in _cores(secret.encode(), 5, 5, base64.b32encode):
        if len(core) >= _SHORTEST_BASE32:
            yield _hex(core)
    byte = _plain_byte if len(secret) >= _KEY else _byte
    yield from ("".join(map(byte, data)) for data in wide)


def _cores(data: bytes, together: int, bits: int, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """Yield the part of an encoding that is certain: the first and last characters depend on the surrounding bytes.

    :param together: bytes that are encoded at once.
    :param bits: bits in an encoded character.
    """
    for shift in range(together):
        yield encode(b"\0" * shift + data)[-(-shift * 8 // bits) : (shift + len(data)) * 8 // bits].decode()


def _byte(byte: int) -> str:
    """Return a pattern of a byte of a text that is not in UTF-8, as it is or escaped."""
    char = chr(byte)
    named = {"\0": "0", "\n": "n", "\r": "r", **_NAMED_ESCAPES}.get(char)
    ways = "|".join(filter(None, (f"x{byte:02x}", f"u00{byte:02x}", f"{byte:03o}", named)))
    raw = re.escape(char)
    if char in _QUOTES:
        raw = rf"\\{{1,{_NESTED}}}?" if char == "\\" else rf"\\{{0,{_NESTED}}}+{raw}"
    return f"(?:{raw}|{_hex(rf'{_BACKSLASHES}(?:{ways})|%(?:25){{0,8}}{byte:02x}')})"


def _plain_byte(byte: int) -> str:
    """Return a pattern of a byte of a key, whose letters and digits are never escaped."""
    char = chr(byte)
    return char if char.isascii() and char.isalnum() else _byte(byte)


_BASE64 = {"+": r"(?:[+-]|%2[Bb])", "/": r"(?:\\{0,32}+[/_]|%2[Ff])"}
