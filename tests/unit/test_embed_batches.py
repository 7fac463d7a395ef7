"""Batches hold to both limits, cover every text once, and shrink when told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doc_rag.embed.batches import Batches


def all_of(batches: Batches) -> list[tuple[int, ...]]:
    return list(iter(batches.take, None))


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 10), st.integers(1, 80))
def test_every_text_is_in_one_batch_within_the_limits(
    tokens: list[int], max_items: int, max_tokens: int
) -> None:
    counted = Batches(tokens, max_items, max_tokens).count()
    batches = all_of(Batches(tokens, max_items, max_tokens))
    assert [k for batch in batches for k in batch] == list(range(len(tokens)))
    assert len(batches) == counted
    for batch in batches:
        assert 1 <= len(batch) <= max_items
        assert len(batch) == 1 or sum(tokens[k] for k in batch) <= max_tokens


def test_batches_are_as_full_as_the_limits_allow() -> None:
    assert all_of(Batches([10] * 7, 3, 1_000)) == [(0, 1, 2), (3, 4, 5), (6,)]
    assert all_of(Batches([10] * 7, 100, 25)) == [(0, 1), (2, 3), (4, 5), (6,)]
    assert all_of(Batches([5, 99, 5], 100, 25)) == [(0,), (1,), (2,)], "a long text is a batch of its own"


def test_a_lower_limit_holds_for_the_batches_to_come_and_never_rises() -> None:
    batches = Batches([10] * 10, 4, 1_000)
    assert batches.take() == (0, 1, 2, 3)
    batches.limit(items=2)
    batches.limit(items=50, tokens=10)
    assert all_of(batches) == [(4,), (5,), (6,), (7,), (8,), (9,)]
    assert batches.take() is None
