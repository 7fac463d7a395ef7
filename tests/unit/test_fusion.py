from hypothesis import given
from hypothesis import strategies as st

from doc_rag.fusion import RRF_K, fuse


def test_the_score_is_the_sum_of_reciprocal_ranks() -> None:
    first, second, third = fuse([["a", "b"], ["b", "c"]])
    assert (first.item, first.ranks) == ("b", (2, 1))
    assert first.rrf_score == 1 / 62 + 1 / 61
    assert (second.item, second.rrf_score, second.ranks) == ("a", 1 / 61, (1, None))
    assert (third.item, third.rrf_score, third.ranks) == ("c", 1 / 62, (None, 2))


def test_ties_go_to_the_earlier_list() -> None:
    assert [f.item for f in fuse([["a"], ["b"]])] == ["a", "b"]
    assert [f.item for f in fuse([["b"], ["a"]])] == ["b", "a"]


def test_nothing_fuses_to_nothing() -> None:
    assert fuse([]) == []
    assert fuse([[], []]) == []


rankings = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)


@given(rankings)
def test_every_item_comes_once_in_falling_order_of_its_score(lists: list[list[str]]) -> None:
    fused = fuse(lists)
    assert sorted(f.item for f in fused) == sorted({item for ranking in lists for item in ranking})
    assert [f.rrf_score for f in fused] == sorted((f.rrf_score for f in fused), reverse=True)
    for f in fused:
        expected = sum(1 / (RRF_K + ranking.index(f.item) + 1) for ranking in lists if f.item in ranking)
        assert abs(f.rrf_score - expected) < 1e-12
