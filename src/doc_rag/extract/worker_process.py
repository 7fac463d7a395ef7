"""The parent's side of the extraction worker: start it, ask it, end it. Called by `Extractor`.

A plain subprocess rather than `multiprocessing`: it imports nothing of the caller's script, so it is safe
from any entry point, inherits no lock, and gets neither the protocol's stdin nor its stdout.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import time
from typing import Any

from doc_rag.extract.frames import HEADER, frame

START_SECONDS = 60.0
"""How long a worker may take until it is ready. A machine under load takes a second."""

_PIPE_BYTES = 1 << 16
_log = logging.getLogger(__name__)


_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")


class WorkerTimeout(Exception):
    """The worker did not answer in time."""


class WorkerDied(Exception):
    """The worker ended without an answer. `code` is its exit code, negative for a signal."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the worker ended with code {code}")


class WorkerProcess:
    """One worker. Not thread-safe: one request at a time. After an exception it can only be stopped."""

    def __init__(self, memory_mb: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process.
        try:
            self._process = subprocess.Popen(
                # -P: a file in the working directory that is named like a module must not become that module.
                [sys.executable, "-P", "-m", "doc_rag.extract.worker", str(memory_mb)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(),
                bufsize=0,
                # Ctrl-C in the terminal is for the parent, which finishes the document in hand.
                start_new_session=True,
            )
        except OSError:
            self._errors.close()
            raise
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        try:
            self._exchange(b"", time.monotonic() + START_SECONDS)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, kind: str, name: str, data: bytes, seconds: float) -> dict[str, Any]:
        """Have one file read. The answer has `fields` or `error`, and `spent`: replace this worker now.

        Raises:
            WorkerTimeout: it took longer than `seconds`.
            WorkerDied: it crashed, or was ended from outside.
        """
        header = json.dumps({"kind": kind, "name": name, "seconds": seconds}).encode()
        deadline = time.monotonic() + seconds
        return self._exchange(frame(header) + HEADER.pack(len(data)), deadline, data)

    def stop(self) -> None:
        """End the worker and wait for its end."""
        process = self._process
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        self._errors.close()

    def _exchange(self, head: bytes, deadline: float, data: bytes = b"") -> dict[str, Any]:
        """Write `head` and `data`, and read one frame, all before the deadline."""
        pending = [memoryview(part) for part in (head, data) if part]
        received = bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(self._out, selectors.EVENT_READ)
            if pending:
                ready.register(self._in, selectors.EVENT_WRITE)
            while True:
                for key, _ in ready.select(self._left(deadline)):
                    if key.fd == self._in:
                        self._write(pending)
                        if not pending:
                            ready.unregister(self._in)
                    elif self._read(received):
                        answer: dict[str, Any] = json.loads(bytes(received[HEADER.size :]))
                        return answer

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WorkerTimeout
        return left

    def _write(self, pending: list[memoryview]) -> None:
        try:
            written = os.write(self._in, pending[0][:_PIPE_BYTES])
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._died()
        pending[0] = pending[0][written:]
        if not pending[0]:
            del pending[0]

    def _read(self, received: bytearray) -> bool:
        """Take what has come; whether the frame is whole."""
        part = os.read(self._out, 1 << 20)
        if not part:
            self._died()
        received += part
        return len(received) >= HEADER.size and len(received) >= HEADER.size + HEADER.unpack_from(received)[0]

    def _died(self) -> None:
        code = self._process.wait()
        self._errors.seek(0)
        _log.debug(
            "extraction worker ended with code %d: %s",
            code,
            self._errors.read(4_000).decode(errors="replace"),
        )
        raise WorkerDied(code)


def _environment() -> dict[str, str]:
    """What the worker needs to find its modules, and nothing else: a hostile file shall find no key there."""
    kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
