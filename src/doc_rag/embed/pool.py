"""Run batches in threads of their own and hand each result over as it comes.

The threads are daemons: a call that hangs must keep neither a closed iterator nor the interpreter waiting.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from doc_rag.embed.base import Stopped
from doc_rag.embed.retry import POLL_SECONDS, Abandoned
from doc_rag.errors import Interrupted

Task = TypeVar("Task")
Result = TypeVar("Result")

AFTER_FAILURE_SECONDS = 10.0
"""How long calls that are under way may still answer once another one failed for good: they are paid for."""
AFTER_STOP_SECONDS = 2.0
AFTER_CLOSE_SECONDS = 1.0


class _Done:
    """A thread has ended."""


class Pool(Generic[Task, Result]):
    """`threads` workers that take tasks until `take` returns None; `work` emits any number of results."""

    def __init__(
        self,
        take: Callable[[], Task | None],
        work: Callable[[Task, threading.Event, Callable[[Result], None]], None],
        threads: int,
    ) -> None:
        self._take = take
        self._work = work
        self._ended = threading.Event()
        self._results: queue.SimpleQueue[Result | _Done | BaseException] = queue.SimpleQueue()
        # So far ahead of the consumer may the workers be: what a kill loses stays small.
        self._ahead = threading.Semaphore(threads * 2)
        self._threads = [
            threading.Thread(target=self._run, name="embed", daemon=True) for _ in range(threads)
        ]

    def results(self, stopped: Stopped) -> Generator[Result, None, None]:
        """Yield results as they come.

        Once a task fails or `stopped()` is true, no further call begins; what was under way is still
        yielded, for as long as the constants above allow.

        Raises:
            Interrupted: `stopped()` became true.
            Whatever `work` raised first.
        """
        running, failure, deadline = len(self._threads), None, float("inf")
        for thread in self._threads:
            thread.start()
        try:
            while running and time.monotonic() < deadline:
                try:
                    item = self._results.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    item = None
                if isinstance(item, _Done):
                    running -= 1
                elif isinstance(item, BaseException):
                    failure = failure or item
                    deadline = min(deadline, time.monotonic() + AFTER_FAILURE_SECONDS)
                    self._ended.set()
                elif item is not None:
                    self._ahead.release()
                    yield item
                if failure is None and running and stopped():
                    failure = Interrupted("Stopped while embedding.")
                    deadline = time.monotonic() + AFTER_STOP_SECONDS
                    self._ended.set()
            if failure is not None:
                raise failure
        finally:
            self._ended.set()
            # A thread that outlasted the deadline hangs in a call: it ends with the call, or the process.
            until = min(deadline, time.monotonic() + AFTER_CLOSE_SECONDS)
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        try:
            while (task := self._next()) is not None:
                self._work(task, self._ended, self._results.put)
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the consumer, who raises it
            self._results.put(error)
        finally:
            self._results.put(_Done())

    def _next(self) -> Task | None:
        while not self._ended.is_set():
            if self._ahead.acquire(timeout=POLL_SECONDS):
                return self._take()
        return None
