"""What holds of the chunks of any document: exact places, nothing lost, nothing too long."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from doc_rag.chunk import chunk_document
from doc_rag.extract.decode import clean
from doc_rag.extract.markdown import extract_markdown
from doc_rag.extract.text import extract_text
from doc_rag.records import Extracted, Section
from tests.support.chunk_checks import check

MARKUP = [
    *(
        "# Heading",
        "## Deeper",
        "#",
        "Under\n=====",
        "```",
        "~~~",
        "- item",
        "  - inner",
        "1. one",
        "> quote",
    ),
    *(
        "| a | b |",
        "|---|---|",
        "---",
        "",
        "",
        "    code",
        "<div>",
        "[a]: /url 'title'",
        "***",
        "\u3000",
        "\t",
    ),
]
PROSE = ["word", "Word.", "羅生門。", "e\u0301", "x" * 70, "\u201cso\u201d", "1,000"]
LINES = st.one_of(
    st.sampled_from(MARKUP),
    st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=60),
    st.lists(st.sampled_from(PROSE), max_size=40).map(" ".join),
)
DOCUMENTS = st.lists(LINES, max_size=40).map("\n".join)
SIZES = st.tuples(st.integers(50, 400), st.integers(0, 399)).map(
    lambda pair: (pair[0], min(pair[1], pair[0] - 1))
)


@given(DOCUMENTS, SIZES)
def test_markdown(text: str, sizes: tuple[int, int]) -> None:
    size, overlap = sizes
    extracted = extract_markdown("a.md", ("x" + text).encode())
    check(extracted, chunk_document(extracted, size=size, overlap=overlap), size)


@given(DOCUMENTS, SIZES)
def test_text(text: str, sizes: tuple[int, int]) -> None:
    size, overlap = sizes
    extracted = extract_text("a.txt", ("x" + text).encode())
    check(extracted, chunk_document(extracted, size=size, overlap=overlap), size)


@given(
    DOCUMENTS, st.lists(st.integers(0, 2_000), max_size=6), st.lists(st.integers(0, 2_000), max_size=6), SIZES
)
def test_pages_and_sections_anywhere(
    text: str, pages: list[int], cuts: list[int], sizes: tuple[int, int]
) -> None:
    size, overlap = sizes
    text = clean(text)
    starts = (0, *sorted(min(page, len(text)) for page in pages))
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    sections = tuple(Section(a, b, (str(a),)) for a, b in pairwise(edges))
    extracted = Extracted(text, sections, "text", page_starts=starts)
    check(extracted, chunk_document(extracted, size=size, overlap=overlap), size)


@given(DOCUMENTS, st.integers(1, 30))
def test_token_limits(text: str, max_tokens: int) -> None:
    extracted = extract_markdown("a.md", ("x" + text).encode())
    chunks = chunk_document(
        extracted, size=300, overlap=50, max_tokens=max_tokens, count_tokens=lambda part: 1 + len(part) // 4
    )
    check(extracted, chunks, 300)
    assert all(1 + len(chunk.content) // 4 <= max_tokens or len(chunk.content) <= 1 for chunk in chunks)


def test_real_documents(shared: Path) -> None:
    paths = sorted((shared / "eval" / "anthropic-docs" / "docs").glob("*.md"))[:20]
    paths.append(shared / "awkward" / "files" / "commonmark-spec.md")
    for path in paths:
        extracted = extract_markdown(path.name, path.read_bytes())
        check(extracted, chunk_document(extracted, size=800, overlap=100), 800)
    for path in sorted((shared / "eval" / "cranfield" / "docs").glob("*.txt"))[:100]:
        extracted = extract_text(path.name, path.read_bytes())
        check(extracted, chunk_document(extracted, size=300, overlap=60), 300)
