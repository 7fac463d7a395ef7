"""Who is let in: hosts, origins, tokens. Predicates everywhere, the layers once each."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from doc_rag.errors import SettingsError
from doc_rag.listening import check_may_listen, is_loopback
from doc_rag.middleware import auth
from doc_rag.middleware.auth import BearerAuth, Failures, delay_seconds, presented_token
from doc_rag.middleware.hosts import HostGuard, host_allowed, origin_allowed
from doc_rag.settings import load_settings

TOKEN = "t0ken-of-a-good-length-0123456789abcdef"


def ask(app: ASGIApp, *requests: tuple[str, str, dict[str, str]]) -> list[httpx2.Response]:
    """The answers to (method, path, headers), one after the other, in one event loop."""

    async def session() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8743") as client:
            return [await client.request(m, path, headers=headers) for m, path, headers in requests]

    return asyncio.run(session())


async def welcome(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("in")(scope, receive, send)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_is_known_by_every_name(name: str) -> None:
    assert is_loopback(name)


@pytest.mark.parametrize("name", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.com", "example.com", ""])
def test_what_others_can_reach_is_not_loopback(name: str) -> None:
    assert not is_loopback(name)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("docs.example.com", True),
        ("DOCS.example.com:443", True),
        ("docs.example.com.", True),
        ("tunnel.example.com:8443", True),
        ("tunnel.example.com:9", False),
        ("tunnel.example.com", False),
        ("evil.com", False),
        ("docs.example.com.evil.com", False),
        ("localhost:8743", True),
        ("[::1]:8743", True),
        ("127.0.0.1", True),
        ("", False),
        (None, False),
    ],
)
def test_a_named_host_is_allowed_on_every_port_unless_it_names_one(host: str | None, allowed: bool) -> None:
    assert host_allowed(host, ("docs.example.com", "tunnel.example.com:8443")) is allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("https://app.example.com", True),
        ("https://APP.example.com", True),
        ("http://app.example.com", False),
        ("http://localhost:6274", True),
        ("null", False),
        ("https://evil.com", False),
        ("http://[bad", False),
    ],
)
def test_an_origin_is_allowed_as_written(origin: str | None, allowed: bool) -> None:
    assert origin_allowed(origin, ("https://app.example.com",)) is allowed


def test_without_a_list_every_host_and_origin_passes() -> None:
    app = HostGuard(welcome, hosts=None, origins=None)
    (answer,) = ask(app, ("GET", "/mcp", {"Host": "x.trycloudflare.com", "Origin": "https://x.com"}))
    assert answer.status_code == 200


def test_a_list_narrows_hosts_and_origins_but_not_the_probes() -> None:
    app = HostGuard(welcome, hosts=("docs.example.com",), origins=())
    answers = ask(
        app,
        ("GET", "/mcp", {"Host": "evil.com"}),
        ("GET", "/mcp", {"Host": "docs.example.com", "Origin": "https://evil.com"}),
        ("GET", "/mcp", {"Host": "docs.example.com"}),
        ("GET", "/healthz", {"Host": "10.1.2.3"}),
    )
    assert [a.status_code for a in answers] == [421, 403, 200, 200]
    assert "RAG_ALLOWED_HOSTS" in answers[0].json()["error"]


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", b"abc"),
        ("bearer  abc ", b"abc"),
        ("Basic abc", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("", None),
        (None, None),
        ("Bearer \xe9", b"\xe9"),
    ],
)
def test_a_token_is_read_from_the_bearer_scheme_alone(header: str | None, token: bytes | None) -> None:
    assert presented_token(header) == token


def test_only_the_token_gets_in_and_others_are_told_how() -> None:
    app = BearerAuth(welcome, token=TOKEN)
    answers = ask(
        app,
        ("POST", "/mcp", {"Authorization": f"Bearer {TOKEN}"}),
        ("POST", "/mcp", {}),
        ("POST", "/mcp", {"Authorization": f"Bearer {TOKEN}x"}),
        ("POST", "/mcp", {"Authorization": f"Basic {TOKEN}"}),
    )
    assert [a.status_code for a in answers] == [200, 401, 401, 401]
    for refused in answers[1:]:
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        assert TOKEN not in refused.text
    assert 'error="invalid_token"' in answers[2].headers["WWW-Authenticate"]
    assert "error" not in answers[1].headers["WWW-Authenticate"]


def test_a_wrong_token_waits_longer_each_time_and_a_right_one_never() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    app = BearerAuth(welcome, token=TOKEN, sleep=sleep)
    wrong = ("POST", "/mcp", {"Authorization": "Bearer wrong"})
    right = ("POST", "/mcp", {"Authorization": f"Bearer {TOKEN}"})
    answers = ask(app, *[wrong] * 6, right)
    assert [a.status_code for a in answers] == [401] * 6 + [200]
    assert waits == [0.0, 0.0, 0.0, 0.1, 0.2, 0.4]


def test_the_wait_grows_to_a_bound() -> None:
    assert delay_seconds(3) == 0.0
    assert delay_seconds(4) == pytest.approx(0.1)
    assert delay_seconds(1_000_000) == 2.0


def test_failures_are_forgotten_after_a_quiet_minute_and_never_fill_memory() -> None:
    now = 0.0
    failures = Failures(clock=lambda: now, max_peers=100)
    assert [failures.add("a") for _ in range(3)] == [1, 2, 3]
    now = 61.0
    assert failures.add("a") == 1
    for peer in range(1_000):
        failures.add(str(peer))
    assert len(failures) == 100


def test_too_many_waiting_wrong_tokens_are_turned_away_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "MAX_WAITING", 0)
    app = BearerAuth(welcome, token=TOKEN)
    wrong = ("POST", "/mcp", {"Authorization": "Bearer wrong"})
    answers = ask(app, *[wrong] * 4)
    assert [a.status_code for a in answers] == [401, 401, 401, 429]
    assert answers[3].headers["Retry-After"] == "2"


def test_no_token_no_start() -> None:
    with pytest.raises(SettingsError, match=r"RAG_AUTH_TOKEN.*make auth-token"):
        check_may_listen(load_settings({}), "127.0.0.1")


def test_a_public_address_needs_a_long_token() -> None:
    short = load_settings({"RAG_AUTH_TOKEN": "short-token"})
    assert check_may_listen(short, "127.0.0.1") == "short-token"
    assert check_may_listen(short, "[::1]") == "short-token"
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.com"):
        with pytest.raises(SettingsError, match="11 characters") as raised:
            check_may_listen(short, host)
        assert "short-token" not in str(raised.value)
    assert check_may_listen(load_settings({"RAG_AUTH_TOKEN": "x" * 32}), "0.0.0.0") == "x" * 32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RAG_ALLOWED_HOSTS", "https://docs.example.com"),
        ("RAG_ALLOWED_HOSTS", "*.example.com"),
        ("RAG_ALLOWED_ORIGINS", "docs.example.com"),
        ("RAG_ALLOWED_ORIGINS", "https://docs.example.com/path"),
        ("RAG_TRUSTED_PROXIES", "nginx"),
        ("RAG_TRUSTED_PROXIES", "10.0.0.0/8, *"),
    ],
)
def test_a_guard_that_could_never_match_stops_the_start(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load_settings({name: value})
