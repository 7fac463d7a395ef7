"""Token estimates are safe, and text is cut without losing or adding a character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doc_rag.embed.tokens import cut_to_tokens, estimate_tokens, split_evenly

PROSE = (
    "The lift coefficient of a delta wing rises with its angle of attack until the vortex breaks down. " * 8
)
CODE = "    for key, value in self._items.items():\n        if value is not None:\n            out[key] = f(value)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("wing", 1),
        ("a wing", 2),
        ("boundary", 2),
        ("supercalifragilistic", 5),
        ("getHTTPCode", 5),
        ("3.14159", 7),
        ("x = {1}", 5),
        ("a    b", 3),
        ("a\nb", 3),
        ("東京都", 5),
        ("Größe", 4),
        ("😀", 4),
        ("\x00", 1),
    ],
)
def test_the_estimate_can_be_counted_by_hand(text: str, expected: int) -> None:
    assert estimate_tokens(text) == expected


def test_prose_and_code_come_out_as_dense_as_they_are() -> None:
    assert 3.0 < len(PROSE) / estimate_tokens(PROSE) < 4.5
    assert 1.5 < len(CODE) / estimate_tokens(CODE) < 3.0


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_estimate_grows_with_the_text(one: str, other: str) -> None:
    # Joining may merge a word or a run of blanks, never more than that.
    together = estimate_tokens(one + other)
    assert together >= max(estimate_tokens(one), estimate_tokens(other))
    assert together <= estimate_tokens(one) + estimate_tokens(other) + 2
    assert together <= 4 * len((one + other).encode("utf-8"))


@given(st.text(min_size=1, max_size=300), st.integers(1, 12))
def test_parts_make_the_text_again_and_none_is_empty(text: str, parts: int) -> None:
    pieces = split_evenly(text, parts)
    assert "".join(pieces) == text
    assert all(pieces)
    assert len(pieces) <= 2 * parts + 1
    assert max(map(len, pieces)) <= -(-len(text) // parts)


def test_parts_end_at_white_space_where_there_is_some() -> None:
    assert all(piece.endswith(" ") for piece in split_evenly(PROSE, 5)[:-1])


@given(st.text(max_size=300), st.integers(0, 100))
def test_a_cut_is_the_longest_beginning_that_fits(text: str, tokens: int) -> None:
    cut = cut_to_tokens(text, tokens)
    assert text.startswith(cut)
    assert estimate_tokens(cut) <= tokens
    assert cut == text or estimate_tokens(text[: len(cut) + 1]) > tokens
