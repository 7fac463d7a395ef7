"""Files to text: picks the extractor by a name's ending. Called by `prepare`.

Text formats are read here; formats that need a parser a file could attack are read in worker processes.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from doc_rag.errors import DocRagError, ExtractionError
from doc_rag.extract.data import extract_yaml
from doc_rag.extract.frames import MEMORY_EXIT, from_fields, out_of_memory
from doc_rag.extract.markdown import extract_markdown
from doc_rag.extract.outlines import extract_asciidoc, extract_org, extract_rst
from doc_rag.extract.text import extract_text
from doc_rag.extract.worker_process import WorkerDied, WorkerProcess, WorkerTimeout
from doc_rag.records import Extracted
from doc_rag.skips import ending
from doc_rag.sources import date_in_name

_log = logging.getLogger(__name__)

_HERE: dict[str, Callable[[str, bytes], Extracted]] = {
    ".md": extract_markdown,
    ".markdown": extract_markdown,
    ".txt": extract_text,
    ".rst": extract_rst,
    ".org": extract_org,
    ".adoc": extract_asciidoc,
    ".yaml": extract_yaml,
    ".yml": extract_yaml,
}
_IN_WORKER = {
    ".pdf": "pdf",
    ".html": "html",
    ".htm": "html",
    ".docx": "docx",
    ".csv": "csv",
    ".json": "json",
    ".ipynb": "notebook",
}


class Extractor:
    """Reads files of every known format. Safe to use from several threads; close it when done.

    Worker processes are started when the first file needs one, at most `workers` at once, and are
    used again for the next file. One that crashes, hangs or grows costs the file it was reading.
    """

    def __init__(self, *, pdf_timeout_seconds: float, pdf_memory_mb: int, workers: int = 1) -> None:
        self._seconds = pdf_timeout_seconds
        self._memory_mb = pdf_memory_mb
        self._slots = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._running: set[int] = set()
        self._closed = False

    def __enter__(self) -> Extractor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes. A file being read in another thread is still finished."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            self._end(worker)

    @property
    def worker_pids(self) -> frozenset[int]:
        """The process ids of the workers there are now."""
        with self._lock:
            return frozenset(self._running)

    def extract(self, name: str, data: bytes) -> Extracted:
        """The text of the file `name` with the content `data`.

        Raises:
            ExtractionError: it cannot be read, or holds no text; the message says why and what to do.
            DocRagError: no worker process can be started, which is no fault of the file's.
        """
        suffix = ending(name)
        if not data:
            raise ExtractionError("is empty (0 bytes)")
        if suffix in _IN_WORKER:
            extracted = from_fields(self._in_worker(_IN_WORKER[suffix], name, data))
        elif suffix in _HERE:
            extracted = _HERE[suffix](name, data)
        else:
            raise ExtractionError(f"has an ending that cannot be read ({suffix or 'none'})")
        if not any(extracted.text[s.start : s.end].strip() for s in extracted.sections):
            raise ExtractionError("has no text in it")
        if extracted.document_date is None:
            return replace(extracted, document_date=date_in_name(name))
        return extracted

    def _in_worker(self, kind: str, name: str, data: bytes) -> dict[str, Any]:
        with self._slots:
            worker = self._take()
            try:
                answer = worker.request(kind, name, data, self._seconds)
            except WorkerTimeout as error:
                self._end(worker)
                raise ExtractionError(
                    f"took longer than {self._seconds:g} s to read (RAG_PDF_TIMEOUT_SECONDS)"
                ) from error
            except WorkerDied as error:
                self._end(worker)
                raise ExtractionError(self._why_it_died(error.code)) from error
            except BaseException:
                self._end(worker)
                raise
            self._give_back(worker, spent=answer["spent"])
        if "error" in answer:
            raise ExtractionError(answer["error"])
        fields: dict[str, Any] = answer["fields"]
        return fields

    def _why_it_died(self, code: int) -> str:
        if code == MEMORY_EXIT:
            return out_of_memory(self._memory_mb)
        if code == -signal.SIGKILL:
            return "was given up: its reader process was killed, by the system for want of memory perhaps"
        return f"made its reader process crash (exit code {code}); it is damaged, perhaps"

    def _take(self) -> WorkerProcess:
        with self._lock:
            if self._closed:
                raise RuntimeError("this Extractor is closed")
            if self._idle:
                return self._idle.pop()
        try:
            worker = WorkerProcess(self._memory_mb)
        except (OSError, WorkerTimeout, WorkerDied) as error:
            raise DocRagError(
                f"no process to read documents in could be started ({str(error) or type(error).__name__}); "
                "check the machine's memory and process limits."
            ) from error
        _log.debug("started extraction worker %d", worker.pid)
        with self._lock:
            self._running.add(worker.pid)
        return worker

    def _give_back(self, worker: WorkerProcess, spent: bool) -> None:
        with self._lock:
            if not spent and not self._closed:
                self._idle.append(worker)
                return
        self._end(worker)

    def _end(self, worker: WorkerProcess) -> None:
        worker.stop()
        with self._lock:
            self._running.discard(worker.pid)
