"""The process that reads formats a file can attack with: `python -m doc_rag.extract.worker MEMORY_MB`.

Speaks in frames over its standard input and output: a JSON request, the file's bytes, a JSON answer.
It ends when its input does, so it never outlives its parent, even one that was killed while a file loops.
Started by `worker_process`; nothing else imports it.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import select
import sys
import threading
from typing import Any, BinaryIO

from doc_rag.errors import ExtractionError
from doc_rag.extract.frames import MEMORY_EXIT, frame, out_of_memory, read_frame, to_fields
from doc_rag.extract.risky import extract

_WATCH_SECONDS = 0.5
_GRACE_SECONDS = 5
"""The parent ends a worker that is over its time. This long after, the worker does it itself."""


def main() -> None:
    """Answer requests until the input ends."""
    memory_mb = int(sys.argv[1])
    incoming = sys.stdin.buffer
    # A library that prints would break the frames: its output goes where errors go.
    outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    limit_bytes = _limit_memory(memory_mb)
    threading.Thread(target=_watch, args=(os.getppid(), limit_bytes), daemon=True).start()
    _send(outgoing, {"ready": True})
    while (request := read_frame(incoming)) is not None:
        fields = json.loads(request)
        data = read_frame(incoming)
        if data is None:
            return
        # This timer needs no interpreter lock, so it ends a regular expression that never returns, too.
        faulthandler.dump_traceback_later(fields["seconds"] + _GRACE_SECONDS, exit=True)
        answer = _answer(fields["kind"], fields["name"], data, memory_mb)
        faulthandler.cancel_dump_traceback_later()
        del data
        answer["spent"] = _peak_bytes() > limit_bytes // 2
        _send(outgoing, answer)


def _answer(kind: str, name: str, data: bytes, memory_mb: int) -> dict[str, Any]:
    try:
        return {"fields": to_fields(extract(kind, name, data))}
    except ExtractionError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": out_of_memory(memory_mb)}
    except Exception as error:  # noqa: BLE001 - parsers raise anything on a damaged file; only that file is lost.
        return {"error": f"is damaged: {type(error).__name__}: {str(error)[:200]}"}


def _send(stream: BinaryIO, message: dict[str, Any]) -> None:
    payload = memoryview(frame(json.dumps(message).encode()))
    while payload:
        payload = payload[stream.write(payload) :]


def _limit_memory(memory_mb: int) -> int:
    """Allow `memory_mb` on top of what the interpreter has; returns the peak, in bytes, that may be reached.

    Linux enforces the limit on the address space itself. macOS does not, so there `_watch` looks at
    the peak instead, which a sudden allocation may pass by a moment.
    """
    extra = memory_mb * 1_048_576
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = now + extra
        resource.setrlimit(
            resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    # A crash must not leave a core file of this size beside the user's documents.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    return _peak_bytes() + extra


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _watch(parent: int, limit_bytes: int) -> None:
    """End the process when its parent is gone or, where the system does not see to it, its memory is used up."""
    hangup = select.poll()
    hangup.register(0, 0)
    while True:
        if hangup.poll(_WATCH_SECONDS * 1000) or os.getppid() != parent:
            os._exit(0)
        if sys.platform != "linux" and _peak_bytes() > limit_bytes:
            os._exit(MEMORY_EXIT)


if __name__ == "__main__":
    main()
