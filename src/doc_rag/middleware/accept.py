"""Answers each client in the form it reads.

The SDK's transport insists on clients that accept both JSON and event streams. Some accept one only:
for those its answer is turned into the other form here. A JSON-only client gets the response alone,
since progress has no place in one JSON body; a stream-only client gets a JSON answer as one event.
"""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doc_rag.middleware.replies import refuse

JSON, EVENTS = "application/json", "text/event-stream"
BOTH = f"{JSON}, {EVENTS}".encode()


def accepted(values: list[bytes]) -> tuple[bool, bool]:
    """(JSON, event stream) for the Accept headers of a request; none at all accepts both."""
    if not values:
        return True, True
    takes_json = takes_events = False
    for item in b",".join(values).decode("latin-1").lower().split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        if any(p.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for p in parameters):
            continue
        takes_json = takes_json or kind in (JSON, "application/*", "*/*")
        takes_events = takes_events or kind in (EVENTS, "text/*", "*/*")
    return takes_json, takes_events


class AcceptShim:
    """Widens Accept for the app and narrows its answer for the client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        takes_json, takes_events = accepted([v for k, v in scope["headers"] if k == b"accept"])
        if not takes_json and not takes_events:
            await refuse(scope, receive, send, 406, f"Accept must name {JSON} or {EVENTS}.")
            return
        widened = [(k, v) for k, v in scope["headers"] if k != b"accept"] + [(b"accept", BOTH)]
        if not takes_events:
            send = _AsJson(send).send
        elif not takes_json:
            send = _AsEvents(send).send
        await self._app({**scope, "headers": widened}, receive, send)


def _content_type(start: Message) -> str:
    for key, value in start.get("headers", []):
        if key.lower() == b"content-type":
            return str(value.decode("latin-1").partition(";")[0].strip().lower())
    return ""


def _start(start: Message, content_type: str, length: int, status: int | None = None) -> Message:
    dropped = (b"content-type", b"content-length", b"x-accel-buffering")
    headers = [(k, v) for k, v in start.get("headers", []) if k.lower() not in dropped]
    headers += [(b"content-type", content_type.encode()), (b"content-length", str(length).encode())]
    return {**start, "status": status or start["status"], "headers": headers}


class _AsJson:
    """Holds an event stream back until its response is there, and sends that as one JSON body."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._pending = b""
        self._response: bytes | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _content_type(message) == EVENTS:
            self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._read(message.get("body", b""))
        if not message.get("more_body", False):
            await self._finish(self._start)

    def _read(self, data: bytes) -> None:
        *events, self._pending = (self._pending + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
            payload = b"\n".join(lines)
            if payload and _is_response(payload):
                self._response = payload

    async def _finish(self, start: Message) -> None:
        status = None
        if self._response is None:
            status, self._response = 503, b'{"error": "The server ended before it had an answer."}'
        await self._send(_start(start, JSON, len(self._response), status))
        await self._send({"type": "http.response.body", "body": self._response, "more_body": False})


def _is_response(payload: bytes) -> bool:
    try:
        message = json.loads(payload)
    except ValueError:
        return False
    return isinstance(message, dict) and ("result" in message or "error" in message)


class _AsEvents:
    """Sends a JSON answer (of status 200) as one event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] == 200 and _content_type(message) == JSON:
                self._start = message
                return
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if message.get("more_body", False):
                return
            body = b"event: message\r\ndata: " + self._body + b"\r\n\r\n"
            await self._send(_start(self._start, EVENTS, len(body)))
            message = {"type": "http.response.body", "body": body, "more_body": False}
        await self._send(message)
