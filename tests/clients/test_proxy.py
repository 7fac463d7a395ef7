"""nginx in front, as the README sets it up: TLS ends there, and the Host is a foreign one."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.clients import nginx
from tests.clients.nginx import NAME, OTHER_NAME, Certificate, NoNginx
from tests.clients.node import KINDS, NEW, OLD, Kind, calling, listing, session, transcript
from tests.clients.packages import Packages
from tests.mcp.gate import HELD, Gate
from tests.mcp.serving import EIGHT, LEGACY, MODERN, TOKEN, HttpServer, call, http_server
from tests.mcp.test_tools import within

pytestmark = pytest.mark.clients

BEARER = {"Authorization": f"Bearer {TOKEN}"}
LOG_SECONDS = 10.0
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
CLIENT, NOBODY = "127.0.0.5", "203.0.113.7"
"""Where a client connects from (all of 127.0.0.0/8 is this machine's on Linux), and where it says it does."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """nginx, and the server behind it."""

    port: int
    server: HttpServer
    certificate: Certificate

    def url(self, path: str = "/mcp", name: str = NAME) -> str:
        return f"https://{name}:{self.port}{path}"

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate.path))


@pytest.fixture(autouse=True)
def _names_resolve_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's names stand for this machine, as they would in DNS for that of a user."""
    import socket

    resolve = socket.getaddrinfo

    def here(host: Any, *rest: Any, **options: Any) -> Any:
        known = (NAME, OTHER_NAME, NAME.encode(), OTHER_NAME.encode())
        return resolve("127.0.0.1" if host in known else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", here)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    try:
        nginx.binary()
    except NoNginx as reason:
        pytest.skip(str(reason))
    return nginx.make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def proxy(
    server: HttpServer, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """In front of a server with the settings that the README starts with."""
    with nginx.running(tmp_path_factory.mktemp("nginx"), server.port, certificate) as port:
        yield Proxy(port, server, certificate)


@pytest.fixture(scope="session")
def narrow(
    env: dict[str, str], certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """In front of a server that answers one Host and trusts the proxy's word for who asks."""
    folder = tmp_path_factory.mktemp("narrow")
    narrowed = env | {
        "RAG_ALLOWED_HOSTS": NAME,
        "RAG_TRUSTED_PROXIES": "127.0.0.1",
        "RAG_LOG_FORMAT": "json",
    }
    with (
        http_server(narrowed, folder / "server.log") as server,
        nginx.running(folder, server.port, certificate) as port,
    ):
        yield Proxy(port, server, certificate)


def typescript(proxy: Proxy, name: str = NAME) -> dict[str, Any]:
    """How the TypeScript client is told to come through the proxy."""
    return {
        "http": {"url": proxy.url(name=name), "headers": BEARER},
        "hosts": {NAME: "127.0.0.1", OTHER_NAME: "127.0.0.1"},
        "authority": proxy.certificate.path,
    }


@asynccontextmanager
async def python_session(proxy: Proxy, era: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=BEARER, verify=proxy.tls(), timeout=60) as http,
        Client(streamable_http_client(proxy.url(), http_client=http), mode=era) as client,
    ):
        yield client


def post(
    proxy: Proxy, path: str = "/mcp", name: str = NAME, source: str | None = None, **headers: str
) -> httpx2.Response:
    """One ping through the proxy, not following redirects."""
    transport = httpx2.HTTPTransport(verify=proxy.tls(), local_address=source)
    with httpx2.Client(transport=transport, timeout=30) as client:
        given = BEARER | {key.replace("_", "-"): value for key, value in headers.items()}
        return client.post(proxy.url(path, name), json=PING, headers=given)


def peer_of(server: HttpServer, answer: httpx2.Response) -> str:
    """Who asked, as the server's log has it once the answer is written."""
    name = answer.headers["x-request-id"]
    deadline = time.monotonic() + LOG_SECONDS
    while time.monotonic() < deadline:
        lines = [line for line in server.log.read_text().splitlines() if name in line and line.endswith("}")]
        for entry in map(json.loads, lines):
            if entry["message"] == "answered" and entry["request_id"] == name:
                return str(entry["peer"])
        time.sleep(0.02)
    raise AssertionError(f"the log has no answer to request {name}")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_typescript_client_lists_and_calls(
    packages: Packages, kind: Kind, proxy: Proxy, said: Path
) -> None:
    steps = [listing(), calling("query_docs", query="how often is the mirror washed")]
    with session(packages, kind, steps, said, **typescript(proxy)) as running:
        heard = transcript(running)
    assert heard.one("connected")["revision"] == kind.revision
    assert tuple(heard.tools()) == EIGHT
    assert heard.content(1)["passages"][0]["source"] == "guide/telescope.md"


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_the_python_client_lists_and_calls(proxy: Proxy, era: str) -> None:
    async def body() -> None:
        async with python_session(proxy, era) as client:
            assert tuple(tool.name for tool in (await client.list_tools()).tools) == EIGHT
            found = await call(client, "query_docs", query="how often is the mirror washed")
            assert found["passages"][0]["source"] == "guide/telescope.md"

    within(body)


@pytest.mark.parametrize("kind", [OLD, NEW], ids=str)
def test_progress_arrives_while_the_work_goes_on(
    packages: Packages,
    kind: Kind,
    fresh_env: dict[str, str],
    gate: Gate,
    certificate: Certificate,
    tmp_path: Path,
    said: Path,
) -> None:
    (Path(fresh_env["RAG_DOCS_DIR"]) / "slow.txt").write_text(f"{HELD} {tmp_path.name}\n")
    with (
        http_server(fresh_env, tmp_path / "server.log") as server,
        nginx.running(tmp_path, server.port, certificate) as port,
        gate.hold(),
    ):
        proxy = Proxy(port, server, certificate)
        with session(packages, kind, [calling("reindex_docs")], said, **typescript(proxy)) as running:
            # Embedding waits at the gate: what arrives now is not the end of the stream.
            before = running.until("progress")
            gate.wait_until_held()
            gate.release()
            after = transcript(running)
    assert [event["event"] for event in before] == ["connected", "progress"]
    assert after.content(0)["new"] == 4


def test_a_wrong_token_is_401(proxy: Proxy) -> None:
    for authorization in ("Bearer wrong", "Basic Zm9vOmJhcg=="):
        answer = post(proxy, Authorization=authorization)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert post(proxy).status_code == 200


def test_a_trailing_slash_is_answered_and_not_sent_elsewhere(proxy: Proxy) -> None:
    answer = post(proxy, "/mcp/")
    assert (answer.status_code, answer.headers.get("location")) == (200, None)
    unknown = post(proxy, "/mcp/other")
    assert (unknown.status_code, unknown.headers.get("location")) == (404, None)


def test_a_host_that_is_named_passes_and_another_is_told_which_setting_refuses_it(
    packages: Packages, narrow: Proxy, said: Path
) -> None:
    assert post(narrow).status_code == 200
    refused = post(narrow, name=OTHER_NAME)
    assert refused.status_code == 421
    assert refused.json() == {"error": "This Host is not answered; see RAG_ALLOWED_HOSTS."}
    log = narrow.server.log.read_text()
    assert f"refused the Host '{OTHER_NAME}:{narrow.port}'" in log
    with session(packages, OLD, [listing()], said, **typescript(narrow)) as running:
        assert tuple(transcript(running).tools()) == EIGHT
    with session(packages, OLD, [listing()], said, **typescript(narrow, OTHER_NAME)) as running:
        (raised,) = running.rest()
    assert "421" in str(raised["code"]) + raised["message"]
    assert "RAG_ALLOWED_HOSTS" in raised["message"]


def test_the_log_has_the_client_behind_a_trusted_proxy(narrow: Proxy) -> None:
    assert peer_of(narrow.server, post(narrow, source=CLIENT)) == CLIENT
    claimed = post(narrow, source=CLIENT, X_Forwarded_For=NOBODY)
    assert peer_of(narrow.server, claimed) == CLIENT, "the client's own word was taken for the proxy's"


def test_who_is_no_trusted_proxy_is_not_believed(narrow: Proxy, proxy: Proxy) -> None:
    forwarded = BEARER | {"X-Forwarded-For": NOBODY}
    with httpx2.Client(transport=httpx2.HTTPTransport(local_address=CLIENT)) as client:
        answer = client.post(narrow.server.url, json=PING, headers=forwarded)
    assert answer.status_code == 200
    assert peer_of(narrow.server, answer) == CLIENT
    assert peer_of(proxy.server, post(proxy, source=CLIENT)) == "127.0.0.1", "no proxy is trusted here"
