"""What must hold of the chunks of any document."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise

from doc_rag.records import Chunk, Extracted

WORDS = re.compile(r"\w+")


def check(extracted: Extracted, chunks: list[Chunk], size: int) -> None:
    """Every promise that `chunk_document` makes."""
    text = extracted.text
    covered = bytearray(len(text))
    for number, chunk in enumerate(chunks):
        assert chunk.index == number
        assert text[chunk.char_start : chunk.char_end] == chunk.content
        assert 0 < len(chunk.content) <= size
        assert chunk.content == chunk.content.strip()
        assert any(map(str.isalnum, chunk.content))
        assert chunk.line_start == text.count("\n", 0, chunk.char_start) + 1
        assert chunk.line_end == text.count("\n", 0, chunk.char_end) + 1
        if extracted.page_starts:
            assert chunk.page_start == max(1, bisect_right(extracted.page_starts, chunk.char_start))
            assert chunk.page_end == max(1, bisect_right(extracted.page_starts, chunk.char_end - 1))
        else:
            assert chunk.page_start is chunk.page_end is None
        homes = [s for s in extracted.sections if s.start <= chunk.char_start and chunk.char_end <= s.end]
        assert len(homes) == 1 and homes[0].heading_path == chunk.heading_path
        covered[chunk.char_start : chunk.char_end] = b"\1" * len(chunk.content)
    for before, after in pairwise(chunks):
        assert before.char_start < after.char_start and before.char_end < after.char_end
    for section in extracted.sections:
        for match in WORDS.finditer(text, section.start, section.end):
            if any(map(str.isalnum, match.group())):
                kept = covered[match.start() : match.end()]
                assert all(kept[i] or not text[match.start() + i].isalnum() for i in range(len(kept)))
