"""Everything that is no webhook: what people and machines may look at."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from sqlalchemy import Engine
from starlette.exceptions import HTTPException

from cerniq_pipeline.settings import Settings
from cerniq_pipeline.web import unsubscribe
from cerniq_pipeline.web.intake import Intake

router = APIRouter()

ROUTERS: tuple[APIRouter, ...] = (router, unsubscribe.router)
"""One for each kind of page."""


GREETING = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Cerniq</title></head>
<body>
<h1>Cerniq</h1>
<p>This is the web service. It has no pages to log in to.</p>
<ul>
<li><a href="/health">/health</a>: whether webhooks are taken</li>
<li>/webhooks/&hellip;: what providers call</li>
<li>/u/&hellip;: where people unsubscribe, by the link in a message</li>
</ul>
<p>Whoever runs it finds runs and schedules in the Dagster UI, everything else with the command
<code>cerniq --help</code>, and the documents in the project's folder: <code>README.md</code>
first, then <code>docs/</code>.</p>
</body>
</html>
"""


@router.get("/")
async def greeting() -> HTMLResponse:
    """What there is at this address, for whoever opens it; nothing about anybody."""
    return HTMLResponse(GREETING)


@router.get("/health")
async def health(request: Request) -> JSONResponse:
    """Whether webhooks are taken: in Postgres, in the spool, or not at all."""
    found = await request.app.state.intake.health()
    status = "ok" if found.database else "spooling" if found.can_keep else "refusing"
    return JSONResponse(
        {"status": status, "database": found.database, "spool_bytes": found.spool_bytes},
        status_code=HTTPStatus.OK if found.can_keep else HTTPStatus.SERVICE_UNAVAILABLE,
    )


def create_pages(settings: Settings, engine: Engine, intake: Intake) -> FastAPI:
    """The application; its routes find settings, database and intake in `app.state`."""
    app = FastAPI(title="Cerniq", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.settings = settings
    app.state.engine = engine
    app.state.intake = intake
    for each in ROUTERS:
        app.include_router(each)

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        """An error in its own words and no others."""
        said = HTTPStatus(error.status_code).phrase.lower()
        return JSONResponse({"error": said}, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def refuse_form(request: Request, error: RequestValidationError) -> JSONResponse:
        """FastAPI would repeat what it was sent."""
        return await refuse(request, HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY))

    return app
