"""`markdown-it-py` as this package uses it: block structure without inline syntax, and the words of one line."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_PARSED_CHARS = 262_144
"""Longest text to parse: 0.1 s of ordinary text, 2 s and 150 MB of the worst (65,000 list items)."""


def parse_blocks(text: str) -> Sequence[Token]:
    """The block tokens of `text`; those of level 0 carry the lines they came from in `map`."""
    return _block_parser().parse(text)


def line_offsets(text: str) -> list[int]:
    """The offset of every line of `text`, and its length as the last: what a token's `map` is looked up in."""
    return [0, *(match.end() for match in re.finditer("\n", text)), len(text)]


def words_of_line(line: str) -> str:
    """One line of Markdown as it reads: without emphasis, link targets and code ticks."""
    if not re.search(r"[*_`\[\]<>&\\!]", line):
        return line
    tokens = _inline_parser().parseInline(line)[0].children or []
    kept = ("text", "code_inline", "image", "text_special")
    return "".join(
        token.content if token.type in kept else " " * token.type.endswith("break") for token in tokens
    )


# At level DEBUG the library says every rule it tries on every line.
logging.getLogger("markdown_it").setLevel(logging.INFO)


# A parser compiles its rules on first use, and another thread would meanwhile see half of them: each is
# used once before it is shared.


@lru_cache(maxsize=1)
def _block_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    parser.parse("- a\n")
    return parser


@lru_cache(maxsize=1)
def _inline_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    parser.parseInline("*a*")
    return parser
