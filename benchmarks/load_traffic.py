"""Real MCP clients of both protocol eras that call all eight tools, and writers that reindex all the time."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psycopg
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.load_corpus import Corpus, question
from benchmarks.load_servers import ROOT, TOKEN, whole_env

ERAS = ("auto", "legacy")
"""How a client begins: with `server/discover` (2026-07-28), or with `initialize` (2025-11-25)."""
CALL_SECONDS = 90
READ_SECONDS = 1.0
REST_SECONDS = 0.5
REPEATED_QUESTIONS = 40
REBUILD_EVERY = 12

MIX: Mapping[str, int] = {
    "query repeated": 330,
    "query fresh": 170,
    "query spare": 220,
    "query all": 50,
    "list_documents": 60,
    "list_collections": 50,
    "cache_stats": 40,
    "usage_stats": 40,
    "clear_cache": 5,
    "remove spare": 10,
    "remove": 3,
    "reindex_docs": 3,
}
"""Calls in a thousand. `spare` is a second collection that nobody writes but `remove spare`."""

BUSY = "is being written by another process"
ALLOWED = {
    # One run at a time writes a collection: a second is told so.
    "reindex_docs": (BUSY,),
    # A document that another client, or the folder, has just taken away.
    "remove_document": (BUSY, "is not in collection"),
}
"""Refusals that belong to the mix: what a tool has to say when somebody else was faster."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as its client saw it. `error` None is a success; a refusal that belongs to the mix is no error."""

    tool: str
    started: float
    seconds: float
    error: str | None = None
    refused: bool = False
    before: Mapping[str, int] = field(default_factory=dict)
    """Revisions that were committed before it was sent."""
    answer: Mapping[str, Any] = field(default_factory=dict)


class Revisions:
    """The newest committed revisions, read by a connection of our own; none while there is none."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self._rest_until = 0.0

    async def now(self) -> dict[str, int]:
        async with self._lock:
            if time.monotonic() < self._rest_until:
                return {}
            reading = asyncio.ensure_future(self._read())
            done, _ = await asyncio.wait({reading}, timeout=READ_SECONDS)
            if done and reading.exception() is None:
                return reading.result()
            # Not waited for: psycopg would ask a server that hangs to please stop.
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())
            reading.cancel()
            if self._connection is not None:
                self._connection.pgconn.finish()
                self._connection = None
            self._rest_until = time.monotonic() + REST_SECONDS
            return {}

    async def _read(self) -> dict[str, int]:
        if self._connection is None:
            self._connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        return dict(
            await (await self._connection.execute("select name, revision from collections")).fetchall()
        )

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


@asynccontextmanager
async def connected(url: str, era: str) -> AsyncIterator[Client]:
    """A client of that era with the token, as programs use it."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=CALL_SECONDS) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


async def timed(client: Client, tool: str, arguments: dict[str, Any], revisions: Revisions) -> Call:
    """Make one call and note what came of it."""
    before = await revisions.now()
    started = time.monotonic()
    try:
        result = await client.call_tool(tool, arguments)
    except Exception as error:  # noqa: BLE001 - whatever a client may raise is what we came to see
        return Call(tool, started, time.monotonic() - started, f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - started
    if result.is_error:
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        if any(words in text for words in ALLOWED.get(tool, ())):
            return Call(tool, started, seconds, refused=True)
        return Call(tool, started, seconds, text)
    return Call(tool, started, seconds, before=before, answer=result.structured_content or {})


class Traffic:
    """Clients and writers against one or more servers of the same database; all calls end up in `calls`."""

    def __init__(
        self, urls: Sequence[str], revisions: Revisions, main: Corpus, spare: Corpus, seed: int
    ) -> None:
        self._urls = urls
        self._revisions = revisions
        self._main = main
        self._spare = spare
        self._seed = seed
        chance = random.Random(seed)
        self._questions = [question(chance) for _ in range(REPEATED_QUESTIONS)]
        self.calls: list[Call] = []
        self.ingests = 0
        """Finished runs of the command line."""
        self.problems: list[str] = []
        """What went wrong beside the calls."""

    async def ask(self, clients: int, until: Callable[[], bool]) -> None:
        """So many clients, each of which calls one tool after another, until `until()`."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(self._client(number, until))

    async def _client(self, number: int, until: Callable[[], bool]) -> None:
        chance = random.Random(f"{self._seed} {number}")
        url, era = self._urls[number % len(self._urls)], ERAS[number // len(self._urls) % 2]
        kinds, weights = list(MIX), list(MIX.values())
        async with connected(url, era) as client:
            while not until():
                (kind,) = chance.choices(kinds, weights)
                tool, arguments = self._arguments(kind, chance)
                self.calls.append(await timed(client, tool, arguments, self._revisions))

    def _arguments(self, kind: str, chance: random.Random) -> tuple[str, dict[str, Any]]:
        match kind.split():
            case ["query", which]:
                fresh = which == "fresh" or (which == "all" and chance.random() < 0.5)
                asked = question(chance) if fresh else chance.choice(self._questions)
                # The same question comes with the same top_k, else hardly any answer would be asked for twice.
                arguments: dict[str, Any] = {"query": asked, "top_k": (1, 5, 5, 20)[len(asked) % 4]}
                if which == "spare":
                    arguments["collection"] = "spare"
                elif which == "all":
                    arguments["all_collections"] = True
                return "query_docs", arguments
            case ["remove", "spare"]:
                return "remove_document", {"source": chance.choice(self._spare.names), "collection": "spare"}
            case ["remove"]:
                return "remove_document", {"source": chance.choice(self._main.names)}
            case ["list_documents"]:
                return kind, {"all_collections": chance.random() < 0.2}
            case _:
                return kind, {}

    async def write(self, until: Callable[[], bool], ingest: Mapping[str, str] | None) -> None:
        """Edit documents and reindex them, one run after the other, through each server in turn until `until()`.

        With `ingest` (the variables of a command line), every third run is `python src/ingest.py`.
        """
        chance = random.Random(f"{self._seed} writer")
        async with asyncio.TaskGroup() as tasks:
            for number, url in enumerate(self._urls):
                tasks.create_task(self._writer(number, url, until, chance, ingest))

    async def _writer(
        self,
        number: int,
        url: str,
        until: Callable[[], bool],
        chance: random.Random,
        ingest: Mapping[str, str] | None,
    ) -> None:
        run = 0
        async with connected(url, ERAS[number % 2]) as client:
            while not until():
                run += 1
                self._main.edit_some(chance, 6)
                if ingest is not None and (run + number) % 3 == 1:
                    await self._command_line(ingest)
                    continue
                arguments = {"force_rebuild": run % REBUILD_EVERY == 0}
                call = await timed(client, "reindex_docs", arguments, self._revisions)
                self.calls.append(call)
                if call.refused or call.error:
                    await asyncio.sleep(0.2)  # the other writer has its turn

    async def _command_line(self, variables: Mapping[str, str]) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "src" / "ingest.py"),
            "--wait",
            env=whole_env(variables),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(process.communicate(), CALL_SECONDS)
        self.ingests += 1
        if process.returncode:
            self.problems.append(
                f"ingest.py ended with {process.returncode}: {said.decode(errors='replace')[-500:]}"
            )


async def list_tools(url: str, clients: int, seconds: float) -> list[float]:
    """How long each `tools/list` took, asked by so many clients for so long."""
    took: list[float] = []
    ready = asyncio.Barrier(clients)

    async def one(number: int) -> None:
        async with connected(url, ERAS[number % 2]) as client:
            await ready.wait()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                started = time.monotonic()
                await client.list_tools()
                took.append(time.monotonic() - started)

    async with asyncio.TaskGroup() as tasks:
        for number in range(clients):
            tasks.create_task(one(number))
    return took
