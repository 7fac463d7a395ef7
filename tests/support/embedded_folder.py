"""Data folders for the tests of the embedded Postgres, and the proof that nothing is left running in them."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

import doc_rag
from doc_rag.store.embedded import EmbeddedPostgres
from doc_rag.store.embedded_account import Account, server_account
from doc_rag.store.embedded_binaries import usable_binaries
from doc_rag.store.embedded_locks import close_lock_file, open_lock_file
from doc_rag.store.embedded_processes import postgres_processes
from doc_rag.store.embedded_server import Launcher
from tests.support.postgres import reachable_folder

NOBODY = 65534
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root, to act as several users")


def wait_until(claim: Callable[[], object], seconds: float = 20) -> None:
    """Wait until `claim()` is true, or fail."""
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.01)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that a service user can enter; fails if a Postgres still works in it at the end.

    In memory where the machine has plenty of it: these tests make a cluster each, and a disk's flushes
    would be most of their time.
    """
    in_memory = Path("/dev/shm")
    roomy = in_memory.is_dir() and shutil.disk_usage(in_memory).free > 2**30
    folder = Path(os.path.realpath(reachable_folder(in_memory if roomy else None)))
    try:
        yield folder
        left = postgres_processes(folder)
        assert left == [], f"Postgres processes were left: {left}"
    finally:
        for pid in postgres_processes(folder) or []:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def made_cluster() -> Path:
    """A data folder with a cluster that is not running, made once for all tests, to be copied."""
    keep = ExitStack()
    folder = keep.enter_context(scratch())
    atexit.register(keep.close)
    begin = time.monotonic()
    with EmbeddedPostgres(folder / "made"):
        print(f"\nfirst start with initdb: {time.monotonic() - begin:.2f} s")
    return folder / "made"


def copy_cluster(data_dir: Path) -> Path:
    """A data folder with a copy of a cluster that is not running: cheaper than initdb."""
    data_dir.mkdir(mode=0o755)
    subprocess.run(["cp", "-a", str(made_cluster() / "pg18"), str(data_dir / "pg18")], check=True)
    return data_dir


def fetch(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def started_at(url: str) -> object:
    """When the postmaster started: the same for two users if and only if they share a server."""
    return fetch(url, "select pg_postmaster_start_time()::text")


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "pg18" / "postmaster.pid").read_text().split()[0])


def kill_postmaster(data_dir: Path) -> None:
    """`kill -9` the postmaster, and wait for its socket to be dead; its children may live."""
    pid = postmaster(data_dir)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in (postgres_processes(data_dir) or []))


def is_running(data_dir: Path) -> bool:
    return bool(postgres_processes(data_dir))


@contextmanager
def launcher_for(data_dir: Path) -> Iterator[Launcher]:
    """The programs, run by hand: without any lock of ours."""
    account = server_account(data_dir, data_dir / "pg18")
    fd = open_lock_file(data_dir / "by-hand.lock")
    try:
        yield Launcher(usable_binaries(account, data_dir), account, fd)
    finally:
        close_lock_file(fd)


def server_user(data_dir: Path) -> Account | None:
    return server_account(data_dir, data_dir / "pg18")


def python_of_nobody() -> tuple[str, dict[str, str]]:
    """A Python that another user can run, with the environment that lets it import us.

    Our own, or the system's of the same version where root keeps ours to itself; else the test is skipped.
    """
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    source = str(Path(doc_rag.__file__).parents[1])
    paths = os.pathsep.join([source, *(path for path in sys.path if path.endswith("site-packages"))])
    for python, env in ((sys.executable, {}), (system, {"PYTHONPATH": paths})):
        try:
            tried = subprocess.run(
                [python, "-P", "-c", "import psycopg, doc_rag.store.embedded"],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                env={**os.environ, **env},
                capture_output=True,
                check=False,
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return python, env
    pytest.skip("no Python that another user can run: it or this checkout lies in a closed folder")
