"""A campaign of kills: an ingest is killed again and again, its folder changes in between, and the index is
checked after every kill. Used by the suite (ten kills) and by `benchmarks.kill_ingest` (a hundred).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from doc_rag.embed import make_embedder
from doc_rag.service import KnowledgeBase
from doc_rag.store import catalog
from tests.ingest_safety.corpus import Corpus
from tests.ingest_safety.index import Checker, Contents, contents, differences
from tests.ingest_safety.runs import finished, killed, moments, wait_until_gone
from tests.providers.servers import OpenAIServer
from tests.support.postgres import create_database, drop_database

COLLECTION = "killed"
ARGUMENTS = ("--wait", "--confirm-large-removal")
CHUNK_SIZES = (800, 500, 300)
SHARE_OF_REBUILDS = 0.35
"""In so many runs the chunk size is another than before, so that a new generation is built."""
CHANGED_SHARE = 0.12
IN_FLIGHT = 32 * 9
"""Texts whose answers may be on their way to the database: a server that people run themselves is sent 32 at
once, and there are twice the four threads' batches, and the one that is being staged."""


@dataclass(slots=True)
class Outcome:
    """What a campaign came to."""

    kills: int = 0
    ended_before: int = 0
    """Runs that had ended when their kill came."""
    rebuilds_hit: int = 0
    """Kills after which a generation was being built beside the live one."""
    full_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    texts: int = 0
    """Texts that were answered for: what a user pays."""
    paid_again: int = 0
    """Those of them that had been answered before, with the same chunk size."""


class Campaign:
    """A folder, a provider, a database, and an ingest to kill."""

    def __init__(self, admin_url: str, folder: Path, server: OpenAIServer, seed: int) -> None:
        self.corpus = Corpus(folder, seed)
        self.server = server
        self.outcome = Outcome()
        self._admin_url = admin_url
        self._random = random.Random(seed)
        self._seed = seed
        self._chunk_size = CHUNK_SIZES[0]
        self._paid: Counter[str] = Counter()
        self._hits = 0
        """Kills since the chunk size was chosen."""

    def run(self, kills: int, progress: Callable[[Outcome], None] = lambda _: None) -> Outcome:
        """Kill until `kills` of them have hit, finish, and compare with a clean ingest of the same folder."""
        self.outcome.full_seconds = self._clean()[1]
        with self._database() as url:
            variables = self._variables(url)
            checker = Checker(self.corpus, make_embedder(self.server.settings(**variables), lambda _: None))
            try:
                for fraction in self._fractions(kills):
                    self._kill_once(variables, fraction, checker)
                    progress(self.outcome)
                    if self.outcome.kills == kills:
                        break
                left = self._finish(variables, checker)
            finally:
                checker.close()
        self.outcome.problems += differences(left, self._clean()[0])
        return self.outcome

    def _fractions(self, kills: int) -> Iterator[float]:
        """Moments as fractions of a run, spread over all of it, for as long as they are asked for."""
        for again in range(10):
            yield from moments(self._seed + again, kills)
        raise AssertionError("most runs end before they are killed: the moments are no measure of them")

    def _variables(self, url: str) -> dict[str, str]:
        return self.server.environ() | {
            "RAG_DATABASE_URL": url,
            "RAG_DOCS_DIR": str(self.corpus.root),
            "RAG_COLLECTION": COLLECTION,
            "RAG_CHUNK_SIZE": str(self._chunk_size),
            "RAG_CHUNK_OVERLAP": "50",
        }

    @contextmanager
    def _database(self) -> Iterator[str]:
        url = create_database(self._admin_url)
        try:
            yield url
        finally:
            drop_database(self._admin_url, url)

    def _clean(self) -> tuple[Contents, float]:
        """An ingest of the folder as it is into a database of its own, and how long it takes."""
        with self._database() as url:
            started = time.monotonic()
            self._ingest(self._variables(url))
            seconds = time.monotonic() - started
            return self._contents(url), seconds

    @staticmethod
    def _ingest(variables: dict[str, str]) -> None:
        code, out, err = finished(variables, *ARGUMENTS)
        assert code == 0, f"{out}\n{err}"

    @staticmethod
    def _contents(url: str) -> Contents:
        with psycopg.connect(url, autocommit=True) as connection:
            return contents(connection, catalog.live_generation(connection, COLLECTION))

    def _kill_once(self, variables: dict[str, str], fraction: float, checker: Checker) -> None:
        if self._random.random() < SHARE_OF_REBUILDS:
            self._settle()
            self._chunk_size = self._random.choice([size for size in CHUNK_SIZES if size != self._chunk_size])
            variables["RAG_CHUNK_SIZE"] = str(self._chunk_size)
        self.corpus.change(CHANGED_SHARE)
        seconds = fraction * self.outcome.full_seconds
        with self._paying():
            hit = killed(variables, seconds, *ARGUMENTS)
        self.outcome.kills += hit
        self._hits += hit
        self.outcome.ended_before += not hit
        self._check(variables, checker, f"killed after {seconds:.2f} s")

    @contextmanager
    def _paying(self) -> Iterator[None]:
        """Count what is answered for in the block; the texts of our own queries are none of it."""
        before = len(self.server.requests)
        yield
        for request in self.server.requests[before:]:
            if request.status == 200:
                self._paid.update(self.server.texts_of(request))

    def _settle(self) -> None:
        """Add up what was paid for since the chunk size was chosen: no more than was in flight at a kill, twice."""
        again = self._paid.total() - len(self._paid)
        self.outcome.texts += self._paid.total()
        self.outcome.paid_again += again
        if again > self._hits * IN_FLIGHT:
            self.outcome.problems.append(f"{again} texts were paid for again after {self._hits} kills")
        self._paid.clear()
        self._hits = 0

    def _check(self, variables: dict[str, str], checker: Checker, when: str) -> None:
        with psycopg.connect(variables["RAG_DATABASE_URL"], autocommit=True) as connection:
            wait_until_gone(connection)
            if not _is_migrated(connection):
                return
            self.outcome.problems += [f"{when}: {each}" for each in checker.problems(connection, COLLECTION)]
            self.outcome.rebuilds_hit += catalog.generation(connection, COLLECTION, "building") is not None
            live = catalog.generation(connection, COLLECTION)
            stored = contents(connection, live) if live else None
        if stored and stored.held:
            with KnowledgeBase(self.server.settings(**variables)) as kb:
                asked = stored.held[self._random.randrange(len(stored.held))]
                passages = kb.query_docs(asked[2], top_k=5).passages
                if not passages or asked[2] not in " ".join(passage.content for passage in passages):
                    self.outcome.problems.append(
                        f"{when}: {asked[0]} is stored and not found by its own words"
                    )

    def _finish(self, variables: dict[str, str], checker: Checker) -> Contents:
        with self._paying():
            self._ingest(variables)
        self._settle()
        self._check(variables, checker, "at the end")
        return self._contents(variables["RAG_DATABASE_URL"])


def _is_migrated(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("select to_regclass('doc_chunks') is not null").fetchone()
    return bool(row and row[0])
