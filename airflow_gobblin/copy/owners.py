"""Owners and groups: numbers on a disk, names in HDFS, and from one to the other by the users that this host knows."""

from __future__ import annotations

from functools import lru_cache

from airflow_gobblin.copy.entries import Attributes
from airflow_gobblin.storage.files.base import Keeps

Owner = int | str | None


def in_form(attributes: Attributes, keeps: Keeps) -> Attributes:
    """Return attributes as a storage has them: without an owner or group that this host doesn't know."""
    mode = None if attributes.mode is None else attributes.mode & keeps.permission
    owner = _user(attributes.owner, names=keeps.names)
    return Attributes(mode, owner, _group(attributes.group, names=keeps.names))


def settable(attributes: Attributes, keeps: Keeps) -> Attributes:
    """Return the attributes that this process could set, as a storage has them: owners and groups are the superuser's."""
    found = in_form(attributes, keeps)
    return found if keeps.sets_owners else Attributes(found.mode)


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
