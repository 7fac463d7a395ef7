from dataclasses import replace

from doc_rag.passages import join
from doc_rag.records import Hit

TEXT = "0123456789abcdefghijklmnopqrstuvwxyz"


def hit(index: int, start: int, end: int, *, source: str = "a.md", path: tuple[str, ...] = ("H",)) -> Hit:
    return Hit(
        chunk_id=f"{source}{index}",
        collection="c",
        source=source,
        title=None,
        chunk_index=index,
        content=TEXT[start:end],
        heading_path=path,
        char_start=start,
        char_end=end,
        line_start=index + 1,
        line_end=index + 1,
        page_start=None,
        page_end=None,
        score=1.0 / (index + 1),
        score_kind="cosine",
    )


def between(_: Hit, start: int, end: int) -> str:
    return TEXT[start:end]


def test_neighbours_are_joined_and_their_overlap_goes() -> None:
    (passage,) = join([hit(1, 8, 20), hit(0, 0, 10)], between)
    assert passage.content == TEXT[0:20]
    assert (passage.char_start, passage.char_end) == (0, 20)
    assert (passage.line_start, passage.line_end) == (1, 2)
    assert passage.chunk_ids == ("a.md0", "a.md1")
    assert passage.score == 0.5, "the score is that of the hit that was ranked best"


def test_what_lies_between_two_chunks_is_filled_in() -> None:
    (passage,) = join([hit(0, 0, 10), hit(1, 12, 20)], between)
    assert passage.content == TEXT[0:20]


def test_chunks_of_other_sections_documents_or_places_stay_apart() -> None:
    first = hit(0, 0, 10)
    for other in (
        hit(1, 10, 20, path=("Other",)),
        hit(1, 10, 20, source="b.md"),
        hit(2, 20, 30),
        replace(hit(1, 10, 20), collection="d"),
    ):
        assert len(join([first, other], between)) == 2


def test_passages_come_in_the_order_of_their_best_hit() -> None:
    passages = join([hit(5, 20, 30), hit(0, 0, 5, source="b.md"), hit(6, 30, 36)], between)
    assert [(p.rank, p.source, p.content) for p in passages] == [
        (1, "a.md", TEXT[20:36]),
        (2, "b.md", TEXT[0:5]),
    ]


def test_no_hits_are_no_passages() -> None:
    assert join([], between) == ()
