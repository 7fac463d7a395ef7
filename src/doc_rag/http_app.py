"""The HTTP server: `/mcp` behind a bearer token, `/healthz` and `/readyz` open and telling nothing private.

The guards are on always: each is a class of `doc_rag.middleware`. Stopping drains: requests in hand are
answered, a reindex stops at a document.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doc_rag.calls import Calls
from doc_rag.http_protocol import GuardedProtocol
from doc_rag.mcp_server import build_server
from doc_rag.middleware.accept import AcceptShim
from doc_rag.middleware.auth import BearerAuth
from doc_rag.middleware.bodies import MAX_BODY_BYTES, Bodies
from doc_rag.middleware.hosts import HostGuard
from doc_rag.middleware.requests import Requests
from doc_rag.middleware.sessions import Sessions
from doc_rag.workers import Workers

if TYPE_CHECKING:
    from doc_rag.service import KnowledgeBase
    from doc_rag.settings import Settings

log = logging.getLogger(__name__)

MAX_SESSIONS = 1_000
SESSION_IDLE_SECONDS = 1_800.0
KEEP_ALIVE_SECONDS = 65
"""Longer than the minute for which proxies keep an idle connection, so that they never race our close."""
MAX_HEADER_BYTES = 16 * 1024
LEAVE_SECONDS = 2.0
"""Part of RAG_SHUTDOWN_SECONDS kept for what comes after the last answer."""
READY_SECONDS = 2.0
"""How long one look at the database answers every prober."""
READY_PATIENCE_SECONDS = 5.0


class Readiness:
    """Asks the knowledge base at most once in `READY_SECONDS`, whoever asks how often."""

    def __init__(self, problems: Callable[[], tuple[str, ...]], workers: Workers) -> None:
        self._problems = problems
        self._workers = workers
        self._asking: asyncio.Task[tuple[str, ...]] | None = None
        self._asked_at = float("-inf")
        self._said: tuple[str, ...] = ()

    async def is_ready(self) -> bool:
        if self._workers.stopping.is_set():
            return False
        now = time.monotonic()
        if self._asking is None or (self._asking.done() and now - self._asked_at > READY_SECONDS):
            self._asked_at = now
            self._asking = asyncio.create_task(self._workers.run(self._problems))
        done, _ = await asyncio.wait({self._asking}, timeout=READY_PATIENCE_SECONDS)
        if not done:
            return False
        error = self._asking.exception()
        problems = (f"unexpected: {type(error).__name__}",) if error else self._asking.result()
        if problems != self._said:
            self._said = problems
            log.warning("not ready: %s", " ".join(problems)) if problems else log.info("ready")
        return not problems


def build_http_app(
    kb: KnowledgeBase | Callable[[], KnowledgeBase],
    settings: Settings,
    *,
    token: str,
    workers: Workers | None = None,
) -> Starlette:
    """The whole ASGI app around one knowledge base (or a function that opens it, called in a worker thread)."""
    opener: Callable[[], KnowledgeBase] = kb if callable(kb) else lambda: kb
    workers = Workers() if workers is None else workers
    calls = Calls()
    server = build_server(opener, settings, workers=workers, calls=calls)
    # The SDK's own app carries its session manager; the routes around it are ours.
    server.streamable_http_app(
        stateless_http=not settings.http_stateful,
        json_response=False,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=SESSION_IDLE_SECONDS,
        # HostGuard and BearerAuth are in front; two guards with two lists would contradict each other.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    manager = server.session_manager
    mcp: ASGIApp = _UntilStopping(manager.handle_request, workers)
    mcp = Sessions(mcp, calls=calls, stateful=settings.http_stateful)
    mcp = BearerAuth(Bodies(AcceptShim(mcp)), token=token)
    readiness = Readiness(lambda: opener().readiness(), workers)

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        ready = await readiness.is_ready()
        return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(
        routes=[
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Route("/mcp", mcp),
            Route("/mcp/", mcp),
        ],
        middleware=[
            Middleware(Requests),
            Middleware(HostGuard, hosts=settings.allowed_hosts, origins=settings.allowed_origins),
        ],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, dict(error.headers or {}))


class _UntilStopping:
    """Ends the standing event streams of sessions (GET) when the server stops; requests are let finish."""

    def __init__(self, app: ASGIApp, workers: Workers) -> None:
        self._app = app
        self._workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        is_open = False

        async def watched_send(message: Message) -> None:
            nonlocal is_open
            is_open = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        stream = asyncio.ensure_future(self._app(scope, receive, watched_send))
        try:
            while not stream.done() and not self._workers.stopping.is_set():
                await asyncio.wait({stream}, timeout=0.25)
        finally:
            stream.cancel()
            await asyncio.wait({stream}, timeout=5)
        if is_open:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Server(uvicorn.Server):
    """uvicorn's server, telling the long runs to stop as soon as it is told itself."""

    def __init__(self, config: uvicorn.Config, workers: Workers) -> None:
        super().__init__(config)
        self._workers = workers

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._workers.stop()
        super().handle_exit(sig, frame)


def uvicorn_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves the app: its own log off, its limits ours, forwarded headers from named proxies alone."""
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies or ()),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, int(settings.shutdown_seconds - LEAVE_SECONDS)),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


def serve_http(
    kb: Callable[[], KnowledgeBase], settings: Settings, sock: socket.socket, token: str, workers: Workers
) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT, and drain. Whoever calls closes what it gave."""
    app = build_http_app(kb, settings, token=token, workers=workers)
    # Else the SDK's event streams end the moment a signal arrives, answers or not.
    AppStatus.enable_automatic_graceful_drain = False
    server = _Server(uvicorn_config(app, settings), workers)
    # uvicorn raises the signal again when it has stopped; by then that must not end the process,
    # which has a database to give back.
    before = {number: signal.signal(number, _stopped_already) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asyncio.run(server.serve(sockets=[sock]))
    finally:
        workers.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped_already(number: int, _: Any) -> None:
    log.info("stopped by %s", signal.Signals(number).name)
