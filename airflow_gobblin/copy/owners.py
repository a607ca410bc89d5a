"""Attributes as a storage has them, and as a process can set them.

Owners and groups are numbers on a disk and names in HDFS; they are converted by the users that this host knows.
"""

from __future__ import annotations

import stat
from dataclasses import replace
from functools import lru_cache

from airflow_gobblin.copy.entries import NO_ATTRIBUTES, Entry, EntryKind
from airflow_gobblin.copy.options import Keep
from airflow_gobblin.storage.files.acls import Acl, permission_without
from airflow_gobblin.storage.files.base import Attributes, Keeps
from airflow_gobblin.storage.files.disk_attributes import OF_THIS_OWNER

Owner = int | str | None


def in_form(attributes: Attributes, keeps: Keeps) -> Attributes:
    """Return attributes as a storage has them: without an owner or group that this host doesn't know, and what it can't keep."""
    mode = attributes.mode & keeps.permission if attributes.mode is not None and keeps.permission else None
    acl = _acl(attributes.acl, names=keeps.names) if keeps.acl else None
    if acl is None and attributes.acl and mode is not None:
        mode = permission_without(attributes.acl, mode)
    extended = attributes.extended if keeps.extended else None
    return replace(
        attributes,
        mode=mode,
        owner=_user(attributes.owner, names=keeps.names),
        group=_group(attributes.group, names=keeps.names),
        modified=_time(attributes.modified, keeps),
        acl=acl,
        extended=extended and tuple(pair for pair in extended if pair[0].startswith(keeps.extended)),
    )


def _time(modified: int | None, keeps: Keeps) -> int | None:
    return None if modified is None or not keeps.time else modified - modified % keeps.time


def to_keep(entry: Entry, keep: Keep, keeps: Keeps) -> Attributes:
    """Return the attributes that an entry of the source is to keep in a storage, of those that can be set in place."""
    wanted = in_form(keep.of(entry.attributes, folder=entry.kind is EntryKind.FOLDER), keeps)
    # The size of blocks is the first copy's, since it can't be set.
    return replace(wanted, mode=None if entry.kind is EntryKind.LINK else wanted.mode, block_size=None)


def settable(wanted: Attributes, target: Attributes | None, keeps: Keeps, *, folder: bool = False) -> Attributes:
    """Return the given attributes that this process can set on a file or folder: only the superuser sets owners.

    :param wanted: in the form that the storage has.
    :param target: what it has; `None` if it will be this process's own.
    """
    if keeps.sets_owners or wanted == NO_ATTRIBUTES:
        return wanted
    if not may_be_set(target, keeps):
        return NO_ATTRIBUTES
    owner = wanted.owner if wanted.owner == keeps.user else None
    group = wanted.group if wanted.group in keeps.groups else None
    mode = wanted.mode
    if mode is not None and (owner, group) != (wanted.owner, wanted.group):
        mode &= ~(OF_THIS_OWNER & ~stat.S_ISVTX if folder else OF_THIS_OWNER)
    if mode is not None and folder:
        mode |= stat.S_IRWXU  # later runs work in it, too
    return replace(wanted, mode=mode, owner=owner, group=group)


def may_be_set(target: Attributes | None, keeps: Keeps) -> bool:
    """Return whether this process can set permission and time of a file or folder.

    :param target: what it has; `None` if it will be this process's own.
    """
    return target is None or keeps.sets_owners or target.owner in (None, keeps.user)


def _acl(acl: Acl | None, *, names: bool) -> Acl | None:
    """Return an access control list with owners as a storage has them; `None` if this host doesn't know all of them."""
    found = []
    for entry in acl or ():
        before, name, letters = entry.rsplit(":", 2)
        given = int(name) if name.isdecimal() else name
        known = (_user if before.endswith("user") else _group)(given, names=names) if name else ""
        if known is None:
            return None
        found.append(f"{before}:{known}:{letters}")
    return None if acl is None else tuple(sorted(found))


@lru_cache(1024)
def _user(owner: Owner, *, names: bool) -> Owner:
    import pwd

    try:
        if names and isinstance(owner, int):
            return pwd.getpwuid(owner).pw_name
        if not names and isinstance(owner, str):
            return pwd.getpwnam(owner).pw_uid
    except KeyError:
        return None
    return owner


@lru_cache(1024)
def _group(group: Owner, *, names: bool) -> Owner:
    import grp

    try:
        if names and isinstance(group, int):
            return grp.getgrgid(group).gr_name
        if not names and isinstance(group, str):
            return grp.getgrnam(group).gr_gid
    except KeyError:
        return None
    return group
