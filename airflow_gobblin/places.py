"""Places that a DAG author names, on a local or mounted file system: a path, or a URL of scheme `file`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_gobblin.errors import ConfigurationError


def local_path(place: str, *, operation: str, subject: str) -> Path:
    """A place as a path. :raises ConfigurationError: it is relative, on another host, or on no file system."""
    parts = urlsplit(place) if "://" in place or place.startswith("file:") else None
    if parts is not None and parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ConfigurationError(
            operation=operation,
            subject=subject,
            cause=f"{parts.netloc!r} in it is a host, not a folder",
            hint=f"Give three slashes, 'file:///{parts.netloc}{parts.path}', or an absolute path.",
        )
    path = Path(unquote(parts.path)) if parts is not None else Path(place)
    if (parts is not None and parts.scheme != "file") or not path.is_absolute():
        raise ConfigurationError(
            operation=operation,
            subject=subject,
            cause="it is not an absolute path on a local or mounted file system",
            hint="Give 'file:///…' or an absolute path that workers, driver and executors all see.",
        )
    return path
