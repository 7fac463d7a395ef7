"""stdin as the server reads it: the client's, relayed, so that its end can be chosen.

The SDK reads stdin in a thread that nothing can wake, and at the end of input it drops the requests in
hand. So the client's stdin is copied into a pipe of our own that the SDK reads. The pipe is closed when
the client's input has ended and what was asked is answered, or when a signal says so.
"""

from __future__ import annotations

import array
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from doc_rag.workers import seconds_left

if sys.platform != "win32":
    import fcntl
    import termios

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.1
"""How long nothing may be in hand before the input counts as answered: the last answer is still being written."""
POLL_SECONDS = 0.02
CHUNK_BYTES = 65_536


class InHand:
    """A middleware of the MCP server: how many messages are being worked on."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        self.count += 1
        try:
            return await call_next(ctx)
        finally:
            self.count -= 1


class StdinRelay:
    """Puts a pipe in place of file descriptor 0 and copies the client's input into it, in a thread.

    `at_end` is called when the client's input has ended; then what is in hand gets `patience_seconds`.
    """

    def __init__(self, in_hand: InHand, at_end: Callable[[], None], patience_seconds: float) -> None:
        self._in_hand = in_hand
        self._at_end = at_end
        self._patience_seconds = patience_seconds
        self._client = os.dup(0)
        read_end, self._write_end = os.pipe()
        os.dup2(read_end, 0, inheritable=False)
        self._read_end = read_end
        self._closed = False
        self._lock = threading.Lock()
        threading.Thread(target=self._copy, name="doc-rag stdin", daemon=True).start()

    def _copy(self) -> None:
        try:
            while chunk := os.read(self._client, CHUNK_BYTES):
                while chunk:
                    chunk = chunk[os.write(self._write_end, chunk) :]
        except OSError:
            log.debug("stdin broke off", exc_info=True)
        self._at_end()
        self.end(self._patience_seconds)

    def end(self, patience_seconds: float) -> None:
        """Close the pipe once what is in hand is answered, after `patience_seconds` in any case. Blocks."""
        deadline = time.monotonic() + patience_seconds
        quiet_since = time.monotonic()
        while seconds_left(deadline) and not self._closed:
            if self._in_hand.count or self._unread_bytes():
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= QUIET_SECONDS:
                break
            time.sleep(POLL_SECONDS)
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._write_end)

    def _unread_bytes(self) -> int:
        waiting = array.array("i", [0])
        if sys.platform != "win32":
            fcntl.ioctl(self._read_end, termios.FIONREAD, waiting)
        return waiting[0]
