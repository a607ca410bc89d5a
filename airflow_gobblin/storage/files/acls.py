"""Access control lists: as text, as HDFS has them, and as Linux stores them.

An entry is `user:ann:rw-`, `group::r-x` or, for what is made in a folder, `default:user:ann:rw-`. The rights of a file's owner,
its mask and all others are in its permission, and in no entry. If there are entries, the bits of the group are the mask.
Source: https://man7.org/linux/man-pages/man5/acl.5.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

Acl = tuple[str, ...]
"""The entries of a list, sorted; none if there are only permissions."""
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_OF_DEFAULT, _OF_GROUP = "default:", "group::"
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
_NOBODY = 0xFFFFFFFF
_USER, _NAMED_USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = (1 << bit for bit in range(6))
_KINDS = {
    _USER: "user",
    _NAMED_USER: "user",
    _GROUP: "group",
    _NAMED_GROUP: "group",
    _MASK: "mask",
    _OTHER: "other",
}
_TAGS = {
    ("user", False): _USER,
    ("user", True): _NAMED_USER,
    ("group", False): _GROUP,
    ("group", True): _NAMED_GROUP,
    ("mask", False): _MASK,
    ("other", False): _OTHER,
}


def decoded(access: bytes, default: bytes = b"") -> Acl:
    """Return a list as text.

    :param access: the list of the file itself, as Linux stores it; empty if there is none.
    :param default: the list for what is made in a folder.
    """
    own = [*_ENTRY.iter_unpack(access[len(_VERSION) :])]
    if not any(tag == _MASK for tag, _, _ in own):
        own = []  # it holds no more than the permission
    of_new = _ENTRY.iter_unpack(default[len(_VERSION) :])
    named = [_text(*one) for one in own if one[0] in (_NAMED_USER, _GROUP, _NAMED_GROUP)]
    return tuple(sorted([*named, *(_OF_DEFAULT + _text(*one) for one in of_new)]))


def encoded(acl: Acl, mode: int) -> tuple[bytes, bytes]:
    """Return a list as Linux stores it, for the file itself and for what is made in a folder; empty for none.

    :param mode: the permission that belongs to it.
    """
    entries = whole(acl, mode)
    own = [entry for entry in entries if not entry.startswith(_OF_DEFAULT)]
    of_new = [entry.removeprefix(_OF_DEFAULT) for entry in entries if entry.startswith(_OF_DEFAULT)]
    return _stored(own) if len(own) > 3 else b"", _stored(of_new)


def whole(acl: Acl, mode: int) -> list[str]:
    """Return a list with the entries that are in a permission."""
    own = [entry for entry in acl if not entry.startswith(_OF_DEFAULT)]
    user, group, other = (_letters(mode >> shift) for shift in (6, 3, 0))
    if own:
        own.append(f"mask::{group}")
    if not any(entry.startswith(_OF_GROUP) for entry in own):
        own.append(_OF_GROUP + group)
    return [f"user::{user}", *own, f"other::{other}", *(entry for entry in acl if entry.startswith(_OF_DEFAULT))]


def permission_without(acl: Acl, mode: int) -> int:
    """Return a permission that lets nobody do more where its list can't be kept: its mask would become the group's there."""
    group = next((entry for entry in acl if entry.startswith(_OF_GROUP)), None)
    return mode if group is None else mode & ~0o070 | mode & (_bits(group.rpartition(":")[2]) << 3)


def _text(tag: int, bits: int, number: int) -> str:
    return f"{_KINDS[tag]}:{'' if number == _NOBODY else number}:{_letters(bits)}"


def _stored(entries: Iterable[str]) -> bytes:
    packed = []
    for entry in entries:
        kind, name, letters = entry.split(":")
        packed.append((_TAGS[kind, bool(name)], _bits(letters), int(name) if name else _NOBODY))
    packed.sort(key=lambda one: (one[0], one[2]))
    return _VERSION + b"".join(_ENTRY.pack(*one) for one in packed) if packed else b""


def _letters(bits: int) -> str:
    return "".join(letter if bits & bit else "-" for letter, bit in zip("rwx", (4, 2, 1), strict=True))


def _bits(letters: str) -> int:
    return sum(bit for letter, bit in zip(letters, (4, 2, 1), strict=True) if letter != "-")
