"""Markdown keeps its text; its headings, and only those, become the path of what is below them."""

from __future__ import annotations

import time
from datetime import date

import pytest

from doc_rag.extract import markdown
from doc_rag.extract.headings import MAX_HEADINGS
from doc_rag.extract.markdown import extract_markdown, find_headings, heading_text
from doc_rag.markdown_parser import MAX_PARSED_CHARS
from doc_rag.records import Extracted


def extract(text: str) -> Extracted:
    return extract_markdown("a.md", text.encode())


def outline(text: str) -> list[tuple[tuple[str, ...], str]]:
    found = extract(text)
    return [
        (section.heading_path, found.text[section.start : section.end].strip()) for section in found.sections
    ]


def test_sections_follow_the_headings() -> None:
    text = "Before.\n\n# One\n\nA.\n\n## Two\n\nB.\n\nThree\n-----\n\nC.\n\n# Four\n\nD.\n"
    assert outline(text) == [
        ((), "Before."),
        (("One",), "# One\n\nA."),
        (("One", "Two"), "## Two\n\nB."),
        (("One", "Three"), "Three\n-----\n\nC."),
        (("Four",), "# Four\n\nD."),
    ]
    assert extract(text).title == "One"


def test_a_heading_above_another_begins_its_section() -> None:
    assert outline("# Guide\n\n## Install\n\nRun it.\n\n## Empty\n\n## Next\n\nGo on.\n") == [
        (("Guide", "Install"), "# Guide\n\n## Install\n\nRun it."),
        (("Guide", "Empty"), "## Empty"),
        (("Guide", "Next"), "## Next\n\nGo on."),
    ]


def test_levels_may_be_skipped_and_left_again() -> None:
    assert [
        path for path, _ in outline("# A\n\na\n\n#### D\n\nd\n\n## B\n\nb\n\n###### F\n\nf\n\n# Z\n\nz\n")
    ] == [
        ("A",),
        ("A", "D"),
        ("A", "B"),
        ("A", "B", "F"),
        ("Z",),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```\n# no\n```\n",
        "~~~ python\n# no\n```\n# no\n~~~\n",
        "````\n```\n# no\n````\n",
        "    # no\n",
        "> # no\n",
        "- # no\n",
        "#no\n",
        "\\# no\n",
        "<!--\n# no\n-->\n",
        "#\n",
        "| a | b |\n|---|---|\n| # no | x |\n",
    ],
)
def test_what_only_looks_like_a_heading_is_none(text: str) -> None:
    for body in (text, text + "x\n" * (MAX_PARSED_CHARS // 2)):
        found = find_headings(body)
        assert found == [] or (len(body) > len(text) and text.startswith((">", "-", "<!--", "|", "    ")))


def test_a_heading_reads_without_its_markup() -> None:
    assert (
        heading_text("**Bold** and `code` [link](http://x) ![pic](y.png) {#anchor}")
        == "Bold and code link pic"
    )
    assert heading_text("a\\_b &amp; <b>c</b>") == "a_b & c"
    assert heading_text("x" * 5_000) == "x" * 299 + "…"


def test_front_matter_is_metadata_and_lines_stay_those_of_the_file() -> None:
    found = extract("---\ntitle: From the front\ndate: 2026-01-31\ntags: [a]\n---\n# Heading\n\nText.\n")
    assert found.text.startswith("---\ntitle")
    assert (found.title, found.document_date, found.tags) == ("From the front", date(2026, 1, 31), ("a",))
    (section,) = found.sections
    assert found.text[section.start :] == "# Heading\n\nText.\n"


def test_a_byte_order_mark_hides_neither_heading_nor_front_matter() -> None:
    assert extract_markdown("a.md", b"\xef\xbb\xbf# Heading").title == "Heading"
    assert extract_markdown("a.md", b"\xef\xbb\xbf---\r\ntitle: T\r\n---\r\nx").title == "T"


def test_a_long_file_is_scanned_to_the_same_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# One #\n\nText.\n\n```\n# no\n```\n\n## Two `code`\n\nMore.\n\n~~~\n# no\n```\n~~~\n\n### Three\n\nEnd.\n"
    parsed = find_headings(text)
    monkeypatch.setattr(markdown, "MAX_PARSED_CHARS", 10)
    scanned = find_headings(text)
    assert [(h.start, h.level, h.text) for h in scanned] == [(h.start, h.level, h.text) for h in parsed]
    assert [h.text for h in parsed] == ["One", "Two code", "Three"]


def test_headings_without_number_become_one_section_and_a_warning() -> None:
    found = extract("# a\n" * (2 * MAX_HEADINGS))
    assert len(found.sections) == 1
    assert found.warnings == ("has more than 50,000 headings; it is indexed without them",)


@pytest.mark.parametrize(
    "text",
    [
        "# a\n" * 2_500_000,
        (">" * 1_000 + " a\n") * 200,
        "".join("  " * i + "- a\n" for i in range(500)),
        "- " * 100_000,
        "[" * 200_000,
        "# " + "[" * 100_000,
        "# " + " " * 300_000 + "#",
        "\n" * 3_000_000 + "a",
        "a" * 3_000_000,
    ],
    ids=[
        "headings",
        "quotes",
        "lists",
        "list on a line",
        "brackets",
        "heading",
        "blank heading",
        "blank",
        "a line",
    ],
)
def test_pathological_files_end_in_bounded_time(text: str) -> None:
    start = time.monotonic()
    extract(text)
    assert time.monotonic() - start < 10
