"""What the fuzz tests share: a server of their own, strategies for odd values, and what an answer must never be."""

from __future__ import annotations

import json
import os
import socket
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.mcp.conftest import environment, write_documents
from tests.mcp.gate import Gate
from tests.mcp.serving import LEGACY, TOKEN, HttpServer, call, http_server, http_session

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "25"))
"""Examples a property; `make soak-fuzz` asks for many more."""
SLOW_SECONDS = 30.0
"""No answer takes that long, whatever was asked."""
MAX_ANSWER_BYTES = 50_000

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="FUZZ_EXAMPLES" not in os.environ,  # the suite asks the same each time, the soak does not
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)

ODD_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "\x00",
        "\ud800",
        "a\udfff b",
        "\ufeffx",
        "\u202etxet",
        "e\u0301" * 50,
        "\U0001f9d1\u200d\U0001f680",
        "\ufdd0\uffff",
        "'; drop table documents; --",
        "%s %(x)s {0} {partition}",
        "../../../etc/passwd",
        "guide/dome.md",
        "fuzz",
        "NaN",
        "1e999",
        "\r\n\r\nHTTP/1.1 200 OK",
        "</document><system>",
        "& | ! <-> :*",
    ]
)
SHORT_TEXTS = st.one_of(
    ODD_TEXTS, st.text(st.characters(codec=None), max_size=60), st.text(string.printable, max_size=200)
)
LONG_TEXTS = st.builds(
    lambda part, length: (part * length)[:length],
    st.sampled_from(["a", "a ", "\u4e16", "\x00", "'", "((", "\ud83d", "x" * 1_000 + " "]),
    st.sampled_from([1_000, 9_000, 250_000, 1_000_000]),
)
TEXTS = st.one_of(SHORT_TEXTS, SHORT_TEXTS, SHORT_TEXTS, LONG_TEXTS)
NUMBERS = st.one_of(
    st.integers(-3, 103),
    st.sampled_from([2**31, -(2**31) - 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 5.0, -0.0, 1e308]),
    st.floats(),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, SHORT_TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=8,
)


@contextmanager
def fuzzed_server(database_url: str, gate: Gate, folder: Path) -> Iterator[HttpServer]:
    """A server whose index nobody else needs; at the end it must be as well as at its start."""
    docs = write_documents(folder / "docs")
    env = environment(database_url, docs, gate, "fuzz")
    with http_server(env | {"RAG_LOG_FORMAT": "json"}, folder / "server.log") as server:
        yield server
        assert_healthy(server)


def assert_healthy(server: HttpServer) -> None:
    """Alive, ready, answering, and nothing unforeseen in its log."""
    from tests.mcp.test_tools import within

    assert server.process.poll() is None, server.log.read_text(errors="replace")[-2_000:]
    for path in ("/healthz", "/readyz"):
        assert httpx2.get(server.base(path), timeout=SLOW_SECONDS).status_code == 200

    async def body() -> None:
        for era in (LEGACY, "auto"):
            async with http_session(server.url, era) as client:
                await call(client, "cache_stats")

    within(body)
    log = server.log.read_text(errors="replace")
    unforeseen = [line for line in log.splitlines() if "Traceback" in line or "inside the server" in line]
    assert not unforeseen, unforeseen[0][:3_000]


def assert_fit_to_be_seen(body: str, asked_bytes: int = 0) -> None:
    """No inner matters in what a client is shown, and not too much of it (the SDK may repeat what was asked)."""
    for inner in ("Traceback", 'File "', "inside the server", "psycopg", "site-packages", TOKEN):
        assert inner not in body, body[:1_000]
    assert len(body.encode(errors="replace")) < MAX_ANSWER_BYTES + 2 * asked_bytes


@contextmanager
def plain_client() -> Iterator[httpx2.Client]:
    """One for all examples: each client of its own would load the certificates of the world."""
    with httpx2.Client(timeout=SLOW_SECONDS, verify=False) as client:
        yield client


def json_bytes(message: Any) -> bytes:
    """JSON in ASCII: lone surrogates travel as escapes, as some clients send them."""
    return json.dumps(message).encode()


def exchange(port: int, data: bytes, quiet_seconds: float) -> bytes:
    """Send raw bytes and read what comes, until the server closes or is silent for `quiet_seconds`; then hang up.

    Raises:
        TimeoutError: the server kept the connection after we had hung up.
    """
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=SLOW_SECONDS) as sock:
        try:
            sock.sendall(data)
            sock.settimeout(quiet_seconds)
            while part := sock.recv(65_536):
                received += part
            return received
        except TimeoutError:
            pass
        except (ConnectionResetError, BrokenPipeError):
            return received
        sock.settimeout(SLOW_SECONDS)
        try:
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(65_536):
                received += part
        except (ConnectionResetError, BrokenPipeError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
        return received
