"""The page's routes. Each checks the user's permission, by `access`, before it reads anything; static files are open to all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from airflow.api_fastapi.app import API_ROOT_PATH
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.staticfiles import StaticFiles

from airflow_gobblin.admin.kept import list_kept
from airflow_gobblin.admin.views import (
    UnderWay,
    dataset_detail,
    held,
    known_history,
    list_datasets,
    list_pending,
    list_slots,
    under_way,
)
from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError, UnknownOutcomeError
from airflow_gobblin.hooks.connections import SECRETS
from airflow_gobblin.hooks.registry import Registered
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.records import Action, now
from airflow_gobblin.links import NAME
from airflow_gobblin.model.naming import visible
from airflow_gobblin.model.status import Status
from airflow_gobblin.plugins.page.access import (
    Editable,
    Name,
    Readable,
    User,
    check,
    check_same_site,
    may,
    read_ticket,
    readable_of,
    sign,
)
from airflow_gobblin.plugins.page.actions import carry_out, propose
from airflow_gobblin.plugins.page.lookup import known, names, of_dag, opened, target
from airflow_gobblin.plugins.page.pipelines import has_versions, layers
from airflow_gobblin.plugins.page.runs import published_by
from airflow_gobblin.plugins.page.showing import Pages, chart, coverage_bars, remarks, render, to_dataset, to_list
from airflow_gobblin.plugins.page.threads import Threads

__all__ = ["app"]

log = logging.getLogger(__name__)

_PAGE = 50
_SLOTS = 25
_COLUMNS = 60
_STEPS = 30
_VERIFIED = 500
"""The number of steps of a pending slot that each view verifies."""

_LARGEST_FORM = 256 << 10
"""The number of bytes that may be sent: a ticket with the longest URN and the longest reason, all of it escaped, is smaller."""
_FIELDS = 8
_FORM_SECONDS = 20.0
_ACTING_SECONDS = 300.0


def _goes_on(subject: str, seconds: float) -> GobblinError:
    return UnknownOutcomeError(
        operation="wait for the end of what is done to",
        subject=subject,
        cause=f"it isn't done after {seconds:g} s, and goes on",
        hint="Look at the dataset in a while: its history shows what came of it.",
    )


_looking = Threads(each=4, most=12, seconds=15, remembered=15)
_acting = Threads(each=1, most=8, seconds=_ACTING_SECONDS, late=_goes_on)
"""Threads for the actions on a dataset, which run one after the other."""

Start = Annotated[int, Query(ge=0, le=10**9)]
Text = Annotated[str, Query(max_length=4096)]

# Interactive documentation would be open to all.
app = FastAPI(title="Gobblin", docs_url=None, redoc_url=None, openapi_url=None)
app.mount("/static", StaticFiles(directory=str(files("airflow_gobblin.plugins.page") / "static")), name="static")


# Looking


@app.get("/")
def index(user: User, dag_id: Name = "", search: Text = "", start: Start = 0) -> Response:
    """Show the ingestions that the user may look at; for a DAG with one ingestion, its datasets."""
    if dag_id:
        check("GET", dag_id, user)
    found = [*readable_of(of_dag(dag_id) if dag_id else known(), user)]
    if dag_id and len(found) == 1:
        return RedirectResponse(to_list(found[0]), HTTPStatus.SEE_OTHER)
    found = [one for one in found if search.lower() in f"{one.dag_id} {one.ingestion}".lower()]
    some = found[start : start + _PAGE]
    pages = Pages(start, len(some), _PAGE, len(found))
    return _html("index", ingestions=some, pages=pages, search=search, dag_id=dag_id)


@app.get("/datasets")
async def datasets(where: Readable, search: Text = "", only: Literal["", "stuck"] = "", start: Start = 0) -> Response:
    """Show the datasets of an ingestion; `only` those that are stuck: with an unfinished slot, never published, or unreadable."""
    return await _look(where, lambda: _datasets(where, search, only, start))


def _datasets(where: Registered, search: str, only: str, start: int) -> Response:
    journal, at = opened(where), now()
    if only:
        found = [one for one in list_pending(journal, at) if search.lower() in one.urn.lower()]
        some, total = tuple(found[start : start + _PAGE]), len(found)
    else:
        page = list_datasets(journal, at, search=search, start=start, count=_PAGE, names=names(where))
        some, total = page.views, page.total
    pages = Pages(start, len(some), _PAGE, total)
    return _html(
        "datasets",
        where=where,
        views=some,
        pages=pages,
        search=search,
        only=only,
        under_way=_under_way(journal, where),
        held=_held(journal, where),
        versions=has_versions(journal),
    )


def _under_way(journal: Journal, where: Registered) -> tuple[UnderWay, ...]:
    """Return how far a mirror's copies have come; nothing where the target can't be read."""
    if not where.source.startswith("files "):
        return ()
    try:
        return under_way(journal, target(where))
    except (GobblinError, OSError):
        return ()


def _held(journal: Journal, where: Registered) -> Mapping[str, str]:
    """Return what waits for held datasets, by URN; nothing where the target can't be read."""
    try:
        found = held(journal, target(where))
    except (GobblinError, OSError):
        return {}
    return {} if found is None else found.details


@app.get("/counts")
async def counts(where: Readable) -> Response:
    """Return how many datasets an ingestion has, and how many are stuck, by status."""
    return await _look(where, lambda: _counts(where))


def _counts(where: Registered) -> Response:
    journal, at = opened(where), now()
    total = list_datasets(journal, at, count=0).total
    stuck = [one.status for one in list_pending(journal, at)]
    return JSONResponse({"datasets": total} | {s: stuck.count(s) for s in Status if s.open})


@app.get("/dataset")
async def dataset(where: Readable, user: User, urn: Text, start: Start = 0) -> Response:
    """Show a dataset in detail."""
    return await _look(where, lambda: _dataset(where, user, urn, start))


def _dataset(where: Registered, user: BaseUser, urn: str, start: int) -> Response:
    journal = opened(where)
    detail = dataset_detail(journal, target(where), urn, now(), steps=_STEPS, verified=_VERIFIED, tables=False)
    history = known_history(journal, urn)
    published = [s for s in list_slots(history, count=10 * _COLUMNS) if s.action is Action.COMMIT][:_COLUMNS]
    slots = list_slots(history, start=start, count=_SLOTS)
    return _html(
        "dataset",
        where=where,
        one=detail.view,
        detail=detail,
        slots=slots,
        pages=Pages(start, len(slots), _SLOTS, history.state.head),
        coverage=coverage_bars(detail.coverage, detail.view.pending),
        notes=remarks(detail.notes, () if detail.view.pending is None else detail.view.pending.failures),
        published=published,
        rows=chart(published, lambda slot: slot.rows, "row"),
        files=chart(published, lambda slot: slot.files, "file"),
        editable=may("PUT", where.dag_id, user),
    )


@app.get("/pipeline")
async def pipeline(where: Readable, user: User) -> Response:
    """Show the versions of an ingestion or a stage, and of what it is connected with, as far as the user may look at it."""
    return await _look(where, lambda: _pipeline(where, user))


def _pipeline(where: Registered, user: BaseUser) -> Response:
    return _html("pipeline", where=where, layers=layers(where, readable_of(known(), user)))


@app.get("/kept")
async def kept(where: Readable, urn: Text) -> Response:
    """Show which files are kept of a mirror's dataset because they could not be put back."""
    return await _look(where, lambda: _kept(where, urn))


def _kept(where: Registered, urn: str) -> Response:
    history = known_history(opened(where), urn)
    return _html("kept", where=where, urn=urn, kept=list_kept(target(where), history))


@app.get("/run")
def run(user: User, dag_id: Name, run_id: Name) -> Response:
    """Show what a DAG run published."""
    check("GET", dag_id, user)
    found = [(one, published_by(one, run_id)) for one in of_dag(dag_id)]
    return _html("run", dag_id=dag_id, run_id=run_id, found=found)


@app.get("/open")
def open_in_airflow(where: Readable, urn: Text = "") -> Response:
    """Redirect to a dataset, or an ingestion's list, within Airflow's UI, where the page's address begins with its name."""
    address = to_dataset(where, urn) if urn else to_list(where)
    return RedirectResponse(f"{API_ROOT_PATH}plugin/{NAME}{API_ROOT_PATH}{NAME}/{address}", HTTPStatus.SEE_OTHER)


# Doing


@app.get("/action")
async def confirm(
    where: Editable, user: User, urn: Text, action: Literal["release", "abandon", "rewind", "verify"], to: Text = ""
) -> Response:
    """Show what an action would do, and ask whether to do it."""
    return await _look(where, lambda: _confirm(where, user, urn, action, to))


def _confirm(where: Registered, user: BaseUser, urn: str, action: str, to: str) -> Response:
    proposal, ticket = propose(where, urn, action, to, user)
    return _html("action", where=where, urn=urn, proposal=proposal, action=action, ticket=sign(ticket))


@app.post("/action")
async def act(request: Request, where: Editable, user: User) -> Response:
    """Carry out what was confirmed. Permission is checked by the address alone, before the form is read."""
    check_same_site(request)
    form = await _form(request)
    ticket, reason = read_ticket(form.get("ticket", ""), where, user), form.get("reason", "")
    subject = f"dataset {ticket.urn!r}"
    done = await _acting.run(
        f"{where.journal} {where.ingestion} {ticket.urn}", subject, lambda: carry_out(where, ticket, reason, user)
    )
    return _html("done", where=where, urn=ticket.urn, done=done)


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form.

    :raises HTTPException: 400, 408 or 413, it has too many fields, is late, or is too large.
    """
    sent = bytearray()
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            async for some in request.stream():
                sent += some
                if len(sent) > _LARGEST_FORM:
                    raise HTTPException(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {_LARGEST_FORM:,} bytes are read."
                    )
    except TimeoutError as error:
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "The form didn't come.") from error
    try:
        return dict(parse_qsl(sent.decode(errors="replace"), max_num_fields=_FIELDS))
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"A form has at most {_FIELDS} fields.") from error


async def _look(where: Registered, work: Callable[[], Response]) -> Response:
    """Look at an ingestion's journal and target, in threads of the page's own."""
    return await _looking.run(where.journal, f"the journal of ingestion {where.ingestion!r} at {where.journal}", work)


# Answers


def _html(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, **values), status)


@app.middleware("http")
async def _guard(request: Request, call_next: Any) -> Response:
    """Restrict the browser: nothing from elsewhere, nothing inline, no frame but Airflow's, and nothing cached."""
    response: Response = await call_next(request)
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    if "/static/" not in request.url.path:
        response.headers["Cache-Control"] = "no-store"
    return response


def _error(request: Request, status: int, title: str, detail: str) -> Response:
    """Return an error as a page, or as an object for the page's own scripts."""
    detail = SECRETS.redact(detail)
    if request.headers.get("accept") == "application/json":
        return JSONResponse({"error": visible(detail)}, status)
    return _html("error", status, title=title, detail=detail)


@app.exception_handler(StarletteHTTPException)
def _refused(request: Request, error: StarletteHTTPException) -> Response:
    detail = "Sign in to Airflow first." if error.status_code == HTTPStatus.UNAUTHORIZED else str(error.detail)
    return _error(request, error.status_code, HTTPStatus(error.status_code).phrase, detail)


@app.exception_handler(RequestValidationError)
def _misasked(request: Request, error: RequestValidationError) -> Response:
    problems = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return _error(request, HTTPStatus.UNPROCESSABLE_ENTITY, "This can't be asked", problems)


@app.exception_handler(GobblinError)
def _failed(request: Request, error: GobblinError) -> Response:
    if isinstance(error, LostRaceError):
        status = HTTPStatus.CONFLICT
    elif isinstance(error, ConfigurationError):
        status = HTTPStatus.BAD_REQUEST
    else:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        log.warning("%s", visible(str(error)))
    return _error(request, status, "This can't be done", error.with_notes)


@app.exception_handler(OSError)
def _unreachable(request: Request, error: OSError) -> Response:
    log.warning("the content of a target can't be read", exc_info=error)
    return _error(request, HTTPStatus.SERVICE_UNAVAILABLE, "This can't be read", f"{type(error).__name__}: {error}")
