"""Cut a document into chunks whose place in it is always known. Pure; called by `prepare`.

Every chunk lies inside one section and is `text[char_start:char_end]` of the extracted text. Blocks
(paragraphs, lists, tables, fences) are put together while they fit; only one longer than a chunk is cut.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from doc_rag.blocks import Block, Piece, blocks_of, pieces_of, trim
from doc_rag.records import Chunk, Extracted

PIPELINE_VERSION = 1
"""Part of a generation's settings: raise it whenever the same file gives other chunks or another text to embed."""

MAX_PREFIX_CHARS = 200
"""Longest context in front of a chunk: beyond this it would drown the chunk itself."""

_MAX_PART_CHARS = 80
_SENTENCE_START = re.compile(
    "(?<=[.!?\u2026])[\"'\u201d\u2019)\\]]*\\s+(?=\\S)"  # . ! ? ... and closing quotes, then a blank
    "|(?<=[\u3002\uff01\uff1f])"  # ideographic full stop, fullwidth ! and ?
    "|\\n+(?=\\S)"
)
_WORD_START = re.compile(r"\s+(?=\S)")

Span = tuple[int, int]


def chunk_document(
    extracted: Extracted,
    *,
    size: int,
    overlap: int,
    max_tokens: int | None = None,
    count_tokens: Callable[[str], int] | None = None,
    prefix_for: Callable[[tuple[str, ...]], str] | None = None,
) -> list[Chunk]:
    """Cut a document into chunks of at most `size` characters, in order.

    Neighbours in one section share up to `overlap` characters (at most half of either), from the
    start of a sentence or word. With `max_tokens` and `count_tokens`, a chunk that would have more
    tokens together with `prefix_for(heading_path)` is cut further; a prefix may use up half of them.
    Blanks at a chunk's ends are left out, and so are chunks without a letter or digit.
    """
    text, markdown = extracted.text, extracted.format == "markdown"
    make = _ChunkMaker(extracted)
    chunks: list[Chunk] = []
    for section in extracted.sections:
        blocks = blocks_of(text, section.start, section.end, extracted.format)
        spans: Iterable[Span] = _spans(text, blocks, size, overlap, markdown)
        if max_tokens and count_tokens:
            prefix = prefix_for(section.heading_path) if prefix_for else ""
            limit = _TokenLimit(text, count_tokens, _budget(max_tokens, prefix, count_tokens), overlap)
            spans = limit.fit(spans)
        chunks.extend(make(len(chunks), span, section.heading_path) for span in _with_words(text, spans))
    return chunks


def context_prefix(title: str | None, heading_path: tuple[str, ...]) -> str:
    """What is put in front of a chunk to be embedded: `title > heading > heading` and a blank line.

    A part that repeats the one before it is left out, long ones are cut, and where the whole is longer
    than MAX_PREFIX_CHARS the outer headings go first. Empty where there is nothing to say.
    """
    parts: list[str] = []
    for part in (title or "", *heading_path):
        words = " ".join(part.split())
        if words and (not parts or words.casefold() != parts[-1].casefold()):
            parts.append(words if len(words) <= _MAX_PART_CHARS else words[: _MAX_PART_CHARS - 1] + "…")
    while len(" > ".join(parts)) > MAX_PREFIX_CHARS - 2:
        del parts[1 if len(parts) > 2 else 0]
    return " > ".join(parts) + "\n\n" if parts else ""


class _ChunkMaker:
    """Gives spans their lines and pages. Spans come in order, so each line end is counted once."""

    def __init__(self, extracted: Extracted) -> None:
        self._text = extracted.text
        self._page_starts = extracted.page_starts
        self._offset, self._line = 0, 1

    def __call__(self, index: int, span: Span, heading_path: tuple[str, ...]) -> Chunk:
        start, end = span
        content = self._text[start:end]
        self._line += self._text.count("\n", self._offset, start)
        self._offset = start
        return Chunk(
            index=index,
            content=content,
            char_start=start,
            char_end=end,
            line_start=self._line,
            line_end=self._line + content.count("\n"),
            heading_path=heading_path,
            page_start=self._page(start),
            page_end=self._page(end - 1),
        )

    def _page(self, offset: int) -> int | None:
        return max(1, bisect_right(self._page_starts, offset)) if self._page_starts else None


def _spans(text: str, blocks: Iterable[Block], size: int, overlap: int, markdown: bool) -> Iterator[Span]:
    # A part of a long block leaves room for the overlap in front of it.
    capacity = max(size - overlap, size // 2, 1)
    pieces = (piece for block in blocks for piece in pieces_of(text, block, size, capacity, markdown))
    return _pack(text, pieces, size, overlap)


def _pack(text: str, pieces: Iterable[Piece], size: int, overlap: int) -> Iterator[Span]:
    """Join pieces while they fit, each span after the first beginning with the end of the one before."""
    start = end = -1
    last: Piece | None = None
    for piece in pieces:
        if last is not None and piece.end - start <= size:
            end = piece.end
        elif last is None:
            start, end = piece.start, piece.end
        else:
            yield start, end
            # The last rows of a table or lines of a fence say nothing in front of what follows it.
            shared = 0 if last.verbatim and not piece.continues else min(overlap, (end - start) // 2)
            start = _overlap_start(text, max(piece.start - shared, piece.end - size), piece.start)
            end = piece.end
        last = piece
    if last is not None:
        yield start, end


def _overlap_start(text: str, earliest: int, start: int) -> int:
    """Where an overlap that may begin at `earliest` does begin: at a sentence, else at a word, else nowhere."""
    if earliest >= start:
        return start
    # One character before, so that a sentence beginning exactly there is seen to begin.
    window_start = max(0, earliest - 1)
    window = text[window_start:start]
    for pattern in (_SENTENCE_START, _WORD_START):
        match = pattern.search(window)
        if match and window_start + match.end() < start:
            return window_start + match.end()
    return start


def _with_words(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    for span in spans:
        start, end = trim(text, *span)
        if any(map(str.isalnum, text[start:end])):
            yield start, end


def _budget(max_tokens: int, prefix: str, count_tokens: Callable[[str], int]) -> int:
    return max(max_tokens - (count_tokens(prefix) if prefix else 0), max_tokens // 2, 1)


class _TokenLimit:
    """Cuts spans that a model would not read to their end."""

    def __init__(self, text: str, count_tokens: Callable[[str], int], budget: int, overlap: int) -> None:
        self._text, self._count, self._budget, self._overlap = text, count_tokens, budget, overlap

    def fit(self, spans: Iterable[Span]) -> Iterator[Span]:
        """The spans, with those that are too long cut."""
        last: Span | None = None
        for start, end in spans:
            fits = self._fits(start, end)
            if last and start < last[1] and (not fits or start < (last[0] + last[1]) // 2):
                # What the span shares with the one before was cut with that one.
                start = trim(self._text, last[1], end)[0]
                fits = fits or self._fits(start, end)
            for part in ((start, end),) if fits else self._cut(start, end):
                yield part
                last = part

    def _fits(self, start: int, end: int) -> bool:
        # No tokenizer makes more tokens than bytes: most chunks need no counting.
        if 4 * (end - start) <= self._budget or end - start <= 1:
            return True
        return self._count(self._text[start:end]) <= self._budget

    def _cut(self, start: int, end: int) -> Sequence[Span]:
        # Equal parts, with some room for tokens being spread unevenly.
        length = end - start
        parts = -(-self._count(self._text[start:end]) // self._budget)
        size = max(1, min(-(-length * 11 // (10 * parts)), length - 1))
        smaller = _spans(self._text, [Block(start, end)], size, min(self._overlap, size // 8), markdown=False)
        return list(self.fit(smaller))
