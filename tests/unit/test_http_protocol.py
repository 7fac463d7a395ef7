"""Slow clients are cut, on a real socket; ordinary ones never notice."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from doc_rag.http_protocol import GuardedProtocol

WAIT_SECONDS = 10.0
Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


class Impatient(GuardedProtocol):
    header_seconds = 0.3
    stall_seconds = 0.3
    max_connections = 3


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """`/big` sends 128 MB, `/early` answers before the body, all else echoes the body's length."""
    size = 0
    if scope["path"] not in ("/big", "/early"):
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
    headers = [] if scope["path"] == "/big" else [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(2_000 if scope["path"] == "/big" else 0):
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
    await send({"type": "http.response.body", "body": f"{size:02}".encode(), "more_body": False})


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[uvicorn.Server, int]]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        config = uvicorn.Config(
            answer, http=Impatient, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield server, sock.getsockname()[1]
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, WAIT_SECONDS)


def talk(conversation: Conversation) -> Any:
    async def session() -> Any:
        async with serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return await asyncio.wait_for(conversation(reader, writer), WAIT_SECONDS)
            finally:
                writer.close()

    return asyncio.run(session())


async def whole_answer(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n\r\n")) + await reader.readexactly(2)


async def was_cut(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_that_says_nothing_is_cut() -> None:
    async def conversation(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> bool:
        return await was_cut(reader)

    assert talk(conversation)


def test_headers_that_trickle_are_cut() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        cut = asyncio.create_task(was_cut(reader))
        writer.write(b"GET / HTTP/1.1\r\n")
        try:
            while not cut.done():
                writer.write(b"X-A: b\r\n")
                await writer.drain()
                await asyncio.wait({cut}, timeout=0.05)
        except ConnectionError:
            pass
        return await cut

    assert talk(conversation)


def test_the_second_request_of_a_connection_must_not_trickle_either() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await whole_answer(reader)
        writer.write(b"GET / HT")
        return await was_cut(reader)

    assert talk(conversation)


def test_a_slow_body_is_left_to_the_app() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n")
        for _ in range(12):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)  # twelve bytes in twice the time that headers get
        return await whole_answer(reader)

    assert talk(conversation).endswith(b"12")


def test_a_body_that_goes_on_after_the_answer_is_cut() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        await whole_answer(reader)
        cut = asyncio.create_task(was_cut(reader))
        try:
            while not cut.done():
                writer.write(b"x")
                await writer.drain()
                await asyncio.wait({cut}, timeout=0.05)
        except ConnectionError:
            pass
        return await cut

    assert talk(conversation)


def test_a_client_that_stops_reading_is_cut() -> None:
    async def session() -> None:
        async with serving() as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_024)
            writer.write(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")  # and never again
            deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
            while server.server_state.connections and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.05)
            assert not server.server_state.connections
            writer.transport.abort()

    asyncio.run(session())


def test_connections_beyond_the_limit_are_refused_and_the_others_served() -> None:
    async def session() -> tuple[bool, bytes]:
        async with serving() as (_, port):
            pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            cut = await asyncio.wait_for(was_cut(pairs[3][0]), WAIT_SECONDS)
            reader, writer = pairs[0]
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            status = await asyncio.wait_for(reader.readline(), WAIT_SECONDS)
            for _, open_writer in pairs:
                open_writer.close()
            return cut, status

    cut, status = asyncio.run(session())
    assert cut
    assert b"200" in status


BROKEN_BODY = b"POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_body_that_is_no_http_is_refused_once_while_it_is_being_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(BROKEN_BODY + b"zz\r\n")
        return await reader.read()

    said = talk(conversation)
    assert said.startswith(b"HTTP/1.1 400") and said.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_body_that_is_no_http_after_the_answer_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(BROKEN_BODY)
        first = await whole_answer(reader)
        writer.write(b"zz\r\n")
        return first + await reader.read()

    said = talk(conversation)
    assert said.startswith(b"HTTP/1.1 200") and said.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
