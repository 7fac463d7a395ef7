"""stdin and stdout as the SDK sees them, so that the end of the input is not the end of the answers.

The SDK reads stdin in a thread that nothing can wake, and when the input ends it drops the requests in
hand. Here it reads a pipe of ours instead, into which the client's input is copied, and it writes
through a buffer that counts. The pipe is closed once all that the client asked is answered, or a signal
has come and what was in hand is. `print` and stray writes to file descriptor 1 go to stderr.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from doc_rag.workers import seconds_left

log = logging.getLogger(__name__)

CHUNK_BYTES = 65_536
POLL_SECONDS = 0.02
UNDERSTOOD_SECONDS = 2.0
"""How long the mark at the end of the input may take to come through. It never does where there was no request."""

END_METHOD = "notifications/doc-rag/end-of-input"
END_MARK = b'\n{"jsonrpc":"2.0","method":"%s"}\n' % END_METHOD.encode()
RESPONSE_START = b'{"jsonrpc":"2.0","id":'


class InHand:
    """A middleware of the MCP server: which requests are being worked on, and how many were given back."""

    def __init__(self) -> None:
        self.open = 0
        self.answered = 0
        self.end_seen = threading.Event()
        """Set when the mark behind the client's last message came by: what it asked is in `open` by then."""

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == END_METHOD:
            self.end_seen.set()
            return None
        if ctx.request_id is None:
            return await call_next(ctx)
        self.open += 1
        try:
            result = await call_next(ctx)
        except Exception:
            self.answered += 1  # with an error
            raise
        else:
            self.answered += 1
            return result
        finally:
            self.open -= 1


class _CountingOutput(io.RawIOBase):
    """Writes to the client and counts the responses that have gone out."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._line_start = b""
        self.responses = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        left = view
        while left:
            left = left[os.write(self._descriptor, left) :]
        for piece in bytes(view).splitlines(keepends=True):
            if len(self._line_start) < len(RESPONSE_START):
                self._line_start += piece[: len(RESPONSE_START) - len(self._line_start)]
            if piece.endswith(b"\n"):
                self.responses += self._line_start == RESPONSE_START
                self._line_start = b""
        return len(view)


class _DivertedStdout(io.TextIOBase):
    """`sys.stdout` while serving: text goes to stderr, `buffer` is the way to the client."""

    def __init__(self, output: _CountingOutput) -> None:
        self.buffer: BinaryIO = output  # type: ignore[assignment]

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class StdioStreams:
    """Takes over file descriptors 0 and 1 for the rest of the process's life.

    `at_end` is called when the client's input has ended; then what it asked gets `patience_seconds`.
    """

    def __init__(self, in_hand: InHand, at_end: Callable[[], None], patience_seconds: float) -> None:
        self._in_hand = in_hand
        self._at_end = at_end
        self._patience_seconds = patience_seconds
        self._closed = False
        self._lock = threading.Lock()
        self._output = _CountingOutput(os.dup(1))
        os.dup2(2, 1)
        sys.stdout = _DivertedStdout(self._output)
        self._client = os.dup(0)
        read_end, self._write_end = os.pipe()
        os.dup2(read_end, 0, inheritable=False)
        os.close(read_end)
        threading.Thread(target=self._copy, name="doc-rag stdin", daemon=True).start()

    def _copy(self) -> None:
        asked = False
        try:
            while chunk := os.read(self._client, CHUNK_BYTES):
                asked = True
                self._write(chunk)
            self._at_end()
            if asked:
                self._write(END_MARK)
                self._in_hand.end_seen.wait(UNDERSTOOD_SECONDS)
        except OSError:
            log.debug("stdin broke off", exc_info=True)
            self._at_end()
        self.end(self._patience_seconds)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write_end, data) :]

    def end(self, patience_seconds: float) -> None:
        """Close the pipe once what is in hand is answered and written, or `patience_seconds` have passed. Blocks."""
        deadline = time.monotonic() + patience_seconds
        while not self._closed and not self._is_answered() and seconds_left(deadline):
            time.sleep(POLL_SECONDS)
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._write_end)

    def _is_answered(self) -> bool:
        return self._in_hand.open == 0 and self._output.responses >= self._in_hand.answered
