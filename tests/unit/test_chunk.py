"""Chunks follow the structure of a document, and say exactly where they are."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from doc_rag.chunk import MAX_PREFIX_CHARS, chunk_document, context_prefix
from doc_rag.extract.markdown import extract_markdown
from doc_rag.extract.text import extract_text
from doc_rag.records import Chunk, Extracted, Section

SENTENCES = [f"This is sentence number {i} of a rather long paragraph." for i in range(40)]
FENCE = "```python\n" + "\n".join(f"x{i} = call({i})  # comment" for i in range(15)) + "\n```"
TABLE = "| a | b |\n|---|---|\n" + "\n".join(f"| row {i} | value {i} |" for i in range(15))
LIST = "\n".join(f"- item {i} of the list\n  and more of it" for i in range(12))


def markdown_chunks(text: str, size: int = 800, overlap: int = 100) -> list[Chunk]:
    return chunk_document(extract_markdown("a.md", text.encode()), size=size, overlap=overlap)


def text_chunks(text: str, size: int = 800, overlap: int = 100) -> list[Chunk]:
    return chunk_document(extract_text("a.txt", text.encode()), size=size, overlap=overlap)


def test_a_short_document_is_one_chunk() -> None:
    (chunk,) = markdown_chunks("# Title\n\nSome words.\n")
    assert chunk == Chunk(0, "# Title\n\nSome words.", 0, 20, 1, 3, ("Title",))


def test_a_chunk_never_crosses_a_heading_and_knows_its_path() -> None:
    chunks = markdown_chunks("# A\n\none\n\n## B\n\ntwo\n\n# C\n\nthree\n")
    assert [(chunk.content, chunk.heading_path) for chunk in chunks] == [
        ("# A\n\none", ("A",)),
        ("## B\n\ntwo", ("A", "B")),
        ("# C\n\nthree", ("C",)),
    ]


@pytest.mark.parametrize("block", [FENCE, TABLE, LIST], ids=["fence", "table", "list"])
@pytest.mark.parametrize("before", [100, 500, 700])
def test_a_block_that_fits_is_never_cut(block: str, before: int) -> None:
    prose = " ".join(SENTENCES)[:before].strip()
    chunks = markdown_chunks(f"{prose}\n\n{block}\n\n{prose}\n\n{block}\n")
    holding = [chunk for chunk in chunks if block in chunk.content]
    assert len(holding) == 2
    assert all(len(chunk.content) <= 800 for chunk in chunks)


def test_a_hash_in_a_fence_is_no_heading() -> None:
    (chunk,) = markdown_chunks("# Real\n\n```\n# not one\n```\n")
    assert chunk.heading_path == ("Real",)


def test_a_long_paragraph_is_cut_at_sentences_and_overlaps_by_whole_ones() -> None:
    chunks = markdown_chunks(" ".join(SENTENCES))
    assert len(chunks) == 4
    for before, after in pairwise(chunks):
        assert after.content.startswith("This is sentence") and before.content.endswith("paragraph.")
        assert 0 < before.char_end - after.char_start <= 100


def test_a_paragraph_set_in_lines_is_cut_at_sentences_too() -> None:
    words = " ".join(SENTENCES).split()
    lines = [" ".join(words[i : i + 12]) for i in range(0, len(words), 12)]
    for chunks in (markdown_chunks("\n".join(lines)), text_chunks("\n".join(lines))):
        assert all(chunk.content.endswith("paragraph.") for chunk in chunks)


def test_lines_that_are_entries_are_cut_between_lines() -> None:
    entries = [f"2026-01-{i:02} entry about thing {i}. And its note" for i in range(1, 32)]
    for chunk in text_chunks("\n".join(entries), size=200, overlap=0):
        assert chunk.content.startswith("2026-01-") and chunk.content.endswith("And its note")


def test_there_is_no_overlap_across_sections_nor_out_of_a_table() -> None:
    prose = " ".join(SENTENCES)[:700]
    chunks = markdown_chunks(f"# A\n\n{prose}\n\n# B\n\n{TABLE}\n\n{prose}\n")
    assert all(before.char_end <= after.char_start for before, after in pairwise(chunks))


def test_parts_of_a_block_are_of_about_one_length() -> None:
    lengths = [len(chunk.content) for chunk in text_chunks(" ".join(SENTENCES)[:900])]
    assert len(lengths) == 2 and min(lengths) > 400


def test_rules_and_blank_lines_make_no_chunk() -> None:
    assert markdown_chunks("---\n\n***\n\n&nbsp;\n"[:9]) == []
    assert [chunk.content for chunk in markdown_chunks("# \n\n* * *\n\nword\n", size=10, overlap=0)] == [
        "word"
    ]


def test_link_definitions_are_words_of_the_document() -> None:
    chunks = markdown_chunks("See [there].\n\n[there]: https://example.org/unusual-place\n")
    assert "unusual-place" in " ".join(chunk.content for chunk in chunks)


def test_lines_are_those_of_the_file_with_front_matter_and_windows_line_ends() -> None:
    text = "---\r\ntitle: T\r\n---\r\n\r\n# A\r\n\r\nline seven\r\nline eight\r\n"
    (chunk,) = markdown_chunks(text)
    assert (chunk.line_start, chunk.line_end) == (5, 8)


def test_pages_are_those_the_chunk_begins_and_ends_on() -> None:
    text = "page one words\n\npage two words go on\n\npage four words"
    starts = (0, text.index("page two"), text.index("page four"), text.index("page four"))
    sections = (Section(0, starts[1]), Section(starts[1], len(text)))
    chunks = chunk_document(Extracted(text, sections, "text", page_starts=starts), size=800, overlap=100)
    assert [(chunk.page_start, chunk.page_end) for chunk in chunks] == [(1, 1), (2, 4)]


def test_a_paragraph_across_a_page_break_has_both_pages() -> None:
    text = "word " * 30
    extracted = Extracted(text, (Section(0, len(text)),), "text", page_starts=(0, 50))
    pages = [(chunk.page_start, chunk.page_end) for chunk in chunk_document(extracted, size=60, overlap=0)]
    assert pages == [(1, 2), (2, 2), (2, 2)]


# --- tokens ------------------------------------------------------------------------------------------


def count_words(text: str) -> int:
    return len(text.split())


def test_a_chunk_of_too_many_tokens_is_cut_further() -> None:
    extracted = extract_text("a.txt", " ".join(SENTENCES).encode())
    chunks = chunk_document(extracted, size=2_000, overlap=100, max_tokens=50, count_tokens=count_words)
    assert all(count_words(chunk.content) <= 50 for chunk in chunks)
    assert all(chunk.content.endswith("paragraph.") for chunk in chunks)
    assert sum(count_words(chunk.content) for chunk in chunks) >= count_words(extracted.text)


def test_the_prefix_counts_but_never_for_more_than_half() -> None:
    extracted = extract_markdown("a.md", ("# One two three\n\n" + " ".join(SENTENCES)).encode())
    for prefix, most in (("p " * 10, 30), ("p " * 500, 20)):
        chunks = chunk_document(
            extracted,
            size=2_000,
            overlap=0,
            max_tokens=40,
            count_tokens=count_words,
            prefix_for=lambda path, prefix=prefix: prefix if path == ("One two three",) else "",  # type: ignore[misc]
        )
        assert max(count_words(chunk.content) for chunk in chunks) <= most


def test_even_a_text_of_one_token_a_letter_ends() -> None:
    extracted = extract_text("a.txt", b"x" * 3_000)
    chunks = chunk_document(
        extracted, size=800, overlap=100, max_tokens=7, count_tokens=lambda text: 3 * len(text)
    )
    assert all(3 * len(chunk.content) <= 7 for chunk in chunks)
    assert "".join(chunk.content for chunk in chunks) == extracted.text


# --- the context in front -----------------------------------------------------------------------------


def test_the_context_is_title_and_headings_without_repetition() -> None:
    assert context_prefix(None, ()) == ""
    assert context_prefix("Guide", ()) == "Guide\n\n"
    assert context_prefix("Guide", ("guide", "Install", "Linux")) == "Guide > Install > Linux\n\n"
    assert context_prefix("Guide", ("Install", "Guide")) == "Guide > Install > Guide\n\n"
    assert context_prefix(None, ("A", "B")) == "A > B\n\n"


def test_a_long_context_keeps_the_title_and_the_nearest_heading() -> None:
    context = context_prefix("T" * 300, tuple(f"{i} {'h' * 60}" for i in range(6)))
    assert len(context) <= MAX_PREFIX_CHARS
    assert context.startswith("T" * 79 + "…")
    assert context.endswith("5 " + "h" * 60 + "\n\n")


# --- the bounds of time and memory ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size", "overlap"),
    [
        ("word and word. " * 300_000, 800, 100),
        ("x" * 3_000_000, 800, 100),
        ("x" * 200_000, 50, 40),
        ("羅生門の下で雨やみを待っていた" * 20_000, 800, 100),
        ("羅生門の下で雨やみを待っていた" * 3_000, 50, 40),
        ("\n" * 3_000_000 + "x", 800, 100),
        (" " * 3_000_000 + "x", 800, 100),
        ("a\n\n" * 80_000, 800, 100),
    ],
    ids=[
        "sentences",
        "one word",
        "small chunks",
        "ideographs",
        "small ideographs",
        "lines",
        "blanks",
        "paragraphs",
    ],
)
def test_pathological_texts_end_in_bounded_time(text: str, size: int, overlap: int) -> None:
    start = time.monotonic()
    chunks = text_chunks(text, size, overlap)
    assert time.monotonic() - start < 15
    assert chunks and chunks[-1].char_end >= len(text.rstrip()) - 1
