"""`python src/ingest.py` as a process of its own, killed when it is told to be."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

INGEST = Path(__file__).resolve().parents[2] / "src" / "ingest.py"
RUN_SECONDS = 120
GONE_SECONDS = 20.0
POLL_SECONDS = 0.01


@contextmanager
def ingest(variables: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An ingest under way, with these settings and no others; killed at the end of the block if still there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "PG"))}
    process = subprocess.Popen(
        [sys.executable, str(INGEST), *arguments],
        env={**kept, "RAG_ENV_FILE": os.devnull, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finished(variables: Mapping[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run an ingest to its end: exit code, stdout and stderr."""
    with ingest(variables, *arguments) as process:
        out, err = process.communicate(timeout=RUN_SECONDS)
        return process.returncode, out, err


def killed(variables: Mapping[str, str], after_seconds: float, *arguments: str) -> bool:
    """Kill an ingest so long after its start; False where it had ended by then, in success.

    Raises AssertionError where it failed by itself.
    """
    with ingest(variables, *arguments) as process:
        try:
            out, err = process.communicate(timeout=after_seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == -signal.SIGKILL:
                return True
            out, err = "", "ended in the moment of the kill"
        assert process.returncode == 0, f"an ingest failed by itself:\n{out}\n{err}"
        return False


def wait_until_gone(connection: psycopg.Connection[Any], but: int = 0) -> None:
    """Wait until the server has noticed that a killed client is gone: until then a commit may still come."""
    deadline = time.monotonic() + GONE_SECONDS
    statement = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and application_name = 'doc-rag' and pid <> pg_backend_pid()"
    )
    while (row := connection.execute(statement).fetchone()) and row[0] > but:
        assert time.monotonic() < deadline, f"{row[0]} sessions of a killed ingest are still there"
        time.sleep(POLL_SECONDS)


def moments(seed: int, count: int) -> list[float]:
    """`count` fractions of a run, one in each `count`-th of it, in no order."""
    source = random.Random(seed)
    found = [(i + source.random()) / count for i in range(count)]
    source.shuffle(found)
    return found
