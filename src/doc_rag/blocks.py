"""The blocks a text is made of, and the cutting of those that are too long for a chunk. Called by `chunk`.

A block is what a reader sees as one thing: a paragraph, a list, a table, a code fence. Only a block
longer than a chunk is ever cut, by `semantic-text-splitter`, at the best place it finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from doc_rag.markdown_parser import MAX_PARSED_CHARS, line_offsets, parse_blocks

if TYPE_CHECKING:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

_WINDOW_CAPACITIES = 4
_MIN_WINDOW_CHARS = 512
"""The splitter is given a few chunks' worth at a time. Its time grows with the square of what it is
given, where that is one sentence: 64,000 characters of Chinese cut into 50s took it a minute."""

_BLANK_LINES = re.compile(r"\n[ \t\u00a0\u3000\n]*\n")
_VERBATIM = frozenset({"fence", "code_block", "html_block", "table_open"})
_CONTAINERS = frozenset({"bullet_list_open", "ordered_list_open", "blockquote_open"})


@dataclass(frozen=True, slots=True)
class Block:
    """`text[start:end]`. `kind` is "prose", "verbatim" (line ends mean something) or "container" (of blocks)."""

    start: int
    end: int
    kind: str = "prose"


@dataclass(frozen=True, slots=True)
class Piece:
    """A block, or a part of one that was too long. `continues`: it is not the first part of its block."""

    start: int
    end: int
    verbatim: bool = False
    continues: bool = False


def blocks_of(text: str, start: int, end: int, format: str) -> Iterator[Block]:
    """The blocks of `text[start:end]` in order. Together they hold every character that is no blank."""
    if format == "markdown" and end - start <= MAX_PARSED_CHARS:
        yield from _markdown_blocks(text, start, end)
    else:
        yield from _paragraphs(text, start, end)


def pieces_of(text: str, block: Block, size: int, capacity: int, markdown: bool) -> Iterator[Piece]:
    """A block whole where it fits `size`, else in parts of at most `capacity` characters."""
    verbatim = block.kind == "verbatim"
    if block.end - block.start <= size:
        yield Piece(block.start, block.end, verbatim)
        return
    # Parts of about the same length, so that no few words are left over for a chunk of their own. In steps,
    # so that splitters are used again.
    length = block.end - block.start
    even = -(-length // -(-length // capacity))
    capacity = min(capacity, even * 115 // 100 // 16 * 16 + 16)
    splitter = _splitter(capacity, markdown and block.kind == "container")
    unwrap = block.kind == "prose" and (markdown or _is_wrapped(text[block.start : block.end][:4_000]))
    continues = False
    for start, end in _split(text, block.start, block.end, capacity, splitter, unwrap):
        yield Piece(start, end, verbatim, continues)
        continues = True


def _markdown_blocks(text: str, start: int, end: int) -> Iterator[Block]:
    body = text[start:end]
    lines = line_offsets(body)
    done = 0
    for token in parse_blocks(body):
        if token.level or token.map is None or token.nesting < 0:
            continue
        first, last = (lines[min(line, len(lines) - 1)] for line in token.map)
        # Link definitions are no tokens, but they are words of the document.
        yield from _trimmed(text, start + done, start + first, "prose")
        kind = "container" if token.type in _CONTAINERS else "prose"
        yield from _trimmed(
            text, start + first, start + last, "verbatim" if token.type in _VERBATIM else kind
        )
        done = last
    yield from _trimmed(text, start + done, end, "prose")


def _paragraphs(text: str, start: int, end: int) -> Iterator[Block]:
    done = start
    for match in _BLANK_LINES.finditer(text, start, end):
        yield from _trimmed(text, done, match.start(), "prose")
        done = match.end()
    yield from _trimmed(text, done, end, "prose")


def _trimmed(text: str, start: int, end: int, kind: str) -> Iterator[Block]:
    span = trim(text, start, end)
    if span[0] < span[1]:
        yield Block(*span, kind)


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the white space at its ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), max(start, end - len(part) + len(part.rstrip()))


def _split(
    text: str,
    start: int,
    end: int,
    capacity: int,
    splitter: TextSplitter | MarkdownSplitter,
    unwrap: bool,
) -> Iterator[tuple[int, int]]:
    """Cut a span window by window. Each window begins at the start of the last part of the one before,
    so that no part ends at a window's edge unless there is nothing better in it."""
    window = max(_WINDOW_CAPACITIES * capacity, _MIN_WINDOW_CHARS)
    while start < end:
        stop = min(start + window, end)
        part = text[start:stop]
        if unwrap:
            # Line ends inside a paragraph are its setting, not its sense; the splitter would cut there first.
            part = part.replace("\n", " ")
        found = splitter.chunk_indices(part)
        if stop < end and len(found) > 1:
            restart = start + found.pop()[0]
        else:
            restart = start + found[-1][0] + len(found[-1][1]) if stop < end and found else stop
        for offset, content in found:
            yield start + offset, start + offset + len(content)
        start = restart


def _is_wrapped(sample: str) -> bool:
    """Whether the lines of a plain text are one running text set in lines, rather than entries of their own."""
    lines = [line.strip() for line in sample.split("\n")]
    if len(lines) < 3:
        return False
    full = sum(1 for line in lines[:-1] if len(line) >= 40 and (line[-1].isalnum() or line[-1] in ",-"))
    goes_on = sum(1 for line in lines[1:] if line[:1].islower())
    return full >= 0.6 * (len(lines) - 1) and goes_on >= 0.4 * (len(lines) - 1)


@lru_cache(maxsize=256)
def _splitter(capacity: int, markdown: bool) -> TextSplitter | MarkdownSplitter:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    return MarkdownSplitter(capacity) if markdown else TextSplitter(capacity)
