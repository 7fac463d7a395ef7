"""SIGINT and SIGTERM of `doc-rag ingest`: the first ends the run at a document, the second ends it at once."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from doc_rag.embed import make_embedder
from tests.ingest_safety.corpus import Corpus
from tests.ingest_safety.index import Checker
from tests.ingest_safety.runs import finished, ingest, wait_until_gone
from tests.providers.servers import OpenAIServer
from tests.providers.wire import hang, slow
from tests.support.documents import slow_pdf

STOP_SECONDS = 15.0
AT_ONCE_SECONDS = 3.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(key=None, models={"tiny-embed": 8}) as server:
        yield server


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "docs", 5, notes=60, reports=20, logs=(4,), pdf=False)


@pytest.fixture
def variables(server: OpenAIServer, corpus: Corpus, database_url: str) -> dict[str, str]:
    return server.environ() | {
        "RAG_DATABASE_URL": database_url,
        "RAG_DOCS_DIR": str(corpus.root),
        "RAG_COLLECTION": "stopped",
        "RAG_EMBED_CONCURRENCY": "1",
    }


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal and wait until the run has said that it heard it."""
    process.send_signal(number)
    assert process.stderr is not None
    for line in process.stderr:
        if "stopping at the next safe point" in line:
            return
    raise AssertionError("the run ended without a word about the signal")


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_ends_the_run_at_a_document_and_reports(
    number: signal.Signals,
    server: OpenAIServer,
    corpus: Corpus,
    variables: dict[str, str],
    database_url: str,
) -> None:
    server.fail_at_random(slow(0.2), 1.0)
    with ingest(variables) as process:
        assert server.wait_for(requests=4)
        stop(process, number)
        out, err = process.communicate(timeout=STOP_SECONDS)
    assert (process.returncode, "Traceback" in err) == (1, False), err
    assert "! Stopped before the end" in out
    checker = Checker(corpus, make_embedder(server.settings(**variables), lambda _: None))
    try:
        with psycopg.connect(database_url, autocommit=True) as connection:
            wait_until_gone(connection)
            assert checker.problems(connection, "stopped") == []
            states = connection.execute("select state, error from jobs").fetchall()
            stored = connection.execute("select count(*) from documents where chunk_count > 0").fetchone()
    finally:
        checker.close()
    assert states == [("interrupted", "Interrupted")]
    assert stored is not None and f"stopped: {stored[0]} new, 0 changed" in out
    server.requests.clear()
    code, out, err = finished(variables)
    assert (code, "Traceback" in err) == (0, False), err
    assert f"stopped: {len(corpus.names) - 2 - stored[0]} new" in out


@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_ends_it_at_once_while_the_provider_hangs(
    number: signal.Signals, server: OpenAIServer, variables: dict[str, str]
) -> None:
    server.fail_next(None, hang(), hang(), hang())
    with ingest(variables) as process:
        assert server.wait_for(requests=2)
        stop(process, number)
        _ends_at_once(process, number)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for the PDF's reader in /proc")
@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_ends_it_at_once_while_a_pdf_is_read(
    number: signal.Signals, corpus: Corpus, variables: dict[str, str]
) -> None:
    (corpus.root / "0-slow.pdf").write_bytes(slow_pdf())
    with ingest(variables) as process:
        _wait_for_worker(process)
        stop(process, number)
        _ends_at_once(process, number)


def _ends_at_once(process: subprocess.Popen[str], number: signal.Signals) -> None:
    started = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=STOP_SECONDS)
    assert time.monotonic() - started < AT_ONCE_SECONDS, err
    assert process.returncode != 0
    assert "Traceback" not in err


def _wait_for_worker(process: subprocess.Popen[str]) -> None:
    """Wait until the run has started a process that reads PDFs."""
    deadline = time.monotonic() + STOP_SECONDS
    while not any(
        "doc_rag.extract.worker" in _read(f"/proc/{child}/cmdline") for child in _children(process)
    ):
        assert time.monotonic() < deadline, f"process {process.pid} starts no worker"
        time.sleep(0.02)


def _children(process: subprocess.Popen[str]) -> list[str]:
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return [child for task in tasks for child in _read(f"{task}/children").split()]


def _read(path: str) -> str:
    """A file of /proc, empty where its process has ended."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
