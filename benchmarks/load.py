"""Many clients, one reindex after the other, and no stale answer: `make bench-load`, or `python -m benchmarks.load`.

A server over HTTP on a loopback port, on a real Postgres, with a wire-true OpenAI server beside it; MCP clients of both
protocol eras call all eight tools while documents are edited and reindexed all the time. Every answer is checked
against what the revision that it claims held. Exit 1: an error, a stale answer, or memory that kept growing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from benchmarks import load_report
from benchmarks.load_corpus import HISTORY, Corpus, Held, problems_of, read_history
from benchmarks.load_servers import Memory, empty_server, provider, server
from benchmarks.load_traffic import Call, Revisions, Traffic, connected, list_tools
from tests.support.postgres import create_database, drop_database, reachable_folder, test_server

DOCUMENTS = 60
SPARE_DOCUMENTS = 120
BASELINE_SECONDS = 8.0
QUIET_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Stage:
    """An indexed database with its documents, and the variables that point our processes at it."""

    folder: Path
    database_url: str
    main: Corpus
    spare: Corpus
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    calls: Sequence[Call]
    seconds: float
    memory: Memory
    ingests: int
    """Finished runs of the command line."""
    cache_hits: int
    cache_misses: int
    errors: Sequence[str] = field(default_factory=list)
    stale: Sequence[str] = field(default_factory=list)


@contextmanager
def stage(
    folder: Path,
    database: Mapping[str, str],
    database_url: str,
    documents: int = DOCUMENTS,
    spare_documents: int = SPARE_DOCUMENTS,
) -> Iterator[Stage]:
    """Both collections indexed, their history kept. `database`: the variables that name the database to servers."""
    from doc_rag.service import KnowledgeBase
    from doc_rag.settings import load_settings

    main = Corpus(folder / "main", "doc", documents)
    spare = Corpus(folder / "spare", "spare", spare_documents)
    with provider(folder) as embedding:
        common = {
            **database,
            **embedding,
            "RAG_ENV_FILE": os.devnull,
            "RAG_CHUNK_SIZE": "300",
            "RAG_CHUNK_OVERLAP": "40",
            "RAG_HYBRID_SEARCH": "true",
            "RAG_EMBED_RETRY_SECONDS": "5",
        }
        for name, corpus in (("spare", spare), ("main", main)):
            variables = common | {"RAG_COLLECTION": name, "RAG_DOCS_DIR": str(corpus.folder)}
            with KnowledgeBase(load_settings(variables)) as kb:
                kb.reindex_docs()
                if name == "main":  # while we hold a connection: an embedded server ends with its last user
                    with psycopg.connect(database_url, autocommit=True) as connection:
                        connection.execute(HISTORY)
        yield Stage(folder, database_url, main, spare, variables)


async def run(
    staged: Stage,
    servers: Sequence[tuple[str, int]],
    clients: int,
    seconds: float,
    *,
    command_line: bool = False,
) -> Outcome:
    """`clients` and a writer for each server, for so long; every answer checked."""
    urls = [url for url, _ in servers]
    revisions = Revisions(staged.database_url)
    traffic = Traffic(urls, revisions, staged.main, staged.spare, seed=7)
    before = await cache_counts(urls)
    started = time.monotonic()
    with Memory([pid for _, pid in servers]) as memory:
        async with asyncio.TaskGroup() as tasks:

            def over() -> bool:
                return time.monotonic() - started > seconds

            tasks.create_task(traffic.ask(clients, over))
            tasks.create_task(traffic.write(over, staged.variables if command_line else None))
        took = time.monotonic() - started
    after = await cache_counts(urls)
    await revisions.close()
    errors = [f"{call.tool}: {call.error}" for call in traffic.calls if call.error]
    return Outcome(
        traffic.calls,
        took,
        memory,
        traffic.ingests,
        after[0] - before[0],
        after[1] - before[1],
        errors + traffic.problems,
        stale_answers(traffic.calls, staged.database_url),
    )


def stale_answers(
    calls: Sequence[Call], database_url: str, crash: tuple[float, float] | None = None
) -> list[str]:
    """What is wrong with the answers of `calls`, by the history of their database.

    `crash` is when the database crashed and when it was back. A run of ours does not wait for the disk at each
    document, so a crash may take the last ones: what was read of those before is not in the history any more.
    """
    history = read_history(database_url)
    found = []
    for call in calls:
        if not call.answer or (crash and _is_lost(call, history, *crash)):
            continue
        before = {} if crash and call.started < crash[1] else call.before
        found += problems_of(call.tool, call.answer, before, history)
    return found


def _is_lost(call: Call, history: Mapping[int, Held], crashed_at: float, back_at: float) -> bool:
    """Whether an answer was read before the crash, at a revision that the crash took."""
    was_before = call.started < crashed_at or call.started + call.seconds < back_at
    return was_before and not set(call.answer.get("revisions", {}).values()) <= history.keys()


async def cache_counts(urls: Sequence[str]) -> tuple[int, int]:
    """Hits and misses of all servers' query caches together."""
    hits = misses = 0
    for url in urls:
        async with connected(url, "auto") as client:
            content = (await client.call_tool("cache_stats", {})).structured_content or {}
            hits, misses = hits + content["hits"], misses + content["misses"]
    return hits, misses


async def quiet_baseline(staged: Stage, url: str) -> list[Call]:
    """The same mix by one client, with nobody writing."""
    revisions = Revisions(staged.database_url)
    traffic = Traffic([url], revisions, staged.main, staged.spare, seed=11)
    deadline = time.monotonic() + BASELINE_SECONDS
    await traffic.ask(1, lambda: time.monotonic() > deadline)
    await revisions.close()
    return traffic.calls


def measure(folder: Path, clients: int, seconds: float, servers: int) -> int:
    """One run from an empty database to the printed tables; the exit code."""
    admin = test_server()
    url = create_database(admin)
    try:
        with ExitStack() as stack:
            staged = stack.enter_context(stage(folder, {"RAG_DATABASE_URL": url}, url))
            with empty_server(folder) as empty:
                floor = {n: asyncio.run(list_tools(empty, n, QUIET_SECONDS)) for n in (1, clients)}
            running = [
                stack.enter_context(server(staged.variables, folder / f"server-{number}.log"))
                for number in range(servers)
            ]
            alone = asyncio.run(quiet_baseline(staged, running[0][0]))
            outcome = asyncio.run(run(staged, running, clients, seconds, command_line=servers > 1))
            logs = [folder / f"server-{number}.log" for number in range(servers)]
    finally:
        drop_database(admin, url)
    print(load_report.tables(outcome, alone, floor, clients, servers))
    failures = [*outcome.errors, *outcome.stale, *memory_problems(outcome)]
    failures += [
        f"a traceback in {log.name}" for log in logs if "Traceback" in log.read_text(errors="replace")
    ]
    for failure in failures[:20]:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


def memory_problems(outcome: Outcome) -> list[str]:
    """Memory that grew after the warm-up by more than `load_report.allowed_growth` lets it."""
    grown, allowed = load_report.growth(outcome.memory), load_report.allowed_growth(outcome)
    if grown <= allowed:
        return []
    return [
        f"after the warm-up the servers grew by {grown / 2**20:.1f} MiB; {allowed / 2**20:.1f} were allowed"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--servers", type=int, default=1, help="server processes; with 2, ingest.py runs beside them"
    )
    arguments = parser.parse_args()
    folder = reachable_folder()
    try:
        return measure(folder, arguments.clients, arguments.seconds, arguments.servers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
