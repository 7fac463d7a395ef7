"""A run is cut off in front of each of its statements in turn: nothing half-written, and the next run completes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from doc_rag.embed import make_embedder
from doc_rag.errors import DocRagError
from doc_rag.service import KnowledgeBase
from doc_rag.store import catalog
from tests.ingest_safety.corpus import Corpus
from tests.ingest_safety.index import Checker, Contents, contents, differences
from tests.ingest_safety.proxy import CutProxy
from tests.ingest_safety.runs import wait_until_gone
from tests.providers.servers import OpenAIServer
from tests.support.postgres import create_database, drop_database

COLLECTION = "cut"
CUTS_IN_SUITE = 12
"""Cuts a course in the suite; `-m soak` cuts in front of every statement."""


@dataclass
class Course:
    """A run to cut: the database it starts from, and the settings it runs with."""

    admin_url: str
    template: str
    variables: dict[str, str]
    server: OpenAIServer
    proxy: CutProxy
    corpus: Corpus

    def ingest(self, url: str) -> None:
        with self._opened(url) as kb:
            kb.reindex_docs(confirm_large_removal=True, wait_seconds=20)

    def _opened(self, url: str) -> KnowledgeBase:
        return KnowledgeBase(self.server.settings(**self.variables, RAG_DATABASE_URL=url))

    def cut(self, step: int, checker: Checker, whole: Contents) -> tuple[str, list[str]]:
        """Cut in front of one step: the error, and what is wrong then or after the run that follows."""
        url = create_database(self.admin_url, template=self.template)
        try:
            self.proxy.cut_before(step)
            with self._opened(self.proxy.url(url)) as kb, pytest.raises(DocRagError) as error:
                kb.reindex_docs(confirm_large_removal=True)
            with psycopg.connect(url, autocommit=True) as connection:
                wait_until_gone(connection)
                found = checker.problems(connection, COLLECTION)
                self.ingest(url)
                found += [f"then: {each}" for each in checker.problems(connection, COLLECTION)]
                live = catalog.live_generation(connection, COLLECTION)
                found += [f"then: {each}" for each in differences(contents(connection, live), whole)]
            return str(error.value), [f"cut in front of step {step}: {each}" for each in found]
        finally:
            drop_database(self.admin_url, url)

    def whole(self) -> tuple[Contents, int]:
        """What an uncut run comes to, and how many steps it has."""
        url = create_database(self.admin_url, template=self.template)
        try:
            self.proxy.cut_before(None)
            self.ingest(self.proxy.url(url))
            with psycopg.connect(url, autocommit=True) as connection:
                wait_until_gone(connection)
                live = catalog.live_generation(connection, COLLECTION)
                return contents(connection, live), self.proxy.steps
        finally:
            drop_database(self.admin_url, url)


def first_run(course: Course) -> None:
    """Nothing is there yet."""


def changed_run(course: Course) -> None:
    """Everything is indexed, and then edited, added to, removed and renamed."""
    course.ingest(course.template)
    course.corpus.change(0.7)


def rebuild(course: Course) -> None:
    """Everything is indexed, some of it changes, and other settings ask for a new generation."""
    course.ingest(course.template)
    course.corpus.change(0.3)
    course.variables["RAG_CHUNK_SIZE"] = "300"


@pytest.fixture(params=[first_run, changed_run, rebuild], ids=lambda prepare: prepare.__name__)
def course(
    request: pytest.FixtureRequest, postgres_server: str, database_url: str, tmp_path: Path
) -> Iterator[Course]:
    prepare: Callable[[Course], None] = request.param
    corpus = Corpus(tmp_path / "docs", 7, notes=4, reports=2, logs=(4,), pdf=False)
    with (
        OpenAIServer(key=None, models={"tiny-embed": 8}) as server,
        CutProxy(postgres_server) as proxy,
    ):
        variables = {
            "RAG_DOCS_DIR": str(corpus.root),
            "RAG_COLLECTION": COLLECTION,
            "RAG_CHUNK_SIZE": "800",
            "RAG_CHUNK_OVERLAP": "50",
        }
        made = Course(postgres_server, database_url, variables, server, proxy, corpus)
        prepare(made)
        yield made


def problems_of_cuts(course: Course, cuts: int | None) -> list[str]:
    """What is wrong after so many cuts, evenly spread; None: in front of every step."""
    whole, steps = course.whole()
    every = max(1, steps // cuts) if cuts else 1
    settings = course.server.settings(**course.variables)
    checker = Checker(course.corpus, make_embedder(settings, lambda _: None))
    found = []
    try:
        for step in range(2, steps + 1, every):
            message, problems = course.cut(step, checker, whole)
            found += problems
            if "could not be reached" not in message:
                found.append(f"cut in front of step {step}: the error is {message!r}")
    finally:
        checker.close()
    print(f"{steps} steps, cut in front of every {every}th")
    return found


def test_a_run_that_is_cut_off_leaves_nothing_half_and_the_next_completes(course: Course) -> None:
    assert problems_of_cuts(course, CUTS_IN_SUITE) == []


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_run_may_be_cut_off_in_front_of_any_statement(course: Course) -> None:
    assert problems_of_cuts(course, None) == []
