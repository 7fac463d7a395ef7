"""The HTTP server as a process: who gets in, in which form each client is answered, and what it gives away."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.mcp.serving import (
    LEGACY,
    MODERN,
    SERVER,
    TOKEN,
    HttpServer,
    call,
    free_port,
    http_server,
    http_session,
    refusal,
    whole_env,
)
from tests.mcp.test_tools import within

BOTH = "application/json, text/event-stream"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def post(server: HttpServer, message: Any, path: str = "/mcp", /, **headers: str | None) -> httpx2.Response:
    """One POST with the token; a header of None is left out, `_` in a name is `-`."""
    given: dict[str, str | None] = {"authorization": f"Bearer {TOKEN}", "accept": BOTH}
    given |= {name.replace("_", "-").lower(): value for name, value in headers.items()}
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    sent = {b"content-type": b"application/json"}
    sent |= {name.encode(): value.encode("latin-1") for name, value in given.items() if value is not None}
    return httpx2.post(server.base(path), content=body, headers=sent, timeout=30)


def request(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params or {})}


def tool_call(era: str, name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A tool call and the headers it needs, in that era."""
    params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
    if era == LEGACY:
        return request("tools/call", params), {"MCP-Protocol-Version": "2025-11-25"}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
    return request("tools/call", params | {"_meta": META}), headers


def query_call(era: str) -> tuple[dict[str, Any], dict[str, str]]:
    return tool_call(era, "query_docs", {"query": "washed mirror"})


def result_of(answer: httpx2.Response) -> dict[str, Any]:
    """The response message in a JSON body or in an event stream."""
    if answer.headers["content-type"].startswith("application/json"):
        return dict(answer.json()["result"])
    data = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return dict(json.loads(data[-1])["result"])


def test_without_the_token_there_is_401_with_a_challenge(server: HttpServer) -> None:
    for authorization in (None, "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer"):
        answer = post(server, request("ping"), authorization=authorization)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/json"
    assert httpx2.get(server.url).status_code == 401


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json", "application/json"),
        ("text/event-stream", "text/event-stream"),
        (BOTH, None),
        ("*/*", None),
        (None, None),
    ],
)
def test_each_client_is_answered_in_a_form_it_takes(
    server: HttpServer, era: str, accept: str | None, kind: str | None
) -> None:
    message, headers = query_call(era)
    answer = post(server, message, accept=accept, **headers)
    assert answer.status_code == 200, answer.text
    assert kind is None or answer.headers["content-type"].startswith(kind)
    result = result_of(answer)
    assert result["structuredContent"]["passages"], result


def test_a_client_that_takes_json_alone_can_begin_a_session(server: HttpServer) -> None:
    who = {"name": "t", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who}
    answer = post(server, request("initialize", params), accept="application/json")
    assert answer.json()["result"]["serverInfo"]["name"] == "doc-rag-mcp"
    session = answer.headers["mcp-session-id"]
    noted = post(
        server,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        accept="application/json",
        MCP_Session_Id=session,
    )
    assert noted.status_code == 202


def test_a_session_of_a_server_that_was_restarted_is_as_good_as_any(server: HttpServer) -> None:
    message, headers = query_call(LEGACY)
    answer = post(server, message, MCP_Session_Id="0123456789abcdef-stale", **headers)
    assert answer.status_code == 200
    assert result_of(answer)["structuredContent"]["passages"]


def test_behind_a_tunnel_any_host_passes_with_the_token(server: HttpServer) -> None:
    message, headers = query_call(LEGACY)
    foreign = {
        "Host": "quick-brown-fox.trycloudflare.com",
        "Origin": "https://quick-brown-fox.trycloudflare.com",
    }
    assert post(server, message, **headers, **foreign).status_code == 200
    assert post(server, message, **headers, **foreign, authorization=None).status_code == 401


def test_a_trailing_slash_is_no_redirect(server: HttpServer) -> None:
    message, headers = query_call(LEGACY)
    assert post(server, message, "/mcp/", **headers).status_code == 200


def test_the_probes_need_no_token_and_tell_nothing(server: HttpServer) -> None:
    health = httpx2.get(server.base("/healthz"))
    ready = httpx2.get(server.base("/readyz"))
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    assert "server" not in health.headers


def test_without_a_database_it_is_alive_and_not_ready(env: dict[str, str], tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from doc_rag.http_app import build_http_app
    from doc_rag.service import KnowledgeBase
    from doc_rag.settings import load_settings

    settings = load_settings(env | {"RAG_DATABASE_URL": "postgresql://me:planted-password@127.0.0.1:1/x"})
    with KnowledgeBase(settings) as kb, TestClient(build_http_app(kb, settings, token=TOKEN)) as client:
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "not ready"})


def test_a_named_host_narrows_who_is_answered(env: dict[str, str]) -> None:
    from starlette.testclient import TestClient

    from doc_rag.http_app import build_http_app
    from doc_rag.service import KnowledgeBase
    from doc_rag.settings import load_settings

    settings = load_settings(env | {"RAG_ALLOWED_HOSTS": "docs.example.com"})
    message, _ = query_call(LEGACY)
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
    with KnowledgeBase(settings) as kb, TestClient(build_http_app(kb, settings, token=TOKEN)) as client:
        for host, status in (("docs.example.com", 200), ("127.0.0.1:8743", 200), ("evil.example.com", 421)):
            assert client.post("/mcp", json=message, headers=headers | {"Host": host}).status_code == status


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS", "PATCH"])
def test_methods_other_than_post_are_not_served_without_sessions(server: HttpServer, method: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/event-stream"}
    answer = httpx2.request(method, server.url, headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "path", ["/", "/mcp/x", "/.well-known/oauth-protected-resource", "/%ff%00", "//", "/healthz/"]
)
def test_other_paths_are_not_found_in_json(server: HttpServer, path: str) -> None:
    answer = httpx2.get(server.base(path))
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_a_body_over_four_mebibytes_is_refused(server: HttpServer) -> None:
    assert post(server, b'"' + b"x" * (4 * 1024 * 1024) + b'"').status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b"{",
        b"[]",
        b"null",
        b"[" * 50_000,
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    ],
)
@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-28", "1999-01-01", "\xe9"])
def test_no_bytes_make_it_stumble(server: HttpServer, body: bytes, version: str | None) -> None:
    answer = post(server, body, MCP_Protocol_Version=version)
    assert answer.status_code < 500
    assert "Traceback" not in answer.text
    assert len(answer.text) < 2_000


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"b" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_shortly(server: HttpServer, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as sock:
        sock.sendall(raw)
        first = sock.recv(65_536)
    assert first.startswith((b"HTTP/1.1 4",)) or first == b""


def test_two_clients_are_served_at_once_and_each_gets_its_own(server: HttpServer) -> None:
    async def body() -> None:
        async with http_session(server.url) as first, http_session(server.url, LEGACY) as second:
            mine = await call(first, "query_docs", query="the kettle and the log book", top_k=1)
            other = await call(
                second, "query_docs", query="when the shutter stops half-way the panel shows E-14", top_k=1
            )
            assert mine["passages"][0]["source"] == "notes.txt"
            assert other["passages"][0]["source"] == "guide/dome.md"

    within(body)


def test_the_log_has_requests_by_id_and_neither_secrets_nor_text(
    server: HttpServer, env: dict[str, str]
) -> None:
    message, headers = query_call(LEGACY)
    message["params"]["arguments"]["query"] = "unmistakable words of a question"
    answer = post(server, message, **headers)
    post(server, message, **headers, authorization="Bearer guessed-token-0123456789")
    name = answer.headers["x-request-id"]
    text = server.log.read_text(encoding="utf-8")
    entries = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    ours = [entry for entry in entries if entry["request_id"] == name]
    assert {"tool call", "answered"} <= {entry["message"] for entry in ours}
    assert [entry["tool"] for entry in ours if "tool" in entry] == ["query_docs"]
    for secret in (TOKEN, env["OPENAI_API_KEY"], "guessed-token", "unmistakable words", "primary mirror"):
        assert secret not in text


def test_sessions_are_kept_where_asked_for_and_their_streams_end_with_the_server(
    env: dict[str, str], tmp_path: Path
) -> None:
    async def body(server: HttpServer) -> None:
        async with http_session(server.url, LEGACY) as client:
            assert (await call(client, "query_docs", query="washed mirror"))["passages"]
            assert post(server, request("ping"), MCP_Session_Id="stale").status_code == 404
            assert server.stop() == 0  # with the session's event stream open

    with http_server(env | {"RAG_HTTP_STATEFUL": "true"}, tmp_path / "server.log") as server:
        within(lambda: body(server))
    assert "Traceback" not in server.log.read_text()


def start(env: Mapping[str, str], cwd: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(SERVER), "--transport", "http", *arguments]
    return subprocess.run(command, env=whole_env(env), cwd=cwd, capture_output=True, timeout=60)


def test_without_a_token_it_does_not_start(env: dict[str, str], tmp_path: Path) -> None:
    done = start(env, tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"RAG_AUTH_TOKEN" in done.stderr and b"make auth-token" in done.stderr


def test_on_a_public_address_a_short_token_does_not_do(env: dict[str, str], tmp_path: Path) -> None:
    done = start(env | {"RAG_AUTH_TOKEN": "short-token"}, tmp_path, "--host", "0.0.0.0")
    assert done.returncode == 2
    assert b"32" in done.stderr and b"short-token" not in done.stderr


def test_a_port_that_is_taken_is_one_sentence(env: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        done = start(env | {"RAG_AUTH_TOKEN": TOKEN}, tmp_path, "--port", str(port))
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}".encode() in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_unknown_tool_is_an_error_of_the_protocol_or_the_tool(server: HttpServer) -> None:
    async def body() -> None:
        async with http_session(server.url) as client:
            assert "no_such_tool" in await refusal(client, "no_such_tool")

    within(body)
