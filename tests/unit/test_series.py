from collections.abc import Sequence
from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from doc_rag.series import Held, Repeated, find_series, share_out

D1, D2, D3, D4 = (date(2026, 1, day) for day in (1, 2, 3, 4))


def test_three_dated_names_beside_each_other_are_a_series() -> None:
    names = [
        "log/day-2026-01-03.md",
        "log/day-2026-01-01.md",
        "log/day-2026-01-02.md",
        "log/other-2026-01-01.md",
    ]
    ((key, members),) = find_series(names).items()
    assert key == "log/day*.md"
    assert [member.source[-13:-3] for member in members] == ["2026-01-01", "2026-01-02", "2026-01-03"]


def test_two_are_none_nor_are_three_in_different_folders_or_without_a_valid_date() -> None:
    assert find_series(["a-2026-01-01.md", "a-2026-01-02.md"]) == {}
    assert find_series(["x/a-2026-01-01.md", "y/a-2026-01-02.md", "z/a-2026-01-03.md"]) == {}
    assert find_series(["a-2026-13-01.md", "a-2026-13-02.md", "a-2026-13-03.md"]) == {}


def test_a_repeated_chunk_is_held_once_by_the_first_date() -> None:
    first, second, third = share_out([(D1, ["A", "x"]), (D2, ["A", "y"]), (D3, ["A", "z"])])
    assert first.held == (Held(0, (D2, D3)), Held(1, ()))
    assert (second.held, second.repeated) == ((Held(1, ()),), (Repeated(0, 0, 0),))
    assert third.repeated == (Repeated(0, 0, 0),)


def test_a_value_that_changes_and_comes_back_is_a_new_fact() -> None:
    shares = share_out([(D1, ["A"]), (D2, ["B"]), (D3, ["A"]), (D4, ["A"])])
    assert shares[0].held == (Held(0, ()),)
    assert shares[2].held == (Held(0, (D4,)),)
    assert shares[3].repeated == (Repeated(0, 2, 0),)


def test_a_chunk_twice_in_one_document_stays_twice() -> None:
    first, second = share_out([(D1, ["A", "A"]), (D2, ["A"])])
    assert first.held == (Held(0, (D2,)), Held(1, ()))
    assert second.repeated == (Repeated(0, 0, 0),)


@given(st.lists(st.lists(st.sampled_from("ABCD"), max_size=5), max_size=6))
def test_every_chunk_is_held_or_repeats_an_equal_one_of_an_unbroken_run(
    texts: Sequence[Sequence[str]],
) -> None:
    days = [(D1 + timedelta(days=i), chunks) for i, chunks in enumerate(texts)]
    shares = share_out(days)
    for position, ((day, chunks), share) in enumerate(zip(days, shares, strict=True)):
        indexes = sorted([h.index for h in share.held] + [r.index for r in share.repeated])
        assert indexes == list(range(len(chunks)))
        for repeated in share.repeated:
            assert texts[repeated.holder][repeated.holder_index] == chunks[repeated.index]
            assert all(chunks[repeated.index] in texts[t] for t in range(repeated.holder, position))
            holder = next(h for h in shares[repeated.holder].held if h.index == repeated.holder_index)
            assert day in holder.also_on
