"""Access to object stores through their fsspec file systems, with credentials from an Airflow connection or the environment.

fsspec's listing cache hides new objects, so it is off; and no file system is shared with other code in the process.
Source: https://airflow.apache.org/docs/apache-airflow-providers-amazon/stable/connections/aws.html (fields of a connection).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError, GobblinError, MissingExtraError
from airflow_gobblin.storage.locations import OBJECT_SCHEMES, ObjectLocation
from airflow_gobblin.storage.parsed_connection import ParsedConnection
from airflow_gobblin.storage.servers import SECONDS_TO_ANSWER, SECONDS_TO_CONNECT

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from airflow_gobblin.connections import Connections

_TRIES = 5
_CONCURRENT = 64


def open_filesystem(
    location: ObjectLocation,
    connections: Connections | None = None,
    *,
    tries: int = _TRIES,
    seconds: float = SECONDS_TO_ANSWER,
) -> AbstractFileSystem:
    """Open the fsspec file system of a location.

    :param connections: access to the credentials, if the location names a connection.
    :param tries: how often the client sends a request before it gives up; 1 if the caller retries.
    :param seconds: how long it waits for an answer.
    :raises MissingExtraError: its client isn't installed.
    :raises ConfigurationError: the connection can't be used for it.
    """
    from fsspec import get_filesystem_class

    options: dict[str, Any] = _NO_CACHES | _SETTINGS[location.scheme](tries, seconds)
    if location.conn_id is not None:
        if connections is None:
            raise ConfigurationError(
                operation="open",
                subject=location.url,
                cause=f"connection {location.conn_id!r} can't be looked up here",
                hint="Leave the connection out where the environment has the credentials.",
            )
        given = _CREDENTIALS[location.scheme](ParsedConnection(location.conn_id, connections.uri(location.conn_id)))
        options = {**options, **given}
    try:
        if location.scheme == "s3":
            options["session"] = _s3_session(options.pop("profile", None))
        kind = (
            _plain_gs()
            if "endpoint_url" in options and location.scheme == "gs"
            else get_filesystem_class(location.scheme)
        )
        filesystem = kind(**options)
    except ImportError as error:
        extra = OBJECT_SCHEMES[location.scheme]
        raise MissingExtraError(
            operation="open",
            subject=location.url,
            cause=error,
            hint=f"Install the extra: pip install 'airflow-gobblin[{extra}]'.",
        ) from error
    _try_no_more(filesystem)
    return filesystem


def reopened(filesystem: AbstractFileSystem) -> AbstractFileSystem:
    """Return the same file system with new connections: those of another process can't be used after a fork."""
    kind, arguments, options = type(filesystem), filesystem.storage_args, dict(filesystem.storage_options)
    if "session" in options:
        options["session"] = _s3_session(options["session"].profile)
    again = kind(*arguments, skip_instance_cache=True, **options)
    _try_no_more(again)
    return again


def _try_no_more(filesystem: AbstractFileSystem) -> None:
    """Disable the five retries of s3fs, which repeat the client's own: otherwise a dead endpoint takes minutes to fail."""
    if "s3" in filesystem.protocol:
        filesystem.retries = 1


@contextmanager
def as_os_error(operation: str, path: str) -> Iterator[None]:
    """Convert any other exception from an object store's client to `OSError`; errors of this package pass."""
    try:
        yield
    except (OSError, GobblinError):
        raise
    except Exception as error:
        raise OSError(f"can't {operation} {path!r}: {type(error).__name__}: {error}") from error


_NO_CACHES: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}


def _plain_gs() -> Any:
    """Return gcsfs without its detection of a bucket's kind by gRPC, which only Google's servers support."""
    from gcsfs.core import GCSFileSystem

    return GCSFileSystem


def _s3_session(profile: str | None) -> Any:
    """Create a session that sends no `Expect: 100-continue`: if a server hangs, the client waits for its answer forever."""
    from aiobotocore.config import AioConfig
    from aiobotocore.session import AioSession

    from airflow_gobblin.storage.s3_http import S3HttpSession

    session = AioSession(event_hooks=copy(_s3_handlers()), include_builtin_handlers=False, profile=profile)
    session.set_default_client_config(AioConfig(http_session_cls=S3HttpSession))
    session.register_component("data_loader", _service_models())
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    return session


@lru_cache
def _s3_handlers() -> Any:
    """Return what a session does at each event, for copies: registering a hundred handlers takes longer than all the rest."""
    from aiobotocore.hooks import AioHierarchicalEmitter
    from aiobotocore.session import AioSession
    from botocore.handlers import add_expect_header

    handlers = AioHierarchicalEmitter()
    AioSession(event_hooks=handlers).unregister("before-call.s3", add_expect_header)
    return handlers


def parse_time(text: str | float) -> datetime:
    """Parse a time in an answer from S3; those in listings, which are many, without botocore's slow parser for all formats."""
    from botocore.utils import parse_timestamp

    if isinstance(text, str) and text[10:11] == "T":
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    found: datetime = parse_timestamp(text)
    return found


@lru_cache
def _service_models() -> Any:
    """Return the descriptions of S3's requests; loading them takes longer than everything else that opens a client."""
    from botocore.loaders import create_loader

    return create_loader()


def _s3_settings(tries: int, seconds: float) -> dict[str, Any]:
    retries = {"total_max_attempts": tries, "mode": "standard"}
    config = {
        "connect_timeout": SECONDS_TO_CONNECT,
        "read_timeout": seconds,
        "retries": retries,
        "max_pool_connections": _CONCURRENT,
    }
    return {"config_kwargs": config, "default_fill_cache": False, "default_cache_type": "none"}


def _gs_settings(_tries: int, _seconds: float) -> dict[str, Any]:
    return {"cache_timeout": 0}


def _abfs_settings(_tries: int, _seconds: float) -> dict[str, Any]:
    return {"default_fill_cache": False, "default_cache_type": "none"}


_SETTINGS: Mapping[str, Callable[[int, float], dict[str, Any]]] = {
    "s3": _s3_settings,
    "gs": _gs_settings,
    "abfs": _abfs_settings,
}


def _s3_credentials(connection: ParsedConnection) -> dict[str, Any]:
    connection.expect("aws", "s3")
    extra = connection.extra
    if extra.get("role_arn"):
        raise connection.unfit(
            "it asks for a role to be assumed (role_arn)",
            "Give the workers and executors that role, and leave the connection out.",
        )
    service = extra.get("service_config") or {}
    service = json.loads(service) if isinstance(service, str) else service
    endpoint = (service.get("s3") or {}).get("endpoint_url") or extra.get("endpoint_url")
    client = {"endpoint_url": endpoint, "region_name": extra.get("region_name")}
    options = {
        "key": connection.login or extra.get("aws_access_key_id"),
        "secret": connection.password or extra.get("aws_secret_access_key"),
        "token": extra.get("aws_session_token"),
        "profile": extra.get("profile_name"),
        "client_kwargs": {name: value for name, value in client.items() if value},
    }
    return {name: value for name, value in options.items() if value}


def _gs_credentials(connection: ParsedConnection) -> dict[str, Any]:
    connection.expect("google_cloud_platform")
    extra = {name.removeprefix("extra__google_cloud_platform__"): value for name, value in connection.extra.items()}
    keys, anonymous = extra.get("keyfile_dict"), str(extra.get("is_anonymous")).lower() == "true"
    options = {
        "project": extra.get("project") or extra.get("project_id"),
        "token": "anon"
        if anonymous
        else (json.loads(keys) if isinstance(keys, str) else keys) or extra.get("key_path"),
        "endpoint_url": extra.get("endpoint_url"),
    }
    return {name: value for name, value in options.items() if value}


def _abfs_credentials(connection: ParsedConnection) -> dict[str, Any]:
    connection.expect("wasb", "adls")
    extra = connection.extra
    options = {
        "connection_string": extra.get("connection_string"),
        "sas_token": extra.get("sas_token"),
        "tenant_id": extra.get("tenant_id"),
        "account_name": extra.get("account_name") or connection.host.partition(".")[0] or connection.login,
    }
    if extra.get("tenant_id"):
        options |= {"client_id": connection.login, "client_secret": connection.password}
    else:
        options |= {"account_key": connection.password}
    return {name: value for name, value in options.items() if value}


_CREDENTIALS: Mapping[str, Callable[[ParsedConnection], dict[str, Any]]] = {
    "s3": _s3_credentials,
    "gs": _gs_credentials,
    "abfs": _abfs_credentials,
}
