"""The page behind the link in a message: looking at it changes nothing, its button ends it all.

Programs fetch every address they find in a mail, so only a POST acts. The token is the secret: who
has it may press the button, from wherever, and it says nothing about anybody.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from sqlalchemy import Engine

from cerniq_pipeline.domain.unsubscribing import Subscription, read_token
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.store import person_data
from cerniq_pipeline.store.database import DatabaseClock, Unavailable

router = APIRouter()

REASON = "unsubscribed by link"
ONE_CLICK = (b"List-Unsubscribe", b"One-Click")
"""A field and its value, in a form of whichever kind."""

LONGEST_BODY = 4096
"""What the body says only decides how we answer, so nobody waits for more of it."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #f4f5f7;
  --card: #fff; --line: #dde1e7; --act: #1d4ed8; --on-act: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf0; --soft: #a3adbb; --paper: #14181f;
  --card: #1d232c; --line: #323b48; --act: #8ab4ff; --on-act: #0d1320 } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1.25rem;
  background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
main { width: 100%; max-width: 30rem; padding: 2rem 1.75rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 14px }
.who { margin: 0 0 .5rem; color: var(--soft); overflow-wrap: anywhere }
h1 { margin: 0 0 .75rem; font-size: 1.5rem; line-height: 1.25; text-wrap: balance }
p { margin: 0 0 1.5rem; text-wrap: pretty }
p:last-child { margin: 0 }
button { width: 100%; padding: .85rem 1.25rem; border: 0; border-radius: 10px;
  background: var(--act); color: var(--on-act); font: inherit; font-weight: 600; cursor: pointer }
button:focus-visible { outline: 3px solid var(--act); outline-offset: 3px }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}


@router.api_route("/u/{token}", methods=["GET", "HEAD"])
async def ask(request: Request, token: str) -> Response:
    """Show what can be done here; fetched any number of times, it does nothing."""
    subscription = _whose(request, token)
    if subscription is None:
        return _unknown()
    try:
        found = await run_in_threadpool(_standing, request.app.state.engine, subscription)
    except Unavailable:
        return _try_later()
    if found is None:
        return _unknown()
    name, is_subscribed = found
    return _question(name) if is_subscribed else _done(name)


@router.post("/u/{token}")
async def act(request: Request, token: str) -> Response:
    """Unsubscribe: the button of the page, or a mail program's single click (RFC 8058)."""
    subscription = _whose(request, token)
    if subscription is None:
        return _unknown()
    said = await _beginning(request)
    secret = _secret(request)
    try:
        name = await run_in_threadpool(_stop, request.app.state.engine, secret, subscription)
    except Unavailable:
        return _try_later()
    if name is None:
        return _unknown()
    if all(word in said for word in ONE_CLICK):
        return PlainTextResponse("dezabonat\n", headers=HEADERS)
    return _done(name)


def _secret(request: Request) -> bytes:
    return request.app.state.settings.secret


def _whose(request: Request, token: str) -> Subscription | None:
    return read_token(_secret(request), token)


async def _beginning(request: Request) -> bytes:
    """As much of the body as matters."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) >= LONGEST_BODY:
            break
    return body[:LONGEST_BODY]


def _standing(engine: Engine, subscription: Subscription) -> tuple[str, bool] | None:
    """The tenant's name, and whether this lead still hears from it; None: no such tenant."""
    with engine.begin() as conn:
        return person_data.subscription(conn, subscription)


def _stop(engine: Engine, secret: bytes, subscription: Subscription) -> str | None:
    """Opt the lead out and return the tenant's name; who was erased hears nothing any more."""
    found = _standing(engine, subscription)
    if found is None:
        return None
    try:
        opt_out(
            engine.begin,
            tenant_id=subscription.tenant_id,
            lead_id=subscription.lead_id,
            secret=secret,
            reason=REASON,
            now=DatabaseClock(engine).now(),
        )
    except NotFound:
        event("unsubscribe", "lead_is_gone", lead=str(subscription.lead_id))
    return found[0]


# ── What is shown ─────────────────────────────────────────────────────────────────────────────


def _question(name: str) -> HTMLResponse:
    return _page(
        "Nu mai doriți mesaje de la noi?",
        "<p>Apăsați butonul și nu vă mai scriem, pe niciun canal.</p>"
        '<form method="post"><button type="submit">Nu mai vreau mesaje</button></form>',
        name=name,
    )


def _done(name: str) -> HTMLResponse:
    return _page(
        "Sunteți dezabonat",
        "<p>Nu veți mai primi mesaje de la noi, pe niciun canal. Vă mulțumim.</p>",
        name=name,
    )


def _unknown() -> HTMLResponse:
    return _page(
        "Pagina nu există",
        "<p>Verificați dacă adresa a fost copiată în întregime.</p>",
        status=HTTPStatus.NOT_FOUND,
    )


def _try_later() -> HTMLResponse:
    return _page(
        "Încercați din nou",
        "<p>Nu am putut înregistra cererea acum. Reveniți peste câteva minute.</p>",
        status=HTTPStatus.SERVICE_UNAVAILABLE,
    )


def _page(
    title: str, content: str, *, name: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> HTMLResponse:
    who = f'<p class="who">{escape(name)}</p>' if name else ""
    page = (
        '<!doctype html><html lang="ro"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>"
        f"<body><main>{who}<h1>{title}</h1>{content}</main></body></html>"
    )
    later = {"Retry-After": "60"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return HTMLResponse(page, status, headers=HEADERS | later)
