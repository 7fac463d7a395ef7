"""Front matter becomes metadata and is never part of the body; what only looks like it stays."""

from __future__ import annotations

import time
from datetime import date

import pytest

from doc_rag.extract.front_matter import FrontMatter, read_front_matter


def test_yaml_gives_title_tags_and_date() -> None:
    text = "---\nTitle: A guide\ntags: [one, two, one, 3]\ndate: 2026-01-31\n---\nBody\n"
    assert read_front_matter(text) == FrontMatter(
        text.index("Body"), "A guide", date(2026, 1, 31), ("one", "two", "3")
    )


def test_toml_gives_the_same() -> None:
    text = '+++\ntitle = "A guide"\ntags = ["one", "two"]\ndate = 2026-01-31T10:00:00Z\n+++\nBody\n'
    assert read_front_matter(text) == FrontMatter(
        text.index("Body"), "A guide", date(2026, 1, 31), ("one", "two")
    )


@pytest.mark.parametrize(
    ("written", "tags"),
    [("one, two words", ("one", "two words")), ("one two", ("one", "two")), ("[]", ()), ("{a: b}", ())],
)
def test_tags_may_be_a_string(written: str, tags: tuple[str, ...]) -> None:
    assert read_front_matter(f"---\ntags: {written}\n---\n").tags == tags


def test_pandoc_ends_its_block_with_dots() -> None:
    front = read_front_matter("---\ntitle: Spec\nversion: '0.31'\n...\n\n# Body\n")
    assert (front.title, front.end) == ("Spec", 36)


def test_what_is_not_quite_yaml_is_read_line_by_line() -> None:
    front = read_front_matter(
        "---\ntitle: Ports: an overview\ndate: 2026-01-31\n# note\n  - odd\n---\nBody\n"
    )
    assert front.end > 0
    assert (front.title, front.document_date) == ("Ports: an overview", date(2026, 1, 31))


@pytest.mark.parametrize(
    "text",
    [
        "---\nJust prose between two rules.\n---\nBody\n",
        "---\n- a list\n- of things\n---\n",
        "---\ntitle: never closed\n",
        "text first\n---\ntitle: no\n---\n",
        "+++\nno toml here\n+++\n",
        " ---\ntitle: set in\n---\n",
        "",
        "---",
    ],
)
def test_what_is_no_front_matter_stays_in_the_body(text: str) -> None:
    assert read_front_matter(text) == FrontMatter()


def test_an_empty_block_is_front_matter_without_anything_in_it() -> None:
    assert read_front_matter("---\n---\nBody\n") == FrontMatter(end=8)


@pytest.mark.parametrize("value", ["[1, 2]", "{a: b}", "null", "''", "true"])
def test_a_title_that_is_no_text_is_none(value: str) -> None:
    title = read_front_matter(f"---\ntitle: {value}\n---\n").title
    assert title is None or title == "True"


def test_a_date_that_is_none_is_left_out_and_the_next_best_taken() -> None:
    text = "---\ndate: '2026-13-45'\nupdated: 2026-02-01 10:00:00\n---\n"
    assert read_front_matter(text).document_date == date(2026, 2, 1)


def test_metadata_is_clean() -> None:
    front = read_front_matter('---\ntitle: "a\\0b \\ud835 c"\ntags: ["x\\0y"]\n---\n')
    assert front.title == "ab c"
    assert front.tags == ("xy",)


@pytest.mark.parametrize(
    "block",
    [
        # A bomb of aliases, nesting that overflows a parser's stack, and keys without an end.
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20)
        ),
        "a: " + "[" * 15_000,
        "a: " + "{" * 15_000,
        "? " * 7_000,
        "- " * 7_000,
        "!!python/object/apply:os.system ['true']",
        "a: !!int 0x" + "f" * 10_000,
    ],
)
def test_hostile_blocks_end_quickly(block: str) -> None:
    start = time.monotonic()
    read_front_matter(f"---\n{block}\ntitle: x\n---\nBody\n")
    assert time.monotonic() - start < 5
