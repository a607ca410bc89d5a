"""The page's routes. Each checks who asks, by `access`, before anything is read; what is static is open to all."""

from __future__ import annotations

import logging
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from airflow.api_fastapi.app import API_ROOT_PATH
from fastapi import FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.staticfiles import StaticFiles

from airflow_gobblin.errors import ConfigurationError, GobblinError, LostRaceError
from airflow_gobblin.hooks.connections import SECRETS
from airflow_gobblin.inspection import dataset_detail, known_history, list_datasets, list_pending, list_slots
from airflow_gobblin.journal import now
from airflow_gobblin.links import NAME
from airflow_gobblin.plugins.page.access import (
    Editable,
    Readable,
    Ticket,
    User,
    check,
    check_same_site,
    editable,
    may,
    read_ticket,
    readable_of,
    sign,
)
from airflow_gobblin.plugins.page.actions import carry_out, propose
from airflow_gobblin.plugins.page.finding import known, names, of_dag, opened, target
from airflow_gobblin.plugins.page.runs import published_by
from airflow_gobblin.plugins.page.showing import Pages, chart, coverage_bars, render, to_dataset, to_list
from airflow_gobblin.records import Action

__all__ = ["app"]

log = logging.getLogger(__name__)

_PAGE = 50
_SLOTS = 25
_COLUMNS = 60
_STEPS = 30
_VERIFIED = 500
"""How many steps of a pending slot are verified each time somebody looks."""

Start = Annotated[int, Query(ge=0)]

# Interactive documentation would be open to all.
app = FastAPI(title="Gobblin", docs_url=None, redoc_url=None, openapi_url=None)
app.mount("/static", StaticFiles(directory=str(files("airflow_gobblin.plugins.page") / "static")), name="static")


# Looking


@app.get("/")
def index(user: User, dag_id: str = "", search: str = "", start: Start = 0) -> Response:
    """The ingestions that the user may look at; of a DAG with one ingestion, its datasets."""
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
def datasets(where: Readable, search: str = "", only: Literal["", "stuck"] = "", start: Start = 0) -> Response:
    """The datasets of an ingestion; `only` those that are stuck: with an unfinished slot, never published, or unreadable."""
    journal, at = opened(where), now()
    if only:
        found = [one for one in list_pending(journal, at) if search.lower() in one.urn.lower()]
        some, total = tuple(found[start : start + _PAGE]), len(found)
    else:
        page = list_datasets(journal, at, search=search, start=start, count=_PAGE, names=names(where))
        some, total = page.views, page.total
    pages = Pages(start, len(some), _PAGE, total)
    return _html("datasets", where=where, views=some, pages=pages, search=search, only=only)


@app.get("/counts")
def counts(where: Readable) -> Response:
    """How many datasets an ingestion has, and how many are stuck, by how."""
    journal, at = opened(where), now()
    total = list_datasets(journal, at, count=0).total
    stuck = [one.status for one in list_pending(journal, at)]
    return JSONResponse(
        {"datasets": total} | {s: stuck.count(s) for s in ("pending", "quarantined", "unpublished", "unreadable")}
    )


@app.get("/dataset")
def dataset(where: Readable, user: User, urn: str, start: Start = 0) -> Response:
    """A dataset, closely."""
    journal = opened(where)
    detail = dataset_detail(journal, target(where), urn, now(), steps=_STEPS, verified=_VERIFIED)
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
        rows=chart(published, lambda slot: slot.rows, "row"),
        files=chart(published, lambda slot: slot.files, "file"),
        editable=may("PUT", where.dag_id, user),
    )


@app.get("/run")
def run(user: User, dag_id: str, run_id: str) -> Response:
    """What a DAG run published."""
    check("GET", dag_id, user)
    found = [(one, published_by(one, run_id)) for one in of_dag(dag_id)]
    return _html("run", dag_id=dag_id, run_id=run_id, found=found)


@app.get("/open")
def open_in_airflow(where: Readable, urn: str = "") -> Response:
    """A dataset, or the list of an ingestion's, within Airflow's UI: the page's address there begins with the page's name."""
    address = to_dataset(where, urn) if urn else to_list(where)
    return RedirectResponse(f"{API_ROOT_PATH}plugin/{NAME}{API_ROOT_PATH}{NAME}/{address}", HTTPStatus.SEE_OTHER)


# Doing


@app.get("/action")
def confirm(
    where: Editable,
    user: User,
    urn: str,
    action: Literal["release", "abandon", "rewind", "verify"],
    to: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """What an action would do, and whether to do it."""
    proposal, ticket = propose(where, urn, action, to, user)
    return _html("action", where=where, urn=urn, proposal=proposal, action=action, ticket=sign(ticket))


@app.post("/action")
async def act(request: Request, user: User) -> Response:
    """Do what was confirmed."""
    check_same_site(request)
    form = parse_qs((await request.body()).decode(errors="replace"))
    ticket, reason = (form.get(name, [""])[0] for name in ("ticket", "reason"))
    return await run_in_threadpool(_act, read_ticket(ticket, user), reason, user)


def _act(ticket: Ticket, reason: str, user: Any) -> Response:
    where = editable(ticket.dag_id, ticket.ingestion, user)
    return _html("done", where=where, urn=ticket.urn, done=carry_out(where, ticket, reason, user))


# Answers


def _html(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, **values), status)


@app.middleware("http")
async def _guard(request: Request, call_next: Any) -> Response:
    """What the browser is told: nothing from elsewhere, nothing inline, in no frame but Airflow's, and nothing kept."""
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


@app.exception_handler(StarletteHTTPException)
def _refused(request: Request, error: StarletteHTTPException) -> Response:
    title = HTTPStatus(error.status_code).phrase
    detail = "Sign in to Airflow first." if error.status_code == HTTPStatus.UNAUTHORIZED else str(error.detail)
    return _html("error", error.status_code, title=title, detail=detail)


@app.exception_handler(RequestValidationError)
def _misasked(request: Request, error: RequestValidationError) -> Response:
    told = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return _html("error", HTTPStatus.UNPROCESSABLE_ENTITY, title="This can't be asked", detail=told)


@app.exception_handler(GobblinError)
def _failed(request: Request, error: GobblinError) -> Response:
    if isinstance(error, LostRaceError):
        status = HTTPStatus.CONFLICT
    elif isinstance(error, ConfigurationError):
        status = HTTPStatus.BAD_REQUEST
    else:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        log.warning("%s", error)
    return _html("error", status, title="This can't be done", detail=SECRETS.redact(error.with_notes))


@app.exception_handler(OSError)
def _unreachable(request: Request, error: OSError) -> Response:
    log.warning("what is below a target can't be read", exc_info=error)
    detail = f"{type(error).__name__}: {error}"
    return _html("error", HTTPStatus.SERVICE_UNAVAILABLE, title="This can't be read", detail=detail)
