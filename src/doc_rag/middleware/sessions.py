"""Sessions as far as we have them: a name to call a client by, and the two ways it calls a request off.

Stateless is the default: a client gets a session id that nothing is kept under, and any id it sends
later is as good, so a restart strands nobody. The id serves one purpose: a client's
`notifications/cancelled` arrives as a request of its own, and request ids alone are not unique.
"""

from __future__ import annotations

import secrets
import threading

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doc_rag.calls import Calls
from doc_rag.middleware.bodies import MESSAGE
from doc_rag.middleware.replies import header, peer, refuse

GONE = "doc_rag.gone"
"""`scope[GONE]` is a `threading.Event`, set once the client has closed the connection."""

SESSION_HEADER = b"mcp-session-id"


def client_key(scope: Scope) -> str:
    """Who asks: the session id it was given, else its address and what it calls itself."""
    return header(scope, SESSION_HEADER) or f"{peer(scope)} {header(scope, b'user-agent') or ''}"


class Sessions:
    """Notices cancelled and abandoned requests; without sessions kept, refuses the streams that need one."""

    def __init__(self, app: ASGIApp, *, calls: Calls, stateful: bool) -> None:
        self._app = app
        self._calls = calls
        self._stateful = stateful

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST" and not self._stateful:
            error = "This server keeps no sessions; it answers POST alone."
            await refuse(scope, receive, send, 405, error, {"Allow": "POST"})
            return
        message = scope.get(MESSAGE) or {}
        if message.get("method") == "notifications/cancelled":
            params = message.get("params")
            if isinstance(params, dict):
                self._calls.cancel(client_key(scope), params.get("requestId"))
        if (
            not self._stateful
            and message.get("method") == "initialize"
            and header(scope, SESSION_HEADER) is None
        ):
            send = _with_session_id(send)
        gone = threading.Event()

        async def watched_receive() -> Message:
            event = await receive()
            if event["type"] == "http.disconnect":
                gone.set()
            return event

        await self._app({**scope, GONE: gone}, watched_receive, send)


def _with_session_id(send: Send) -> Send:
    async def named(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            name = secrets.token_hex(16).encode()
            message = {**message, "headers": [*message.get("headers", []), (SESSION_HEADER, name)]}
        await send(message)

    return named
