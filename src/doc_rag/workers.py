"""Carries the synchronous core off the event loop: worker threads, their progress, and their end.

A thread cannot be cancelled. When the request that waits for one is cancelled, the thread runs on and
its result is dropped; what can stop early (a reindex) polls a flag of its own. The threads are daemons
and are counted here, so that whoever ends the process decides how long to wait for them.
Called by `mcp_server` and `http_app`; needs asyncio.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # records brings numpy, which a server should not load before it answers
    from doc_rag.records import Progress


log = logging.getLogger(__name__)

T = TypeVar("T")

SLOTS = 64
"""Calls that run at once; more wait their turn. Above the 10 connections of the HTTP pool on purpose:
a call that waits for a provider holds a slot but no connection."""

HEARTBEAT_SECONDS = 5.0
"""A silent run still says something this often: clients give up on a call that stays silent."""

MIN_INTERVAL_SECONDS = 0.1
"""Pause between two notifications of one call: ten thousand files are not ten thousand messages."""

Report = Callable[[float, float | None, str | None], Awaitable[None]]
"""Sends one progress notification: progress, total, message."""


class Workers:
    """Runs calls in threads of their own and knows which still run."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._changed = threading.Condition()
        self._running = 0
        self.stopping = threading.Event()
        """Set once the process is to end: long runs look at it and stop at their next safe point."""
        self._stopped_at: float | None = None

    def stop(self) -> None:
        """Say that the process is to end. May be called in a signal handler, and more than once."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        self.stopping.set()

    def deadline(self, patience_seconds: float) -> float:
        """When `patience_seconds` since `stop()` have passed, on the clock of `time.monotonic`."""
        return (time.monotonic() if self._stopped_at is None else self._stopped_at) + patience_seconds

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, run in a thread with this task's context variables.

        If the waiting task is cancelled, the thread runs to its end and the result is dropped.

        Raises:
            Whatever `work` raises.
        """
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: T | None, error: BaseException | None) -> None:
            self._slots.release()
            if answer.done():
                if error is not None:
                    log.debug("a call that nobody waits for any more failed", exc_info=error)
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def body() -> None:
            result, error = None, None
            try:
                result = context.run(work)
            except BaseException as raised:  # noqa: BLE001 - handed to the task that waits
                error = raised
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                log.debug("the event loop ended before a call did", exc_info=error)

        with self._changed:
            self._running += 1
        try:
            threading.Thread(target=body, name="doc-rag call", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            with self._changed:
                self._running -= 1
            self._slots.release()
            raise
        return await answer

    @property
    def running(self) -> int:
        """Calls whose thread has not ended."""
        return self._running

    def wait_idle(self, seconds: float) -> bool:
        """Wait in this thread until no call runs; False when `seconds` passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, timeout=seconds)


class ProgressRelay:
    """Hands a thread's progress to the client: in order, never backwards, the newest where the client is slow.

    Use as an async context around the call: `offer` is what the thread is given, and leaving the
    context sends what is left, so that the last notification goes out before the result.
    """

    def __init__(self, report: Report, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self._report = report
        self._heartbeat_seconds = heartbeat_seconds
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._closed = asyncio.Event()
        self._latest: Progress | None = None
        self._said: Progress | None = None
        self._sent = 0.0
        self._pump: asyncio.Task[None] | None = None

    def offer(self, progress: Progress) -> None:
        """Take the newest state from a worker thread; returns at once."""
        self._latest = progress
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            log.debug("progress after the event loop ended")

    async def __aenter__(self) -> ProgressRelay:
        self._pump = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        assert self._pump is not None
        if kind is not None and not issubclass(kind, Exception):
            self._pump.cancel()  # cancelled ourselves: nobody listens any more
            return
        self._closed.set()
        self._news.set()
        await self._pump

    async def _run(self) -> None:
        try:
            while not self._closed.is_set():
                if not await _within(self._news, self._heartbeat_seconds):
                    await self._creep(_words(self._said) if self._said else "working", self._said)
                    continue
                self._news.clear()
                await self._send_newest()
                await _within(self._closed, MIN_INTERVAL_SECONDS)
            await self._send_newest()
        except Exception:
            log.warning("progress could not be sent; the call goes on without", exc_info=True)

    async def _send_newest(self) -> None:
        newest = self._latest
        if newest is None or newest is self._said:
            return
        self._said = newest
        if newest.done > self._sent:
            await self._send(float(newest.done), _words(newest), newest)
        else:
            await self._creep(_words(newest), newest)

    async def _creep(self, words: str, progress: Progress | None) -> None:
        """Progress must grow with every notification: creep towards the next whole step without reaching it."""
        await self._send(self._sent + (int(self._sent) + 1 - self._sent) * 0.1, words, progress)

    async def _send(self, value: float, words: str, progress: Progress | None) -> None:
        self._sent = value
        total = progress.total if progress else None
        await self._report(value, float(total) if total is not None and total >= value else None, words)


def _words(progress: Progress) -> str:
    return progress.message or progress.stage


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event`; False when `seconds` passed first."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def seconds_left(deadline: float) -> float:
    """Seconds until `deadline` (of `time.monotonic`), never below zero."""
    return max(0.0, deadline - time.monotonic())
