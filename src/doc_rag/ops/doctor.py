"""`make doctor`: look at everything a server needs, and say what to do about each thing that is wrong.

Writes nothing but what any start writes (a new database gets its schema). Without `--online` nothing
leaves this machine; with it, one query of a few tokens goes to the embedding provider.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from doc_rag.embed import make_embedder
from doc_rag.errors import DocRagError, SettingsError
from doc_rag.records import UsageEvent
from doc_rag.settings import MIN_TOKEN_CHARS, Settings, load_settings
from doc_rag.sources import walk
from doc_rag.store import administration, catalog
from doc_rag.store.pool import Database

OK, NOTE, WRONG = "ok", "note", "WRONG"
PROBE = "Is this thing on?"
PORT_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: `WRONG` makes the exit status 1, `NOTE` is worth knowing."""

    level: str
    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<6}{self.topic:<10}{self.text}"


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Where the settings come from, and who else can read that file."""
    if settings.env_file is None:
        yield Finding(
            OK, "settings", "valid; there is no .env, all of it is the environment's or the defaults"
        )
    else:
        yield Finding(OK, "settings", f"valid, from {settings.env_file} and the environment")
        mode = stat.S_IMODE(settings.env_file.stat().st_mode)
        if os.name == "posix" and settings.env_file.is_file() and mode & 0o077:
            yield Finding(
                NOTE,
                "settings",
                f"{settings.env_file} can be read by other users: chmod 600 {settings.env_file}",
            )
    for warning in settings.warnings:
        yield Finding(NOTE, "settings", warning)


def check_documents(settings: Settings) -> Iterator[Finding]:
    """Whether there is anything to index."""
    found = walk(settings.docs_dir, settings.extensions, max_file_bytes=settings.max_file_mb * 1_000_000)
    if not found.sources:
        yield Finding(
            WRONG,
            "documents",
            f"{settings.docs_dir} has no file ending in {' '.join(settings.extensions)}: put documents there, or "
            "set RAG_DOCS_DIR or RAG_EXTENSIONS",
        )
    else:
        left_out = f", {len(found.skips)} left out" if found.skips else ""
        yield Finding(OK, "documents", f"{len(found.sources)} files in {settings.docs_dir}{left_out}")
    for name in found.unreadable[:5]:
        yield Finding(
            WRONG, "documents", f"{name} cannot be read: give yourself the right to, or leave it out"
        )


def check_database(settings: Settings) -> Iterator[Finding]:
    """Whether it answers, its versions, and what is indexed in it."""
    database = Database(settings)
    try:
        with database.connection() as connection:
            facts = administration.facts(connection)
            collections = catalog.summaries(connection)
        yield Finding(
            OK,
            "database",
            f"{database.describe()}: Postgres {facts.postgres}, pgvector {facts.pgvector}, schema {facts.schema}",
        )
        if facts.pgvector_has_defects:
            yield Finding(
                NOTE,
                "database",
                f"pgvector {facts.pgvector} has index defects that 0.8.4 repaired: install a newer one on the server, "
                "then run: alter extension vector update;",
            )
        own = next((c for c in collections if c.name == settings.collection), None)
        if own is None:
            yield Finding(NOTE, "index", f"collection {settings.collection} is not indexed yet: make ingest")
        else:
            yield Finding(
                OK,
                "index",
                f"collection {own.name}: {own.documents} documents, {own.chunks} chunks, {own.provider} {own.model} "
                f"({own.dims} dimensions); {len(collections)} collections in all",
            )
            if own.pending_removals:
                yield Finding(
                    NOTE,
                    "index",
                    f"{own.pending_removals} removed documents wait to be confirmed: "
                    'make ingest ARGS="--confirm-large-removal"',
                )
    finally:
        database.close()


def check_provider(settings: Settings, *, online: bool) -> Iterator[Finding]:
    """Whether the provider's key is set, and with `online` whether it works."""
    events: list[UsageEvent] = []
    embedder = make_embedder(settings, events.append)
    embedder.require_key()
    identity = embedder.identity
    name = f"{identity.provider} {identity.model}"
    if settings.rerank_model and not settings.voyage_api_key:
        yield Finding(
            WRONG, "provider", "RAG_RERANK_MODEL is set, VOYAGE_API_KEY is not: set it, or unset the model"
        )
    if not online:
        ready = "is installed" if identity.provider == "local" else "has its key, not tried (ONLINE=1 does)"
        yield Finding(OK, "provider", f"{name} {ready}")
        return
    started = time.monotonic()
    vector = embedder.embed_query(PROBE)
    took_ms = (time.monotonic() - started) * 1000
    tokens = sum(event.tokens or 0 for event in events)
    yield Finding(
        OK, "provider", f"{name} answered in {took_ms:.0f} ms: {len(vector)} dimensions, {tokens} tokens"
    )


def check_token(settings: Settings) -> Iterator[Finding]:
    """Whether the HTTP server would start."""
    length = len(settings.auth_token.reveal()) if settings.auth_token else 0
    if not length:
        yield Finding(
            NOTE, "token", "RAG_AUTH_TOKEN is not set; only the HTTP server needs it: make auth-token"
        )
    elif length < MIN_TOKEN_CHARS:
        yield Finding(
            WRONG,
            "token",
            f"RAG_AUTH_TOKEN has {length} characters; Docker and public addresses need {MIN_TOKEN_CHARS}: "
            "make auth-token",
        )
    else:
        yield Finding(OK, "token", f"RAG_AUTH_TOKEN has {length} characters")


def check_port(settings: Settings) -> Iterator[Finding]:
    """Whether the HTTP server's port is free, or ours already."""
    port = settings.port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PORT_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer = json.loads(connection.getresponse().read(1024))
        ours = isinstance(answer, dict) and answer.get("status") == "ok"
    except ConnectionRefusedError:
        yield from _bindable(port)
        return
    except (OSError, http.client.HTTPException, ValueError):
        ours = False
    finally:
        connection.close()
    if ours:
        yield Finding(OK, "port", f"a server of ours answers on {port}")
    else:
        yield Finding(
            WRONG, "port", f"another program listens on {port}: stop it, or set RAG_PORT to another port"
        )


def _bindable(port: int) -> Iterator[Finding]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            yield Finding(
                WRONG, "port", f"{port} cannot be used ({error.strerror}): set RAG_PORT to another port"
            )
            return
    yield Finding(OK, "port", f"{port} is free")


def examine(settings: Settings, *, online: bool) -> Iterator[Finding]:
    """Every check in turn; one that cannot go on does not stop the others."""
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("settings", lambda: check_settings(settings)),
        ("documents", lambda: check_documents(settings)),
        ("database", lambda: check_database(settings)),
        ("provider", lambda: check_provider(settings, online=online)),
        ("token", lambda: check_token(settings)),
        ("port", lambda: check_port(settings)),
    )
    for topic, check in checks:
        try:
            yield from check()
        except (DocRagError, OSError) as error:
            yield Finding(WRONG, topic, str(error))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report. Exit status 0 where nothing is wrong, 1 where something is, 2 for wrong settings."""
    parser = argparse.ArgumentParser(prog="doc-rag doctor", description=__doc__)
    parser.add_argument(
        "--online", action="store_true", help="also make one tiny call to the embedding provider"
    )
    arguments = parser.parse_args(argv)
    try:
        settings = load_settings()
    except SettingsError as error:
        for problem in error.problems:
            print(Finding(WRONG, "settings", problem))
        return 2
    wrong = 0
    for finding in examine(settings, online=arguments.online):
        print(finding, flush=True)
        wrong += finding.level == WRONG
    print(f"{wrong} to set right." if wrong else "Nothing is wrong.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
