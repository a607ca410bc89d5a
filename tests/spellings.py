"""The spellings in which a secret may appear, each made as in real life."""

from __future__ import annotations

import base64
import html
import json
import quopri
import shlex
import struct
from collections.abc import Callable
from urllib.parse import quote, quote_plus

from sqlalchemy import URL

__all__ = ["SPELLINGS", "cores"]


def _sql(secret: str) -> str:
    return "PASSWORD '" + secret.replace("'", "''") + "'"


def _libpq(secret: str) -> str:
    return "password='" + secret.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _double_quoted(secret: str) -> str:
    return '"' + "".join(f"\\{char}" if char in '\\"$`' else char for char in secret) + '"'


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "repr": repr,
    "ascii": ascii,
    "repr of repr": lambda secret: repr(repr(secret)),
    "bytes": lambda secret: repr(secret.encode()),
    "bytes in Latin-1": lambda secret: repr(secret.encode("latin-1", "replace")),
    "JSON": json.dumps,
    "JSON with other characters": lambda secret: json.dumps(secret, ensure_ascii=False),
    "JSON with slashes": lambda secret: json.dumps(secret).replace("/", "\\/"),
    "JSON in JSON": lambda secret: json.dumps(json.dumps({"password": secret})),
    "unicode_escape": lambda secret: secret.encode("unicode_escape").decode(),
    "\\u of all": lambda secret: "".join(
        f"\\u{unit:04X}" for (unit,) in struct.iter_unpack(">H", secret.encode("utf-16-be"))
    ),
    "\\x of all": lambda secret: "".join(f"\\x{byte:02X}" for byte in secret.encode()),
    "octal": lambda secret: "".join(f"\\{byte:03o}" for byte in secret.encode()),
    "backslashreplace": lambda secret: secret.encode("ascii", "backslashreplace").decode(),
    "namereplace": lambda secret: secret.encode("ascii", "namereplace").decode(),
    "xmlcharrefreplace": lambda secret: secret.encode("ascii", "xmlcharrefreplace").decode(),
    "replaced": lambda secret: secret.encode("ascii", "replace").decode(),
    "decoded with marks": lambda secret: secret.encode().decode("ascii", "replace"),
    "decoded wrongly": lambda secret: secret.encode().decode("latin-1"),
    "surrogateescape": lambda secret: ascii(secret.encode().decode("ascii", "surrogateescape")),
    "shell": shlex.quote,
    "shell in repr": lambda secret: repr(shlex.quote(secret)),
    "double-quoted shell": _double_quoted,
    "SQL": _sql,
    "libpq": _libpq,
    "quote": quote,
    "quote of all": lambda secret: quote(secret, safe=""),
    "quote twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "quote in small letters": lambda secret: "".join(
        part if len(part) != 2 else part.lower() for part in quote(secret, safe="").replace("%", "\0%\0").split("\0")
    ),
    "quote_plus": quote_plus,
    "percent of all": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "SQLAlchemy": lambda secret: URL.create(
        "postgresql", "reader", secret, "db.example", 5432, "shop"
    ).render_as_string(hide_password=False),
    "URL as it is": lambda secret: f"postgresql://reader:{secret}@db.example/shop",
    "HTML": html.escape,
    "HTML twice": lambda secret: html.escape(html.escape(secret)),
    "quoted-printable": lambda secret: quopri.encodestring(secret.encode()).decode().replace("=\n", ""),
    "hexadecimal": lambda secret: secret.encode().hex(),
    "hexadecimal with colons": lambda secret: secret.encode().hex(":").upper(),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(f"?{secret}".encode()).decode(),
    "base64 in lines": lambda secret: base64.encodebytes(f"{'x' * 50}{secret}".encode()).decode().strip(),
    "base64 in lines in repr": lambda secret: repr(base64.encodebytes(f"{'x' * 53}{secret}".encode())),
    "base64 of UTF-16": lambda secret: base64.b64encode(secret.encode("utf-16")).decode(),
    "base32": lambda secret: base64.b32encode(secret.encode()).decode(),
    "base32 within more": lambda secret: base64.b32encode(f"see {secret}".encode()).decode().lower(),
    "UTF-16": lambda secret: repr(secret.encode("utf-16")),
    "UTF-16 the other way round": lambda secret: ascii(secret.encode("utf-16-be")),
    "UTF-16 decoded wrongly": lambda secret: secret.encode("utf-16-le").decode("latin-1"),
    "hexadecimal of UTF-16": lambda secret: secret.encode("utf-16-le").hex(),
    "basic authentication": lambda secret: base64.b64encode(f"reader:{secret}".encode()).decode(),
    "base64 of a URL": lambda secret: base64.b64encode(
        f"postgresql://reader:{quote(secret, safe='')}@db.example/shop".encode()
    ).decode(),
}
"""Functions that spell a secret, by name. The result may have more around it."""


def cores(secret: str) -> dict[str, str]:
    """A secret in each spelling, without the text around it, which doesn't depend on it."""
    return {name: _core(spell, secret) for name, spell in SPELLINGS.items()}


def _core(spell: Callable[[str], str], secret: str) -> str:
    spelled, other = spell(secret), spell("\u20ac2")  # it begins and ends with another character
    before = _alike(spelled, other)
    after = _alike(spelled[before:][::-1], other[before:][::-1])
    return spelled[before : len(spelled) - after].strip("'\"\\")


def _alike(one: str, other: str) -> int:
    """The length of the common beginning of two texts."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
