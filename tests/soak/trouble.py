"""A Postgres of the test's own that can be killed, paused, filled up and cut off, and what each of these does to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store.embedded import EmbeddedPostgres
from tests.support.postgres import reachable_folder

BACK_SECONDS = 60.0
OURS = "application_name = 'doc-rag' and pid <> pg_backend_pid()"


class Victim:
    """One server and its processes. All waits are bounded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = EmbeddedPostgres(folder)
        self.url = self._server.acquire()
        self._paused: list[int] = []
        self._held: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        self.resume()
        self._server.release()

    def kill(self) -> None:
        """SIGKILL to the postmaster: its children see that and end, in their own time."""
        os.kill(self._postmaster(), signal.SIGKILL)

    def start(self) -> None:
        """Start it again, as an administrator would."""
        self._server.acquire()
        self.wait_until_back()

    def wait_until_back(self) -> None:
        """Until a client can log in, whoever started it."""
        deadline = time.monotonic() + BACK_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "Postgres did not come back"
                time.sleep(0.02)

    def pause(self) -> None:
        """SIGSTOP to every process of it: the kernel still takes connections, and nobody answers."""
        postmaster = self._postmaster()
        self._paused = [postmaster, *_children(postmaster)]
        for pid in self._paused:
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._paused:
            _signal(pid, signal.SIGCONT)
        self._paused = []

    def cut_off(self) -> int:
        """Terminate every connection of doc-rag's; how many there were."""
        with psycopg.connect(self.url, autocommit=True, application_name="the driver") as connection:
            return len(
                connection.execute(
                    f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS}"  # noqa: S608
                ).fetchall()
            )

    def fill(self, stack: ExitStack) -> None:
        """Take every connection that there is, those of doc-rag included."""
        self.take_all(stack, seconds=0.5)
        assert self._held is not None, "no connection was free to begin with"
        self._held.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS}")  # noqa: S608
        self.take_all(stack, seconds=1.0)  # those that were cut off take a moment to go

    def take_all(self, stack: ExitStack, seconds: float) -> None:
        """Take every free connection, until none has got free for `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                taken = psycopg.connect(self.url, autocommit=True, application_name="the driver")
            except psycopg.OperationalError:
                time.sleep(0.01)
            else:
                stack.callback(taken.close)
                self._held = taken
                deadline = time.monotonic() + seconds

    def _postmaster(self) -> int:
        return int((self.folder / "pg18" / "postmaster.pid").read_text().split()[0])


@contextmanager
def victim() -> Iterator[Victim]:
    """Skips, with the reason, where no server can start."""
    folder = reachable_folder()
    try:
        made = Victim(folder)
    except DatabaseUnavailable as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no Postgres can start here: {error}")
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # a backend that has ended meanwhile


Trouble = Callable[[Victim], Awaitable[None]]


async def killed(postgres: Victim) -> None:
    """Gone for two seconds, then started by hand."""
    postgres.kill()
    await asyncio.sleep(2)
    await asyncio.to_thread(postgres.start)


async def killed_and_revived(postgres: Victim) -> None:
    """Gone, until doc-rag has started it again by itself."""
    postgres.kill()
    await asyncio.to_thread(postgres.wait_until_back)


async def paused(postgres: Victim) -> None:
    """Silent for five seconds."""
    postgres.pause()
    await asyncio.sleep(5)
    postgres.resume()


async def paused_for_long(postgres: Victim) -> None:
    """Silent for longer than anybody would wait."""
    postgres.pause()
    await asyncio.sleep(14)
    postgres.resume()


async def cut_off(postgres: Victim) -> None:
    """Every connection terminated, several times in a row."""
    for _ in range(4):
        await asyncio.to_thread(postgres.cut_off)
        await asyncio.sleep(0.3)


async def filled(postgres: Victim) -> None:
    """No connection left for anybody, for three seconds."""
    with ExitStack() as stack:
        await asyncio.to_thread(postgres.fill, stack)
        await asyncio.sleep(3)
