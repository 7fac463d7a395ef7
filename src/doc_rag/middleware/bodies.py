"""Reads a request's body whole before anything works on it: bounded in size and time, and one JSON-RPC message.

What passes is replayed to the app, parsed in `scope[MESSAGE]` for the layers further in.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doc_rag.middleware.replies import header, refuse

MESSAGE = "doc_rag.message"
MAX_BODY_BYTES = 4 * 1024 * 1024
READ_SECONDS = 30.0
PARSE_ERROR, INVALID_REQUEST = -32700, -32600


class Bodies:
    """413 for too much, 408 for too slow, 415 for what is not JSON, 400 for what is no JSON-RPC message."""

    def __init__(
        self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES, read_seconds: float = READ_SECONDS
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._read_seconds = read_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            await refuse(scope, receive, send, 415, "Content-Type must be application/json.")
            return
        declared = header(scope, b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > self._max_bytes:
            await self._too_large(scope, receive, send)
            return
        body = bytearray()
        with anyio.move_on_after(self._read_seconds) as deadline:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                body += message.get("body", b"")
                if len(body) > self._max_bytes or not message.get("more_body", False):
                    break
        if deadline.cancelled_caught:
            await refuse(
                scope, receive, send, 408, "The body did not arrive in time.", {"Connection": "close"}
            )
        elif len(body) > self._max_bytes:
            await self._too_large(scope, receive, send)
        else:
            await self._pass_on(bytes(body), scope, receive, send)

    async def _too_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The connection stays open, and what still comes is thrown away (`http_protocol` bounds that): closed
        # at once, it would be reset under a client that is still sending, which then never reads the reason.
        error = f"A request has at most {self._max_bytes:,} bytes."
        await _rpc_error(scope, receive, send, INVALID_REQUEST, error, 413)

    async def _pass_on(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            parsed: Any = json.loads(body)
        except (ValueError, RecursionError):
            await _rpc_error(scope, receive, send, PARSE_ERROR, "Parse error: the body is not JSON.")
            return
        if not is_message(parsed):
            error = "The body must be one JSON-RPC 2.0 message; batches are not served."
            await _rpc_error(scope, receive, send, INVALID_REQUEST, error)
            return
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app({**scope, MESSAGE: parsed}, replay, send)


def is_message(parsed: Any) -> bool:
    """One JSON-RPC 2.0 request, notification or response, by its outer shape."""
    if not isinstance(parsed, dict) or parsed.get("jsonrpc") != "2.0":
        return False
    if "id" in parsed and (isinstance(parsed["id"], bool) or not isinstance(parsed["id"], str | int)):
        return False
    if "method" not in parsed:
        return "id" in parsed and ("result" in parsed or "error" in parsed)
    return isinstance(parsed["method"], str) and isinstance(parsed.get("params", {}), dict)


async def _rpc_error(
    scope: Scope, receive: Receive, send: Send, code: int, text: str, status: int = 400
) -> None:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
    await JSONResponse(body, status)(scope, receive, send)
