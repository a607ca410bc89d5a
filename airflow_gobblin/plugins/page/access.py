"""Users and their permissions. Airflow doesn't authenticate the applications of plugins, so each route does it by this module.

A write needs more than the session's cookie, which the browser sends for other sites, too: a ticket that the page made for
this user and the content shown, and that no other site can read or make.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.auth.tokens import get_signing_key
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Query, Request
from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer

from airflow_gobblin.hooks.registry import Registered
from airflow_gobblin.plugins.page.lookup import find

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod

__all__ = [
    "Editable",
    "Name",
    "Readable",
    "Ticket",
    "User",
    "check",
    "check_same_site",
    "may",
    "read_ticket",
    "readable_of",
    "sign",
]

User = Annotated[BaseUser, Depends(get_user)]
Name = Annotated[str, Query(max_length=250, pattern=r"^[^\x00]*$")]
"""A name in Airflow's database, which stores no longer ones; PostgreSQL stores no NUL."""
_SECONDS = 3600
"""Seconds for which a confirmation is valid."""


def may(method: ResourceMethod, dag_id: str, user: BaseUser) -> bool:
    """Return whether a user may look at a DAG (GET) or edit it (PUT)."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(get_auth_manager().is_authorized_dag(method=method, details=details, user=user))


def check(method: ResourceMethod, dag_id: str, user: BaseUser) -> None:
    """Check that a user may look at a DAG (GET) or edit it (PUT).

    :raises HTTPException: 403, this user may not.
    """
    if not may(method, dag_id, user):
        raise HTTPException(403, f"You may not {'look at' if method == 'GET' else 'edit'} DAG {dag_id!r}.")


def readable_of(some: Iterable[Registered], user: BaseUser) -> tuple[Registered, ...]:
    """Return the ingestions whose DAGs a user may look at.

    :raises HTTPException: 403, this user may look at no DAG at all.
    """
    manager = get_auth_manager()
    allowed = manager.get_authorized_dag_ids(user=user, method="GET")
    if not allowed and not manager.is_authorized_dag(method="GET", user=user):
        raise HTTPException(403, "You may not look at DAGs.")
    return tuple(one for one in some if one.dag_id in allowed)


def _permitted(method: ResourceMethod, dag_id: str, ingestion: str, user: BaseUser) -> Registered:
    check(method, dag_id, user)
    found = find(dag_id, ingestion)
    if found is None:
        raise HTTPException(404, f"DAG {dag_id!r} has no ingestion {ingestion!r}.")
    return found


def readable(dag_id: Name, ingestion: Name, user: User) -> Registered:
    """Return an ingestion that the user may look at.

    :raises HTTPException: 401, 403 or 404.
    """
    return _permitted("GET", dag_id, ingestion, user)


def editable(dag_id: Name, ingestion: Name, user: User) -> Registered:
    """Return an ingestion whose datasets the user may act on.

    :raises HTTPException: 401, 403 or 404.
    """
    return _permitted("PUT", dag_id, ingestion, user)


Readable = Annotated[Registered, Depends(readable)]
Editable = Annotated[Registered, Depends(editable)]


@dataclass(frozen=True)
class Ticket:
    """An action that a user was shown and asked to confirm; signed, so that exactly this is done, or nothing.

    :param fingerprint: the dataset's newest slot, whether it is quarantined, and the number of its notes: the ticket is valid
        only while they are the same.
    """

    user: str
    dag_id: str
    ingestion: str
    urn: str
    action: str
    to: str
    fingerprint: str


def sign(ticket: Ticket) -> str:
    """Return a ticket as sent to the browser. No two are alike, so the size of a compressed page reveals nothing."""
    return _signer().dumps([secrets.token_hex(8), asdict(ticket)])


def read_ticket(text: str, where: Registered, user: BaseUser) -> Ticket:
    """Read and check a signed ticket: the inverse of `sign`.

    :raises HTTPException: 403, it is no ticket of this user's for this ingestion, or an old one.
    """
    try:
        ticket = Ticket(**_signer().loads(text, max_age=_SECONDS)[1])
    except SignatureExpired as error:
        raise HTTPException(403, "This confirmation is too old. Go back to the dataset, and begin again.") from error
    except BadSignature as error:
        raise HTTPException(403, "This wasn't sent by this page.") from error
    if ticket.user != user.get_id():
        raise HTTPException(403, "This was shown to another user.")
    if (ticket.dag_id, ticket.ingestion) != (where.dag_id, where.ingestion):
        raise HTTPException(403, "This was shown of another ingestion.")
    return ticket


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(get_signing_key("api", "secret_key"), salt="airflow_gobblin.plugins.page")


def check_same_site(request: Request) -> None:
    """Check that a write comes from this page, as far as the browser reports it.

    :raises HTTPException: 403, it doesn't.
    """
    if not _is_same_site(request):
        raise HTTPException(403, "This was sent by another site.")


def _is_same_site(request: Request) -> bool:
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site == "same-origin"
    if origin is None:  # no browser, so there are no cookies to misuse
        return True
    # Browsers send Sec-Fetch-Site only over HTTPS; Origin is compared with a host name that a proxy may have changed.
    ours = {request.headers.get("host"), urlsplit(conf.get("api", "base_url", fallback="")).netloc}
    try:
        return urlsplit(origin).netloc in ours - {"", None}
    except ValueError:  # not an address
        return False
