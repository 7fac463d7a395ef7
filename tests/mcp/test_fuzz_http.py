"""Whatever bytes arrive at whatever route, the server answers shortly, tells nothing, and lives on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.mcp.fuzzing import (
    TEXTS,
    VALUES,
    assert_fit_to_be_seen,
    exchange,
    fuzz,
    fuzzed_server,
    json_bytes,
    plain_client,
)
from tests.mcp.gate import Gate
from tests.mcp.serving import TOKEN, HttpServer
from tests.support.postgres import create_database, drop_database

pytestmark = pytest.mark.filterwarnings(
    "ignore:Generating overly large repr"
)  # of an example with a long text

QUIET_SECONDS = 0.4
"""A server that has said nothing for so long is waiting for more; then we hang up, and it must let go."""

ROUTES = (
    "/mcp",
    "/mcp/",
    "/healthz",
    "/readyz",
    "/",
    "/mcp/x",
    "//mcp",
    "/MCP",
    "/mcp?x=%ff",
    "/%6dcp",
    "/mcp/../mcp",
)
BEARER = f"Bearer {TOKEN}"


@pytest.fixture(scope="module")
def fuzzed(
    postgres_server: str, template_url: str, gate: Gate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpServer]:
    url = create_database(postgres_server, template=template_url)
    folder: Path = tmp_path_factory.mktemp("fuzz-http")
    with ExitStack() as stack:
        stack.callback(drop_database, postgres_server, url)
        yield stack.enter_context(fuzzed_server(url, gate, folder))


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with plain_client() as made:
        yield made


def assert_refused_well(received: bytes) -> None:
    """Nothing, or HTTP answers without a 5xx and without inner matters."""
    assert received == b"" or received.startswith(b"HTTP/1.1 "), received[:200]
    for status in re.findall(rb"HTTP/1\.1 (\d{3})", received):
        assert not status.startswith(b"5"), received[:500]
    assert_fit_to_be_seen(received.decode("utf-8", "replace"))


# --- bytes ------------------------------------------------------------------------------------

METHODS = st.sampled_from(
    [
        b"GET",
        b"POST",
        b"PUT",
        b"DELETE",
        b"HEAD",
        b"OPTIONS",
        b"PATCH",
        b"TRACE",
        b"CONNECT",
        b"post",
        b"PRI",
        b"M" * 300,
    ]
)
TARGETS = st.one_of(
    st.sampled_from([route.encode() for route in ROUTES]),
    st.sampled_from(
        [
            b"*",
            b"",
            b"http://127.0.0.1/mcp",
            b"/mcp#x",
            b"/\x00",
            b"/\xff\xfe",
            b"/" + b"a" * 30_000,
            b"/%",
            b"/%zz?%",
        ]
    ),
    st.binary(max_size=40).map(lambda rest: b"/" + rest),
)
VERSIONS = st.sampled_from(
    [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP", b""]
)
LENGTHS = st.sampled_from(
    [b"0", b"5", b"-1", b"+7", b"1e3", b"99999999999999999999", b"4194305", b"0x10", b"", b"7, 7"]
)
HEADERS = st.one_of(
    st.tuples(
        st.just(b"Authorization"), st.sampled_from([BEARER.encode(), b"Bearer", b"Basic \xff", b"", b"\x00"])
    ),
    st.tuples(st.just(b"Content-Length"), LENGTHS),
    st.tuples(
        st.just(b"Transfer-Encoding"), st.sampled_from([b"chunked", b"gzip", b"chunked, chunked", b"x"])
    ),
    st.tuples(
        st.just(b"Content-Type"),
        st.sampled_from(
            [b"application/json", b"text/plain", b"application/json; charset=utf-16", b"", b"\xff/\xfe"]
        ),
    ),
    st.tuples(
        st.just(b"Accept"),
        st.sampled_from(
            [
                b"application/json",
                b"text/event-stream",
                b"*/*",
                b"",
                b",,;q=",
                b"application/json;q=0",
                b"\xff",
            ]
        ),
    ),
    st.tuples(
        st.just(b"MCP-Protocol-Version"), st.sampled_from([b"2025-11-25", b"2026-07-28", b"1", b"", b"\xe9"])
    ),
    st.tuples(
        st.sampled_from([b"Mcp-Method", b"Mcp-Name", b"Mcp-Session-Id", b"Last-Event-ID"]),
        st.binary(max_size=30),
    ),
    st.tuples(st.just(b"Expect"), st.sampled_from([b"100-continue", b"200"])),
    st.tuples(st.just(b"Connection"), st.sampled_from([b"close", b"keep-alive", b"upgrade", b"x"])),
    st.tuples(st.just(b"Upgrade"), st.sampled_from([b"websocket", b"h2c"])),
    st.tuples(
        st.just(b"Host"), st.sampled_from([b"127.0.0.1", b"evil.example", b"", b"[::1", b"a b", b"\xff"])
    ),
    st.tuples(st.just(b"Origin"), st.sampled_from([b"http://localhost", b"null", b"http://[", b"\xff"])),
    st.tuples(st.sampled_from([b"X-Forwarded-For", b"Forwarded", b"Cookie"]), st.binary(max_size=30)),
    st.tuples(st.binary(min_size=1, max_size=12), st.binary(max_size=30)),
    st.tuples(st.just(b"X-Long"), st.sampled_from([b"y" * 15_000, b"y" * 40_000])),
)
BODIES = st.one_of(
    st.binary(max_size=80),
    VALUES.map(json_bytes),
    st.sampled_from(
        [
            b"5\r\nhello\r\n0\r\n\r\n",
            b"ffffffffffffffff\r\n",
            b"0\r\nTrailer: x\r\n\r\n",
            b"[" * 20_000,
            b'{"a":' * 5_000,
            b"\xef\xbb\xbf{}",
            b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 3,
        ]
    ),
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request, more or less; now and then some of its bytes are others."""
    lines = [b" ".join((draw(METHODS), draw(TARGETS), draw(VERSIONS)))]
    if draw(st.integers(0, 9)):
        lines.append(b"Host: 127.0.0.1")
    lines += [name + b": " + value for name, value in draw(st.lists(HEADERS, max_size=6))]
    body = draw(BODIES)
    if draw(st.booleans()):
        lines.append(b"Content-Length: %d" % len(body))
    data = b"\r\n".join([*lines, b"", body])
    for position, byte in draw(
        st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=2)
    ):
        data = data[:position] + bytes([byte]) + data[position + 1 :]
    return data


@fuzz
@example(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
@given(st.one_of(requests(), requests(), st.binary(max_size=200)))
def test_raw_bytes(fuzzed: HttpServer, data: bytes) -> None:
    assert_refused_well(exchange(fuzzed.port, data, QUIET_SECONDS))


# --- messages ---------------------------------------------------------------------------------

RPC_METHODS = st.one_of(
    st.sampled_from(
        [
            *(
                "initialize",
                "server/discover",
                "ping",
                "tools/list",
                "tools/call",
                "notifications/initialized",
            ),
            *(
                "notifications/cancelled",
                "notifications/progress",
                "resources/list",
                "resources/read",
                "prompts/get",
            ),
            *("resources/templates/list", "resources/subscribe", "prompts/list", "completion/complete"),
            *(
                "logging/setLevel",
                "subscriptions/listen",
                "tasks/get",
                "roots/list",
                "sampling/createMessage",
            ),
        ]
    ),
    TEXTS,
)
META = st.fixed_dictionaries(
    {},
    optional={
        "io.modelcontextprotocol/protocolVersion": st.one_of(st.just("2026-07-28"), VALUES),
        "io.modelcontextprotocol/clientCapabilities": st.one_of(st.just({}), VALUES),
        "io.modelcontextprotocol/clientInfo": VALUES,
        "progressToken": VALUES,
    },
)
PARAMS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.one_of(st.sampled_from(["query_docs", "cache_stats"]), VALUES),
            "arguments": VALUES,
            "_meta": st.one_of(META, VALUES),
            "protocolVersion": st.one_of(st.sampled_from(["2025-11-25", "2024-11-05", "2026-07-28"]), VALUES),
            "capabilities": VALUES,
            "clientInfo": VALUES,
            "requestId": VALUES,
            "cursor": VALUES,
            "uri": VALUES,
            "level": VALUES,
        },
    ),
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.one_of(st.just("2.0"), st.just("2.0"), VALUES)},
    optional={
        "id": st.one_of(st.integers(0, 9), st.just("a"), VALUES),
        "method": st.one_of(RPC_METHODS, RPC_METHODS, VALUES),
        "params": PARAMS,
        "result": VALUES,
        "error": VALUES,
        "extra": VALUES,
    },
)
ERAS: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}),
    st.sampled_from(["2025-11-25", "2025-03-26", "2026-07-28", "9"]).map(
        lambda v: {"MCP-Protocol-Version": v}
    ),
    st.builds(
        lambda method, name: {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name},
        st.sampled_from(["tools/call", "tools/list", "server/discover", "subscriptions/listen", "x"]),
        st.sampled_from(["query_docs", "cache_stats", "x", "=?base64?eA==?="]),
    ),
)
ACCEPTS = st.sampled_from(
    ["application/json", "text/event-stream", "application/json, text/event-stream", "*/*"]
)


@fuzz
@given(st.one_of(MESSAGES, MESSAGES, MESSAGES, st.lists(MESSAGES, max_size=3), VALUES), ERAS, ACCEPTS)
def test_json_rpc(
    fuzzed: HttpServer, client: httpx2.Client, message: Any, era: dict[str, str], accept: str
) -> None:
    headers = {"Authorization": BEARER, "Content-Type": "application/json", "Accept": accept} | era
    body = json_bytes(message)
    answer = client.post(fuzzed.url, content=body, headers=headers)
    assert answer.status_code < 500, answer.text[:500]
    assert_fit_to_be_seen(answer.text, len(body))


@fuzz
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]),
    st.sampled_from(ROUTES),
    st.sampled_from([None, BEARER, "Bearer", "Basic eA=="]),
    st.sampled_from(
        ["application/json", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded", ""]
    ),
    st.one_of(st.binary(max_size=100), VALUES.map(json_bytes)),
)
def test_methods_and_content_types_on_every_route(
    fuzzed: HttpServer,
    client: httpx2.Client,
    method: str,
    route: str,
    authorization: str | None,
    content_type: str,
    body: bytes,
) -> None:
    headers = {"Content-Type": content_type} | ({"Authorization": authorization} if authorization else {})
    answer = client.request(method, fuzzed.base(route), content=body, headers=headers)
    assert answer.status_code < 500, answer.text[:500]
    assert answer.status_code != 401 or answer.headers["www-authenticate"].startswith("Bearer")
    assert_fit_to_be_seen(answer.text)
    if "mcp" in route.lower() and authorization != BEARER:
        assert answer.status_code in (401, 404, 405)
