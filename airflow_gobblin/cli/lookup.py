"""The lookup of a command's ingestion, and the printing of its errors."""

from __future__ import annotations

import functools
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable

from airflow.utils.cli import action_cli
from sqlalchemy.exc import DBAPIError

from airflow_gobblin.errors import ConfigurationError, GobblinError, UnknownKindError
from airflow_gobblin.hooks.connections import SECRETS
from airflow_gobblin.hooks.ingestion import check_journal
from airflow_gobblin.hooks.registry import Registered, ingestions
from airflow_gobblin.model.naming import meant
from airflow_gobblin.model.registry import import_named
from airflow_gobblin.redaction import shows_password
from airflow_gobblin.storage.files import check_target
from airflow_gobblin.storage.locations import remote_location

__all__ = ["command", "error_text", "find_ingestion", "why"]

_NAMED = 10
_MODULE_HINT = "Give --module as in the ingestion's `code=[...]`; it must be on the Python path here, too."


def command(function: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """Make a function a command: Airflow logs it, and an error of ours is a sentence on standard error, with exit status 1."""
    logged = action_cli(function, check_db=False)  # type: ignore[no-untyped-call]

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        # Connections come from the metadata database, as they do in the API server.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        try:
            _check_places(args)  # before the command line is logged
            for name in getattr(args, "module", ()):
                import_named(name, f"module {name!r}", _MODULE_HINT)
            logged(args)
        except GobblinError as error:
            raise SystemExit(f"Error: {error_text(error)}") from None
        except BrokenPipeError:  # the reader, `head` for example, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:  # a folder of the target, for example, that isn't ours to read
            raise SystemExit(f"Error: {SECRETS.redact(_words(error))}") from None
        except DBAPIError as error:
            cause = _words(error.orig or error).strip().rstrip(".")
            hint = "Is it up, and migrated? `airflow db check` and `airflow db migrate` show it."
            raise SystemExit(f"Error: can't ask Airflow's metadata database: {SECRETS.redact(cause)}. {hint}") from None

    return run


def error_text(error: GobblinError) -> str:
    """Return the text of an error for people, without secrets."""
    return f"{SECRETS.redact(_in_words(error.with_notes, error))}{_module_hint(error)}"


def why(error: GobblinError) -> str:
    """Return the cause of an error for people, without secrets."""
    return SECRETS.redact(_in_words(error.why or "", error))


def _in_words(text: str, error: GobblinError) -> str:
    """Return a text of an error without Python's class name for its cause."""
    cause = error.cause
    if not isinstance(cause, BaseException) or isinstance(cause, GobblinError):
        return text
    return text.replace(f"{type(cause).__name__}: {cause}", _words(cause))


def _words(error: BaseException) -> str:
    match error:
        case OSError(strerror=str(what), filename=str(file)):
            return f"{what}: {file}"
        case OSError(strerror=str(what)):
            return what
        case OSError() if (reason := _reason_of_system(error)) is not None:
            return reason
        case json.JSONDecodeError():
            return f"it is not JSON: {error.msg}, in line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return f"it is not UTF-8: byte {error.start}"
        case RecursionError():
            return "it is nested too deep"
        case _:
            return str(error) or type(error).__name__


def _reason_of_system(error: BaseException | None) -> str | None:
    """Return the system's message that led to an error: clients of HTTP wrap it in words for programmers."""
    while error is not None:
        error = error.__cause__ or error.__context__
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
    return None


def _check_places(args: Namespace) -> None:
    """Check the places given on the command line, and that no argument shows a password.

    :raises ConfigurationError: one is not valid, or holds a secret.
    """
    if getattr(args, "journal", None):
        check_journal(args.journal)
    if getattr(args, "target", None):
        check_target(args.target)
    for name in ("source_tree", "target_tree", "workspace", "backup"):
        remote_location(getattr(args, name, None) or "")
    for name, given in vars(args).items():
        for text in given if isinstance(given, list) else (given,):
            if name != "urn" and isinstance(text, str) and shows_password(text):
                raise ConfigurationError(
                    operation="take",
                    subject=f"what is given as {name.replace('_', ' ')}",
                    cause="it shows a password, which Airflow's log of commands would keep",
                    hint="Make it an Airflow connection, and give that one's id.",
                )


def _module_hint(error: GobblinError) -> str:
    return " On the command line: --module NAME." if isinstance(error, UnknownKindError) else ""


def find_ingestion(args: Namespace, *, target: bool = False) -> Registered:
    """Find the ingestion of a command.

    :param target: its target is needed, too.
    :raises ConfigurationError: there is none, or there are several.
    """
    if args.journal or args.name or args.target:
        return _given(args, target)
    found = ingestions([args.dag_id] if args.dag_id else None)
    fitting = [one for one in found if args.ingestion in (None, one.ingestion)]
    places = {(one.ingestion, one.journal, one.target) for one in fitting}
    if len(places) == 1:
        return fitting[0]
    of = f"DAG {args.dag_id!r}" if args.dag_id else "this Airflow"
    asked = f"ingestion {args.ingestion!r} of {of}" if args.ingestion else f"the ingestion of {of}"
    if fitting:
        cause, hint = f"it has {len(fitting)}", f"Name one by --dag-id and --ingestion: {_names(fitting)}."
    elif found:
        cause, hint = "there is none of this name", f"There are {_names(found)}."
    else:
        cause = "no serialized DAG of this id has one" if args.dag_id else "no serialized DAG has one"
        known = sorted({one.dag_id for one in ingestions()}) if args.dag_id else []
        ways = (
            "Is the DAG processor running, and the DAG free of import errors? Or give --journal, --name and --target."
        )
        hint = f"{meant(known, args.dag_id or '')} {ways}".strip()
    raise ConfigurationError(operation="find", subject=asked, cause=cause, hint=hint)


def _names(some: list[Registered] | tuple[Registered, ...]) -> str:
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(f"{one.ingestion!r} of DAG {one.dag_id!r}" for one in some[:_NAMED]) + more


def _given(args: Namespace, target: bool) -> Registered:
    """Return the ingestion given by its place on the command line."""
    if args.dag_id or args.ingestion:
        raise ConfigurationError(
            operation="find",
            subject="the ingestion",
            cause="it is named both by a DAG and by a place",
            hint="Give --journal, --name and --target, or --dag-id and --ingestion.",
        )
    missing = [f"--{name}" for name in ("journal", "name", *(["target"] if target else [])) if not getattr(args, name)]
    if missing:
        raise ConfigurationError(
            operation="find",
            subject="the ingestion",
            cause=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not given",
            hint="Give --journal, --name and --target together, or --dag-id.",
        )
    return Registered("", "", args.name, args.journal, args.target or "")
