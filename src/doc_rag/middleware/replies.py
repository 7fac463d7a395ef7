"""The one shape of an error: a short JSON object."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    error: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer with `{"error": ...}`."""
    await JSONResponse({"error": error}, status, dict(headers or {}))(scope, receive, send)


def header(scope: Scope, name: bytes) -> str | None:
    """The one header of that lower-case name; None where there is none, or more than one."""
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


def peer(scope: Scope) -> str:
    """The address of the client, as uvicorn knows it (a trusted proxy may have named it)."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
