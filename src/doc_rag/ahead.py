"""Files are prepared in threads ahead of the writer, in order, and never far enough ahead to fill the memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from doc_rag.embed.base import Embedder
from doc_rag.extract import Extractor
from doc_rag.generations import skip_conditions
from doc_rag.prepare import Preparer
from doc_rag.records import Generation, Source
from doc_rag.settings import Settings
from doc_rag.store.documents import StoredState

WORKERS = 2
AHEAD_FILES = 1_024
AHEAD_BYTES = 16_000_000
"""What is prepared and waits for the writer is of no larger files than this together, but of one a worker."""
BATCH_FILES = 32
BATCH_BYTES = 64_000
"""So many small files are one task: handing a task over takes longer than reading a small file."""

Outcome = TypeVar("Outcome")


@contextmanager
def preparing(
    settings: Settings, embedder: Embedder, target: Generation, states: Mapping[str, StoredState]
) -> Iterator[Preparer]:
    """What prepares files for the target generation, with the extraction workers it needs."""
    with Extractor(
        pdf_timeout_seconds=settings.pdf_timeout_seconds,
        pdf_memory_mb=settings.pdf_memory_mb,
        workers=WORKERS,
    ) as extractor:
        yield Preparer(
            extractor,
            embedder,
            target.settings,
            skip_conditions(settings),
            settings.max_file_mb * 1_000_000,
            states,
        )


def prepare_all(
    prepare: Callable[[Source], Outcome], sources: Sequence[Source]
) -> Generator[Outcome, None, None]:
    """The outcomes of `sources` in their order. Closed early, it waits for the files being read, and for no others."""
    ended = threading.Event()

    def work(batch: Sequence[Source]) -> list[Outcome]:
        outcomes = []
        for source in batch:
            if ended.is_set():
                break
            outcomes.append(prepare(source))
        return outcomes

    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="prepare")
    waiting: deque[tuple[Future[list[Outcome]], int, int]] = deque()
    files = size = 0
    try:
        for batch in _batches(sources):
            batch_bytes = sum(source.size_bytes for source in batch)
            while len(waiting) >= WORKERS and (files >= AHEAD_FILES or size + batch_bytes > AHEAD_BYTES):
                future, done_files, done_bytes = waiting.popleft()
                files, size = files - done_files, size - done_bytes
                yield from future.result()
            waiting.append((pool.submit(work, batch), len(batch), batch_bytes))
            files, size = files + len(batch), size + batch_bytes
        while waiting:
            yield from waiting.popleft()[0].result()
    finally:
        ended.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _batches(sources: Iterable[Source]) -> Iterator[list[Source]]:
    batch: list[Source] = []
    size = 0
    for source in sources:
        if batch and (len(batch) >= BATCH_FILES or size + source.size_bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += source.size_bytes
    if batch:
        yield batch
