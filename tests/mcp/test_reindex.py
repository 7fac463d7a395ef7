"""A long reindex: it holds nobody up, it can be called off, and it ends where it may."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client

from tests.mcp.conftest import environment
from tests.mcp.gate import HELD, Gate
from tests.mcp.serving import (
    LEGACY,
    MODERN,
    SERVER,
    STOP_SECONDS,
    TOKEN,
    HttpServer,
    call,
    http_in_thread,
    http_server,
    http_session,
    stdio_session,
    whole_env,
)
from tests.mcp.test_tools import within

DOCUMENTS = 12
CHUNKS_EACH = 50
"""More chunks than one window of the ingest holds, so that a stop in the first is seen before the last."""


@pytest.fixture
def slow_env(
    shared_database: str, gate: Gate, tmp_path: Path, request: pytest.FixtureRequest
) -> dict[str, str]:
    """A collection of the test's own whose texts wait at the gate."""
    docs = tmp_path / "slow"
    docs.mkdir()
    word = uuid.uuid4().hex[:8]  # else the vectors of an earlier test would be reused
    for i in range(DOCUMENTS):
        lines = [f"{HELD} {word} document {i} paragraph {j} has a few words." for j in range(CHUNKS_EACH)]
        (docs / f"{i:02}.txt").write_text("\n\n".join(lines))
    name = f"slow {request.node.name}"[:200]
    return environment(shared_database, docs, gate, name) | {
        "RAG_CHUNK_SIZE": "80",
        "RAG_CHUNK_OVERLAP": "0",
        "RAG_EMBED_CONCURRENCY": "1",
    }


@pytest.fixture
def slow_server(slow_env: dict[str, str], tmp_path: Path) -> Iterator[HttpServer]:
    with http_server(slow_env, tmp_path / "server.log") as running:
        yield running


async def reindexed_after(client: Client) -> dict[str, Any]:
    """The report of a reindex that begins once nobody else writes the collection; bounded by the test."""
    while True:
        result = await client.call_tool("reindex_docs", {})
        if not result.is_error:
            return dict(result.structured_content)
        await anyio.sleep(0.05)


async def in_thread(function: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(function)


def test_a_query_is_answered_while_another_client_reindexes(
    slow_env: dict[str, str], env: dict[str, str], gate: Gate
) -> None:
    async def body(url: str) -> None:
        async with http_session(url) as writer, http_session(url, LEGACY) as reader:
            async with anyio.create_task_group() as tasks:
                with gate.hold():
                    done: list[dict[str, Any]] = []

                    async def reindex() -> None:
                        done.append(await call(writer, "reindex_docs"))

                    tasks.start_soon(reindex)
                    await in_thread(gate.wait_until_held)
                    found = await call(reader, "query_docs", query="washed mirror", collection="observatory")
                    assert found["passages"]
                    busy = await reader.call_tool("reindex_docs", {})
                    assert busy.is_error  # the one under way is reported
                    assert not done
            assert done[0]["new"] == DOCUMENTS

    with http_in_thread(slow_env) as url:
        within(lambda: body(url))


@pytest.mark.parametrize(("transport", "era"), [("stdio", LEGACY), ("http", LEGACY), ("http", MODERN)])
def test_a_reindex_that_the_client_calls_off_stops_at_a_document(
    transport: str, era: str, slow_env: dict[str, str], gate: Gate, tmp_path: Path
) -> None:
    async def body(url: str) -> None:
        session = http_session(url, era) if url else stdio_session(slow_env, tmp_path, era)
        async with session as client:
            with gate.hold():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.call_tool, "reindex_docs", {})
                    await in_thread(gate.wait_until_held)
                    tasks.cancel_scope.cancel()  # the client sends notifications/cancelled, or hangs up
                await client.list_tools()  # a round trip: the cancellation has arrived when the gate opens
            report = await reindexed_after(client)
            assert report["new"] > 0, "the run went on to its end"

    with http_in_thread(slow_env) if transport == "http" else nullcontext("") as url:
        within(lambda: body(url))


@pytest.mark.parametrize("detached", [False, True])
def test_a_reindex_outlives_its_client_only_where_it_may(
    detached: bool, slow_env: dict[str, str], gate: Gate
) -> None:
    env = slow_env | {"RAG_REINDEX_DETACHED": str(detached).lower()}
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "reindex_docs", "arguments": {}},
    }

    async def body(url: str) -> None:
        with gate.hold():
            headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
            async with (
                httpx2.AsyncClient(headers=headers) as http,
                http.stream("POST", url, json=request) as answer,
            ):
                assert answer.status_code == 200
                await in_thread(gate.wait_until_held)
            async with http_session(url) as client:
                await client.list_tools()
                gate.release()
                report = await reindexed_after(client)
                assert (report["new"] == 0) is detached

    with http_in_thread(env) as url:
        within(lambda: body(url))


def test_sigterm_lets_a_reindex_stop_at_a_document_and_answers_it(
    slow_server: HttpServer, gate: Gate
) -> None:
    async def body() -> None:
        reports: list[dict[str, Any]] = []

        async def reindex(client: Client) -> None:
            reports.append(await call(client, "reindex_docs"))

        async with http_session(slow_server.url, LEGACY) as client:
            await (
                client.list_tools()
            )  # the client checks answers against it, and later nobody is there to ask
            with gate.hold():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(reindex, client)
                    await in_thread(gate.wait_until_held)
                    slow_server.process.send_signal(signal.SIGTERM)
                    await in_thread(lambda: _refuses_connections(slow_server))
                    gate.release()
            assert reports[0]["interrupted"] is True
            assert reports[0]["next_step"] == "reindex_docs()"

    within(body)
    assert slow_server.process.wait(STOP_SECONDS) == 0


def _refuses_connections(server: HttpServer) -> None:
    """Wait until the server listens no more: it has begun to stop."""
    for _ in range(2_000):
        try:
            httpx2.get(server.base("/healthz"), timeout=5)
        except httpx2.TransportError:
            return
    raise AssertionError("the server still listens")


def test_a_call_that_does_not_end_is_left_behind_when_the_time_is_up(
    env: dict[str, str], gate: Gate, tmp_path: Path
) -> None:
    async def body() -> None:
        with http_server(env | {"RAG_SHUTDOWN_SECONDS": "3"}, tmp_path / "server.log") as server, gate.hold():
            message = {"name": "query_docs", "arguments": {"query": f"{HELD} {uuid.uuid4().hex}"}}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": message}
            headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=30) as http,
                anyio.create_task_group() as tasks,
            ):
                answers: list[httpx2.Response] = []

                async def ask() -> None:
                    answers.append(await http.post(server.url, json=request))

                tasks.start_soon(ask)
                await in_thread(gate.wait_until_held)
                started = anyio.current_time()
                assert await in_thread(server.stop) == 0
                assert anyio.current_time() - started < 10
            assert answers[0].status_code == 503
            assert "stopping" in answers[0].json()["error"]

    within(body)


def test_a_stdio_server_stops_a_reindex_when_its_client_leaves(
    slow_env: dict[str, str], gate: Gate, tmp_path: Path
) -> None:
    with _start(slow_env, tmp_path) as process, gate.hold():
        assert process.stdin and process.stdout
        who = {"name": "t", "version": "1"}
        _send(process, "initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo=who)
        process.stdout.readline()
        _send(process, "tools/call", 2, name="reindex_docs", arguments={})
        gate.wait_until_held()
        process.stdin.close()
        gate.release()
        last = json.loads(process.stdout.read().splitlines()[-1])
        assert process.wait(STOP_SECONDS) == 0
    assert last["id"] == 2
    assert last["result"]["structuredContent"]["interrupted"] is True


def _start(env: Mapping[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(SERVER)],
        env=whole_env(env),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _send(process: subprocess.Popen[bytes], method: str, number: int, **params: Any) -> None:
    assert process.stdin
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
