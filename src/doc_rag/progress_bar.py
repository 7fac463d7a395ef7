"""Progress of a run on a terminal's stderr as a bar, elsewhere as a quiet line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from tqdm import tqdm

from doc_rag.records import Progress

LINE_SECONDS = 10.0
"""Pause between two lines where stderr is no terminal."""


@contextmanager
def showing_progress(stream: TextIO) -> Iterator[Callable[[Progress], None]]:
    """What a run reports its progress to, for the length of a block."""
    if stream.isatty():
        with _bar(stream) as show:
            yield show
    else:
        yield _lines(stream)


@contextmanager
def _bar(stream: TextIO) -> Iterator[Callable[[Progress], None]]:
    with tqdm(file=stream, unit="file", dynamic_ncols=True, leave=False, delay=0.3) as bar:

        def show(progress: Progress) -> None:
            if progress.total is not None and bar.total != progress.total:
                bar.total = progress.total
            if progress.chunks:
                bar.set_postfix(chunks=progress.chunks, refresh=progress.done == bar.n)
            bar.update(progress.done - bar.n)

        yield show


def _lines(stream: TextIO) -> Callable[[Progress], None]:
    last = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last
        if progress.total and time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            stream.write(f"{progress.done} of {progress.total} files, {progress.chunks} chunks\n")
            stream.flush()

    return show
