"""Bodies, Accept and sessions: what reaches the MCP app, and the form its answer takes for each client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message

from doc_rag.calls import Calls
from doc_rag.http_app import uvicorn_config
from doc_rag.middleware.accept import AcceptShim, accepted
from doc_rag.middleware.bodies import MESSAGE, Bodies, is_message
from doc_rag.middleware.requests import Requests
from doc_rag.middleware.sessions import GONE, Sessions
from doc_rag.settings import load_settings

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"text": "grüße"}}
PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}


def post(app: ASGIApp, content: bytes | Any, headers: dict[str, str] | None = None) -> httpx2.Response:
    async def session() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            given = {"Content-Type": "application/json"} | (headers or {})
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            return await client.post("/mcp", content=body, headers=given)

    return asyncio.run(session())


def events(*messages: dict[str, Any], chunk_bytes: int = 7) -> ASGIApp:
    """An app that streams these messages as the SDK does, in small pieces."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"mcp-session-id", b"abc")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        data = b": ping\r\n\r\n"
        for message in messages:
            data += (
                b"event: message\r\ndata: " + json.dumps(message, ensure_ascii=False).encode() + b"\r\n\r\n"
            )
        for start in range(0, len(data), chunk_bytes):
            piece = data[start : start + chunk_bytes]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


async def json_app(scope: Any, receive: Any, send: Any) -> None:
    await JSONResponse(RESULT)(scope, receive, send)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    await JSONResponse({"seen": scope[MESSAGE], "bytes": len(message["body"])})(scope, receive, send)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (True, True)),
        ([b"*/*"], (True, True)),
        ([b"application/json"], (True, False)),
        ([b"text/event-stream"], (False, True)),
        ([b"application/json, text/event-stream"], (True, True)),
        ([b"application/json", b"text/event-stream"], (True, True)),
        ([b"Application/JSON; charset=utf-8"], (True, False)),
        ([b"application/json, text/event-stream;q=0"], (True, False)),
        ([b"text/html"], (False, False)),
        ([b"\xff\xfe"], (False, False)),
    ],
)
def test_accept_is_read_as_http_means_it(values: list[bytes], expected: tuple[bool, bool]) -> None:
    assert accepted(values) == expected


def test_a_json_only_client_gets_the_response_alone_out_of_the_stream() -> None:
    answer = post(AcceptShim(events(PROGRESS, PROGRESS, RESULT)), PING, {"Accept": "application/json"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["mcp-session-id"] == "abc"
    assert answer.json() == RESULT


def test_a_stream_that_ends_without_an_answer_is_an_error_for_a_json_only_client() -> None:
    answer = post(AcceptShim(events(PROGRESS)), PING, {"Accept": "application/json"})
    assert answer.status_code == 503
    assert "error" in answer.json()


def test_a_stream_only_client_gets_a_json_answer_as_one_event() -> None:
    answer = post(AcceptShim(json_app), PING, {"Accept": "text/event-stream"})
    assert answer.headers["content-type"] == "text/event-stream"
    (data,) = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert json.loads(data) == RESULT


def test_a_client_that_takes_both_gets_what_the_app_sends() -> None:
    assert post(AcceptShim(json_app), PING, {"Accept": "*/*"}).headers["content-type"] == "application/json"
    streamed = post(AcceptShim(events(RESULT)), PING, {"Accept": "application/json, text/event-stream"})
    assert streamed.headers["content-type"] == "text/event-stream"


def test_a_client_that_takes_neither_is_told_what_there_is() -> None:
    answer = post(AcceptShim(json_app), PING, {"Accept": "text/html"})
    assert answer.status_code == 406
    assert "application/json" in answer.json()["error"]


def test_a_body_is_replayed_whole_and_parsed() -> None:
    assert post(Bodies(echo), PING).json() == {"seen": PING, "bytes": len(json.dumps(PING))}


def test_a_body_over_the_limit_is_refused_declared_or_not() -> None:
    app = Bodies(echo, max_bytes=100)
    assert post(app, b'"' + b"x" * 200 + b'"').status_code == 413

    async def undeclared() -> int:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"x" * 60, "more_body": True}

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        await app({"type": "http", "method": "POST", "headers": headers}, receive, send)
        return int(sent[0]["status"])

    assert asyncio.run(undeclared()) == 413


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    async def stalled() -> int:
        sent: list[Message] = []

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "headers": headers}
        await Bodies(echo, read_seconds=0.05)(scope, receive, send)
        return int(sent[0]["status"])

    assert asyncio.run(stalled()) == 408


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xff", b"[" * 100_000, b"nul", b'{"jsonrpc":"2.0","id":1' + b"0" * 5_000 + b"}"],
)
def test_what_is_no_json_is_a_short_parse_error(body: bytes) -> None:
    answer = post(Bodies(echo), body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32700
    assert len(answer.text) < 200


@pytest.mark.parametrize(
    "message",
    [
        [],
        [PING],
        "x",
        7,
        None,
        {},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "id": [1], "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]},
        {"jsonrpc": "2.0", "id": 1},
    ],
)
def test_what_is_no_single_message_is_a_short_error(message: Any) -> None:
    assert not is_message(message)
    answer = post(Bodies(echo), message)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32600
    assert len(answer.text) < 250


def test_only_json_is_taken() -> None:
    assert post(Bodies(echo), PING, {"Content-Type": "text/plain"}).status_code == 415


def test_a_cancellation_reaches_the_call_of_the_same_client_alone() -> None:
    calls = Calls()
    app = Bodies(Sessions(json_app, calls=calls, stateful=False))
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    with calls.open("mine", 7) as mine, calls.open("other", 7) as other:
        post(app, note, {"Mcp-Session-Id": "mine"})
        assert mine.is_set()
        assert not other.is_set()
    assert len(calls) == 0


def test_a_stateless_client_is_given_a_name_and_keeps_an_old_one() -> None:
    app = Bodies(Sessions(json_app, calls=Calls(), stateful=False))
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    assert len(post(app, initialize).headers["mcp-session-id"]) == 32
    assert "mcp-session-id" not in post(app, PING).headers
    assert "mcp-session-id" not in post(app, PING, {"Mcp-Session-Id": "stale"}).headers


def test_a_client_that_leaves_is_noticed() -> None:
    async def session() -> bool:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await Response()(scope, receive, send)
            left.append(scope[GONE].is_set())

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            pass

        left: list[bool] = []
        scope: dict[str, Any] = {"type": "http", "method": "POST", "headers": [], "client": None}
        await Sessions(app, calls=Calls(), stateful=False)(scope, receive, send)
        return left[0]

    assert asyncio.run(session())


def test_what_fails_inside_is_answered_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("the password is hunter2")

    answer = post(Requests(broken), PING)
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["error"]
    assert "a request failed inside the server" in caplog.text


def test_more_than_the_limit_at_once_are_told_to_come_back() -> None:
    answer = post(Requests(json_app, max_in_flight=0), PING)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("trusted", "peer"),
    [
        ("", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.9"),
        ("10.0.0.0/8", "127.0.0.1"),
        ("127.0.0.0/8", "203.0.113.9"),
    ],
)
def test_forwarded_headers_are_believed_from_named_proxies_alone(trusted: str, peer: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])
        await Response()(scope, receive, send)

    async def send(_: Message) -> None:
        pass

    seen: list[str] = []
    config = uvicorn_config(app, load_settings({"RAG_TRUSTED_PROXIES": trusted}))
    config.load()
    headers = [(b"x-forwarded-for", b"203.0.113.9"), (b"x-forwarded-proto", b"https")]
    scope = {
        "type": "http",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "headers": headers,
        "method": "GET",
    }
    asyncio.run(config.loaded_app(scope, None, send))
    assert seen == [peer]
