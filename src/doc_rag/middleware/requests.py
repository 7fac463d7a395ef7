"""Every request gets an id, a log line, and an answer: what goes wrong inside is logged, never shown."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doc_rag.logs import request_id
from doc_rag.middleware.replies import peer, refuse

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 256
"""Requests served at once; more are told to come back. Bounds memory, whatever is thrown at us."""


class Requests:
    """Outermost layer. Sets the request id, counts what is in flight, logs one line an answer."""

    def __init__(self, app: ASGIApp, *, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._app = app
        self._max_in_flight = max_in_flight
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = secrets.token_hex(6)
        token = request_id.set(name)
        started = time.monotonic()
        status: int | None = None

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), (b"x-request-id", name.encode())]
                message = {**message, "headers": headers}
            await send(message)

        counted = (
            scope["method"] != "GET"
        )  # sessions hold one stream open each; those have a limit of their own
        self._in_flight += counted
        try:
            if counted and self._in_flight > self._max_in_flight:
                await refuse(scope, receive, named_send, 503, "The server is busy.", {"Retry-After": "1"})
            else:
                await self._app(scope, receive, named_send)
        except asyncio.CancelledError:
            # Only uvicorn cancels a request's own task: it did not end while the server was stopping.
            if status is None:
                await refuse(scope, receive, named_send, 503, "The server is stopping.", {"Retry-After": "5"})
        except Exception:
            log.exception("a request failed inside the server")
            if status is None:
                await refuse(scope, receive, named_send, 500, f"Something went wrong inside. Request {name}.")
        finally:
            self._in_flight -= counted
            probed = scope["path"] in PROBES and status == 200
            log.log(
                logging.DEBUG if probed else logging.INFO,
                "answered",
                extra={
                    "method": scope["method"],
                    "path": scope["path"][:80] if scope["path"] in KNOWN_PATHS else "other",
                    "status": status,
                    "milliseconds": round((time.monotonic() - started) * 1000, 1),
                    "peer": peer(scope),
                },
            )
            request_id.reset(token)


PROBES = ("/healthz", "/readyz")
"""Asked every few seconds by whoever watches the server."""

KNOWN_PATHS = ("/mcp", "/mcp/", *PROBES)
"""Other paths are not logged: they are what a stranger typed."""
